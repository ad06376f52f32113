/* lateness.c - steps read, played with replaced lengths, and what that says of each rank's phases. */
#include "lateness.h"

#include "base/rng.h"
#include "evidence.h"
#include "lateness_study.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- steps ------------------------------------------------------------------------------------ */

/* Steps at the start that allocate, connect and fill caches. */
static int64_t warm_up(int64_t steps) { return steps > 5 ? 2 : 0; }

static enum err read_step(struct study_step *x, const struct run_data *run, int64_t step)
{
  TRY(graph_read(run, step, &x->g));
  const size_t n = (size_t)x->g.n;
  TRY(graph_play_create(&x->g, &x->play));
  x->ms = malloc(3 * n * sizeof *x->ms);
  if (x->ms == NULL) FAIL(ERR_MEMORY, "lengths of %zu spans", n);
  x->other = x->ms + n;
  x->less = x->other + n;
  for (size_t i = 0; i < n; i++) x->ms[i] = x->g.nodes[i].ms;
  graph_play(&x->g, x->ms, 1, &x->play);
  return ERR_OK;
}

static void close_study(struct study *s)
{
  for (int64_t k = 0; s->steps && k < s->n; k++) {
    free(s->steps[k].ms);
    graph_play_free(&s->steps[k].play);
    graph_free(&s->steps[k].g);
  }
  free(s->room);
  free(s->work);
  free(s->spent);
  free(s->steps);
}

/* Steps that were recorded: all, or some with records_each. */
static enum err open_study(const struct run_data *run, struct study *s)
{
  const int64_t steps = run->config.steps, each = run->config.records_each;
  *s = (struct study){.run = run, .ranks = evidence_ranks(run), .first = warm_up(steps)};
  const size_t ranks = (size_t)s->ranks, table = ranks * GRAPH_PHASES;
  s->steps = calloc((size_t)steps + 1, sizeof *s->steps);
  s->work = malloc(table * sizeof *s->work);
  s->spent = calloc((size_t)(steps + 1) * table, sizeof *s->spent);
  s->room = malloc(((size_t)steps + ranks + 1) * sizeof *s->room);
  if (!s->steps || !s->work || !s->spent || !s->room) FAIL(ERR_MEMORY, "%lld steps of %zu ranks", (long long)steps, ranks);
  for (int64_t step = s->first; step < steps; step++) {
    if (step % each != 0 && step != steps - 1) continue;
    s->n++;
    TRY(read_step(&s->steps[s->n - 1], run, step));
  }
  if (s->n < LATENESS_STEPS) FAIL(ERR_UNAVAILABLE, "%lld steps count after the warm-up, at least %d do", (long long)s->n, LATENESS_STEPS);
  return study_replace(s);
}

/* --- one rank's phase ------------------------------------------------------------------------- */

/* Steps as a function of how far the replacing goes: 0 not at all, 1 as measured, more and less as a draw may say. */
enum { GRID = 13, DRAWS = 2000, TAIL = 2 }; /* one draw in a thousand lies beyond each end */
static const double grid_from = -1.0, grid_step = 0.25;

struct look {
  struct study *s;
  double *now;             /* [most nodes] */
  struct graph_play *play; /* [steps] */
  double *cost;            /* [steps] at 1 */
  double *grid;            /* [steps][GRID] */
  int *draw;               /* [steps] */
  double *drawn;           /* [DRAWS] */
};

/* The step less what it would have been with the share `far` of the change. */
static double saved_ms(struct look *l, int64_t k, int rank, enum graph_phase phase, double far)
{
  struct study_step *x = &l->s->steps[k];
  for (int i = 0; i < x->g.n; i++) {
    const bool own = x->g.nodes[i].rank == rank && x->g.nodes[i].phase == phase;
    l->now[i] = own ? fmax(0, x->ms[i] + far * (x->other[i] - x->ms[i])) : x->ms[i];
  }
  graph_play(&x->g, l->now, 1, &l->play[k]);
  return x->play.total_ms - l->play[k].total_ms;
}

static double on_grid(const double *grid, double far)
{
  const double at = fmin(fmax((far - grid_from) / grid_step, 0), GRID - 1);
  const int low = at >= GRID - 1 ? GRID - 2 : (int)at;
  return grid[low] + (at - low) * (grid[low + 1] - grid[low]);
}

static int ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Of the mean over steps; medians are drawn with the steps. */
static void find_interval(struct look *l, struct lateness_cost *c)
{
  const struct study *s = l->s;
  const struct rng_key key = {.seed = 1, .purpose = RNG_TEST, .step = 0};
  const double change = study_change(s, c->rank, c->phase, NULL);
  const bool by_step = c->phase == GRAPH_DATA || c->phase == GRAPH_BETWEEN;
  uint64_t at = 0;
  for (int64_t k = 0; k < s->n; k++)
    for (int i = 0; i < GRID; i++) l->grid[k * GRID + i] = saved_ms(l, k, c->rank, c->phase, grid_from + grid_step * i);
  for (int d = 0; d < DRAWS; d++) {
    double sum = 0;
    for (int64_t k = 0; k < s->n; k++) l->draw[k] = (int)rng_below(key, at++, (uint64_t)s->n);
    const double far = by_step || change == 0 ? 1 : study_change(s, c->rank, c->phase, l->draw) / change;
    for (int64_t k = 0; k < s->n; k++) sum += on_grid(&l->grid[l->draw[k] * GRID], far);
    l->drawn[d] = sum / (double)s->n;
  }
  qsort(l->drawn, DRAWS, sizeof *l->drawn, ascending);
  c->low_ms = l->drawn[TAIL];
  c->high_ms = l->drawn[DRAWS - 1 - TAIL];
}

/* Costs that stand out are stalls: every step's, at one distance, or now and then.  Of periodic ones the cost is a stall's over
 * the period, and its interval that of the stalls, for where the run began and ended is no chance of theirs. */
static void find_period(const struct look *l, struct lateness_cost *c)
{
  const int64_t n = l->s->n;
  double most = 0, least = INFINITY, sum = 0;
  int64_t stalls = 0, first = -1, last = -1, period = 0;
  bool even = true;
  for (int64_t k = 0; k < n; k++) most = fmax(most, l->cost[k]);
  for (int64_t k = 0; k < n; k++) {
    if (!(l->cost[k] > most / 3)) continue;
    if (stalls == 1) period = k - last;
    if (stalls > 1) even = even && k - last == period;
    if (stalls++ == 0) first = k;
    last = k;
    sum += l->cost[k];
    least = fmin(least, l->cost[k]);
  }
  c->period = 2 * stalls > n ? 1 : 0;
  if (c->period == 1 || stalls < 3 || !even || l->s->run->config.records_each != 1) return;
  if (first >= period || n - last > period) return;
  c->period = (int)period;
  c->cost_ms = sum / (double)(stalls * period);
  c->low_ms = least / (double)period;
  c->high_ms = most / (double)period;
}

/* A step gets no shorter than its parts do. */
static double most_ms(const struct study *s, int rank, enum graph_phase phase)
{
  double ms = 0;
  for (int64_t k = 0; k < s->n; k++)
    for (int i = s->steps[k].g.first[rank]; i < s->steps[k].g.n && s->steps[k].g.nodes[i].rank == rank; i++)
      if (s->steps[k].g.nodes[i].phase == phase) ms += (s->steps[k].ms[i] - s->steps[k].less[i]) / (double)s->n;
  return ms;
}

static void find_cost(struct look *l, int rank, enum graph_phase phase, double step_ms, struct lateness_cost *c)
{
  static const double worth_looking = 0.005; /* of a step */
  const struct study *s = l->s;
  *c = (struct lateness_cost){.rank = rank, .phase = phase, .low_ms = NAN, .high_ms = NAN};
  if (most_ms(s, rank, phase) < worth_looking * step_ms) return;
  for (int64_t k = 0; k < s->n; k++) {
    l->cost[k] = saved_ms(l, k, rank, phase, 1);
    c->cost_ms += l->cost[k] / (double)s->n;
  }
  if (c->cost_ms < worth_looking * step_ms) return;
  find_interval(l, c);
  find_period(l, c);
}

static int dearest_first(const void *a, const void *b)
{
  const struct lateness_cost *x = a, *y = b;
  if (x->cost_ms != y->cost_ms) return x->cost_ms < y->cost_ms ? 1 : -1;
  return x->rank != y->rank ? x->rank - y->rank : (int)x->phase - (int)y->phase;
}

static enum err find_costs(struct study *s, struct lateness *out)
{
  enum err err = ERR_OK;
  struct look l = {.s = s};
  int most = 0;
  int64_t made = 0;
  for (int64_t k = 0; k < s->n; k++) most = s->steps[k].g.n > most ? s->steps[k].g.n : most;
  const size_t n = (size_t)s->n;
  l.now = malloc(((size_t)most + n * (GRID + 1) + DRAWS) * sizeof *l.now);
  l.draw = malloc(n * sizeof *l.draw);
  l.play = calloc(n, sizeof *l.play);
  if (l.now == NULL || l.draw == NULL || l.play == NULL) FAIL_TO(done, ERR_MEMORY, "costs of %zu steps", n);
  l.cost = l.now + most;
  l.grid = l.cost + n;
  l.drawn = l.grid + n * GRID;
  for (; made < s->n; made++) TRY_TO(done, graph_play_create(&s->steps[made].g, &l.play[made]));
  for (int r = 0; r < s->ranks; r++)
    for (int phase = 0; phase < GRAPH_PHASES; phase++) find_cost(&l, r, (enum graph_phase)phase, out->step_ms, &out->costs[out->n_costs++]);

done:
  for (int64_t k = 0; l.play && k < made; k++) graph_play_free(&l.play[k]);
  free(l.play);
  free(l.draw);
  free(l.now);
  return err;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Charges and waits of one step. */
static enum err charge_step(const struct study *s, int64_t k, double *table, double *waits_ms, struct lateness *out)
{
  const struct study_step *x = &s->steps[k];
  const int n = s->ranks * GRAPH_PHASES;
  double *waits = table + n;
  memset(table, 0, (size_t)n * sizeof *table);
  enum err err = study_charge(&x->g, x->ms, x->less, table, &out->lost_ms);
  if (!err) err = study_waits(&x->g, &x->play, x->ms, x->less, waits, waits_ms);
  for (int i = 0; i < n; i++) {
    out->costs[i].charge_ms += table[i] / (double)s->n;
    out->charged_ms += table[i] / (double)s->n;
  }
  return err;
}

static enum err find_charges(const struct study *s, struct lateness *out)
{
  enum err err = ERR_OK;
  const int n = s->ranks * GRAPH_PHASES;
  double waits_ms = 0, *table = calloc(2 * (size_t)n, sizeof *table);
  if (table == NULL) FAIL(ERR_MEMORY, "charges of %d ranks", s->ranks);
  for (int64_t k = 0; !err && k < s->n; k++) err = charge_step(s, k, table, &waits_ms, out);
  for (int i = 0; i < n && waits_ms > 0; i++) out->costs[i].waits = table[n + i] / waits_ms;
  out->lost_ms /= (double)s->n;
  free(table);
  return err;
}

/* Means over steps; a pipeline's own waits are those that it has as well with nothing longer than its peers'. */
static enum err find_parts(struct study *s, struct lateness *out)
{
  const double share = 1 / (double)s->n;
  double unexplained = 0, total = 0;
  for (int64_t k = 0; k < s->n; k++) {
    struct study_step *x = &s->steps[k];
    struct graph_play p;
    TRY(graph_play_create(&x->g, &p));
    for (int r = 0; r < s->ranks; r++) study_parts(&x->g, &x->play, r, &out->parts[r]);
    graph_play(&x->g, x->ms, 0, &p);
    unexplained += x->play.total_ms - p.total_ms;
    total += x->play.total_ms;
    graph_play(&x->g, x->less, 1, &p);
    for (int r = 0; r < s->ranks && s->run->config.pp > 1; r++) {
      struct lateness_parts own = {0}, even = {0};
      study_parts(&x->g, &x->play, r, &own);
      study_parts(&x->g, &p, r, &even);
      out->parts[r].bubble_ms += fmin(own.waiting_ms, even.waiting_ms);
    }
    graph_play_free(&p);
    out->error_ms = fmax(out->error_ms, x->g.error_ms);
  }
  for (int r = 0; r < s->ranks; r++) {
    struct lateness_parts *x = &out->parts[r];
    x->waiting_ms -= x->bubble_ms;
    double *const all[] = {&x->data_ms, &x->forward_ms, &x->backward_ms, &x->optimizer_ms, &x->other_ms, &x->transfer_ms, &x->waiting_ms, &x->bubble_ms,
                           &x->between_ms, &x->step_ms};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] *= share;
  }
  out->step_ms = total * share;
  out->unexplained = total > 0 ? unexplained / total : 0;
  return ERR_OK;
}

/* Rosas, Gimenez and Labarta 2014: useful time, the ideal network's run, the run. */
static enum err find_factors(struct study *s, struct lateness *out)
{
  double mean = 0, most = 0, ideal = 0, total = 0, told = 0;
  double *busy = calloc((size_t)s->ranks, sizeof *busy);
  if (busy == NULL) FAIL(ERR_MEMORY, "busy time of %d ranks", s->ranks);
  for (int64_t k = 0; k < s->n; k++) {
    struct study_step *x = &s->steps[k];
    struct graph_play p;
    const enum err err = graph_play_create(&x->g, &p);
    if (err) {
      free(busy);
      return err;
    }
    double *now = x->less; /* its last use is behind us */
    for (int i = 0; i < x->g.n; i++) now[i] = x->g.nodes[i].phase == GRAPH_LINK ? fmin(0, x->ms[i]) : x->ms[i];
    graph_play(&x->g, now, 1, &p);
    ideal += p.total_ms;
    total += x->play.total_ms;
    graph_play_free(&p);
    for (int i = 0; i < x->g.n; i++)
      if (x->g.nodes[i].main && x->g.nodes[i].phase != GRAPH_LINK) busy[x->g.nodes[i].rank] += x->g.busy[i];
  }
  for (int r = 0; r < s->ranks; r++) {
    mean += busy[r] / s->ranks;
    most = fmax(most, busy[r]);
  }
  out->load_balance = mean / most;
  out->serialisation = most / ideal;
  out->transfer = ideal / total;
  out->busy = mean / total;
  static const char *const keys[] = {"got.forward_ms", "got.backward_ms", "got.optimizer_ms", "got.other_ms"};
  const struct run_config *c = &s->run->config;
  for (int64_t step = s->first; step < c->steps; step++)
    for (int r = 0; r < s->ranks && (step % c->records_each == 0 || step == c->steps - 1); r++)
      for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) told += evidence_value(s->run, "time", r, step, -1, keys[i]) / s->ranks;
  out->measured_busy = told / total;
  free(busy);
  return ERR_OK;
}

static enum err measure(struct study *s, struct lateness *out)
{
  out->ranks = s->ranks;
  out->first = s->first;
  out->steps = s->n;
  out->modelled = s->modelled;
  out->parts = calloc((size_t)s->ranks, sizeof *out->parts);
  out->costs = calloc((size_t)s->ranks * GRAPH_PHASES, sizeof *out->costs);
  if (out->parts == NULL || out->costs == NULL) FAIL(ERR_MEMORY, "lateness of %d ranks", s->ranks);
  TRY(find_parts(s, out));
  TRY(find_costs(s, out));
  TRY(find_charges(s, out));
  TRY(find_factors(s, out));
  qsort(out->costs, (size_t)out->n_costs, sizeof *out->costs, dearest_first);
  return ERR_OK;
}

enum err lateness_measure(const struct run_data *run, struct lateness *out)
{
  struct study s;
  *out = (struct lateness){0};
  enum err err = open_study(run, &s);
  if (!err) err = measure(&s, out);
  close_study(&s);
  if (err) lateness_free(out);
  return err;
}

void lateness_free(struct lateness *x)
{
  free(x->costs);
  free(x->parts);
  *x = (struct lateness){0};
}
