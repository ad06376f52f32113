/* bound.h - how far from the truth a run may be: CONFORMANCE.md section 3.
 *
 * bound = max(F, 4 Q).  Q: the largest distance of the legal serial runs.  F: a floor against a
 * lucky draw.  A measured bound above its ceiling decides nothing.
 */
#ifndef CHECKS_BOUND_H
#define CHECKS_BOUND_H

#include "judge.h"

enum bound_kind { BOUND_LOSS, BOUND_GRADIENT, BOUND_NORM, BOUND_NORM_OWN, BOUND_UPDATE };

double bound_unit(enum dtype type); /* unit roundoff u */
/* Relative ceiling of that observable in that precision at that step. */
double bound_ceiling(enum bound_kind kind, enum dtype precision, int64_t step);
double bound_measured(double floor, double q); /* NaN if q is: noise that is not finite bounds nothing */
double bound_relative(double got, double want); /* |got - want| / |want|; 0 when equal; NaN if either is not finite */

#endif
