/* plant.h - what planted faults and planted slowness need besides their one line at the site. */
#ifndef TRAIN_PLANT_H
#define TRAIN_PLANT_H

#include "train/trainer.h"

/* *scale, of micro-batch i, becomes (1 - strength) of the right one + strength of `wrong`. */
enum err plant_scale(struct trainer *t, int64_t i, double wrong, struct tensor *scale);

/* Before the first backward of the step run.inf_step, on rank run.inf_rank (of emulated replicas: before those of replica
 * r = inf_rank): an element of the last parameter that tensor ranks cut, which no two ranks of a replica have, has an infinite gradient. */
enum err plant_infinity(struct trainer *t, int r);

/* run.slow_rank's compute takes run.slow_percent longer: the processor time of what is queued between
 * start and finish is taken on the stream, which then stays busy for that share of it, asleep.
 * Other ranks: nothing. */
enum err plant_slow_start(struct trainer *t);
enum err plant_slow_finish(struct trainer *t);
#endif
