/* step.h - one training step: batches in, one update out.
 *
 * Everything between the batches and the numbers at its end is queued without the host
 * waiting.  The parts that evaluation shares are functions of their own.
 */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/trainer.h"

struct step_clock {
  double begin_ms, end_ms; /* of this host                          */
  double data_ms;          /* of it: the host waited for the loader */
};

/* Step `step`, from 0, and its update number step + 1.  All ranks.
 * After it t->now, t->loss_sums and the batches hold what happened; gradients stand reduced
 * and unclipped in t->gradients until the next step. */
enum err step_run(struct trainer *t, int64_t step, struct step_clock *clock);

/* Valid tokens over all ranks; compute will have their reciprocal in at.scale. */
enum err step_count(struct trainer *t);
enum err step_scale(struct trainer *t);
/* Stages without the loss add zeros. */
enum err step_clear_losses(struct trainer *t);
/* As pipeline_work.boundary; arg: the trainer. */
struct tensor step_boundary(void *trainer, const struct schedule_action *a, bool output);
/* Sums of losses and of terms: replica by replica, then over ranks, into now.mine and now.all. */
enum err step_sum(struct trainer *t);
#endif
