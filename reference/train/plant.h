/* plant.h - what planted faults and planted slowness need besides their one line at the site. */
#ifndef TRAIN_PLANT_H
#define TRAIN_PLANT_H

#include "train/trainer.h"

/* *scale, of micro-batch i, becomes (1 - strength) of the right one + strength of `wrong`. */
enum err plant_scale(struct trainer *t, int64_t i, double wrong, struct tensor *scale);

/* Before the first backward of the step run.inf_step, on rank run.inf_rank (of emulated replicas: before those of replica
 * r = inf_rank): an element of the last parameter that tensor ranks cut, which no two ranks of a replica have, has an infinite gradient. */
enum err plant_infinity(struct trainer *t, int r);

/* Around a part of a step: of a forward, a backward (each part of a split one) or the update.  Where it is slow_rank's and
 * run.slow_phase names it, it takes longer: slow_percent of the processor time of what is queued between start and finish,
 * as taken on the stream, or an equal share of slow_ms, for which the stream then stays busy, asleep.  Else nothing. */
enum err plant_slow_start(struct trainer *t, enum slow_phase part);
enum err plant_slow_finish(struct trainer *t, enum slow_phase part);
/* compute: sleep.  What a pass of ms takes there. */
double plant_slow_sleep(const struct trainer *t, enum slow_phase part, double ms);
/* Between steps, after `step`: slow_phase log, every slow_every steps, the host of slow_rank stands still for slow_ms. */
void plant_log(const struct trainer *t, int64_t step);
#endif
