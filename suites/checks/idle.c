/* idle.c - records of actions become times, times become costs, costs are played.
 *
 * Lateness.  A thread that waits is woken late, and by how much only the machine knows.  With compute: sleep each pass
 * shows it: its length less what was asked, of mean m and deviation d.  A micro-batch that goes to the next stage is
 * waited for by three threads (sender, receiver, compute), and the step's longest chain goes at most 2 (p v + m - 2)
 * times from one stage to another: K = 6 (p v + m - 2) wakings, late by K m on average and by 2 sqrt(K) d more in one
 * step of twenty.  With real compute no pass has a length that was asked; equal passes vary instead, around their
 * median (so m = 0), and a chain has K = 2 (p v + m - 1) of them.
 *
 * What the program does wrong it does in every step; what disturbs it from outside seldom disturbs every step alike. So
 * nearest_ms, the distance of the best step, tells the two apart further.
 */
#include "idle.h"

#include "actions.h"
#include "median.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The recorded times, and room for a median of any of them. */
struct reader {
  const struct run_data *run;
  const struct schedule *s;
  struct actions at;
  double *values;
};

static bool is_compute(const struct schedule_action *a) { return schedule_stream_of(a->pass) == SCHEDULE_COMPUTE; }
static int virtual_stage(const struct schedule *s, int stage, const struct schedule_action *a)
{
  return a->chunk * s->p + stage;
}

/* --- costs ---------------------------------------------------------------------------- */

static double mean(const double *x, int n)
{
  double sum = 0;
  for (int i = 0; i < n; i++) sum += x[i];
  return n ? sum / n : 0;
}

/* Durations of that pass in virtual stage k, of one step or (index -1) of all, into r->values. */
static int durations(struct reader *r, enum pass pass, int k, int64_t index)
{
  const int stage = k % r->s->p;
  int n = 0;
  for (int64_t i = index < 0 ? 0 : index; i < (index < 0 ? r->at.steps : index + 1); i++)
    for (int a = 0; a < r->s->n[stage]; a++)
      if (r->s->list[stage][a].pass == pass && virtual_stage(r->s, stage, &r->s->list[stage][a]) == k)
        r->values[n++] = r->at.list[i].end[stage][a] - r->at.list[i].start[stage][a];
  return n;
}

/* The action of `stage` that is this pass of this micro-batch and chunk; -1: none. */
static int action_of(const struct schedule *s, int stage, enum pass pass, int microbatch, int chunk)
{
  for (int a = 0; a < s->n[stage]; a++) {
    const struct schedule_action *x = &s->list[stage][a];
    if (x->pass == pass && x->microbatch == microbatch && x->chunk == chunk) return a;
  }
  return -1;
}

/* The pass of `stage` that transfer a is for waited for it: nothing else was left to run before. */
static bool was_waited_for(const struct reader *r, int64_t step, int stage, int a)
{
  const struct actions_step *x = &r->at.list[step];
  const struct schedule_action *got = &r->s->list[stage][a];
  double before = -INFINITY; /* end of the pass ahead of it */
  for (int i = 0; i < r->s->n[stage]; i++) {
    const struct schedule_action *y = &r->s->list[stage][i];
    if (!is_compute(y)) continue;
    const bool forward = y->pass == PASS_FORWARD, mine = forward == (got->pass == PASS_RECV_INPUT) &&
                                                         y->pass != PASS_BACKWARD_WEIGHT &&
                                                         y->microbatch == got->microbatch && y->chunk == got->chunk;
    if (mine) return x->end[stage][a] > before;
    before = x->end[stage][i];
  }
  return false;
}

/* When the send of action a could begin: its pass had ended, and the send ahead of it on the stream. */
static double could_send(const struct reader *r, int64_t step, int stage, int a)
{
  const struct schedule_action *send = &r->s->list[stage][a];
  double ready = -INFINITY;
  for (int i = 0; i < a; i++) {
    const struct schedule_action *y = &r->s->list[stage][i];
    const bool forward = y->pass == PASS_FORWARD, mine = is_compute(y) && y->pass != PASS_BACKWARD_WEIGHT &&
                                                         forward == (send->pass == PASS_SEND_OUTPUT) &&
                                                         y->microbatch == send->microbatch && y->chunk == send->chunk;
    if (mine || schedule_stream_of(y->pass) == schedule_stream_of(send->pass))
      ready = fmax(ready, r->at.list[step].end[stage][i]);
  }
  return ready;
}

/* A transfer takes from when it could be sent and its receiver was there until that has it.  Those that a pass waited
 * for count: the others are looked after now and then by a busy core, take longer, and cost nothing.  Without any, all
 * count. */
static double median_transfer(struct reader *r, bool waited_for)
{
  int n = 0;
  for (int stage = 0; stage < r->s->p; stage++)
    for (int a = 0; a < r->s->n[stage]; a++) {
      const struct schedule_action *x = &r->s->list[stage][a];
      if (x->pass != PASS_RECV_INPUT && x->pass != PASS_RECV_GRADIENT) continue;
      const bool forth = x->pass == PASS_RECV_INPUT;
      const int k = virtual_stage(r->s, stage, x) + (forth ? -1 : 1), from = k % r->s->p;
      const int send = action_of(r->s, from, forth ? PASS_SEND_OUTPUT : PASS_SEND_GRADIENT, x->microbatch, k / r->s->p);
      for (int64_t i = 0; send >= 0 && i < r->at.steps; i++) {
        const struct actions_step *at = &r->at.list[i];
        if (waited_for && !was_waited_for(r, i, stage, a)) continue;
        r->values[n++] = fmax(0, at->end[stage][a] - fmax(at->start[stage][a], could_send(r, i, from, send)));
      }
    }
  return n == 0 && waited_for ? median_transfer(r, false) : median_sorting(r->values, n);
}

struct costs {
  struct schedule_costs of;
  double forward[SCHEDULE_RANKS_MAX], input[SCHEDULE_RANKS_MAX], weight[SCHEDULE_RANKS_MAX];
};

/* Means of one step (index), or medians of all (-1); transfers free. */
static void costs_take(struct reader *r, int64_t index, struct costs *c)
{
  c->of = (struct schedule_costs){.forward = c->forward, .input = c->input, .weight = c->weight};
  for (int k = 0; k < r->s->p * r->s->v; k++) {
    const enum pass passes[] = {PASS_FORWARD, r->s->splits ? PASS_BACKWARD_INPUT : PASS_BACKWARD, PASS_BACKWARD_WEIGHT};
    double *const to[] = {&c->forward[k], &c->input[k], &c->weight[k]};
    for (int i = 0; i < 3; i++) {
      const int n = durations(r, passes[i], k, index);
      *to[i] = index < 0 ? median_sorting(r->values, n) : mean(r->values, n);
    }
  }
}

static void costs_equal(const struct schedule *s, struct costs *c)
{
  double *const lists[] = {c->forward, c->input, c->weight};
  const int n = s->p * s->v;
  for (int i = 0; i < 3; i++) {
    const double each = mean(lists[i], n);
    for (int k = 0; k < n; k++) lists[i][k] = each;
  }
}

/* --- lateness --------------------------------------------------------------------------- */

/* What was asked of a pass with compute: sleep. */
static double asked_ms(const struct run_config *c, const struct partition *layers, enum pass pass, int k)
{
  const double n = (double)(layers->first[k + 1] - layers->first[k]),
               head = k == layers->stages - 1 ? c->sleep_head_ms : 0;
  switch (pass) {
  case PASS_FORWARD: return n * c->sleep_forward_ms + head;
  case PASS_BACKWARD: return n * (c->sleep_input_ms + c->sleep_weight_ms) + 2 * head;
  case PASS_BACKWARD_INPUT: return n * c->sleep_input_ms + head;
  default: return n * c->sleep_weight_ms + head;
  }
}

static enum err lateness(struct reader *r, double *late_ms)
{
  struct partition layers;
  const struct run_config *c = &r->run->config;
  const bool sleep = c->compute == COMPUTE_SLEEP;
  const int stages = r->s->p * r->s->v;
  double sum = 0, squares = 0;
  int64_t count = 0;
  TRY(partition_make(c, &layers));
  for (int k = 0; k < stages; k++)
    for (int pass = PASS_FORWARD; pass <= PASS_BACKWARD_WEIGHT; pass++) {
      const int n = durations(r, (enum pass)pass, k, -1);
      const double usual = sleep ? asked_ms(c, &layers, (enum pass)pass, k) : median_sorting(r->values, n);
      for (int i = 0; i < n; i++) {
        const double late = r->values[i] - usual;
        sum += late;
        squares += late * late;
      }
      count += n;
    }
  const double each = sleep && count ? fmax(0, sum / (double)count) : 0;
  const double spread = count ? sqrt(fmax(0, squares / (double)count - each * each)) : 0;
  const double chain = sleep ? 6.0 * (stages + r->s->m - 2) : 2.0 * (stages + r->s->m - 1);
  *late_ms = chain * each + 2 * sqrt(chain) * spread;
  return ERR_OK;
}

/* --- playing ----------------------------------------------------------------------------- */

/* The window of passes, and what each stage's leave of it; start and end: [stage][action]. */
static double window(const struct schedule *s, double *const *start, double *const *end, double *begin, double *idle)
{
  double first = INFINITY, last = -INFINITY;
  for (int stage = 0; stage < s->p; stage++) {
    idle[stage] = 0;
    for (int a = 0; a < s->n[stage]; a++) {
      if (!is_compute(&s->list[stage][a])) continue;
      first = fmin(first, start[stage][a]);
      last = fmax(last, end[stage][a]);
      idle[stage] -= end[stage][a] - start[stage][a];
    }
  }
  for (int stage = 0; stage < s->p; stage++) idle[stage] += last - first;
  *begin = first;
  return last - first;
}

static enum err play(const struct schedule *s, const struct costs *c, double *total, double *idle,
                     struct schedule_times **keep)
{
  struct schedule_times *t;
  double begin;
  TRY(schedule_simulate(s, &c->of, &t));
  *total = window(s, t->start, t->end, &begin, idle);
  if (keep)
    *keep = t;
  else
    schedule_times_destroy(t);
  return ERR_OK;
}

/* One step's idle time, measured and in its parts, added to the stages'. */
static enum err split_step(struct reader *r, int64_t index, struct idle *out, double *total, double *bubble)
{
  struct costs own;
  double measured[SCHEDULE_RANKS_MAX], replayed[SCHEDULE_RANKS_MAX], equal[SCHEDULE_RANKS_MAX], begin, ignored;
  *total = window(r->s, r->at.list[index].start, r->at.list[index].end, &begin, measured);
  costs_take(r, index, &own);
  TRY(play(r->s, &own, &ignored, replayed, NULL));
  costs_equal(r->s, &own);
  TRY(play(r->s, &own, &ignored, equal, NULL));
  for (int stage = 0; stage < r->s->p; stage++) {
    struct idle_stage *x = &out->stage[stage];
    const double share = 1.0 / (double)r->at.steps;
    x->idle_ms += measured[stage] * share;
    x->schedule_ms += equal[stage] * share;
    x->imbalance_ms += (replayed[stage] - equal[stage]) * share;
    x->transfer_ms += (measured[stage] - replayed[stage]) * share;
  }
  *bubble = mean(measured, r->s->p);
  return ERR_OK;
}

/* The whole run's medians, played. */
static enum err simulate(struct reader *r, struct idle *out, struct schedule_times **times)
{
  struct costs c;
  double idle[SCHEDULE_RANKS_MAX];
  costs_take(r, -1, &c);
  c.of.transfer = out->transfer_ms = median_transfer(r, true);
  out->forward_ms = mean(c.forward, r->s->p * r->s->v);
  out->input_ms = mean(c.input, r->s->p * r->s->v);
  out->weight_ms = mean(c.weight, r->s->p * r->s->v);
  TRY(play(r->s, &c, &out->simulated_total_ms, idle, times));
  out->simulated_bubble_ms = mean(idle, r->s->p);
  return ERR_OK;
}

static enum err show(const struct reader *r, const struct schedule_times *times, struct idle *out)
{
  const struct actions_step *x = &r->at.list[out->shown - r->at.first];
  double idle[SCHEDULE_RANKS_MAX], begin, simulated;
  window(r->s, x->start, x->end, &begin, idle);
  window(r->s, times->start, times->end, &simulated, idle);
  for (int stage = 0; stage < r->s->p; stage++) {
    struct idle_stage *to = &out->stage[stage];
    const int n = to->n = r->s->n[stage];
    to->start_ms = malloc(4 * (size_t)n * sizeof(double)); /* one block, the other three behind */
    if (to->start_ms == NULL) FAIL(ERR_MEMORY, "times of %d actions", n);
    to->end_ms = to->start_ms + n;
    to->simulated_start_ms = to->start_ms + 2 * n;
    to->simulated_end_ms = to->start_ms + 3 * n;
    for (int a = 0; a < n; a++) {
      to->start_ms[a] = x->start[stage][a] - begin;
      to->end_ms[a] = x->end[stage][a] - begin;
      to->simulated_start_ms[a] = times->start[stage][a] - simulated;
      to->simulated_end_ms[a] = times->end[stage][a] - simulated;
    }
  }
  return ERR_OK;
}

static enum err measure(struct reader *r, struct idle *out, double *totals, double *bubbles)
{
  enum err err;
  struct schedule_times *times = NULL;
  double *sorted = r->values;
  out->steps = r->at.steps;
  for (int64_t i = 0; i < r->at.steps; i++) TRY(split_step(r, i, out, &totals[i], &bubbles[i]));
  memcpy(sorted, totals, (size_t)r->at.steps * sizeof *sorted);
  out->total_ms = median_sorting(sorted, (int)r->at.steps);
  memcpy(sorted, bubbles, (size_t)r->at.steps * sizeof *sorted);
  out->bubble_ms = median_sorting(sorted, (int)r->at.steps);
  out->busy_ms = out->total_ms - out->bubble_ms;
  for (int64_t i = 0; i < r->at.steps; i++)
    if (i == 0 || fabs(totals[i] - out->total_ms) < fabs(totals[out->shown - r->at.first] - out->total_ms))
      out->shown = r->at.first + i;
  TRY(lateness(r, &out->late_ms));
  TRY(simulate(r, out, &times));
  out->nearest_ms = INFINITY;
  for (int64_t i = 0; i < r->at.steps; i++)
    out->nearest_ms = fmin(out->nearest_ms, fabs(bubbles[i] - out->simulated_bubble_ms));
  err = show(r, times, out);
  schedule_times_destroy(times);
  return err;
}

enum err idle_measure(const struct run_data *run, int dp_rank, int tp_rank, struct idle *out)
{
  enum err err;
  struct reader r = {.run = run};
  double *medians = NULL;
  const struct run_config *c = &run->config;
  *out = (struct idle){.stages = (int)c->pp};
  TRY(schedule_create((enum schedule_kind)c->schedule, (int)c->pp, (int)config_accumulation(c), (int)c->chunks,
                      &out->schedule));
  r.s = out->schedule;
  out->stage = calloc((size_t)out->stages, sizeof *out->stage);
  if (out->stage == NULL) FAIL_TO(undo, ERR_MEMORY, "%d stages", out->stages);
  TRY_TO(undo, actions_read(run, out->schedule, dp_rank, tp_rank, &r.at));
  r.values = malloc(r.at.total * (size_t)r.at.steps * sizeof *r.values);
  medians = malloc(2 * (size_t)r.at.steps * sizeof *medians);
  if (medians == NULL || r.values == NULL) FAIL_TO(undo, ERR_MEMORY, "%lld steps", (long long)r.at.steps);
  TRY_TO(undo, measure(&r, out, medians, medians + r.at.steps));
  free(medians);
  free(r.values);
  actions_free(&r.at);
  return ERR_OK;

undo:
  free(medians);
  free(r.values);
  actions_free(&r.at);
  idle_free(out);
  return err;
}

void idle_free(struct idle *x)
{
  for (int i = 0; x->stage && i < x->stages; i++) free(x->stage[i].start_ms);
  free(x->stage);
  schedule_destroy(x->schedule);
  *x = (struct idle){0};
}
