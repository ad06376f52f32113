/* update_rule.c - the rule of an update, and the rules it is mistaken for. */
#include "evidence.h"
#include "bound.h"
#include "schedule.h"
#include "update.h"

#include <math.h>

static bool decays(const struct update_rule *rule, bool asked)
{
  return rule->decays == UPDATE_DECAYS_ALL || (rule->decays == UPDATE_DECAYS_AS_ASKED && asked);
}

double update_decay(const struct run_config *c, const struct update_rule *rule, bool asked) { return decays(rule, asked) ? c->weight_decay : 0.0; }

double update_weight(const struct run_config *c, const struct update_rule *rule, int64_t number, double lr, bool decay, double weight, double m,
                     double v)
{
  const double first = rule->uncorrected ? 1.0 : 1.0 - pow(c->beta1, (double)number),
               second = rule->uncorrected ? 1.0 : 1.0 - pow(c->beta2, (double)number);
  if (decays(rule, decay) && !rule->coupled) weight -= lr * c->weight_decay * weight;
  return weight - lr * (m / first) / (sqrt(v / second) + c->eps);
}

void update_apply(const struct run_config *c, const struct update_rule *rule, int64_t number, double lr, bool decay, double g,
                  struct schedule_element *e)
{
  if (rule->coupled) g += update_decay(c, rule, decay) * e->weight;
  if (c->optimizer == OPTIMIZER_SGD) {
    schedule_update(c, number, lr, decays(rule, decay) && !rule->coupled, g, e);
    return;
  }
  e->m = c->beta1 * e->m + (1.0 - c->beta1) * g;
  e->v = c->beta2 * e->v + (1.0 - c->beta2) * g * g;
  e->weight = update_weight(c, rule, number, lr, decay, e->weight, e->m, e->v);
}

double update_rate(const struct run_data *run, const struct update_rule *rule, int64_t step)
{
  const double told = evidence_value(run, "step", 0, step, -1, "got.lr");
  return isnan(told) || rule->shift != 0 ? schedule_lr(&run->config, step + 1 + rule->shift) : told;
}

double update_stored(const struct safetensor *t)
{
  return t->data.type == DTYPE_BF16 ? bound_unit(PRECISION_BF16) : t->data.type == DTYPE_F16 ? bound_unit(PRECISION_F16) : 0.0;
}
