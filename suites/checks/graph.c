/* graph.c - lengths from times, an order in which to play, and playing. */
#include "graph.h"

#include <math.h>
#include <stdlib.h>

const char *graph_phase_name(enum graph_phase p)
{
  static const char *const names[GRAPH_PHASES] = {"data", "forward", "backward", "optimizer", "other", "link", "between"};
  return names[p];
}

/* --- lengths and order ----------------------------------------------------------------------- */

static double last_ready(const struct graph *g, const struct graph_group *group)
{
  double last = -INFINITY;
  for (int i = 0; i < group->n; i++) last = fmax(last, g->ready[g->members[group->first + i]]);
  return last;
}

/* Whoever ended before the last peer was ready, by more than the clocks may be wrong, did not wait for it. */
static void measure_lengths(struct graph *g)
{
  for (int i = 0; i < g->n; i++) {
    struct graph_node *x = &g->nodes[i];
    double after = -INFINITY;
    for (int k = 0; k < x->n; k++) after = fmax(after, g->ended[g->before[x->first + k]]);
    x->lag = x->n > 0 ? g->ready[i] - after : 0;
    x->ms = g->ended[i] - g->ready[i];
    if (x->group < 0 || x->given) continue;
    const double last = last_ready(g, &g->groups[x->group]);
    x->waits = g->groups[x->group].n > 1 && g->ended[i] >= last - 2 * g->error_ms;
    if (x->waits) x->ms = g->ended[i] - last;
  }
}

/* Kahn 1962: what has nothing left to wait for comes next; a group's end when its last member is ready. */
struct orderer {
  struct graph *g;
  int *left, *left_in_group; /* still to come before a node, in a group */
  int *after, *first_after;  /* the reverse of g->before                */
  int *ripe, n_ripe, n;
};

static void release(struct orderer *o, int node)
{
  for (int k = o->first_after[node]; k < o->first_after[node + 1]; k++)
    if (--o->left[o->after[k]] == 0) o->ripe[o->n_ripe++] = o->after[k];
}

static bool ends_with_group(const struct graph_node *x) { return x->group >= 0 && x->waits; }

static void take(struct orderer *o, int node)
{
  struct graph *g = o->g;
  const struct graph_node *x = &g->nodes[node];
  g->order[o->n++] = node;
  if (!ends_with_group(x)) release(o, node);
  if (x->group < 0 || --o->left_in_group[x->group] > 0) return;
  const struct graph_group *group = &g->groups[x->group];
  g->order[o->n++] = -1 - x->group;
  for (int i = 0; i < group->n; i++)
    if (ends_with_group(&g->nodes[g->members[group->first + i]])) release(o, g->members[group->first + i]);
}

static void reverse(struct orderer *o, int n_before)
{
  const struct graph *g = o->g;
  for (int k = 0; k < n_before; k++) o->first_after[g->before[k] + 1]++;
  for (int i = 0; i < g->n; i++) o->first_after[i + 1] += o->first_after[i];
  for (int i = 0; i < g->n; i++)
    for (int k = 0; k < g->nodes[i].n; k++) o->after[o->first_after[g->before[g->nodes[i].first + k]]++] = i;
  for (int i = g->n; i > 0; i--) o->first_after[i] = o->first_after[i - 1];
  o->first_after[0] = 0;
}

static enum err put_in_order(struct graph *g, int n_before)
{
  struct orderer o = {.g = g};
  enum err err = ERR_OK;
  const size_t n = (size_t)g->n;
  o.left = calloc(3 * n + (size_t)g->n_groups + 2 + (size_t)n_before, sizeof *o.left);
  if (o.left == NULL) FAIL(ERR_MEMORY, "order of %d spans", g->n);
  o.ripe = o.left + n;
  o.first_after = o.ripe + n;
  o.left_in_group = o.first_after + n + 1;
  o.after = o.left_in_group + g->n_groups + 1;
  reverse(&o, n_before);
  for (int i = 0; i < g->n_groups; i++) o.left_in_group[i] = g->groups[i].n;
  for (int i = g->n - 1; i >= 0; i--) {
    o.left[i] = g->nodes[i].n;
    if (o.left[i] == 0) o.ripe[o.n_ripe++] = i;
  }
  while (o.n_ripe > 0) take(&o, o.ripe[--o.n_ripe]);
  if (o.n != g->n + g->n_groups) err = err_set(ERR_FORMAT, __FILE__, __LINE__, "spans wait for each other in a circle: %d of %d have an order", o.n, g->n + g->n_groups);
  free(o.left);
  return err;
}

enum err graph_finish(struct graph *g, int n_before)
{
  measure_lengths(g);
  return put_in_order(g, n_before);
}

void graph_free(struct graph *g)
{
  free(g->ready);
  free(g->order);
  free(g->groups);
  free(g->members);
  free(g->before);
  free(g->nodes);
  free(g->origin);
  free(g->first);
  *g = (struct graph){0};
}

/* --- played ---------------------------------------------------------------------------------- */

enum err graph_play_create(const struct graph *g, struct graph_play *out)
{
  *out = (struct graph_play){.ready = malloc(2 * (size_t)g->n * sizeof(double)), .cause = malloc((size_t)(g->n + g->n_groups + 1) * sizeof(int))};
  if (out->ready == NULL || out->cause == NULL) {
    graph_play_free(out);
    FAIL(ERR_MEMORY, "times of %d spans", g->n);
  }
  out->end = out->ready + g->n;
  out->last = out->cause + g->n;
  return ERR_OK;
}

void graph_play_free(struct graph_play *p)
{
  free(p->ready);
  free(p->cause);
  *p = (struct graph_play){0};
}

static void play_node(const struct graph *g, int node, double ms, double lags, struct graph_play *p)
{
  const struct graph_node *x = &g->nodes[node];
  double after = -INFINITY;
  p->cause[node] = -1;
  for (int k = 0; k < x->n; k++) {
    const int before = g->before[x->first + k];
    if (p->end[before] <= after) continue;
    after = p->end[before];
    p->cause[node] = before;
  }
  p->ready[node] = x->n > 0 ? after + lags * x->lag : g->ready[node];
  p->end[node] = x->given ? g->ended[node] : p->ready[node] + ms;
}

void graph_play(const struct graph *g, const double *ms, double lags, struct graph_play *p)
{
  for (int i = 0; i < g->n + g->n_groups; i++) {
    const int at = g->order[i];
    if (at >= 0) {
      play_node(g, at, ms[at], lags, p);
      continue;
    }
    const struct graph_group *group = &g->groups[-1 - at];
    const int *members = g->members + group->first;
    int last = members[0];
    for (int k = 1; k < group->n; k++)
      if (p->ready[members[k]] > p->ready[last]) last = members[k];
    p->last[-1 - at] = last;
    for (int k = 0; k < group->n; k++)
      if (g->nodes[members[k]].waits) p->end[members[k]] = p->ready[last] + ms[members[k]];
  }
  p->latest = 0;
  for (int r = 1; r < g->ranks; r++)
    if (p->end[g->end[r]] > p->end[g->end[p->latest]]) p->latest = r;
  p->total_ms = p->end[g->end[p->latest]] - g->base;
}

int graph_behind(const struct graph *g, const struct graph_play *p, int node)
{
  const struct graph_node *x = &g->nodes[node];
  if (x->given) return -1;
  const int from = ends_with_group(x) ? p->last[x->group] : node;
  return p->cause[from];
}
