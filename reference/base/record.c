/* record.c - one JSON object a line, one write() a line. */
#include "base/record.h"

#include "base/record_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct record_file {
  int file, rank;
  char *path, *name;
  const char *kind; /* of the record that is being made; a literal of the caller's */
  json_t *now;
  bool short_of_memory; /* some key of it is missing                               */
  int lost;             /* errno of the first write that failed                    */
};

/* What follows the last end of line was cut short by a kill: the next record must not be
 * glued to it. */
static enum err drop_cut_line(int file, const char *path)
{
  off_t end = lseek(file, 0, SEEK_END);
  const off_t size = end;
  char block[4096];
  while (end > 0) {
    const size_t n = end < (off_t)sizeof block ? (size_t)end : sizeof block;
    if (pread(file, block, n, end - (off_t)n) != (ssize_t)n) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
    const char *newline = memrchr(block, '\n', n);
    if (newline != NULL) {
      end += newline + 1 - (block + n);
      break;
    }
    end -= (off_t)n;
  }
  if (end != size && ftruncate(file, end) != 0) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  return ERR_OK;
}

enum err record_open(const char *path, const char *name, int rank, struct record_file **out)
{
  enum err err;
  *out = NULL;
  struct record_file *f = calloc(1, sizeof *f);
  if (f == NULL) FAIL(ERR_MEMORY, "%s: %zu bytes", path, sizeof *f);
  f->file = -1;
  f->rank = rank;
  f->path = strdup(path);
  f->name = strdup(name);
  if (f->path == NULL || f->name == NULL) FAIL_TO(close, ERR_MEMORY, "%s: no memory for a name", path);
  f->file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (f->file < 0) FAIL_TO(close, ERR_IO, "%s: %s", path, strerror(errno));
  TRY_TO(close, drop_cut_line(f->file, path));
  *out = f;
  return ERR_OK;

close:
  record_close(f);
  return err;
}

void record_close(struct record_file *f)
{
  if (f == NULL) return;
  json_decref(f->now);
  if (f->file >= 0) close(f->file);
  free(f->path);
  free(f->name);
  free(f);
}

static void put(struct record_file *f, const char *key, json_t *value)
{
  if (value == NULL || json_object_set_new(f->now, key, value) != 0) f->short_of_memory = true;
}

/* A key of the tables, of this kind, said once. */
static void put_key(struct record_file *f, const char *key, json_t *value)
{
  BUG_IF(f->now == NULL);
  const char *type = record_key_type(f->kind, key);
  if (type == NULL || json_object_get(f->now, key) || (value && !record_type_fits(type, value)))
    fprintf(stderr, "shardmark: record '%s', key '%s'\n", f->kind, key);
  BUG_IF(type == NULL);                             /* no row of keys.def, env.def, options */
  BUG_IF(json_object_get(f->now, key) != NULL);     /* said twice */
  BUG_IF(value && !record_type_fits(type, value));  /* another type than the table's */
  put(f, key, value);
}

static json_t *text_json(const char *text)
{
  json_t *value = json_string(text);
  if (value != NULL) return value;
  char *ascii = strdup(text); /* not UTF-8: a path or a foreign program's words */
  if (ascii == NULL) return NULL;
  for (char *at = ascii; *at; at++)
    if (*at & 0x80) *at = '?';
  value = json_string(ascii);
  free(ascii);
  return value;
}

static json_t *real_json(double value)
{
  if (isfinite(value)) return json_real(value);
  return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

void record_begin(struct record_file *f, const char *kind, int64_t step, int64_t microbatch)
{
  BUG_IF(f->now != NULL); /* the one before has no end */
  BUG_IF(!record_kind_known(kind));
  f->kind = kind;
  f->short_of_memory = false;
  f->now = json_object();
  put(f, "schema", json_integer(RECORD_SCHEMA));
  put(f, "kind", json_string(kind));
  put(f, "case", text_json(f->name));
  if (f->rank >= 0) put(f, "rank", json_integer(f->rank));
  if (step >= 0) put(f, "step", json_integer(step));
  if (microbatch >= 0) put(f, "microbatch", json_integer(microbatch));
}

void record_int(struct record_file *f, const char *key, int64_t value) { put_key(f, key, json_integer(value)); }
void record_real(struct record_file *f, const char *key, double value) { put_key(f, key, real_json(value)); }
void record_bool(struct record_file *f, const char *key, bool value) { put_key(f, key, json_boolean(value)); }
void record_text(struct record_file *f, const char *key, const char *value) { put_key(f, key, text_json(value)); }
void record_json(struct record_file *f, const char *key, json_t *value) { put_key(f, key, value); }

void record_hex(struct record_file *f, const char *key, uint64_t value)
{
  char text[17];
  snprintf(text, sizeof text, "%016" PRIx64, value);
  record_text(f, key, text);
}

/* A list made of value(i); NULL when memory ran out. */
#define LIST(n, value)                                                            \
  json_t *list = json_array();                                                    \
  for (int64_t i = 0; i < (n); i++)                                               \
    if (json_array_append_new(list, (value)) != 0) {                              \
      json_decref(list);                                                          \
      list = NULL;                                                                \
      break;                                                                      \
    }

void record_reals(struct record_file *f, const char *key, const double *values, int64_t n)
{
  LIST(n, real_json(values[i]))
  put_key(f, key, list);
}

void record_ints(struct record_file *f, const char *key, const int64_t *values, int64_t n)
{
  LIST(n, json_integer(values[i]))
  put_key(f, key, list);
}

void record_texts(struct record_file *f, const char *key, const char *const *values, int64_t n)
{
  LIST(n, text_json(values[i]))
  put_key(f, key, list);
}

static bool write_all(int file, const char *at, size_t n)
{
  while (n > 0) {
    const ssize_t written = write(file, at, n);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    at += written;
    n -= (size_t)written;
  }
  return true;
}

enum err record_end(struct record_file *f)
{
  BUG_IF(f->now == NULL);
  char *line = json_dumps(f->now, JSON_COMPACT | JSON_REAL_PRECISION(17));
  json_decref(f->now);
  f->now = NULL;
  if (line == NULL || f->short_of_memory) {
    free(line);
    FAIL(ERR_MEMORY, "%s: no memory for a record '%s'", f->path, f->kind);
  }
  /* After a failed write the file may end in part of a line: whatever followed would be lost with it. */
  const size_t n = strlen(line);
  line[n] = '\n'; /* in the place of the end: the length is passed along */
  if (f->lost == 0 && !write_all(f->file, line, n + 1)) f->lost = errno;
  free(line);
  if (f->lost) FAIL(ERR_IO, "%s: %s", f->path, strerror(f->lost));
  return ERR_OK;
}
