/* published.c - model states of ZeRO and activations of Korthikanti et al., term by term. */
#include "published.h"

#include "judge.h"

#include <math.h>

/* --- ZeRO ----------------------------------------------------------------------------------- */

const struct published_states published_mixed = {2.0, 2.0, 12.0};

double published_states_bytes(const struct published_states *each, double parameters, int64_t stage, double N)
{
  const double optimizer = each->optimizer / (stage >= 1 ? N : 1.0), gradients = each->gradients / (stage >= 2 ? N : 1.0),
               weights = each->weights / (stage >= 3 ? N : 1.0);
  return (weights + gradients + optimizer) * parameters;
}

/* --- Korthikanti ------------------------------------------------------------------------------ */

/* Elements of s b h.  Whole on each tensor rank: inputs of both norms (2), of QKV and of the first linear layer of
 * the MLP (2), and the masks of both dropouts.  Cut: Q and K (2), V (1), the projection's input (1), GELU's
 * input (4), the second linear layer's input (4).  Of a s s b: softmax's output, its mask, dropout's output. */
double published_layer_bytes(const struct published_layer *l)
{
  const double sbh = l->s * l->b * l->h;
  const double whole = (4.0 * l->element + 2.0 * l->mask) * sbh, cut = 12.0 * l->element * sbh / l->t;
  const double scores = l->scores * l->a * l->s * l->s * l->b * (2.0 * l->element + l->mask) / l->t;
  switch (l->recompute) {
  case RECOMPUTE_FULL:
    return l->element * sbh;
  case RECOMPUTE_SELECTIVE:
    return whole / (l->sequence_parallel ? l->t : 1.0) + cut;
  case RECOMPUTE_NONE:
    break;
  }
  return whole / (l->sequence_parallel ? l->t : 1.0) + cut + scores;
}

double published_first_stage_layers(enum schedule_kind kind, double L, double p, double v, double m)
{
  if (kind == SCHEDULE_GPIPE) return m * L / p;
  if (kind == SCHEDULE_INTERLEAVED) return L * (1.0 + (p - 1.0) / (p * v));
  return fmin(m, p) * L / p;
}

/* --- a run's --------------------------------------------------------------------------------- */

double published_states_of(const struct run_config *c)
{
  struct predicted x;
  const double work = (double)dtype_bytes(run_work_type(c)), state = (double)dtype_bytes(run_state_type(c));
  const double moments = c->optimizer == OPTIMIZER_ADAMW ? 2.0 : 0.0, master = work < state ? 1.0 : 0.0;
  const struct published_states each = {work, state, (moments + master) * state};
  predict(c, &x);
  return published_states_bytes(&each, x.rank_parameters, c->zero, (double)run_shards(c));
}

double published_activations_of(const struct run_config *c)
{
  const struct published_layer layer = {.s = (double)c->sequence,
                                        .b = (double)c->micro_batch,
                                        .h = (double)c->hidden,
                                        .a = (double)c->heads,
                                        .t = (double)c->tp,
                                        .sequence_parallel = c->sequence_parallel,
                                        .recompute = (enum recompute)c->recompute,
                                        .element = (double)dtype_bytes(run_work_type(c)),
                                        .mask = 1.0,
                                        .scores = 1.0};
  const double m = (double)c->global_batch / (double)(c->micro_batch * c->dp * c->replicas);
  return published_layer_bytes(&layer) *
         published_first_stage_layers((enum schedule_kind)c->schedule, (double)c->layers, (double)c->pp, (double)c->chunks, m);
}
