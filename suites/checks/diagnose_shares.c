/* diagnose_shares.c - signatures of faults of state that replicas share. */
#include "base/fault.h"
#include "bound.h"
#include "layout.h"
#include "signs.h"

#include <math.h>
#include <string.h>

/* The first step's gradients are right. */
static bool starts_well(const struct signs *s)
{
  return layout_shares(&s->run->config) && s->clean_loss && s->first.n > 0 && signs_count_off(s, &s->first) == 0;
}

/* Each rank has pieces of its own; squares of the norms that the ranks of one group tell are those of the truth's norm together. */
bool shares_norm_is_of_a_shard(const struct signs *s)
{
  const struct run_config *c = &s->run->config;
  if (!starts_well(s) || c->tp * c->pp > 1 || signs_failed(s, "norm") == NULL) return false;
  double squares = 0.0;
  for (int d = 0; d < run_shards(c); d++) {
    const double norm = evidence_value(s->run, "step", layout_rank(c, (struct layout){.dp = d}), 0, -1, "got.norm");
    squares += norm * norm;
  }
  const double want = evidence_value(s->truth, "step", -1, 0, -1, "got.norm"),
               loose = bound_no_rounding(BOUND_NORM, bound_precision(c, BOUND_NORM, 0));
  return signs_near(sqrt(squares), want, loose);
}

/* After an update replicas have other weights, though each has the same gradients. */
bool shares_stale_weights_were_handed_on(const struct signs *s)
{
  const struct verdict *replicas = signs_failed(s, "replicas");
  return starts_well(s) && replicas != NULL && strstr(replicas->worst, "weights in group dp") != NULL;
}

/* The first update went to the wrong elements, on all replicas alike. */
bool shares_shard_is_walked_wrongly(const struct signs *s)
{
  const struct verdict *update = signs_failed(s, "update");
  return starts_well(s) && signs_failed(s, "replicas") == NULL && update != NULL && strstr(update->worst, "] at step 0") != NULL;
}

/* Gradients, norm and factor of the first step are numbers, the weights that it left are not: what others' pieces hold
 * of gradients ended its life in poison before the update. */
bool shares_update_read_what_is_dead(const struct signs *s)
{
  const struct verdict *finite = signs_failed(s, "finite");
  const double norm = evidence_value(s->run, "step", 0, 0, -1, "got.norm");
  return starts_well(s) && s->run->config.poison_end && finite != NULL && strstr(finite->worst, "of weights of") != NULL &&
         strstr(finite->worst, "at step 1") != NULL && isfinite(norm);
}

/* Bits change with overlap alone, in a loss before in anything that a backward leaves. */
bool shares_weights_were_read_early(const struct signs *s)
{
  const struct run_config *c = &s->run->config;
  const struct verdict *off = signs_failed(s, "overlap_off");
  return layout_shares(c) && c->overlap_gather && off != NULL && strstr(off->worst, "loss_sum of a") != NULL &&
         signs_failed(s, "gradients") == NULL;
}
