/* gap.h - one step's gradients against the truth's, parameter by parameter.
 *
 * With G of the run, R of the truth, n elements: error = |G - R| / max(|R|, 0.01 rms sqrt(n)), rms
 * over all of R.  ratio = <G,R>/<R,R> and cosine tell what kind of fault it is.  The part of a
 * parameter whose true gradient is zero (the key third of the attention bias) is a row of its own,
 * measured by |G| / (rms sqrt(n)).
 */
#ifndef CHECKS_GAP_H
#define CHECKS_GAP_H

#include "evidence.h"

struct gap {
  char name[112];
  double error, ratio, cosine;
  double got, want; /* norms                                             */
  double unit;      /* what the difference was divided by                */
  double touched;   /* share of the tensor's elements that make the difference: above 1/1000 of the largest */
  bool zero;        /* true gradient is zero: exempt from the ceiling    */
};
struct gaps {
  int n;
  struct gap *rows;
  double got, want; /* norms over all parameters */
};

/* Rows in the truth's order.  Owner of *out: the caller, until gap_free.
 * Fails: ERR_FORMAT when a dump is missing, or names or shapes differ. */
enum err gap_measure(const struct run_data *run, const struct run_data *truth, int64_t step, struct gaps *out);
void gap_free(struct gaps *g);

/* Cosine over all parameters of what is too much at step 1 (G - R) and the gradient of step 0 (G); and the share of parameters whose own is
 * above 0.99, for what is left may be another multiple in each. */
enum err gap_leftover(const struct run_data *run, const struct run_data *truth, double *cosine, double *share);

#endif
