/* evidence.h - what a results directory holds, read once and asked by kind and case. */
#ifndef REPORTS_EVIDENCE_H
#define REPORTS_EVIDENCE_H
#include "base/err.h"
#include "base/record.h"

struct evidence {
  char dir[1024];
  json_t *summary; /* summary.json                                          */
  json_t *records; /* array, every record of records.jsonl                  */
  json_t *by_kind; /* {kind: {"": [all of them], case: [of that case]}}     */
  int cut;         /* lines that a kill cut short                           */
};

/* Fails: ERR_CONFIG (no such directory, not a results directory), ERR_IO, ERR_FORMAT (also: of another version). */
enum err evidence_open(const char *dir, struct evidence *out);
void evidence_close(struct evidence *e);

/* Records of a kind, of a case (NULL: any): a new array, in the order of the file. */
json_t *evidence_select(const struct evidence *e, const char *kind, const char *name);
/* The first such record, borrowed; NULL: none. */
const json_t *evidence_first(const struct evidence *e, const char *kind, const char *name);
/* Each value "got.<name>" that the record has, as `name` of the row. */
void evidence_copy(const json_t *record, const char *const *names, size_t n, json_t *row);
/* A text of a record; "" where there is none, or something else: records need not be ours. */
const char *evidence_said(const json_t *record, const char *key);
/* The run that a judged case has in this role ("truth", "noise0"); NULL: none. */
const char *evidence_companion_name(const json_t *judged, const char *role, char *out, size_t bytes);

/* Median of the values; NaN for none.  Sorts them. */
double evidence_median(double *values, int n);

#endif
