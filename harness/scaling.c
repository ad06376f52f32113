/* scaling.c - which points a curve has, what proves each right, and what is timed for it. */
#include "harness/scaling.h"
#include "harness/interrupt.h"
#include "harness/cut.h"
#include "harness/point.h"
#include "harness/proof.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- plan ----------------------------------------------------------------------------- */

/* Powers of two and the number of cores itself, or as asked. */
static int rank_counts(const struct asked *a, int most, int *out)
{
  int n = 0;
  if (a->n_ranks) {
    memcpy(out, a->ranks, (size_t)a->n_ranks * sizeof *out);
    return a->n_ranks;
  }
  for (int k = 1; k <= most && n < ASKED_RANKS - 1; k *= 2) out[n++] = k;
  if (n && out[n - 1] != most) out[n++] = most;
  return n;
}

/* The case at so many ranks: replicas are added, of as many ranks as its model takes. */
static enum err at_ranks(const struct suite_case *of, int ranks, struct run_config *c)
{
  const int64_t each = c->tp * c->pp;
  if (of->scale == SCALE_LAYOUT) return ERR_OK;
  if (ranks % each != 0)
    FAIL(ERR_CONFIG, "ranks: %d is no multiple of tp * pp = %lld; nearest valid: %lld", ranks, (long long)each,
         (long long)(ranks < each ? each : ranks / each * each));
  c->dp = ranks / each;
  if (of->scale == SCALE_WEAK) c->global_batch *= ranks;
  return ERR_OK;
}

/* A layout has the ranks of its degrees; its name says which. */
static void name_of(const struct suite_case *of, int ranks, char *out, size_t bytes)
{
  if (of->scale == SCALE_LAYOUT) snprintf(out, bytes, "%.120s", of->name);
  else snprintf(out, bytes, "%.100s-n%d", of->name, ranks);
}

static enum err add_point(struct plan *p, const struct asked *a, const struct suite *s, const struct suite_case *of, int ranks)
{
  char name[CONFIG_NAME];
  int evidence, point, run;
  struct run_config asked = of->config, c;
  TRY(asked_lay_over(a, &asked));
  enum err err = at_ranks(of, ranks, &asked);
  c = asked;
  snprintf(c.name, sizeof c.name, "point");
  if (!err) err = config_finish(&c);
  if (err == ERR_CONFIG && a->n_ranks == 0 && of->scale != SCALE_LAYOUT && model_shape_find(c.model)) return ERR_OK; /* a default count that does not divide */
  if (err == ERR_CONFIG && asked_overrides(a) && model_shape_find(c.model)) return plan_add_skipped(p, s, of, err_text());
  if (err) FAIL(err, "%s: '%s' at %d ranks: %s", of->where, of->name, ranks, err_text());
  name_of(of, ranks, name, sizeof name);
  TRY(proof_add(p, s, of, &asked, name, &evidence));
  TRY(plan_add_run(p, name, &c, of->seconds, &run));
  TRY(plan_add_trial(p, s, of, name, &c, PART_POINT, &point));
  p->trials[point].run = run; /* its first repeat */
  p->trials[point].twin = evidence;
  return ERR_OK;
}

/* One point: the case's own layout, unless an override makes it another case's. */
static enum err add_layout(struct plan *p, const struct asked *a, const struct suite *s, const struct suite_case *of)
{
  struct run_config c = of->config;
  TRY(asked_lay_over(a, &c));
  bool wanted = a->n_ranks == 0;
  for (int i = 0; i < a->n_ranks; i++) wanted = wanted || a->ranks[i] == config_ranks(&c);
  for (int i = 0; asked_overrides(a) && i < p->n_trials; i++) {
    const struct trial *t = &p->trials[i];
    struct run_config other;
    if (t->part != PART_POINT || t->suite != s || t->of->scale != SCALE_LAYOUT) continue;
    other = t->of->config;
    TRY(asked_lay_over(a, &other));
    wanted = wanted && !plan_same(&other, &c);
  }
  return wanted ? add_point(p, a, s, of, (int)config_ranks(&c)) : ERR_OK;
}

enum err scaling_plan(struct plan *p, const struct asked *a, const struct suite *s, const struct launch_world *w)
{
  for (int i = 0; i < s->n; i++) {
    const struct suite_case *of = &s->cases[i];
    int counts[ASKED_RANKS];
    if (!plan_wants(a, of, &of->config)) continue;
    if (of->scale == SCALE_LAYOUT) {
      TRY(add_layout(p, a, s, of));
      continue;
    }
    const int n = rank_counts(a, w->slots / (int)of->config.threads > 0 ? w->slots / (int)of->config.threads : 1, counts);
    bool has_base = a->base == 0;
    for (int k = 0; k < n; k++) {
      has_base = has_base || counts[k] == a->base;
      TRY(add_point(p, a, s, of, counts[k]));
    }
    if (!has_base) TRY(add_point(p, a, s, of, a->base));
  }
  return ERR_OK;
}

/* --- run --------------------------------------------------------------------------------- */

static bool on_own_cores(const struct session *s, const struct run_config *c)
{
  return config_ranks(c) * c->threads <= s->world.slots;
}

/* Points of the suite that still wait, each with what is to be timed for it. */
static int gather(const struct session *s, const struct suite *suite, struct point *points, int max)
{
  const struct plan *p = &s->plan;
  int n = 0;
  for (int i = 0; i < p->n_trials && n < max; i++) {
    const struct trial *t = &p->trials[i];
    if (t->part != PART_POINT || t->suite != suite || t->state != TRIAL_WAITING) continue;
    points[n++] = (struct point){.trial = i, .ranks = p->runs[t->run].ranks, .want_loss = NAN};
  }
  return n;
}

/* N0 of a point's curve: as asked, else the smallest count of the curve.  A layout's is one rank, with the same
 * global batch. */
static const struct trial *base_of(const struct session *s, const struct point *q, struct run_config *out)
{
  const struct plan *p = &s->plan;
  const struct trial *own = &p->trials[q->trial], *best = own;
  for (int i = 0; i < p->n_trials && own->of->scale != SCALE_LAYOUT; i++) {
    const struct trial *t = &p->trials[i];
    if (t->part != PART_POINT || t->of != own->of || t->run < 0) continue;
    const int ranks = p->runs[t->run].ranks, now = p->runs[best->run].ranks;
    if (s->asked->base ? ranks == s->asked->base : ranks < now) best = t;
  }
  *out = p->runs[best->run].config;
  if (own->of->scale == SCALE_LAYOUT) cut_serial(out);
  return best;
}

/* What has to be timed for a point: nothing without its conformance case. */
static void choose(struct timing *b, struct point *q)
{
  const struct plan *p = &b->s->plan;
  const struct trial *t = &p->trials[q->trial];
  const struct run_config *c = &p->runs[t->run].config;
  struct run_config c0;
  char label[CONFIG_NAME], why[256];
  const struct trial *base = base_of(b->s, q, &c0);
  q->base_ranks = (int)config_ranks(&c0);
  if (t->of->correctness_only || !proof_holds(&p->trials[t->twin], why, sizeof why)) return;
  q->only = proof_no_speed(c) ? proof_no_speed(c) : proof_no_speed(&c0);
  if (q->only || !on_own_cores(b->s, c) || !on_own_cores(b->s, &c0)) return;
  q->own = timing_add(b, c, 0, t->name, t->of->seconds);
  snprintf(label, sizeof label, "%.110s%s", base->name, base == t && q->base_ranks != q->ranks ? "-one-rank" : "");
  q->base = timing_add(b, &c0, 0, label, t->of->seconds);
  if (q->ranks == 1) return;
  struct run_config one = c0; /* the curve's own one-rank run, else one rank's share of N0 */
  cut_serial(&one);
  one.global_batch /= q->base_ranks;
  snprintf(label, sizeof label, "%.90s-alone", t->of->name);
  q->alone = timing_add(b, &one, 0, label, t->of->seconds);
  snprintf(label, sizeof label, "%.90s-copies%d", t->of->name, q->ranks);
  if (!b->s->world.hosts[0]) q->copies = timing_add(b, &one, q->ranks, label, t->of->seconds);
}

static enum err time_points(struct timing *b, struct point *points, int n)
{
  for (int i = 0; i < n; i++) choose(b, &points[i]);
  TRY(timing_all(b));
  for (int i = 0; i < n && !interrupt_seen(); i++)
    if (points[i].own && !b->never_quiet)
      TRY(timing_one_rank_loss(b, points[i].own, b->s->plan.trials[points[i].trial].name, &points[i].want_loss));
  for (int i = 0; i < n && !interrupt_seen(); i++) TRY(point_settle(b, &points[i]));
  return ERR_OK;
}

enum err scaling_run(struct session *s, const struct suite *suite)
{
  struct timing b;
  const int most = s->plan.n_trials + 1;
  struct point *points = calloc((size_t)most, sizeof *points);
  if (points == NULL) FAIL(ERR_MEMORY, "%d points", most);
  enum err err = timing_create(s, &b);
  if (!err) {
    err = time_points(&b, points, gather(s, suite, points, most));
    timing_free(&b);
  }
  free(points);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
