/* section_coverage.c - which configurations conformance covered: one row a layout. */
#include "reports/sections.h"

#include <stdlib.h>
#include <string.h>

static const struct column columns[] = {
    {"layout", "layout", "", NULL},
    {"ranks", "ranks", "", NULL},
    {"cases", "cases", "", NULL},
    {"passed", "passed", "", NULL},
    {"other", "not passed", "", NULL},
    {"precision", "precision", "", NULL},
    {"reduce", "sums over ranks", "", NULL},
    {"tied", "tied head", "", NULL},
    {"dropout", "dropout", "", NULL},
    {"clip", "clipping", "", NULL},
    {"micro_batch", "micro-batch", "sequences", NULL},
    {"model", "model", "", NULL},
};
/* Settings of which a row lists every value that its cases had. */
static const char *const listed[] = {"precision", "reduce", "tied", "dropout", "clip", "micro_batch", "model"};
enum { LISTED = sizeof listed / sizeof *listed };

static void value_text(const json_t *value, char *out, size_t bytes)
{
  if (json_is_string(value))
    snprintf(out, bytes, "%s", json_string_value(value));
  else if (json_is_boolean(value))
    snprintf(out, bytes, "%s", json_is_true(value) ? "yes" : "no");
  else if (json_is_number(value))
    snprintf(out, bytes, "%.6g", json_number_value(value));
  else
    snprintf(out, bytes, "n/a");
}

/* Adds a word to a blank-separated list unless it is there. */
static void add_word(json_t *row, const char *key, const char *word)
{
  const char *now = json_string_value(json_object_get(row, key));
  const size_t length = strlen(word);
  for (const char *at = now; at && (at = strstr(at, word)) != NULL; at += length)
    if ((at == now || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return;
  json_object_set_new(row, key, now && now[0] ? json_sprintf("%s %s", now, word) : json_string(word));
}

static void count(json_t *row, const char *key, int more)
{
  json_object_set_new(row, key, json_integer(json_integer_value(json_object_get(row, key)) + more));
}

static json_t *row_for(json_t *rows, const char *layout)
{
  json_t *row;
  size_t i;
  json_array_foreach(rows, i, row)
    if (strcmp(json_string_value(json_object_get(row, "layout")), layout) == 0) return row;
  row = json_pack("{s:s, s:i, s:i, s:i}", "layout", layout, "cases", 0, "passed", 0, "other", 0);
  json_array_append_new(rows, row);
  return row;
}

static void add_case(json_t *rows, const struct evidence *e, const json_t *judged)
{
  char word[64];
  const char *layout = record_get_text(judged, "got.layout"), *outcome = record_get_text(judged, "got.outcome");
  const json_t *run = evidence_first(e, "run", record_get_text(judged, "got.run"));
  if (layout == NULL || layout[0] == '\0' || outcome == NULL) return;
  json_t *row = row_for(rows, layout);
  count(row, "cases", 1);
  count(row, strcmp(outcome, "PASS") == 0 ? "passed" : "other", 1);
  if (run == NULL) return;
  json_object_set_new(row, "ranks",
                      json_integer(record_get_int(run, "set.dp", 1) * record_get_int(run, "set.tp", 1) *
                                   record_get_int(run, "set.pp", 1)));
  for (int i = 0; i < LISTED; i++) {
    char key[64];
    snprintf(key, sizeof key, "set.%s", listed[i]);
    value_text(json_object_get(run, key), word, sizeof word);
    add_word(row, listed[i], word);
  }
}

enum err section_coverage(const struct evidence *e, struct page *p)
{
  json_t *judged = evidence_select(e, "judged", NULL), *rows = json_array(), *record, *row;
  size_t i;
  int cases = 0, passed = 0;
  json_array_foreach(judged, i, record) {
    const char *kind = record_get_text(record, "got.suite_kind");
    if (kind && strcmp(kind, "conformance") == 0) add_case(rows, e, record);
  }
  json_array_foreach(rows, i, row) {
    cases += (int)json_integer_value(json_object_get(row, "cases"));
    passed += (int)json_integer_value(json_object_get(row, "passed"));
  }
  if (cases > 0) {
    page_heading(p, "What conformance covered");
    page_text(p, "%zu layout%s in %d cases, %d of them passed.", json_array_size(rows),
              json_array_size(rows) == 1 ? "" : "s", cases, passed);
    const struct table t = {"Configurations, by layout", columns, sizeof columns / sizeof *columns, rows};
    page_table(p, &t, json_array_size(rows) > 20);
  }
  json_decref(judged);
  json_decref(rows);
  return ERR_OK;
}
