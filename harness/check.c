/* check.c - what a person reads of a foreign run. */
#include "harness/check.h"
#include "harness/cut.h"
#include "harness/foreign.h"
#include "harness/results.h"
#include "harness/trial.h"

#include "reports/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *precision_text(const struct run_config *c, char *out, size_t bytes)
{
  opt_text(opt_find(run_options, run_options_count, "precision"), c, out, bytes);
  return out;
}

static void print_head(const struct foreign *f)
{
  static const char *const levels[] = {"nothing that can be judged", "records of steps", "weights and moments", "gradients, before clipping"};
  char layout[CONFIG_NAME], precision[32];
  cut_text(&f->config, layout, sizeof layout);
  printf("%s%s%s%s: %s, %s, %s, %lld steps\n", f->framework[0] ? f->framework : "a foreign run", f->versions[0] ? " (" : "", f->versions,
         f->versions[0] ? ")" : "", f->model, layout, precision_text(&f->config, precision, sizeof precision), (long long)f->config.steps);
  printf("level %d: it shows %s\n\n", f->level, levels[f->level]);
}

static void print_foreign(const struct foreign *f)
{
  print_head(f);
  for (int i = 0; i < f->n_verdicts; i++) {
    const struct verdict *v = &f->verdicts[i];
    printf("%-12s %-9s %-3s  %s\n", outcome_name(v->outcome), v->check, v->observable, v->sentence);
  }
  printf("\n");
  if (f->first[0]) printf("first divergence: %s\n", f->first);
  if (f->worst[0] && !isnan(f->value_over_bound)) printf("nearest to its bound, or farthest beyond: %s, %.3g times it\n", f->worst, f->value_over_bound);
  if (f->outcome == OUTCOME_FAIL) printf("likely cause: %s\n", f->diagnosis.sentence[0] ? f->diagnosis.sentence : "none is known with these signs");
}

/* --- records --------------------------------------------------------------------------------------- */

static enum err write_records(const struct foreign *f, const char *name, const struct results *r)
{
  enum err err;
  char layout[CONFIG_NAME];
  struct record_file *file;
  TRY(record_open(r->records, name, -1, &file));
  for (int i = 0; i < f->n_verdicts; i++) TRY_TO(close, trial_record_verdict(file, &f->verdicts[i]));
  cut_text(&f->config, layout, sizeof layout);
  record_begin(file, "judged", -1, -1);
  record_text(file, "got.suite", "check");
  record_text(file, "got.suite_kind", "frameworks");
  record_text(file, "got.outcome", outcome_name(f->outcome));
  record_text(file, "got.reason", "");
  record_text(file, "got.sentence", f->sentence);
  record_text(file, "got.cause", f->diagnosis.sentence);
  record_text(file, "got.diagnosed", f->diagnosis.fault);
  record_text(file, "got.run", "");
  record_text(file, "got.layout", layout);
  err = record_end(file);
close:
  record_close(file);
  return err;
}

static json_t *summary_of(const struct foreign *f, const char *name, const struct check_asked *a)
{
  json_t *one = json_pack("{s:s,s:s,s:s,s:s,s:s}", "name", name, "suite", "check", "verdict", outcome_name(f->outcome), "reason", "", "sentence", f->sentence);
  if (f->diagnosis.sentence[0]) json_object_set_new(one, "cause", json_string(f->diagnosis.sentence));
  json_t *counts = json_pack("{s:i,s:i,s:i,s:i,s:i,s:i}", "passed", f->outcome == OUTCOME_PASS, "failed", f->outcome == OUTCOME_FAIL, "invalid",
                             f->outcome == OUTCOME_INVALID, "inconclusive", f->outcome == OUTCOME_INCONCLUSIVE, "skipped",
                             f->outcome == OUTCOME_SKIPPED, "not_run", 0);
  json_t *asked = json_pack("{s:s,s:s}", "check", a->dir, "against", a->against);
  return json_pack("{s:i,s:s,s:b,s:s,s:o,s:o,s:[o]}", "schema", RECORD_SCHEMA, "verdict", outcome_name(f->outcome), "complete", 1, "trouble", "", "counts",
                   counts, "asked", asked, "cases", one);
}

static enum err write_results(const struct foreign *f, const struct check_asked *a)
{
  struct results r;
  char name[CONFIG_NAME];
  snprintf(name, sizeof name, "check/%.100s", f->framework[0] ? f->framework : "run");
  TRY(results_create(a->out, "check", 1 << 20, &r));
  TRY(write_records(f, name, &r));
  TRY(results_summary(&r, summary_of(f, name, a)));
  TRY(report_write(r.dir));
  printf("results: %s\nreport:  %s/report.html\n", r.dir, r.dir);
  return ERR_OK;
}

enum err check_run(const struct check_asked *a, enum status *status)
{
  enum err err;
  struct foreign *f = calloc(1, sizeof *f);
  if (f == NULL) FAIL(ERR_MEMORY, "%zu bytes", sizeof *f);
  TRY_TO(release, foreign_check(a->dir, a->against, f));
  print_foreign(f);
  if (*a->out) TRY_TO(release, write_results(f, a));
  printf("%s\n", f->sentence);
  fflush(stdout);
  *status = trial_status(f->outcome);
release:
  foreign_release(f);
  free(f);
  return err;
}
