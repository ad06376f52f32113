/* costs.h - what a micro-batch costs by its lengths: ms = a + b * tokens + c * pairs of tokens of one document.
 *
 * Linear layers take time by the token, attention by the pair (FlashAttention or not).  a, b, c are none below 0: the least squares
 * among those (Lawson and Hanson 1974, chapter 23); with three unknowns the best of the eight sets of those that are not 0.
 * policy balanced takes them as cost_a, cost_b, cost_c; only the ratio of the last two moves a sequence.
 */
#ifndef CHECKS_COSTS_H
#define CHECKS_COSTS_H

#include "base/err.h"

struct costs {
  double a, b, c;     /* ms; ms a token; ms a pair */
  double residual_ms; /* root of the mean square of measured less fitted */
  double explained;   /* share of the variance of the measured times, R^2 */
  int n;
};

/* n micro-batches.  Fails: ERR_UNAVAILABLE with fewer than 8, or where all are of one length. */
enum err costs_fit(const double *ms, const double *tokens, const double *pairs, int n, struct costs *out);
static inline double costs_at(const struct costs *x, double tokens, double pairs) { return x->a + x->b * tokens + x->c * pairs; }

#endif
