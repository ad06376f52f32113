/* record.h - what a run says, one flat JSON object a line.
 *
 * Every object has schema, kind, case, and where it applies rank, step, microbatch;
 * then set.* (what was asked), got.* (what was measured, unit in the key, raw samples as
 * lists), env.* (machine and versions, an allow-list).  Kinds and keys are rows of
 * keys.def (env.*: env.def; set.*: the options): a key that is not in the table, or a
 * value of another type, is a bug, and results/schema.md is printed from them.
 * Lines are written with one write() as they come, so a killed run keeps its records.
 * Text that is not UTF-8 is kept with '?' for each byte that is not ASCII.
 */
#ifndef BASE_RECORD_H
#define BASE_RECORD_H

#include "base/err.h"
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { RECORD_SCHEMA = 1 };

struct record_file;
/* Append to path (created); its only writer.  A last line that a kill cut short is removed.
 * `name` is the case.  rank -1: not a rank's record.  Fails: ERR_IO, ERR_MEMORY. */
enum err record_open(const char *path, const char *name, int rank, struct record_file **out);
void record_close(struct record_file *f); /* NULL is allowed */

/* One record: begin, keys, end.  step, microbatch -1: none. */
void record_begin(struct record_file *f, const char *kind, int64_t step, int64_t microbatch);
void record_int(struct record_file *f, const char *key, int64_t value);
void record_real(struct record_file *f, const char *key, double value); /* not finite: the strings "nan", "inf", "-inf" */
void record_bool(struct record_file *f, const char *key, bool value);
void record_text(struct record_file *f, const char *key, const char *value);
void record_hex(struct record_file *f, const char *key, uint64_t value); /* 16 digits */
void record_reals(struct record_file *f, const char *key, const double *values, int64_t n);
void record_ints(struct record_file *f, const char *key, const int64_t *values, int64_t n);
void record_texts(struct record_file *f, const char *key, const char *const *values, int64_t n);
void record_json(struct record_file *f, const char *key, json_t *value); /* takes the reference */
/* ERR_IO with errno's text: a full disk is heard of, now and at every later call. */
enum err record_end(struct record_file *f);

/* All records of a file; a last line cut short by a kill is dropped and counted.
 * *out: array of objects, new reference.  Fails: ERR_IO, ERR_FORMAT (path:line). */
enum err record_read(const char *path, json_t **out, int *cut);
/* The same of another program, which need not say `case`, may leave lines blank and write NaN, Infinity and -Infinity as Python's json does. */
enum err record_read_foreign(const char *path, json_t **out, int *cut);
/* The value of a whole key ("got.loss"); "nan", "inf", "-inf" become what they say; missing: fallback. */
double record_get_real(const json_t *record, const char *key, double fallback);
int64_t record_get_int(const json_t *record, const char *key, int64_t fallback);
const char *record_get_text(const json_t *record, const char *key); /* NULL: none */

enum err record_schema_markdown(FILE *out);

#ifdef __cplusplus
}
#endif
#endif
