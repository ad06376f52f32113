/* lateness_replace.c - the lengths that a step would have had with everybody as fast as its peers. */
#include "lateness_study.h"

#include "base/partition.h"
#include "layout.h"
#include "median.h"

#include <math.h>
#include <stdlib.h>

/* --- peers ------------------------------------------------------------------------------------ */

static bool alone_on_stage(const struct run_config *c) { return c->dp * c->tp == 1; }

/* Ranks of one stage do the same; a rank alone on its stage is held against all others. */
bool study_are_peers(const struct study *s, int a, int b)
{
  const struct run_config *c = &s->run->config;
  return a != b && (alone_on_stage(c) || layout_of(c, a).pp == layout_of(c, b).pp);
}

/* Time by the configuration: of sleeping passes what was asked, else floating-point operations a token. */
static double passes(const struct run_config *c, double layers, bool last, bool backward)
{
  if (c->compute == COMPUTE_SLEEP) {
    const double layer = backward ? c->sleep_input_ms + c->sleep_weight_ms : c->sleep_forward_ms;
    return layers * layer + (last ? c->sleep_head_ms * (backward ? 2 : 1) : 0);
  }
  const double C = (double)c->hidden, T = (double)c->sequence;
  return layers * (24 * C * C + 4 * T * C) + (last ? 2 * C * (double)c->vocab : 0);
}

static enum err find_work(struct study *s)
{
  const struct run_config *c = &s->run->config;
  struct partition p;
  for (int i = 0; i < s->ranks * GRAPH_PHASES; i++) s->work[i] = 1;
  s->modelled = alone_on_stage(c) && s->ranks > 1;
  if (!s->modelled) return ERR_OK;
  TRY(partition_make(c, &p));
  for (int r = 0; r < s->ranks; r++) {
    const struct layout at = layout_of(c, r);
    const bool last = layout_is_last(c, &at);
    double layers = 0, *work = s->work + r * GRAPH_PHASES;
    for (int k = at.pp; k < p.stages; k += (int)c->pp) layers += (double)(p.first[k + 1] - p.first[k]);
    work[GRAPH_FORWARD] = passes(c, layers, last, false);
    work[GRAPH_BACKWARD] = passes(c, layers, last, true);
    const double C = (double)c->hidden;
    work[GRAPH_OPTIMIZER] = work[GRAPH_OTHER] = layers * 12 * C * C + (last || layout_is_first(&at) ? C * (double)c->vocab : 0);
  }
  return ERR_OK;
}

/* Of a rank's phase over steps draw[0 .. n), NULL: all; over its work. */
static double usual_ms(const struct study *s, int rank, int phase, const int *draw)
{
  for (int64_t k = 0; k < s->n; k++) s->room[k] = study_spent(s, draw ? draw[k] : k, rank)[phase] / study_work(s, rank, phase);
  return median_sorting(s->room, (int)s->n);
}

/* Median over the peers' usual times, for this rank's work; its own where it has none. */
static double peers_ms(const struct study *s, int rank, int phase, const int *draw)
{
  double *list = s->room + s->n;
  int n = 0;
  for (int r = 0; r < s->ranks; r++)
    if (study_are_peers(s, rank, r)) list[n++] = usual_ms(s, r, phase, draw);
  const double ms = n ? median_sorting(list, n) : usual_ms(s, rank, phase, draw);
  return ms * study_work(s, rank, phase);
}

static bool by_step(int phase) { return phase == GRAPH_DATA || phase == GRAPH_BETWEEN; }

double study_change(const struct study *s, int rank, enum graph_phase phase, const int *draw)
{
  const double own = usual_ms(s, rank, phase, draw) * study_work(s, rank, phase);
  return own > 0 ? (peers_ms(s, rank, phase, draw) - own) / own : 0;
}

/* --- what nobody waited for -------------------------------------------------------------------- */

/* What a pass or the step's end came after: transfers on the way back to the pass before. */
static void mark_awaited(const struct study_step *x, bool *awaited)
{
  const struct graph *g = &x->g;
  for (int i = 0; i < g->n; i++) {
    const bool pass = g->nodes[i].main && g->nodes[i].phase != GRAPH_LINK, end = i == g->end[g->nodes[i].rank];
    for (int k = pass || end ? x->play.cause[i] : -1; k >= 0 && g->nodes[k].phase == GRAPH_LINK; k = graph_behind(g, &x->play, k)) awaited[k] = true;
  }
}

static bool is_kind(const struct graph_node *x, int kind) { return x->kind == kind && !x->given; }

static int count_kind(const struct study *s, bool *const *awaited, int kind, double *list)
{
  int n = 0;
  for (int64_t k = 0; k < s->n; k++)
    for (int i = 0; i < s->steps[k].g.n; i++)
      if (is_kind(&s->steps[k].g.nodes[i], kind) && awaited[k][i]) list[n++] = s->steps[k].ms[i];
  return n;
}

/* Beside compute a transfer is looked after now and then, since each look costs the stream its core: one that nobody waited for took longer
 * than it had to, and in a step where it is waited for it would not. */
static void shorten_kind(struct study *s, bool *const *awaited, int kind, double *list)
{
  const int n = count_kind(s, awaited, kind, list);
  if (n == 0) return;
  const double ms = median_sorting(list, n);
  for (int64_t k = 0; k < s->n; k++)
    for (int i = 0; i < s->steps[k].g.n; i++)
      if (is_kind(&s->steps[k].g.nodes[i], kind) && !awaited[k][i]) s->steps[k].ms[i] = fmin(s->steps[k].ms[i], ms);
}

static enum err shorten_unawaited(struct study *s)
{
  enum err err = ERR_OK;
  size_t all = 0, at = 0;
  for (int64_t k = 0; k < s->n; k++) all += (size_t)s->steps[k].g.n;
  bool *marks = calloc(all + 1, sizeof *marks), **awaited = malloc((size_t)(s->n + 1) * sizeof *awaited);
  double *list = malloc((all + 1) * sizeof *list);
  if (marks == NULL || awaited == NULL || list == NULL) FAIL_TO(done, ERR_MEMORY, "marks of %zu spans", all);
  for (int64_t k = 0; k < s->n; k++) {
    awaited[k] = marks + at;
    at += (size_t)s->steps[k].g.n;
    mark_awaited(&s->steps[k], awaited[k]);
  }
  for (int kind = 0; kind < GRAPH_KINDS; kind++) shorten_kind(s, awaited, kind, list);
  for (int64_t k = 0; k < s->n; k++) graph_play(&s->steps[k].g, s->steps[k].ms, 1, &s->steps[k].play);

done:
  free(list);
  free(awaited);
  free(marks);
  return err;
}

/* --- lengths ---------------------------------------------------------------------------------- */

static void sum_up(struct study *s)
{
  for (int64_t k = 0; k < s->n; k++) {
    const struct graph *g = &s->steps[k].g;
    for (int i = 0; i < g->n; i++)
      if (!g->nodes[i].given) study_spent(s, k, g->nodes[i].rank)[g->nodes[i].phase] += s->steps[k].ms[i];
  }
}

/* What a length of that rank's phase in step k is multiplied by. */
static double factor(const struct study *s, int64_t k, int rank, int phase)
{
  const double own = study_spent(s, k, rank)[phase];
  double *list = s->room;
  int n = 0;
  if (!by_step(phase)) return 1 + study_change(s, rank, (enum graph_phase)phase, NULL);
  for (int r = 0; r < s->ranks; r++)
    if (r != rank) list[n++] = study_spent(s, k, r)[phase];
  return n && own > 0 ? median_sorting(list, n) / own : 1;
}

static void replace_work(struct study *s)
{
  for (int phase = 0; phase < GRAPH_PHASES; phase++)
    for (int r = 0; phase != GRAPH_LINK && r < s->ranks; r++) {
      double f = by_step(phase) ? 1 : factor(s, 0, r, phase);
      for (int64_t k = 0; k < s->n; k++) {
        struct study_step *x = &s->steps[k];
        if (by_step(phase)) f = factor(s, k, r, phase);
        for (int i = 0; i < x->g.n; i++)
          if (x->g.nodes[i].rank == r && x->g.nodes[i].phase == (enum graph_phase)phase) x->other[i] = x->ms[i] * f;
      }
    }
}

/* Where call c of each rank stands in each step. */
struct calls {
  int most;   /* calls of one rank */
  int *node;  /* [n][ranks][most]; -1: none */
  double *ms; /* [ranks][most] median over steps; NaN: not in all of them, or nothing that several wait for */
};

static int *call_node(const struct study *s, const struct calls *c, int64_t step, int rank, int call)
{
  return &c->node[(step * s->ranks + rank) * c->most + call];
}

static enum err index_calls(const struct study *s, struct calls *c)
{
  *c = (struct calls){0};
  for (int64_t k = 0; k < s->n; k++)
    for (int i = 0; i < s->steps[k].g.n; i++)
      if (s->steps[k].g.nodes[i].call >= c->most) c->most = s->steps[k].g.nodes[i].call + 1;
  const size_t each = (size_t)s->ranks * (size_t)c->most + 1, n = each * (size_t)s->n;
  c->node = malloc(n * sizeof *c->node);
  c->ms = malloc(each * sizeof *c->ms);
  if (c->node == NULL || c->ms == NULL) FAIL(ERR_MEMORY, "%zu calls", n);
  for (size_t i = 0; i < n; i++) c->node[i] = -1;
  for (int64_t k = 0; k < s->n; k++)
    for (int i = 0; i < s->steps[k].g.n; i++) {
      const struct graph_node *x = &s->steps[k].g.nodes[i];
      if (x->call >= 0 && !x->given && x->waits && !s->steps[k].g.groups[x->group].message) *call_node(s, c, k, x->rank, x->call) = i;
    }
  return ERR_OK;
}

static void usual_calls(const struct study *s, struct calls *c)
{
  for (int r = 0; r < s->ranks; r++)
    for (int call = 0; call < c->most; call++) {
      for (int64_t k = 0; k < s->n; k++) {
        const int node = *call_node(s, c, k, r, call);
        s->room[k] = node < 0 ? NAN : s->steps[k].ms[node];
      }
      c->ms[r * c->most + call] = median_sorting(s->room, (int)s->n);
    }
}

/* Peers in a transfer are those that take part in it. */
static void replace_link(struct study *s, const struct calls *c)
{
  for (int64_t k = 0; k < s->n; k++) {
    struct study_step *x = &s->steps[k];
    const struct graph *g = &x->g;
    for (int i = 0; i < g->n; i++) {
      const struct graph_node *node = &g->nodes[i];
      int n = 0;
      if (node->phase == GRAPH_LINK) x->other[i] = x->ms[i];
      if (node->call < 0 || *call_node(s, c, k, node->rank, node->call) != i) continue;
      const struct graph_group *group = &g->groups[node->group];
      for (int m = 0; m < group->n; m++) {
        const struct graph_node *peer = &g->nodes[g->members[group->first + m]];
        if (peer != node) s->room[n++] = c->ms[peer->rank * c->most + peer->call];
      }
      const double shift = median_sorting(s->room, n) - c->ms[node->rank * c->most + node->call];
      if (!isnan(shift)) x->other[i] = fmax(0, x->ms[i] + shift);
    }
  }
}

enum err study_replace(struct study *s)
{
  struct calls c;
  TRY(find_work(s));
  TRY(shorten_unawaited(s));
  sum_up(s);
  replace_work(s);
  const enum err err = index_calls(s, &c);
  if (!err) {
    usual_calls(s, &c);
    replace_link(s, &c);
  }
  for (int64_t k = 0; k < s->n; k++)
    for (int i = 0; i < s->steps[k].g.n; i++) s->steps[k].less[i] = fmin(s->steps[k].ms[i], s->steps[k].other[i]);
  free(c.node);
  free(c.ms);
  return err;
}
