/* fit.c - probes, and what follows from them. */
#include "harness/fit.h"
#include "harness/interrupt.h"
#include "harness/stats.h"
#include "harness/timing.h"

#include "suites/checks/hidden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TRIES = 6, PAIRS = 2, STEPS = 4, GROWTH_MAX = 16 };
enum { MARGIN = 6 }; /* inside of the band, %, so that noise does not leave it */
enum { APART = 10 }; /* points between pairs of one probe: more is a load that came or went */

int64_t fit_next(int64_t now, double percent, int64_t most)
{
  if (percent >= HIDDEN_LEAST + MARGIN && percent <= HIDDEN_MOST - MARGIN) return now;
  const int64_t next = llround((double)now * percent / HIDDEN_WANTED);
  return next < 1 ? 1 : next > most ? most : next;
}

bool fit_steady(const double *percent, int n)
{
  double low = INFINITY, high = -INFINITY;
  for (int i = 0; i < n; i++) {
    low = fmin(low, percent[i]);
    high = fmax(high, percent[i]);
  }
  return high - low <= APART;
}

static bool is_fitted(const struct trial *t)
{
  for (int i = 0; i < t->n_checks; i++)
    if (strcmp(t->checks[i]->name, "bare") == 0) return true;
  return false;
}

/* As many micro-batches of another size. */
static enum err resize(struct run_config *c, int64_t micro_batch)
{
  c->global_batch = c->global_batch / c->micro_batch * micro_batch;
  c->micro_batch = micro_batch;
  TRY(config_finish(c));
  return ERR_OK;
}

/* --- probes ----------------------------------------------------------------------- */

static enum err add_probe(struct plan *p, const struct trial *t, const struct run_config *c, int attempt, int number, int *out)
{
  struct run_config probe = *c;
  if (probe.steps > STEPS) probe.steps = STEPS;
  snprintf(probe.name, sizeof probe.name, "%.90s-fit%d-%s%d", t->name, attempt + 1, number % 2 ? "alone" : "silent", number / 2 + 1);
  TRY(config_finish(&probe));
  TRY(plan_add_run(p, probe.name, &probe, t->of->seconds, out));
  TRY(plan_place(p, *out));
  return ERR_OK;
}

/* One job of pairs; *percent: median over them, NaN where a run did not end; *steady: they agree. */
static enum err probe(struct session *s, const struct trial *t, const struct run_config *c, int attempt, double *percent, bool *steady)
{
  int runs[2 * PAIRS];
  double each[PAIRS];
  int n = 0;
  struct plan *p = &s->plan;
  struct run_config silent, alone;
  *percent = NAN;
  *steady = false;
  hidden_probe(c, &silent, &alone);
  for (int i = 0; i < 2 * PAIRS; i++) TRY(add_probe(p, t, i % 2 ? &alone : &silent, attempt, i, &runs[i]));
  s->runner.total += 2 * PAIRS;
  const struct runner_timed job = {.runs = runs, .n = 2 * PAIRS, .cores_each = (int)c->threads, .hosts = (int)t->of->hosts};
  TRY(runner_timed(&s->runner, &job, 1));
  for (int i = 0; i < PAIRS; i++) {
    const struct run *a = &p->runs[runs[2 * i]], *b = &p->runs[runs[2 * i + 1]];
    if (a->ended && b->ended && hidden_ratio(&a->data, &b->data, &each[n]) == ERR_OK) n++;
  }
  err_clear();
  for (int i = 0; i < 2 * PAIRS; i++) {
    json_decref((json_t *)p->runs[runs[i]].data.records);
    p->runs[runs[i]].data.records = NULL;
  }
  if (n < PAIRS) return ERR_OK;
  *steady = fit_steady(each, n);
  *percent = stats_median(each, n);
  return ERR_OK;
}

/* --- who gets it ------------------------------------------------------------------ */

enum { RUNS_MAX = SUITE_CHECKS_MAX * JUDGE_COMPANIONS_MAX + 1 };

/* What an earlier invocation left of a trial has its size. */
static bool is_begun(const struct plan *p, const struct trial *t)
{
  int runs[RUNS_MAX];
  const int n = plan_runs_of(t, runs, RUNS_MAX);
  for (int i = 0; i < n; i++)
    if (p->runs[runs[i]].ended) return true;
  return false;
}

static enum err resize_trial(struct plan *p, const struct trial *t, int64_t was, int64_t micro_batch)
{
  int runs[RUNS_MAX];
  const int n = plan_runs_of(t, runs, RUNS_MAX);
  for (int i = 0; i < n; i++)
    if (p->runs[runs[i]].config.micro_batch == was) TRY(resize(&p->runs[runs[i]].config, micro_batch));
  return ERR_OK;
}

static enum err resize_all(struct plan *p, const struct trial *like, int64_t was, int64_t micro_batch)
{
  for (int i = 0; i < p->n_trials; i++) {
    const struct trial *t = &p->trials[i];
    if (t->suite != like->suite || t->part != PART_TIMED || t->state != TRIAL_WAITING || t->of->hosts != like->of->hosts) continue;
    if (!is_begun(p, t)) TRY(resize_trial(p, t, was, micro_batch));
  }
  return ERR_OK;
}

enum err fit_trial(struct session *s, int index)
{
  const struct trial *t = &s->plan.trials[index];
  struct run_config c = s->plan.runs[t->run].config;
  const int64_t was = c.micro_batch, most = GROWTH_MAX * was;
  double percent = NAN, elsewhere;
  bool steady;
  if (!is_fitted(t) || is_begun(&s->plan, t)) return ERR_OK;
  for (int attempt = 0; attempt < TRIES && !interrupt_seen(); attempt++) {
    timing_wait_for_quiet(s, &elsewhere);
    TRY(probe(s, t, &c, attempt, &percent, &steady));
    if (isnan(percent)) return ERR_OK;
    if (!steady && attempt + 1 < TRIES) continue; /* the same once more */
    const int64_t next = fit_next(c.micro_batch, percent, most);
    if (next == c.micro_batch) break;
    TRY(resize(&c, next));
  }
  progress_say(&s->progress, "%s: micro_batch %lld: with %lld transfers alone take about %.0f %% of compute alone", t->name, (long long)c.micro_batch,
               (long long)c.micro_batch, percent);
  return was == c.micro_batch ? ERR_OK : resize_all(&s->plan, t, was, c.micro_batch);
}
