/* pace.h - step times of the same training with other settings, made in turn, as ratios. */
#ifndef CHECKS_PACE_H
#define CHECKS_PACE_H

#include "judge.h"

enum { PACE_REPEATS = 5 };

/* The case's run again, and the same without sharded states (zero 0), without its spans, or in float32; every other repeat backwards. */
int cost_companions(const struct run_config *c, struct companion *out, int max);
int tracing_companions(const struct run_config *c, struct companion *out, int max);
int gain_companions(const struct run_config *c, struct companion *out, int max);

#endif
