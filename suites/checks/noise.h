/* noise.h - Q: the largest distance to the truth that legal serial runs show, place by place (bound.h makes bounds of it).
 *
 * It comes from the eight companions noise0..7, or, where these were run once and for all, from a companion of role "bounds": records
 * of kind "noise" with `step`, `microbatch`, got.of (loss, loss_sum, evaluation, norm, or a gradient's row as gap.h names it) and
 * got.q.  Both give the same numbers.
 */
#ifndef CHECKS_NOISE_H
#define CHECKS_NOISE_H

#include "companions.h"
#include "gap.h"

struct noise {
  const struct run_data *runs[COMPANIONS_NOISE]; /* all of them, or none where there is `bounds` */
  const struct run_data *bounds;
};

/* Truth and noise among the companions: false and a verdict of INVALID that names what is missing or did not run to its end. */
bool noise_have(const struct companion *wanted, const struct run_data *const *companions, int n, const struct run_data **truth,
                struct noise *noise, struct verdict *v);

/* Of one number that a run tells: a relative distance; NaN where a run, the truth or the bounds do not tell it.  kind and key are
 * those of the record: microbatch got.loss_sum; step got.loss or got.norm; eval got.loss. */
double noise_of(const struct noise *noise, const struct run_data *truth, const char *kind, int64_t step, int64_t microbatch,
                const char *key);

/* Of each gradient of a step, as gap.h measures it: q[i] is that of rows->rows[i] (rows of any run against this truth), NaN where it is
 * not known.  Fails: ERR_FORMAT as gap_measure, ERR_MEMORY. */
enum err noise_gradients(const struct noise *noise, const struct run_data *truth, int64_t step, const struct gaps *rows, double *q);

/* The floor F under a gradient's bound, in the row's unit. */
double noise_floor(const struct gap *row, enum precision precision);

/* Records of a bounds file: an object with lists loss, loss_sum, evaluation, norm and gradients of {step, microbatch, name, q}, each
 * where it applies.  *out: new reference, for run_data.records.  Fails: ERR_FORMAT (what is missing or of another type), ERR_MEMORY. */
enum err noise_records(const json_t *bounds, json_t **out);

#endif
