/* section_cases.c - every case with its checks: what a green verdict rests on. */
#include "reports/sections.h"

#include <string.h>

static const struct column case_columns[] = {
  {"suite", "suite", "", NULL}, {"case", "case", "", NULL}, {"outcome", "verdict", "", NULL}, {"reason", "decided by", "", NULL}, {"sentence", "", "", NULL},
};
static const struct column check_columns[] = {
  {"case", "case", "", NULL},     {"check", "check", "", NULL},       {"observable", "observable", "", NULL},
  {"outcome", "verdict", "", NULL}, {"value", "value", "", "%.2e"},   {"bound", "bound", "", "%.2e"},
  {"worst", "where", "", NULL},   {"smallest", "would have caught", "", "%.1e"}, {"sentence", "", "", NULL},
};

static json_t *rows_of(json_t *records, const struct column *columns, int n)
{
  json_t *rows = json_array(), *record;
  size_t i;
  json_array_foreach(records, i, record) {
    json_t *row = json_object();
    for (int c = 0; c < n; c++) {
      char key[64];
      snprintf(key, sizeof key, strcmp(columns[c].key, "case") == 0 ? "%s" : "got.%s", columns[c].key);
      json_t *value = json_object_get(record, key);
      if (value) json_object_set(row, columns[c].key, value);
    }
    json_array_append_new(rows, row);
  }
  return rows;
}

enum err section_cases(const struct evidence *e, struct page *p)
{
  enum { CASES = sizeof case_columns / sizeof *case_columns, CHECKS = sizeof check_columns / sizeof *check_columns };
  json_t *judged = evidence_select(e, "judged", NULL), *verdicts = evidence_select(e, "verdict", NULL);
  json_t *cases = rows_of(judged, case_columns, CASES), *checks = rows_of(verdicts, check_columns, CHECKS);
  page_heading(p, "All cases");
  const struct table of_cases = {"Cases", case_columns, CASES, cases}, of_checks = {"Checks of every case", check_columns, CHECKS, checks};
  page_table(p, &of_cases, json_array_size(cases) > 30);
  page_table(p, &of_checks, true);
  json_decref(judged);
  json_decref(verdicts);
  json_decref(cases);
  json_decref(checks);
  return ERR_OK;
}
