/* parts.h - which micro-batches a gradient is made of, and with what weights.
 *
 * A case may tell what each micro-batch contributes to the gradient of step 0 (truth/parts.safetensors: for each vector parameter a
 * matrix [M, n], whose rows sum up to the gradient).  Any gradient that the right backward passes were added up to is then
 * G = sum over m of a_m R_m; a right one has a_m = 1 for all m.
 */
#ifndef CHECKS_PARTS_H
#define CHECKS_PARTS_H

#include "evidence.h"

enum { PARTS_MAX = 64 };

struct parts {
  int n;                 /* micro-batches */
  double a[PARTS_MAX];   /* least squares over all vector parameters, in float64 */
  double rest;           /* what is left of G, relative: |G - sum a_m R_m| / |G| */
};

/* Of the run's gradient of step 0.  False: the truth tells no parts, the run no gradient, names or shapes differ, or the parts are not
 * independent. */
bool parts_solve(const struct run_data *run, const struct run_data *truth, struct parts *out);

#endif
