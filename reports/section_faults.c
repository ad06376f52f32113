/* section_faults.c - planted faults: which observable saw each, and what it was taken for. */
#include "reports/sections.h"

#include <string.h>

static const struct column columns[] = {
  {"fault", "planted", "", NULL},    {"verdict", "", "", NULL},          {"observable", "must be seen by", "", NULL},
  {"seen", "was seen by", "", NULL}, {"diagnosed", "taken for", "", NULL}, {"cause", "likely cause, judged blind", "", NULL},
  {"twin", "clean twin", "", NULL},
};

static json_t *row_of(const json_t *record)
{
  char seen[256] = "";
  const char *fault = record_get_text(record, "got.fault"), *observable = record_get_text(record, "got.observable");
  const char *diagnosed = record_get_text(record, "got.diagnosed"), *cause = record_get_text(record, "got.cause"), *twin = record_get_text(record, "got.twin");
  json_t *one;
  size_t i;
  json_array_foreach(json_object_get(record, "got.seen_by"), i, one)
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s%s", i ? " " : "", json_is_string(one) ? json_string_value(one) : "");
  return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "fault", fault ? fault : "", "verdict",
                   json_is_true(json_object_get(record, "got.caught")) ? "caught" : "missed", "observable", observable ? observable : "", "seen",
                   seen, "diagnosed", diagnosed && diagnosed[0] ? diagnosed : "unknown", "cause", cause ? cause : "", "twin", twin ? twin : "");
}

/* Planted down, diagnosed across: the diagonal is right. */
static void matrix(const json_t *rows, struct page *p)
{
  enum { MOST = 40 };
  struct column columns_of[MOST + 1] = {{"fault", "planted \\ taken for", "", NULL}};
  json_t *names = json_array(), *table_rows = json_array(), *row, *name;
  size_t i, k;
  json_array_foreach(rows, i, row) {
    const char *as = json_string_value(json_object_get(row, "diagnosed"));
    bool seen = false;
    json_array_foreach(names, k, name) seen = seen || strcmp(json_string_value(name), as) == 0;
    if (!seen && json_array_size(names) < MOST) json_array_append(names, json_object_get(row, "diagnosed"));
  }
  json_array_foreach(names, k, name) columns_of[k + 1] = (struct column){json_string_value(name), json_string_value(name), "", NULL};
  json_array_foreach(rows, i, row) {
    json_t *cells = json_object();
    json_object_set(cells, "fault", json_object_get(row, "fault"));
    json_array_foreach(names, k, name) {
      const bool here = strcmp(json_string_value(name), json_string_value(json_object_get(row, "diagnosed"))) == 0;
      json_object_set_new(cells, json_string_value(name), json_string(here ? "●" : ""));
    }
    json_array_append_new(table_rows, cells);
  }
  const struct table t = {"Planted x diagnosed", columns_of, (int)json_array_size(names) + 1, table_rows};
  page_table(p, &t, true);
  json_decref(names);
  json_decref(table_rows);
}

enum err section_faults(const struct evidence *e, struct page *p)
{
  json_t *faults = evidence_select(e, "fault", NULL), *rows = json_array(), *record;
  const json_t *score = evidence_first(e, "faults", NULL);
  size_t i;
  if (json_array_size(faults) > 0) {
    page_heading(p, "Planted faults");
    if (score)
      page_text(p, "caught %lld of %lld, %lld false alarms in %lld clean runs (95 %% upper bound of the false-alarm rate: %.3f)",
                (long long)record_get_int(score, "got.caught", 0), (long long)record_get_int(score, "got.planted", 0),
                (long long)record_get_int(score, "got.false_alarms", 0), (long long)record_get_int(score, "got.clean_runs", 0),
                record_get_real(score, "got.false_alarm_bound", 1.0));
    json_array_foreach(faults, i, record) json_array_append_new(rows, row_of(record));
    const struct table t = {"Each fault, one at a time", columns, sizeof columns / sizeof *columns, rows};
    page_table(p, &t, false);
    matrix(rows, p);
  }
  json_decref(faults);
  json_decref(rows);
  return ERR_OK;
}
