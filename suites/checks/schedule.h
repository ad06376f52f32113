/* schedule.h - the rules of one update, restated from their definitions: what O6 holds the trainer to. */
#ifndef CHECKS_SCHEDULE_H
#define CHECKS_SCHEDULE_H

#include "base/config.h"

/* Update number, from 1: linear warm-up from 0 over lr_warmup updates, then constant, or half a cosine
 * from lr to lr_min that ends at update lr_decay and stays there. */
double schedule_lr(const struct run_config *c, int64_t update);
/* What gradients are multiplied by: min(1, clip / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ defines
 * it; 1 if clipping is off (0). */
double schedule_clip(const struct run_config *c, double norm);

/* One element of AdamW (Loshchilov and Hutter 2019; decoupled decay) or of SGD, in float64. */
struct schedule_element {
  double weight, m, v;
};
void schedule_update(const struct run_config *c, int64_t update, double lr, bool decay, double gradient, struct schedule_element *e);

#endif
