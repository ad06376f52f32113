/* timing.c - jobs of a scaling run, and their samples. */
#include "harness/timing.h"
#include "harness/interrupt.h"
#include "harness/cut.h"
#include "harness/stats.h"
#include "harness/trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double quiet_cores = 0.2; /* of others, median over looks: beyond, the machine is not ours */
enum { QUIET_LOOKS = 20 };             /* of half a second                                              */

enum err timing_create(struct session *s, struct timing *out)
{
  *out = (struct timing){.s = s};
  out->list = calloc(TIMING_SETTINGS, sizeof *out->list);
  if (out->list == NULL) FAIL(ERR_MEMORY, "%d settings to time", TIMING_SETTINGS);
  return ERR_OK;
}

static void forget_records(struct run *run)
{
  json_decref((json_t *)run->data.records);
  run->data.records = NULL;
}

void timing_free(struct timing *b)
{
  for (int i = 0; i < b->n; i++)
    if (b->list[i].first_run >= 0) forget_records(&b->s->plan.runs[b->list[i].first_run]);
  free(b->list);
  *b = (struct timing){0};
}

struct timing_setting *timing_add(struct timing *b, const struct run_config *c, int copies, const char *label, double seconds)
{
  for (int i = 0; i < b->n; i++)
    if (b->list[i].copies == copies && plan_same(&b->list[i].config, c)) return &b->list[i];
  BUG_IF(b->n == TIMING_SETTINGS);
  struct timing_setting *m = &b->list[b->n++];
  *m = (struct timing_setting){.config = *c, .copies = copies, .seconds = seconds, .first_run = -1};
  snprintf(m->label, sizeof m->label, "%s", label);
  return m;
}

/* One repeat of one setting. */
static enum err time_one(struct timing *b, struct timing_setting *m, int repeat)
{
  struct runner *r = &b->s->runner;
  const int width = m->copies ? m->copies : 1;
  int runs[LAUNCH_CORES] = {0};
  struct runner_timed jobs[LAUNCH_CORES] = {0};
  struct sample *out = &m->samples[repeat];
  *out = (struct sample){.ok = true};
  for (int k = 0; k < width; k++) {
    char name[CONFIG_NAME];
    snprintf(name, sizeof name, m->copies ? "%.90s-r%d-copy%d" : "%.90s-r%d", m->label, repeat + 1, k + 1);
    TRY(plan_add_run(r->plan, name, &m->config, m->seconds, &runs[k]));
    TRY(plan_place(r->plan, runs[k]));
  }
  for (int k = 0; k < width; k++)
    jobs[k] = (struct runner_timed){.runs = &runs[k], .n = 1, .cores_each = (int)m->config.threads, .first_core = k * (int)m->config.threads};
  TRY(runner_timed(r, jobs, width));
  double sum = 0;
  for (int k = 0; k < width; k++) {
    struct run *run = &r->plan->runs[runs[k]];
    struct sample one = {.ok = false};
    struct verdict end;
    if (!run->ended) snprintf(one.why, sizeof one.why, "the run was stopped");
    else {
      trial_of_end(&run->data, &end);
      if (end.outcome == OUTCOME_PASS) sample_take(&run->data, &one);
      else {
        one.wrong = end.outcome == OUTCOME_FAIL;
        snprintf(one.why, sizeof one.why, "%.250s", end.sentence);
      }
    }
    sum += one.tokens_per_s;
    if (k == 0 || !one.ok) *out = one;
    if (repeat == 0 && !m->copies) m->first_run = runs[k]; /* judged by the case's own checks */
    else forget_records(run);
  }
  if (out->ok) out->tokens_per_s = sum / width;
  m->n_samples = repeat + 1;
  return ERR_OK;
}

/* One rank with the threads of a point; the task goes over 1024, 2048 and 4096. */
static enum err time_gemm(struct timing *b, int64_t threads, int which)
{
  struct runner *r = &b->s->runner;
  struct run_config c;
  int index, at = 0;
  config_default(&c);
  snprintf(c.name, sizeof c.name, "gemm%d-threads%d", which, (int)threads);
  TRY(config_set(&c, "task", "gemm"));
  TRY(config_set(&c, "size", "1024"));
  TRY(config_set(&c, "repeats", "3"));
  c.threads = threads;
  TRY(config_finish(&c));
  TRY(plan_add_run(r->plan, c.name, &c, 60, &index));
  TRY(plan_place(r->plan, index));
  const struct runner_timed job = {.runs = &index, .n = 1, .cores_each = (int)threads};
  TRY(runner_timed(r, &job, 1));
  struct run *run = &r->plan->runs[index];
  const double rate = run->ended ? sample_rate(run->data.records) : NAN;
  forget_records(run);
  while (at < b->n_rates && b->rates[at].threads != threads) at++;
  if (at == TIMING_THREADS) return ERR_OK;
  if (at == b->n_rates) b->rates[b->n_rates++].threads = threads, b->rates[at].rate = NAN;
  if (isfinite(rate) && !(b->rates[at].rate >= rate)) b->rates[at].rate = rate;
  return ERR_OK;
}

/* Each number of threads that a setting has, once. */
static enum err time_gemms(struct timing *b, int which)
{
  for (int i = 0; i < b->n && !interrupt_seen(); i++) {
    bool done = false;
    for (int k = 0; k < i; k++) done = done || b->list[k].config.threads == b->list[i].config.threads;
    if (!done) TRY(time_gemm(b, b->list[i].config.threads, which));
  }
  return ERR_OK;
}

double timing_rate(const struct timing *b, int64_t threads)
{
  for (int i = 0; i < b->n_rates; i++)
    if (b->rates[i].threads == threads) return b->rates[i].rate;
  return NAN;
}

double timing_elsewhere(const struct timing *b) { return b->n_looks ? stats_median(b->elsewhere, b->n_looks) : NAN; }
bool timing_quiet(double cores_elsewhere) { return !(cores_elsewhere > quiet_cores); }

bool timing_wait_for_quiet(struct session *s, double *cores_elsewhere)
{
  for (int look = 0; look < QUIET_LOOKS && !interrupt_seen(); look++) {
    struct env e;
    env_look(500, &e);
    *cores_elsewhere = e.busy_elsewhere;
    if (timing_quiet(e.busy_elsewhere)) return true;
    progress_show(&s->progress, "waiting for a quiet machine", 0, s->runner.total, -1);
  }
  return false;
}

enum err timing_all(struct timing *b)
{
  b->never_quiet = b->n && !timing_wait_for_quiet(b->s, &b->elsewhere[0]) && !b->s->asked->full;
  if (b->never_quiet) {
    b->n_looks = 1;
    return ERR_OK;
  }
  int total = 0;
  for (int i = 0; i < b->n; i++) total += TIMING_REPEATS * (b->list[i].copies ? b->list[i].copies : 1);
  runner_phase(&b->s->runner, total, true);
  for (int repeat = 0; repeat < TIMING_REPEATS && !interrupt_seen(); repeat++) {
    struct env e;
    env_look(250, &e);
    if (isfinite(e.busy_elsewhere)) b->elsewhere[b->n_looks++] = e.busy_elsewhere;
    if (repeat == 0 || repeat == TIMING_REPEATS - 1) TRY(time_gemms(b, repeat ? 2 : 1));
    for (int i = 0; i < b->n && !interrupt_seen(); i++)
      TRY(time_one(b, &b->list[repeat % 2 ? b->n - 1 - i : i], repeat));
  }
  return ERR_OK;
}

enum err timing_one_rank_loss(struct timing *b, const struct timing_setting *of, const char *name, double *out)
{
  struct runner *r = &b->s->runner;
  char label[CONFIG_NAME];
  int index;
  struct sample s;
  struct run_config one = of->config;
  *out = NAN;
  cut_serial(&one);
  for (int i = 0; i < b->n; i++) /* timed anyhow */
    if (b->list[i].copies == 0 && b->list[i].n_samples && plan_same(&b->list[i].config, &one)) {
      *out = b->list[i].samples[0].first_loss;
      return ERR_OK;
    }
  one.steps = 1;
  snprintf(label, sizeof label, "%.90s-one-rank", name);
  TRY(plan_add_run(r->plan, label, &one, of->seconds, &index));
  TRY(plan_place(r->plan, index));
  const struct runner_timed job = {.runs = &index, .n = 1, .cores_each = (int)one.threads};
  TRY(runner_timed(r, &job, 1));
  struct run *run = &r->plan->runs[index];
  if (run->ended) {
    sample_take(&run->data, &s);
    *out = s.first_loss;
  }
  forget_records(run);
  return ERR_OK;
}
