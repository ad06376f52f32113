/* record_read.c - records back from a file that a kill may have cut short. */
#include "base/record.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Python's json writes NaN, Infinity and -Infinity, which JSON has no words for: as ours spells them, outside of texts.  NULL: no memory.
 * Owner: the caller. */
static char *spell_out(const char *line, size_t n, size_t *length)
{
  static const char *const words[][2] = {{"-Infinity", "\"-inf\""}, {"Infinity", "\"inf\""}, {"NaN", "\"nan\""}};
  char *out = malloc(2 * n + 1), *to = out;
  bool inside = false;
  for (size_t i = 0; out != NULL && i < n;) {
    size_t word = 0;
    while (!inside && word < 3 && strncmp(line + i, words[word][0], strlen(words[word][0])) != 0) word++;
    if (!inside && word < 3) {
      i += strlen(words[word][0]);
      to = stpcpy(to, words[word][1]);
      continue;
    }
    if (inside && line[i] == '\\' && i + 1 < n) *to++ = line[i++];
    else if (line[i] == '"') inside = !inside;
    *to++ = line[i++];
  }
  *length = out ? (size_t)(to - out) : 0;
  return out;
}

static json_t *load(const char *line, size_t n, bool foreign, json_error_t *error)
{
  json_t *record = json_loadb(line, n, JSON_REJECT_DUPLICATES, error);
  json_error_t again;
  size_t length;
  if (record != NULL || !foreign) return record;
  char *spelled = spell_out(line, n, &length);
  if (spelled != NULL) record = json_loadb(spelled, length, JSON_REJECT_DUPLICATES, &again);
  free(spelled);
  return record;
}

/* What it lacks to be one; NULL: nothing. */
static const char *lacks(const json_t *record, bool foreign)
{
  const json_t *schema = json_object_get(record, "schema");
  if (!json_is_object(record)) return "not an object";
  if (schema == NULL) return "no schema";
  if (!json_is_integer(schema) || json_integer_value(schema) != RECORD_SCHEMA) return "another schema";
  if (!json_is_string(json_object_get(record, "kind"))) return "no kind";
  return foreign || json_is_string(json_object_get(record, "case")) ? NULL : "no case";
}

static enum err read_line(const char *path, int number, const char *line, size_t n, bool foreign, json_t *records, int *cut)
{
  const bool ended = line[n - 1] == '\n';
  json_error_t error;
  if (foreign && strspn(line, " \t\r\n") == n) return ERR_OK;
  json_t *record = load(line, ended ? n - 1 : n, foreign, &error);
  if (record == NULL && !ended) {
    (*cut)++;
    return ERR_OK;
  }
  if (record == NULL) FAIL(ERR_FORMAT, "%s:%d: %s", path, number, error.text);
  const char *lacking = lacks(record, foreign);
  if (lacking != NULL) {
    json_decref(record);
    FAIL(ERR_FORMAT, "%s:%d: not a record: %s; valid: an object with \"schema\": %d%s", path, number, lacking, RECORD_SCHEMA,
         foreign ? " and kind" : ", kind and case");
  }
  if (json_array_append_new(records, record) != 0) FAIL(ERR_MEMORY, "%s:%d: no memory for a record", path, number);
  return ERR_OK;
}

static enum err read_records(const char *path, bool foreign, json_t **out, int *cut)
{
  enum err err = ERR_OK;
  char *line = NULL;
  size_t room = 0;
  *out = NULL;
  *cut = 0;
  FILE *file = fopen(path, "rb");
  if (file == NULL) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  json_t *records = json_array();
  if (records == NULL) FAIL_TO(close_file, ERR_MEMORY, "%s: no memory for its records", path);
  ssize_t n;
  for (int number = 1; (n = getline(&line, &room, file)) > 0; number++)
    TRY_TO(free_records, read_line(path, number, line, (size_t)n, foreign, records, cut));
  if (!feof(file)) FAIL_TO(free_records, ERR_IO, "%s: %s", path, strerror(errno));
  *out = records;
  records = NULL;

free_records:
  json_decref(records);
close_file:
  free(line);
  fclose(file);
  return err;
}

enum err record_read(const char *path, json_t **out, int *cut) { return read_records(path, false, out, cut); }

enum err record_read_foreign(const char *path, json_t **out, int *cut) { return read_records(path, true, out, cut); }

double record_get_real(const json_t *record, const char *key, double fallback)
{
  const json_t *value = json_object_get(record, key);
  if (json_is_number(value)) return json_number_value(value);
  const char *text = json_string_value(value);
  if (text == NULL) return fallback;
  if (strcmp(text, "nan") == 0) return NAN;
  if (strcmp(text, "inf") == 0) return INFINITY;
  if (strcmp(text, "-inf") == 0) return -INFINITY;
  return fallback;
}

int64_t record_get_int(const json_t *record, const char *key, int64_t fallback)
{
  const json_t *value = json_object_get(record, key);
  return json_is_integer(value) ? json_integer_value(value) : fallback;
}

const char *record_get_text(const json_t *record, const char *key) { return json_string_value(json_object_get(record, key)); }
