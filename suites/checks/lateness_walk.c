/* lateness_walk.c - walks through a played graph: along a rank's compute stream, and back from what was late. */
#include "lateness_study.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- where a rank's time went ------------------------------------------------------------------- */

static bool is_grouped(const struct graph_node *x) { return x->group >= 0 && x->waits && !x->given; }

/* Of a node that waited for its group: when the last one was ready. */
static double entered_ms(const struct graph *g, const struct graph_play *p, const struct graph_node *x)
{
  return p->ready[p->last[g->nodes[x - g->nodes].group]];
}

/* [from, to] of a transfer's life, which may be cut off at either end. */
static void add_transfer(const struct graph *g, const struct graph_play *p, int node, double from, double to, struct lateness_parts *out)
{
  const struct graph_node *x = &g->nodes[node];
  const double since = is_grouped(x) ? fmin(fmax(entered_ms(g, p, x), from), to) : from;
  out->transfer_ms += to - since;
  out->waiting_ms += since - from;
}

/* The compute stream stood still from `from` to `to`, when `node` was ready: back through what it was ready after. */
static void add_gap(const struct graph *g, const struct graph_play *p, int node, double from, double to, struct lateness_parts *out)
{
  while (to > from) {
    const int before = p->cause[node];
    const double end = before < 0 ? from : fmin(fmax(p->end[before], from), to);
    out->other_ms += to - end; /* launched late, woken late */
    to = end;
    if (before < 0 || to <= from) return;
    const double begin = fmin(fmax(p->ready[before], from), to);
    if (g->nodes[before].phase == GRAPH_LINK) add_transfer(g, p, before, begin, to, out);
    else out->other_ms += to - begin;
    to = begin;
    node = before;
  }
}

static void add_node(const struct graph *g, const struct graph_play *p, int node, struct lateness_parts *out)
{
  double *const own[GRAPH_PHASES] = {[GRAPH_DATA] = &out->data_ms, [GRAPH_FORWARD] = &out->forward_ms, [GRAPH_BACKWARD] = &out->backward_ms,
                                     [GRAPH_OPTIMIZER] = &out->optimizer_ms, [GRAPH_OTHER] = &out->other_ms, [GRAPH_BETWEEN] = &out->between_ms};
  const enum graph_phase phase = g->nodes[node].phase;
  if (phase == GRAPH_LINK) add_transfer(g, p, node, p->ready[node], p->end[node], out);
  else *own[phase] += p->end[node] - p->ready[node];
}

void study_parts(const struct graph *g, const struct graph_play *p, int rank, struct lateness_parts *out)
{
  double at = g->origin[rank];
  const int end = rank + 1 < g->ranks ? g->first[rank + 1] : g->n;
  for (int i = g->first[rank]; i < end; i++) {
    const struct graph_node *x = &g->nodes[i];
    if (i == g->end[rank] || x->given || !(x->main || x->stream == 0)) continue;
    add_gap(g, p, i, at, p->ready[i], out);
    add_node(g, p, i, out);
    at = p->end[i];
  }
  add_gap(g, p, g->end[rank], at, p->ready[g->end[rank]], out);
  out->step_ms += p->end[g->end[rank]] - g->origin[rank];
}

/* --- charges -------------------------------------------------------------------------------------- */

/* A point of T(s), and the slope there by rank and phase. */
struct point {
  double at, total_ms, slope;
  double *by; /* [ranks][phases] */
};

struct charger {
  const struct graph *g;
  const double *ms, *less;
  double *now;          /* [n] */
  struct graph_play play;
  double *charge;
  size_t size;          /* of such a table */
};

static double *place(double *table, const struct graph_node *x) { return &table[x->rank * GRAPH_PHASES + (int)x->phase]; }

static enum err look(struct charger *c, double at, struct point *out)
{
  const struct graph *g = c->g;
  out->at = at;
  out->slope = 0;
  out->by = calloc(c->size, sizeof *out->by);
  if (out->by == NULL) FAIL(ERR_MEMORY, "charges of %d ranks", g->ranks);
  for (int i = 0; i < g->n; i++) c->now[i] = c->less[i] + at * (c->ms[i] - c->less[i]);
  graph_play(g, c->now, 1, &c->play);
  out->total_ms = c->play.total_ms;
  for (int i = g->end[c->play.latest]; i >= 0; i = graph_behind(g, &c->play, i)) {
    const double more = g->nodes[i].given ? 0 : c->ms[i] - c->less[i];
    *place(out->by, &g->nodes[i]) += more;
    out->slope += more;
  }
  return ERR_OK;
}

static void charge(struct charger *c, const struct point *p, double width)
{
  for (size_t i = 0; i < c->size; i++) c->charge[i] += width * p->by[i];
}

enum { DEPTH = 24 };
static const double straight_ms = 1e-6;

/* T is convex: where a tangent of one end meets the other, it is straight between them; else the two tangents meet at or below it. */
static enum err integrate(struct charger *c, const struct point *a, const struct point *b, int depth)
{
  const double width = b->at - a->at;
  if (fabs(a->total_ms + a->slope * width - b->total_ms) <= straight_ms) {
    charge(c, a, width);
    return ERR_OK;
  }
  if (fabs(b->total_ms - b->slope * width - a->total_ms) <= straight_ms) {
    charge(c, b, width);
    return ERR_OK;
  }
  if (depth == 0) { /* what is left is told as charges that do not add up */
    charge(c, a, width / 2);
    charge(c, b, width / 2);
    return ERR_OK;
  }
  const double meet = (b->total_ms - a->total_ms + a->slope * a->at - b->slope * b->at) / (a->slope - b->slope);
  struct point m;
  TRY(look(c, meet > a->at && meet < b->at ? meet : 0.5 * (a->at + b->at), &m));
  enum err err = integrate(c, a, &m, depth - 1);
  if (!err) err = integrate(c, &m, b, depth - 1);
  free(m.by);
  return err;
}

enum err study_charge(const struct graph *g, const double *ms, const double *less, double *charge, double *lost_ms)
{
  enum err err = ERR_OK;
  struct charger c = {.g = g, .ms = ms, .less = less, .charge = charge, .size = (size_t)g->ranks * GRAPH_PHASES};
  struct point a = {0}, b = {0};
  c.now = malloc((size_t)g->n * sizeof *c.now);
  if (c.now == NULL) FAIL(ERR_MEMORY, "lengths of %d spans", g->n);
  TRY_TO(free_now, graph_play_create(g, &c.play));
  TRY_TO(free_points, look(&c, 0, &a));
  TRY_TO(free_points, look(&c, 1, &b));
  TRY_TO(free_points, integrate(&c, &a, &b, DEPTH));
  *lost_ms += b.total_ms - a.total_ms;

free_points:
  free(a.by);
  free(b.by);
  graph_play_free(&c.play);
free_now:
  free(c.now);
  return err;
}

/* --- waits ---------------------------------------------------------------------------------------- */

/* Shares one wait: on the way back from the last one until the way of who waited is met. */
static void follow(const struct graph *g, const struct graph_play *p, const double *ms, const double *less, int late, const bool *met, double wait_ms,
                   double *waits)
{
  double sum = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int i = p->cause[late]; i >= 0 && !met[i]; i = graph_behind(g, p, i)) {
      const double more = g->nodes[i].given ? 0 : ms[i] - less[i];
      if (pass == 0) sum += more;
      else if (sum > 0) *place(waits, &g->nodes[i]) += wait_ms * more / sum;
    }
}

enum err study_waits(const struct graph *g, const struct graph_play *p, const double *ms, const double *less, double *waits, double *all_ms)
{
  bool *met = calloc((size_t)g->n + 1, sizeof *met);
  if (met == NULL) FAIL(ERR_MEMORY, "marks of %d spans", g->n);
  for (int i = 0; i < g->n; i++) {
    if (!is_grouped(&g->nodes[i])) continue;
    const int late = p->last[g->nodes[i].group];
    const double wait_ms = p->ready[late] - p->ready[i];
    if (!(wait_ms > 0)) continue;
    *all_ms += wait_ms;
    for (int k = p->cause[i]; k >= 0; k = graph_behind(g, p, k)) met[k] = true;
    follow(g, p, ms, less, late, met, wait_ms, waits);
    for (int k = p->cause[i]; k >= 0; k = graph_behind(g, p, k)) met[k] = false;
  }
  free(met);
  return ERR_OK;
}
