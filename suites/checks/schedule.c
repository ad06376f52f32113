/* schedule.c - learning rate, clip factor and update rule in closed form. */
#include "schedule.h"

#include <math.h>

double schedule_lr(const struct run_config *c, int64_t update)
{
  if (update <= c->lr_warmup) return c->lr * (double)update / (double)c->lr_warmup;
  if (c->lr_schedule == LR_CONSTANT) return c->lr;
  if (update >= c->lr_decay) return c->lr_min;
  const double done = (double)(update - c->lr_warmup) / (double)(c->lr_decay - c->lr_warmup);
  return c->lr_min + 0.5 * (c->lr - c->lr_min) * (1.0 + cos(acos(-1.0) * done));
}

double schedule_clip(const struct run_config *c, double norm) { return c->clip > 0.0 ? fmin(1.0, c->clip / (norm + 1e-6)) : 1.0; }

void schedule_update(const struct run_config *c, int64_t update, double lr, bool decay, double gradient, struct schedule_element *e)
{
  if (decay) e->weight -= lr * c->weight_decay * e->weight;
  if (c->optimizer == OPTIMIZER_SGD) {
    e->weight -= lr * gradient;
    return;
  }
  e->m = c->beta1 * e->m + (1.0 - c->beta1) * gradient;
  e->v = c->beta2 * e->v + (1.0 - c->beta2) * gradient * gradient;
  const double m = e->m / (1.0 - pow(c->beta1, (double)update)), v = e->v / (1.0 - pow(c->beta2, (double)update));
  e->weight -= lr * m / (sqrt(v) + c->eps);
}
