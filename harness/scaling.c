/* scaling.c - which points a curve has, what proves each right, and what is timed for it. */
#include "harness/scaling.h"
#include "harness/interrupt.h"
#include "harness/point.h"

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

static void at_ranks(const struct suite_case *of, int ranks, struct run_config *c)
{
  c->dp = ranks;
  if (of->scale == SCALE_WEAK) c->global_batch *= ranks;
}

/* The trial that proves the layout right; points that differ only in model share it. */
static enum err add_evidence(struct plan *p, const struct asked *a, const struct suite *s, const struct suite_case *of, int ranks, int *out)
{
  char name[CONFIG_NAME];
  struct run_config c = of->config;
  TRY(asked_lay_over(a, &c));
  at_ranks(of, ranks, &c);
  TRY(suite_lay_evidence(s, &c));
  const int64_t unit = c.dp * c.micro_batch;
  c.global_batch = (c.global_batch + unit - 1) / unit * unit; /* as many whole micro-batches for every rank */
  snprintf(c.name, sizeof c.name, "evidence");
  if (config_finish(&c)) FAIL(ERR_CONFIG, "%s: evidence of '%s' at %d ranks: %s", of->where, of->name, ranks, err_text());
  for (int i = 0; i < p->n_trials; i++)
    if (p->trials[i].part == PART_EVIDENCE && p->trials[i].suite == s && plan_same(&p->runs[p->trials[i].run].config, &c)) {
      *out = i;
      return ERR_OK;
    }
  snprintf(name, sizeof name, "%.100s-n%d-evidence", of->name, ranks);
  return plan_add_trial(p, s, &s->evidence, name, &c, PART_EVIDENCE, out);
}

static enum err add_point(struct plan *p, const struct asked *a, const struct suite *s, const struct suite_case *of, int ranks)
{
  char name[CONFIG_NAME];
  int evidence, point, run;
  struct run_config c = of->config;
  TRY(asked_lay_over(a, &c));
  at_ranks(of, ranks, &c);
  snprintf(c.name, sizeof c.name, "point");
  const enum err err = config_finish(&c);
  if (err == ERR_CONFIG && a->n_ranks == 0 && model_shape_find(c.model)) return ERR_OK; /* a default count that does not divide */
  if (err) FAIL(err, "%s: '%s' at %d ranks: %s", of->where, of->name, ranks, err_text());
  TRY(add_evidence(p, a, s, of, ranks, &evidence));
  snprintf(name, sizeof name, "%.100s-n%d", of->name, ranks);
  TRY(plan_add_run(p, name, &c, of->seconds, &run));
  TRY(plan_add_trial(p, s, of, name, &c, PART_POINT, &point));
  p->trials[point].run = run; /* its first repeat */
  p->trials[point].twin = evidence;
  return ERR_OK;
}

enum err scaling_plan(struct plan *p, const struct asked *a, const struct suite *s, const struct launch_world *w)
{
  for (int i = 0; i < s->n; i++) {
    const struct suite_case *of = &s->cases[i];
    int counts[ASKED_RANKS];
    if (!plan_wants(a, of, &of->config)) continue;
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

/* N0 of a point's curve: as asked, else the smallest count of the curve. */
static int base_of(const struct session *s, const struct point *q)
{
  const struct plan *p = &s->plan;
  const struct suite_case *of = p->trials[q->trial].of;
  int best = q->trial;
  for (int i = 0; i < p->n_trials; i++) {
    const struct trial *t = &p->trials[i];
    if (t->part != PART_POINT || t->of != of) continue;
    const int ranks = p->runs[t->run].ranks, now = p->runs[p->trials[best].run].ranks;
    if (s->asked->base ? ranks == s->asked->base : ranks < now) best = i;
  }
  return best;
}

/* What has to be timed for a point: nothing without its conformance case. */
static void choose(struct timing *b, struct point *q)
{
  const struct plan *p = &b->s->plan;
  const struct trial *t = &p->trials[q->trial], *evidence = &p->trials[t->twin], *base = &p->trials[base_of(b->s, q)];
  const struct run_config *c = &p->runs[t->run].config, *c0 = &p->runs[base->run].config;
  q->base_ranks = (int)config_ranks(c0);
  if (t->of->correctness_only || evidence->state != TRIAL_JUDGED || evidence->outcome != OUTCOME_PASS) return;
  if (!on_own_cores(b->s, c) || !on_own_cores(b->s, c0)) return;
  q->own = timing_add(b, c, 0, t->name, t->of->seconds);
  q->base = timing_add(b, c0, 0, base->name, t->of->seconds);
  if (q->ranks == 1) return;
  struct run_config one = *c0; /* the curve's own one-rank run, else one rank's share of N0 */
  char label[CONFIG_NAME];
  one.global_batch /= q->base_ranks;
  one.dp = 1;
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
