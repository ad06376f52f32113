/* bound.h - how far from the truth a run may be: CONFORMANCE.md section 3.
 *
 * bound = max(F, 4 Q).  Q: the largest distance of the legal serial runs.  F: a floor against a
 * lucky draw.  A measured bound above its ceiling decides nothing.
 */
#ifndef CHECKS_BOUND_H
#define CHECKS_BOUND_H

#include "judge.h"

enum bound_kind { BOUND_LOSS, BOUND_GRADIENT, BOUND_NORM, BOUND_NORM_OWN, BOUND_UPDATE };

/* Whose figures hold for that observable at that step: the run's own, or bf16's where gradients were rounded to it on their
 * way between replicas.  Losses know of that from the first update on. */
enum precision bound_precision(const struct run_config *c, enum bound_kind kind, int64_t step);
double bound_unit(enum precision precision);    /* unit roundoff u of what products read */
bool bound_is_narrow(enum precision precision); /* tf32, bf16, fp16: each of many roundings counts, not the order of sums */
/* F, relative, of a whole that is the sum of so many terms (for a gradient: 1, see gradients.c). */
double bound_floor(enum bound_kind kind, enum precision precision, double terms);
/* Relative ceiling of that observable in that precision at that step. */
double bound_ceiling(enum bound_kind kind, enum precision precision, int64_t step);
/* What is farther than this has another cause than rounding: for diagnosis. */
double bound_no_rounding(enum bound_kind kind, enum precision precision);
double bound_measured(double floor, double q); /* NaN if q is: noise that is not finite bounds nothing */
double bound_relative(double got, double want); /* |got - want| / |want|; 0 when equal; NaN if either is not finite */

#endif
