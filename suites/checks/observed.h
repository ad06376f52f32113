/* observed.h - the gradient of a step as a run shows it: after reduction, before clipping, of the mean loss.
 *
 * Ours are dumped.  A foreign run that shows no gradients may show Adam's first moments, which were made of them:
 * m' = beta1 m + (1 - beta1) f g with the clip factor f that the run tells (or that follows from the norm it tells), so
 * g = (m' - beta1 m) / (1 - beta1) / f.  Before the first step m is zero.
 */
#ifndef CHECKS_OBSERVED_H
#define CHECKS_OBSERVED_H

#include "evidence.h"

struct observed {
  struct safetensors *now, *before; /* before: NULL where nothing is taken off       */
  double scale, keep;               /* g = scale * (now - keep * before)             */
  bool by_moments;                  /* rounded some times more than what was reduced */
};

/* The step's gradient can be had. */
bool observed_has(const struct run_data *run, int64_t step);
bool observed_by_moments(const struct run_data *run, int64_t step);
/* What the run multiplied the step's gradients by: told, or else by its own norm; NaN if it tells of neither. */
double observed_factor(const struct run_data *run, int64_t step);

/* Owner of *o: the caller, until observed_close.  Fails: ERR_FORMAT if the run does not show it; as safetensors_open. */
enum err observed_open(const struct run_data *run, int64_t step, struct observed *o);
void observed_close(struct observed *o); /* all zeros is allowed */
/* In float64; out holds tensor_count of the tensor of that name in o->now.  Fails: ERR_FORMAT (not there, or of another size before). */
enum err observed_elements(const struct observed *o, const char *name, double *out);

/* A foreign file's tensors against those wanted: ERR_FORMAT that names what is missing, foreign or of another shape, with a guess at the
 * reason (a transposed matrix, another prefix).  `what`: "gradients", "weights".  A head that is the tied matrix once more is allowed. */
enum err observed_same_names(const struct safetensors *mine, const struct safetensors *wanted, const char *what);

#endif
