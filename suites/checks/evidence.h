/* evidence.h - what a run left behind, looked up: records by place, tensors by name.
 *
 * Nothing here judges.  A lookup that finds nothing says so; it is the check's part to make
 * that INVALID.  -1 for rank, step or microbatch means any.
 */
#ifndef CHECKS_EVIDENCE_H
#define CHECKS_EVIDENCE_H

#include "base/safetensors.h"
#include "checks.h"

int evidence_ranks(const struct run_data *r);             /* that tell of steps: dp * tp * pp, of a foreign run perhaps rank 0 alone */
int64_t evidence_microbatches(const struct run_config *c); /* of one step, over all replicas    */

/* The first record of that kind and place; NULL: none. */
const json_t *evidence_record(const struct run_data *r, const char *kind, int64_t rank, int64_t step, int64_t microbatch);
int evidence_count(const struct run_data *r, const char *kind, int64_t rank, int64_t step, int64_t microbatch);
bool evidence_is(const json_t *record, const char *kind);
int64_t evidence_rank(const json_t *record); /* -1: none */
int64_t evidence_step(const json_t *record);
int64_t evidence_microbatch(const json_t *record);
/* got.key as a number; NaN if absent or not a number. */
double evidence_real(const json_t *record, const char *key);
/* got.key of the record at that place, NaN if there is none. */
double evidence_value(const struct run_data *r, const char *kind, int64_t rank, int64_t step, int64_t microbatch, const char *key);
const char *evidence_text(const json_t *record, const char *key); /* "" if absent */
bool evidence_same_text(const json_t *a, const json_t *b, const char *key);

/* Some record of that kind has the key (NULL: there is a record of the kind): of a foreign run, it tells of that at all. */
bool evidence_tells(const struct run_data *r, const char *kind, const char *key);

/* By rank 0's word this step changed no weight since a gradient had overflowed. */
bool evidence_skipped(const struct run_data *r, int64_t step);
/* Bound of the error of times of different ranks, largest over ranks; 0 on one host, and where nobody tells. */
double evidence_clock_error_ms(const struct run_data *r);
bool evidence_ended(const struct run_data *r); /* exited with status 0 */
/* Leading steps that every rank has told of: what can be judged. */
int64_t evidence_steps(const struct run_data *r);

/* The file that a "tensors" record names.  Owner of *out: the caller.
 * Fails: ERR_FORMAT if no record names one, and as safetensors_open. */
enum err evidence_tensors(const struct run_data *r, const char *what, int64_t step, struct safetensors **out);
bool evidence_has_tensors(const struct run_data *r, const char *what, int64_t step); /* a record names them */
/* Elements as float64; out holds tensor_count.  Fails: ERR_FORMAT for a type that is not a real one. */
enum err evidence_elements(const struct tensor *t, double *out);

/* Facts that the run itself told about a parameter (kind "parameter"). */
const json_t *evidence_parameter(const struct run_data *r, const char *name);
bool evidence_flag(const json_t *record, const char *key); /* false if absent */

/* A companion by role; NULL if it could not be had. */
const struct run_data *evidence_companion(const struct companion *wanted, const struct run_data *const *companions, int n,
                                          const char *role);

#endif
