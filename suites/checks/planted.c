/* planted.c - planted slowness as time of a step. */
#include "planted.h"

#include "base/partition.h"
#include "base/rank_list.h"
#include "base/schedule.h"
#include "layout.h"

#include <math.h>

enum { FORWARD, INPUT, WEIGHT, PARTS };

/* Of one micro-batch in each virtual stage: what is asked of sleeping passes. */
struct passes {
  double ms[PARTS][SCHEDULE_RANKS_MAX];
};

static enum err asked(const struct run_config *c, struct passes *out)
{
  struct partition p;
  TRY(partition_make(c, &p));
  for (int k = 0; k < p.stages; k++) {
    const double layers = (double)(p.first[k + 1] - p.first[k]), head = k == p.stages - 1 ? c->sleep_head_ms : 0;
    out->ms[FORWARD][k] = layers * c->sleep_forward_ms + head;
    out->ms[INPUT][k] = layers * c->sleep_input_ms + head;
    out->ms[WEIGHT][k] = layers * c->sleep_weight_ms + head;
  }
  return ERR_OK;
}

/* The slow rank's own: a share of each, or equal shares of slow_ms to each pass that it is about. */
static void slow_down(const struct run_config *c, bool splits, struct passes *x)
{
  const bool forward = c->slow_phase != SLOW_BACKWARD, backward = c->slow_phase != SLOW_FORWARD;
  const double passes = (double)(config_accumulation(c) * c->chunks) * ((forward ? 1 : 0) + (backward ? (splits ? 2 : 1) : 0));
  const double share_ms = c->slow_ms / passes;
  for (int k = layout_of(c, (int)c->slow_rank).pp; k < c->pp * c->chunks; k += (int)c->pp)
    for (int i = 0; i < PARTS; i++) {
      if (!(i == FORWARD ? forward : backward)) continue;
      x->ms[i][k] = x->ms[i][k] * (1 + c->slow_percent / 100) + (i == FORWARD || splits ? share_ms : share_ms / 2);
    }
}

static enum err total(const struct schedule *s, struct passes *x, double *ms)
{
  const struct schedule_costs costs = {.forward = x->ms[FORWARD], .input = x->ms[INPUT], .weight = x->ms[WEIGHT]};
  struct schedule_times *t;
  TRY(schedule_simulate(s, &costs, &t));
  *ms = t->total;
  schedule_times_destroy(t);
  return ERR_OK;
}

/* The pipeline played without and with it, transfers free. */
static enum err of_pipeline(const struct run_config *c, double *cost_ms)
{
  struct schedule *s;
  struct passes x;
  double even_ms = 0, slow_ms = 0;
  TRY(schedule_create((enum schedule_kind)c->schedule, (int)c->pp, (int)config_accumulation(c), (int)c->chunks, &s));
  enum err err = asked(c, &x);
  if (!err) err = total(s, &x, &even_ms);
  slow_down(c, s->splits, &x);
  if (!err) err = total(s, &x, &slow_ms);
  if (!err) *cost_ms = slow_ms - even_ms;
  schedule_destroy(s);
  return err;
}

enum err planted_sleep(const struct run_config *c, int rank, double *ms)
{
  struct passes x;
  const bool splits = c->schedule == SCHEDULE_ZB_H1, passes = c->slow_phase <= SLOW_BACKWARD;
  TRY(asked(c, &x));
  if (passes && rank == c->slow_rank && (c->slow_ms > 0 || c->slow_percent > 0)) slow_down(c, splits, &x);
  *ms = 0;
  for (int k = layout_of(c, rank).pp; k < c->pp * c->chunks; k += (int)c->pp)
    for (int i = 0; i < PARTS; i++) *ms += x.ms[i][k] * (double)config_accumulation(c);
  return ERR_OK;
}

/* Transfers of gradients go on beside compute; only one bucket waits for all of it. */
static double of_link(const struct run_config *c) { return c->bucket == 0 && c->pp == 1 && c->zero == 0 ? c->slow_ms : NAN; }

/* Reads that some ranks alone make late; read in place they take so much of each step. */
static void of_reads(const struct run_config *c, struct planted *out)
{
  int late = 0;
  for (int r = (int)config_ranks(c) - 1; r >= 0; r--) {
    if (!rank_list_has(c->read_ranks, r)) continue;
    out->rank = r;
    late++;
  }
  out->any = late > 0 && late < config_ranks(c) && (c->read_delay_ms > 0 || c->read_jitter_ms > 0);
  out->phase = GRAPH_DATA;
  out->period = 1;
  if (c->read_ahead == 0) out->cost_ms = c->read_delay_ms + c->read_jitter_ms / 2;
}

enum err planted_of(const struct run_config *c, struct planted *out)
{
  static const enum graph_phase phases[] = {[SLOW_COMPUTE] = GRAPH_BACKWARD, [SLOW_FORWARD] = GRAPH_FORWARD, [SLOW_BACKWARD] = GRAPH_BACKWARD,
                                            [SLOW_OPTIMIZER] = GRAPH_OPTIMIZER, [SLOW_LINK] = GRAPH_LINK, [SLOW_LOG] = GRAPH_BETWEEN};
  *out = (struct planted){.any = c->slow_percent > 0 || c->slow_ms > 0, .rank = (int)c->slow_rank, .phase = phases[c->slow_phase], .cost_ms = NAN,
                          .period = (int)c->slow_every};
  if (!out->any) {
    of_reads(c, out);
    return ERR_OK;
  }
  const bool passes = c->slow_phase == SLOW_FORWARD || c->slow_phase == SLOW_BACKWARD;
  if (c->slow_phase == SLOW_LINK) out->cost_ms = of_link(c);
  else if (c->slow_phase == SLOW_LOG) out->cost_ms = c->slow_ms / (double)c->slow_every;
  else if (c->slow_phase == SLOW_OPTIMIZER && c->slow_ms > 0) out->cost_ms = c->slow_ms;
  else if (passes && c->compute == COMPUTE_SLEEP) TRY(of_pipeline(c, &out->cost_ms));
  else if (passes && c->pp == 1 && c->slow_ms > 0) out->cost_ms = c->slow_ms;
  return ERR_OK;
}

bool planted_is(const struct run_config *c, const struct planted *p, int rank, enum graph_phase phase)
{
  const bool either = p->phase != GRAPH_DATA && c->slow_phase == SLOW_COMPUTE && phase == GRAPH_FORWARD;
  const bool there = p->phase == GRAPH_DATA ? rank_list_has(c->read_ranks, rank) : rank == p->rank;
  return p->any && there && (phase == p->phase || either);
}
