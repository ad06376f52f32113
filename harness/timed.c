/* timed.c - cases that are judged from runs which have the machine to themselves. */
#include "harness/timed.h"
#include "harness/fit.h"
#include "harness/interrupt.h"
#include "harness/proof.h"
#include "harness/sample.h"
#include "harness/timing.h"
#include "harness/trial.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RUNS_MAX = SUITE_CHECKS_MAX * JUDGE_COMPANIONS_MAX + 1 };

/* --- plan ----------------------------------------------------------------------------- */

static enum err add_case(struct plan *p, const struct asked *a, const struct suite *s, const struct suite_case *of)
{
  struct run_config c, measured = of->config;
  char skip[512];
  int proof = -1, index;
  TRY(plan_settings(a, of, &c, skip, sizeof skip));
  if (!plan_wants(a, of, &c)) return ERR_OK;
  if (*skip) return plan_add_skipped(p, s, of, skip);
  TRY(asked_lay_over(a, &measured));
  if (suite_has_evidence(s->kind)) TRY(proof_add(p, s, of, &measured, of->name, &proof));
  TRY(plan_add_trial(p, s, of, of->name, &c, PART_TIMED, &index));
  p->trials[index].twin = proof;
  return ERR_OK;
}

enum err timed_plan(struct plan *p, const struct asked *a, const struct suite *s)
{
  for (int i = 0; i < s->n; i++) TRY(add_case(p, a, s, &s->cases[i]));
  return ERR_OK;
}

/* --- run ------------------------------------------------------------------------------- */

static enum err settle(struct session *s, int index, enum outcome outcome, const char *why)
{
  struct trial *t = &s->plan.trials[index];
  t->state = TRIAL_JUDGED;
  t->outcome = outcome;
  snprintf(t->reason, sizeof t->reason, "not timed");
  snprintf(t->sentence, sizeof t->sentence, "%s", why);
  return session_settled(s, index);
}

/* The next that waits, of the best priority; -1: none. */
static int next_trial(const struct plan *p, const struct suite *suite)
{
  int best = -1;
  for (int i = 0; i < p->n_trials; i++) {
    const struct trial *t = &p->trials[i];
    if (t->suite != suite || t->part != PART_TIMED || t->state != TRIAL_WAITING || p->runs[t->run].ended) continue;
    if (best < 0 || t->priority < p->trials[best].priority) best = i;
  }
  return best;
}

/* Its runs that have not ended, in the order in which its checks ask for them. */
static int left_of(const struct plan *p, const struct trial *t, int out[RUNS_MAX])
{
  int all[RUNS_MAX], left = 0;
  const int n = plan_runs_of(t, all, RUNS_MAX);
  for (int i = 0; i < n; i++)
    if (!p->runs[all[i]].ended) out[left++] = all[i];
  return left;
}

/* One job of all of them; when it dies in one of them, another of those after it. */
static enum err run_all(struct session *s, const struct trial *t, int cores_each)
{
  int runs[RUNS_MAX], before = RUNS_MAX + 1;
  for (int n; (n = left_of(&s->plan, t, runs)) > 0 && n < before && !interrupt_seen(); before = n) {
    const struct runner_timed job = {.runs = runs, .n = n, .cores_each = cores_each, .hosts = (int)t->of->hosts};
    TRY(runner_timed(&s->runner, &job, 1)); /* session_on_ended judges the trial */
  }
  return ERR_OK;
}

static enum err time_trial(struct session *s, int index)
{
  struct trial *t = &s->plan.trials[index];
  const struct run *run = &s->plan.runs[t->run];
  const bool sleeps = run->config.compute == COMPUTE_SLEEP;
  const char *no_speed = suite_shows_speed(t->suite->kind) && !sleeps ? proof_no_speed(&run->config) : NULL;
  char why[512], passed[128] = "";
  if (t->twin >= 0) snprintf(passed, sizeof passed, "; %.100s passed", s->plan.trials[t->twin].name);
  if (t->twin >= 0 && !proof_holds(&s->plan.trials[t->twin], why, sizeof why)) return settle(s, index, OUTCOME_INVALID, why);
  if (no_speed) {
    snprintf(why, sizeof why, "not timed: %s%s", no_speed, passed);
    return settle(s, index, OUTCOME_SKIPPED, why);
  }
  if (launch_check_hosts(&s->world, (int)t->of->hosts, run->ranks) != ERR_OK) {
    snprintf(why, sizeof why, "not timed: %.300s%s", err_text(), passed);
    err_clear();
    return settle(s, index, OUTCOME_SKIPPED, why);
  }
  if (!sleeps && run->ranks * run->config.threads > s->world.slots) {
    snprintf(why, sizeof why, "not timed: %d ranks of %lld threads need cores of their own, there are %d%s", run->ranks,
             (long long)run->config.threads, s->world.slots, passed);
    return settle(s, index, OUTCOME_SKIPPED, why);
  }
  const int cores_each = sleeps ? 0 : (int)run->config.threads; /* probes are runs, too: the list of runs may move */
  if (t->suite->kind == KIND_OVERLAP) TRY(fit_trial(s, index));
  struct env e;
  env_look(250, &e);
  t->elsewhere = e.busy_elsewhere;
  return run_all(s, t, cores_each);
}

/* What was timed has trained: on cores of its own, to losses that are numbers, with replicas equal at the end. */
static void check_training(const struct plan *p, struct trial *t)
{
  int runs[RUNS_MAX];
  const int n = plan_runs_of(t, runs, RUNS_MAX);
  for (int i = 0; i < n && t->outcome != OUTCOME_FAIL; i++) {
    const struct run *run = &p->runs[runs[i]];
    struct sample s;
    if (!run->ended || run->config.task != TASK_TRAIN || !run->config.communicate || run->config.compute == COMPUTE_SLEEP) continue; /* replicas go apart; there are no losses */
    sample_take(&run->data, &s);
    if (s.ok) continue;
    t->outcome = s.wrong ? OUTCOME_FAIL : OUTCOME_INVALID;
    snprintf(t->reason, sizeof t->reason, "timed run");
    snprintf(t->sentence, sizeof t->sentence, "%s: %s", run->name, s.why);
    return;
  }
}

void timed_settle(const struct plan *p, struct trial *t)
{
  char sentence[sizeof t->sentence];
  const char *no_time = t->run < 0 ? NULL : proof_no_time(&p->runs[t->run].config);
  if (suite_shows_speed(t->suite->kind)) check_training(p, t);
  if (t->outcome != OUTCOME_FAIL || (no_time == NULL && timing_quiet(t->elsewhere))) return;
  if (strcmp(t->reason, "timed run") == 0) return;
  for (int i = 0; i < t->n_verdicts; i++) { /* a bubble without a value is wrong in its passes, not in its time */
    const struct verdict *v = &t->verdicts[i];
    static const char *const timing[] = {"bubble", "bare", "cost", "tracing", "gain", "imbalance", "heaviest", "blame"};
    bool of_time = false;
    for (size_t k = 0; k < sizeof timing / sizeof *timing; k++) of_time = of_time || strcmp(v->check, timing[k]) == 0;
    if (v->outcome == OUTCOME_FAIL && (!of_time || isnan(v->value))) return;
  }
  t->outcome = OUTCOME_INCONCLUSIVE;
  if (no_time) snprintf(sentence, sizeof sentence, "%s: %.500s", no_time, t->sentence);
  else snprintf(sentence, sizeof sentence, "others used %.1f cores when it began: %.500s", t->elsewhere, t->sentence);
  memcpy(t->sentence, sentence, sizeof sentence);
}

static bool may_start(struct session *s, int index)
{
  const double spent_s = (clock_ms() - s->runner.started_ms) / 1e3;
  double wanted_s = 0;
  int runs[RUNS_MAX];
  const int n = left_of(&s->plan, &s->plan.trials[index], runs);
  for (int i = 0; i < n; i++) wanted_s += s->plan.runs[runs[i]].estimate_s;
  if (interrupt_seen() || s->runner.unusable || s->runner.enough) return false;
  s->runner.out_of_budget = s->runner.budget_s > 0 && spent_s + wanted_s > s->runner.budget_s;
  return !s->runner.out_of_budget;
}

enum err timed_run(struct session *s, const struct suite *suite)
{
  double elsewhere = 0;
  int left = 0, runs[RUNS_MAX];
  for (int i = 0; i < s->plan.n_trials; i++)
    if (s->plan.trials[i].suite == suite && s->plan.trials[i].part == PART_TIMED && s->plan.trials[i].state == TRIAL_WAITING)
      left += left_of(&s->plan, &s->plan.trials[i], runs);
  runner_phase(&s->runner, left, true);
  if (left) timing_wait_for_quiet(s, &elsewhere); /* if it stays loud, what is measured shows how late it is */
  for (int i; (i = next_trial(&s->plan, suite)) >= 0 && may_start(s, i);) TRY(time_trial(s, i));
  return ERR_OK;
}
