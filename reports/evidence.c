/* evidence.c - summary and records of a results directory. */
#include "reports/evidence.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put(json_t *of_kind, const char *name, json_t *record)
{
  json_t *list = json_object_get(of_kind, name);
  if (list == NULL) json_object_set_new(of_kind, name, list = json_array());
  json_array_append(list, record);
}

/* Sections ask for a kind and a case many times; records are many. */
static json_t *index_of(const json_t *records)
{
  json_t *index = json_object(), *record;
  size_t i;
  json_array_foreach(records, i, record) {
    const char *kind = record_get_text(record, "kind"), *name = record_get_text(record, "case");
    if (kind == NULL) continue;
    json_t *of_kind = json_object_get(index, kind);
    if (of_kind == NULL) json_object_set_new(index, kind, of_kind = json_object());
    put(of_kind, "", record);
    if (name != NULL && name[0] != '\0') put(of_kind, name, record);
  }
  return index;
}

static enum err check_summary(const json_t *summary, const char *path)
{
  const json_int_t schema = json_integer_value(json_object_get(summary, "schema"));
  if (!json_is_object(summary) || !json_is_array(json_object_get(summary, "cases")) || schema == 0)
    FAIL(ERR_FORMAT, "%s: not a summary; valid: an object with \"schema\": %d, verdict and cases", path, RECORD_SCHEMA);
  if (schema != RECORD_SCHEMA)
    FAIL(ERR_FORMAT, "%s: schema %lld is another version's; valid: %d", path, (long long)schema, RECORD_SCHEMA);
  return ERR_OK;
}

enum err evidence_open(const char *dir, struct evidence *out)
{
  char path[1200];
  json_error_t why;
  *out = (struct evidence){0};
  snprintf(out->dir, sizeof out->dir, "%s", dir);
  snprintf(path, sizeof path, "%s/summary.json", dir);
  if (access(path, R_OK) != 0) /* a mistake of whoever named it */
    FAIL(ERR_CONFIG, "%s: %s; valid: a directory that `shardmark run` has written", path, strerror(errno));
  out->summary = json_load_file(path, 0, &why);
  if (out->summary == NULL) FAIL(why.line <= 0 ? ERR_IO : ERR_FORMAT, "%s:%d: %s", path, why.line, why.text);
  if (check_summary(out->summary, path) != ERR_OK) {
    evidence_close(out);
    return err_trace(ERR_FORMAT, __FILE__, __LINE__);
  }
  snprintf(path, sizeof path, "%s/records.jsonl", dir);
  if (access(path, F_OK) != 0) { /* stopped before the first record: the summary still tells */
    out->records = json_array();
    out->by_kind = json_object();
    return ERR_OK;
  }
  const enum err err = record_read(path, &out->records, &out->cut);
  if (err) {
    evidence_close(out);
    return err_trace(err, __FILE__, __LINE__);
  }
  out->by_kind = index_of(out->records);
  return ERR_OK;
}

void evidence_close(struct evidence *e)
{
  json_decref(e->summary);
  json_decref(e->records);
  json_decref(e->by_kind);
  e->summary = e->records = e->by_kind = NULL;
}

json_t *evidence_select(const struct evidence *e, const char *kind, const char *name)
{
  const json_t *found = json_object_get(json_object_get(e->by_kind, kind), name ? name : "");
  return found ? json_copy((json_t *)found) : json_array();
}

const json_t *evidence_first(const struct evidence *e, const char *kind, const char *name)
{
  return json_array_get(json_object_get(json_object_get(e->by_kind, kind), name ? name : ""), 0);
}

void evidence_copy(const json_t *record, const char *const *names, size_t n, json_t *row)
{
  for (size_t i = 0; i < n; i++) {
    char key[64];
    snprintf(key, sizeof key, "got.%s", names[i]);
    json_t *value = json_object_get(record, key);
    if (value) json_object_set(row, names[i], value);
  }
}

const char *evidence_said(const json_t *record, const char *key)
{
  const char *text = record_get_text(record, key);
  return text ? text : "";
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
