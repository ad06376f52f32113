/* schedule_verify.c - what must hold of lists before a rank runs one. */
#include "base/schedule_parts.h"

#include <stdlib.h>

static enum err broken(const struct schedule *s, int stage, const struct schedule_action *a, const char *what)
{
  FAIL(ERR_ARG, "schedule %s: stage %d: %s of micro-batch %d in chunk %d %s", schedule_name(s->kind), stage,
       schedule_pass_name(a->pass), a->microbatch, a->chunk, what);
}

/* --- complete ---------------------------------------------------------------- */

static bool wanted(const struct schedule *s, int stage, const struct schedule_action *a)
{
  const bool trains = s->kind != SCHEDULE_FORWARD;
  switch (a->pass) {
  case PASS_FORWARD: return true;
  case PASS_BACKWARD: return trains && !s->splits;
  case PASS_BACKWARD_INPUT:
  case PASS_BACKWARD_WEIGHT: return trains && s->splits;
  case PASS_SEND_OUTPUT: return !schedule_is_last(s, stage, a->chunk);
  case PASS_RECV_GRADIENT: return trains && !schedule_is_last(s, stage, a->chunk);
  case PASS_RECV_INPUT: return !schedule_is_first(s, stage, a->chunk);
  case PASS_SEND_GRADIENT: return trains && !schedule_is_first(s, stage, a->chunk);
  case PASSES: break;
  }
  return false;
}

static int peer_of(const struct schedule *s, int stage, enum pass pass)
{
  if (schedule_stream_of(pass) == SCHEDULE_COMPUTE) return -1;
  const bool up = pass == PASS_SEND_OUTPUT || pass == PASS_RECV_GRADIENT;
  return up ? (stage + 1) % s->p : (stage + s->p - 1) % s->p;
}

/* schedule_waits has seen that all numbers are in range. */
static enum err check_complete(const struct schedule *s, int stage, bool *seen)
{
  const int own = s->m * s->v;
  for (int i = 0; i < own * PASSES; i++) seen[i] = false;
  for (int i = 0; i < s->n[stage]; i++) {
    const struct schedule_action *a = &s->list[stage][i];
    bool *here = &seen[(int)a->pass * own + a->chunk * s->m + a->microbatch];
    if (*here) return broken(s, stage, a, "is there twice");
    if (!wanted(s, stage, a)) return broken(s, stage, a, "does not belong here");
    if (a->peer != peer_of(s, stage, a->pass)) return broken(s, stage, a, "has the wrong peer");
    *here = true;
  }
  for (int pass = 0; pass < PASSES; pass++)
    for (int i = 0; i < own; i++) {
      const struct schedule_action a = {.pass = (enum pass)pass, .chunk = i / s->m, .microbatch = i % s->m};
      if (!seen[pass * own + i] && wanted(s, stage, &a)) return broken(s, stage, &a, "is missing");
    }
  return ERR_OK;
}

/* --- ordered ------------------------------------------------------------------- */

/* Forward, backward, backward for weights of each micro-batch and chunk in this order; each
 * chunk's backwards in micro-batch order.  done: [v m] passes so far; next: [2][v] micro-batch. */
static enum err check_order(const struct schedule *s, int stage, int *done, int *next)
{
  for (int i = 0; i < s->m * s->v; i++) done[i] = 0;
  for (int i = 0; i < 2 * s->v; i++) next[i] = 0;
  for (int i = 0; i < s->n[stage]; i++) {
    const struct schedule_action *a = &s->list[stage][i];
    if (schedule_stream_of(a->pass) != SCHEDULE_COMPUTE) continue;
    const int place = a->pass == PASS_FORWARD ? 0 : a->pass == PASS_BACKWARD_WEIGHT ? 2 : 1;
    if (done[a->chunk * s->m + a->microbatch]++ != place) return broken(s, stage, a, "comes before what it needs");
    if (place > 0 && next[(place - 1) * s->v + a->chunk]++ != a->microbatch)
      return broken(s, stage, a, "is not in micro-batch order");
  }
  return ERR_OK;
}

/* --- places ---------------------------------------------------------------------- */

struct holders {
  int *slot, *weight_slot, *input; /* cell that has each place; -1: free */
};

static bool hold(int *place, int cell)
{
  const bool fits = *place < 0 || *place == cell;
  *place = cell;
  return fits;
}

/* A place has one holder at a time.  An input is held from its receive, or F if that is first, on. */
static enum err check_places(const struct schedule *s, int stage, struct holders h)
{
  for (int i = 0; i < s->slots[stage]; i++) h.slot[i] = -1;
  for (int i = 0; i < s->weight_slots[stage]; i++) h.weight_slot[i] = -1;
  for (int i = 0; i < s->inputs[stage]; i++) h.input[i] = -1;
  for (int i = 0; i < s->n[stage]; i++) {
    const struct schedule_action *a = &s->list[stage][i];
    const int cell = a->chunk * s->m + a->microbatch;
    const bool trains = s->kind != SCHEDULE_FORWARD;
    bool fits = true;
    if (a->pass == PASS_RECV_INPUT) fits = hold(&h.input[a->input], cell);
    if (a->pass == PASS_FORWARD) {
      fits = hold(&h.slot[a->slot], cell) && (!s->splits || hold(&h.weight_slot[a->weight_slot], cell));
      fits = fits && (a->input < 0 || h.input[a->input] == cell);
    } else if (trains && schedule_stream_of(a->pass) == SCHEDULE_COMPUTE && a->pass != PASS_BACKWARD_WEIGHT)
      fits = h.slot[a->slot] == cell && (a->input < 0 || h.input[a->input] == cell);
    else if (a->pass == PASS_BACKWARD_WEIGHT)
      fits = h.weight_slot[a->weight_slot] == cell;
    if (!fits) return broken(s, stage, a, "has a place that another one holds");
    if (schedule_is_backward(a->pass) || (!trains && a->pass == PASS_FORWARD)) h.slot[a->slot] = -1;
    if (a->pass == PASS_BACKWARD_WEIGHT) h.weight_slot[a->weight_slot] = -1;
    if (a->input >= 0 && a->pass == (trains ? PASS_SEND_GRADIENT : PASS_FORWARD)) h.input[a->input] = -1;
  }
  return ERR_OK;
}

/* --- memory ------------------------------------------------------------------------ */

/* The largest weighted sum of what is held; the most live, and the most pending at that. */
static double most_held(const struct schedule *s, int stage, double per_live, double per_pending, int *live, int *pending)
{
  int l = 0, w = 0;
  double peak = 0;
  *live = *pending = 0;
  for (int i = 0; i < s->n[stage]; i++) {
    const enum pass pass = s->list[stage][i].pass;
    l += (pass == PASS_FORWARD) - schedule_is_backward(pass);
    w += (pass == PASS_BACKWARD_INPUT) - (pass == PASS_BACKWARD_WEIGHT);
    if (l > *live || (l == *live && w > *pending)) *pending = w;
    if (l > *live) *live = l;
    if (l * per_live + w * per_pending > peak) peak = l * per_live + w * per_pending;
    if (pass == PASS_FORWARD && s->kind == SCHEDULE_FORWARD) l--;
  }
  return peak;
}

double schedule_peak(const struct schedule *s, int stage, double per_live, double per_pending)
{
  int live, pending;
  return most_held(s, stage, per_live, per_pending, &live, &pending);
}

int schedule_pending_places(const struct schedule *s, int stage)
{
  int now = 0, most = 0;
  for (int i = 0; i < s->n[stage]; i++) {
    now += s->list[stage][i].pass == PASS_BACKWARD_INPUT;
    now -= s->list[stage][i].pass == PASS_BACKWARD_WEIGHT;
    if (now > most) most = now;
  }
  return most;
}

/* --- the whole ------------------------------------------------------------------------ */

static enum err check_lists(const struct schedule *s)
{
  int most = 0;
  for (int stage = 0; stage < s->p; stage++)
    if (s->n[stage] > most) most = s->n[stage];
  const int own = s->m * s->v;
  struct schedule_waits *waits = malloc((size_t)(most + 1) * sizeof *waits);
  bool *seen = malloc((size_t)own * PASSES);
  int *numbers = malloc((size_t)(4 * own + 4 + 2 * s->v) * sizeof *numbers);
  enum err err = ERR_OK;
  if (waits == NULL || seen == NULL || numbers == NULL) FAIL_TO(done, ERR_MEMORY, "schedule: verifier of %d actions", most);
  const struct holders holders = {numbers, numbers + own + 1, numbers + 2 * own + 2};
  for (int stage = 0; stage < s->p; stage++) {
    if (s->slots[stage] > own || s->weight_slots[stage] > own || s->inputs[stage] > own)
      FAIL_TO(done, ERR_ARG, "schedule %s: stage %d: more places than micro-batches x chunks", schedule_name(s->kind), stage);
    TRY_TO(done, schedule_waits(s, stage, waits));
    TRY_TO(done, check_complete(s, stage, seen));
    TRY_TO(done, check_order(s, stage, numbers, numbers + own));
    TRY_TO(done, check_places(s, stage, holders));
  }

done:
  free(numbers);
  free(seen);
  free(waits);
  return err;
}

enum err schedule_verify(const struct schedule *s, struct schedule_facts *out)
{
  TRY(check_lists(s));
  double unit[SCHEDULE_RANKS_MAX];
  for (int k = 0; k < s->p * s->v; k++) unit[k] = 1;
  const struct schedule_costs costs = {.forward = unit, .input = unit, .weight = unit};
  struct schedule_times *times;
  TRY(schedule_simulate(s, &costs, &times));
  out->total = times->total;
  out->ideal = s->m * s->v * (s->kind == SCHEDULE_FORWARD ? 1 : 3);
  out->bubble_of_ideal = (out->total - out->ideal) / out->ideal;
  out->bubble_of_total = (out->total - out->ideal) / out->total;
  for (int stage = 0; stage < s->p; stage++) most_held(s, stage, 1, 1, &out->live[stage], &out->pending[stage]);
  schedule_times_destroy(times);
  return ERR_OK;
}
