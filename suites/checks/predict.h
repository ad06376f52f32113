/* predict.h - parts of the closed formulas that checks share with predict(). */
#ifndef CHECKS_PREDICT_H
#define CHECKS_PREDICT_H

#include "base/config.h"

enum { PREDICT_ALIGN = 256 }; /* bytes that each parameter's place in a flat buffer is padded to */

/* Elements of a flat buffer: every parameter, each padded, the whole to a multiple of the replicas; unused
 * ones have a place too. */
double predict_flat(const struct run_config *c);
/* Gradient buckets of one reduction, last parameter first: a parameter that does not fit in what is left of a
 * bucket starts the next, one that fits exactly is taken, a larger one is cut from its end into whole buckets.
 * counts (may be NULL) gets up to max of them, padding included; returns how many there are. */
int64_t predict_buckets(const struct run_config *c, int64_t *counts, int64_t max);

#endif
