/* report.c - the order of a report's sections. */
#include "reports/report.h"

#include "reports/sections.h"

enum err report_write(const char *dir)
{
  static enum err (*const sections[])(const struct evidence *, struct page *) = {
    section_verdict, section_coverage, section_scaling, section_pipeline, section_overlap, section_imbalance, section_blame, section_timeline,
    section_time, section_loss, section_gradients, section_memory, section_frameworks, section_faults, section_machine, section_cases,
  };
  enum err err;
  struct evidence e;
  struct page *page;
  TRY(evidence_open(dir, &e));
  TRY_TO(close_evidence, page_open(dir, "Shardmark report", &page));
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) TRY_TO(close_page, sections[i](&e, page));
  TRY_TO(close_evidence, page_close(page, true));
  TRY_TO(close_evidence, results_csv(&e));
  TRY_TO(close_evidence, junit_xml(&e));
  evidence_close(&e);
  return ERR_OK;

close_page:
  page_close(page, false);
close_evidence:
  evidence_close(&e);
  return err;
}
