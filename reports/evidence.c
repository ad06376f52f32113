/* evidence.c - summary and records of a results directory. */
#include "reports/evidence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum err evidence_open(const char *dir, struct evidence *out)
{
  char path[1200];
  json_error_t why;
  *out = (struct evidence){0};
  snprintf(out->dir, sizeof out->dir, "%s", dir);
  snprintf(path, sizeof path, "%s/summary.json", dir);
  out->summary = json_load_file(path, 0, &why);
  if (out->summary == NULL && why.line <= 0)
    FAIL(ERR_IO, "%s: %s; valid: a directory that `shardmark run` has written", path, why.text);
  if (out->summary == NULL) FAIL(ERR_FORMAT, "%s:%d: %s", path, why.line, why.text);
  snprintf(path, sizeof path, "%s/records.jsonl", dir);
  if (access(path, F_OK) != 0) { /* stopped before the first record: the summary still tells */
    out->records = json_array();
    return ERR_OK;
  }
  const enum err err = record_read(path, &out->records, &out->cut);
  if (err) {
    evidence_close(out);
    return err_trace(err, __FILE__, __LINE__);
  }
  return ERR_OK;
}

void evidence_close(struct evidence *e)
{
  json_decref(e->summary);
  json_decref(e->records);
  e->summary = e->records = NULL;
}

static bool is(const json_t *record, const char *key, const char *want)
{
  const char *text = record_get_text(record, key);
  return want == NULL || (text != NULL && strcmp(text, want) == 0);
}

json_t *evidence_select(const struct evidence *e, const char *kind, const char *name)
{
  json_t *found = json_array(), *record;
  size_t i;
  json_array_foreach(e->records, i, record)
    if (is(record, "kind", kind) && is(record, "case", name)) json_array_append(found, record);
  return found;
}

const json_t *evidence_first(const struct evidence *e, const char *kind, const char *name)
{
  json_t *record;
  size_t i;
  json_array_foreach(e->records, i, record)
    if (is(record, "kind", kind) && is(record, "case", name)) return record;
  return NULL;
}

const char *evidence_companion_name(const json_t *judged, const char *role, char *out, size_t bytes)
{
  json_t *entry;
  size_t i;
  const size_t length = strlen(role);
  json_array_foreach(json_object_get(judged, "got.companions"), i, entry) {
    const char *text = json_string_value(entry);
    if (text == NULL || strncmp(text, role, length) != 0 || text[length] != '=') continue;
    snprintf(out, bytes, "%s", text + length + 1);
    return out;
  }
  return NULL;
}

static int by_value(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double evidence_median(double *values, int n)
{
  if (n == 0) return NAN;
  qsort(values, (size_t)n, sizeof *values, by_value);
  return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}
