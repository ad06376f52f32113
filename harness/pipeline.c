/* pipeline.c */
#include "harness/pipeline.h"
#include "harness/interrupt.h"
#include "harness/cut.h"
#include "harness/proof.h"
#include "harness/timing.h"
#include "harness/trial.h"

#include "base/clock.h"
#include "suites/checks/idle.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- plan ----------------------------------------------------------------------------- */

static enum err add_case(struct plan *p, const struct asked *a, const struct suite *s, const struct suite_case *of)
{
  struct run_config c, measured = of->config;
  char skip[512];
  int proof, index;
  TRY(plan_settings(a, of, &c, skip, sizeof skip));
  if (!plan_wants(a, of, &c)) return ERR_OK;
  if (*skip) return plan_add_skipped(p, s, of, skip);
  TRY(asked_lay_over(a, &measured));
  TRY(proof_add(p, s, of, &measured, of->name, &proof));
  TRY(plan_add_trial(p, s, of, of->name, &c, PART_TIMED, &index));
  p->trials[index].twin = proof;
  return ERR_OK;
}

enum err pipeline_plan(struct plan *p, const struct asked *a, const struct suite *s)
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

static enum err time_trial(struct session *s, int index)
{
  struct trial *t = &s->plan.trials[index];
  const struct run *run = &s->plan.runs[t->run];
  const bool sleeps = run->config.compute == COMPUTE_SLEEP;
  char why[512];
  if (!proof_holds(&s->plan.trials[t->twin], why, sizeof why)) return settle(s, index, OUTCOME_INVALID, why);
  if (!sleeps && run->ranks * run->config.threads > s->world.slots) {
    snprintf(why, sizeof why, "not timed: %d ranks of %lld threads need cores of their own, there are %d; %s passed",
             run->ranks, (long long)run->config.threads, s->world.slots, s->plan.trials[t->twin].name);
    return settle(s, index, OUTCOME_SKIPPED, why);
  }
  struct env e;
  env_look(250, &e);
  t->elsewhere = e.busy_elsewhere;
  const struct runner_timed job = {.runs = &t->run, .n = 1, .cores_each = sleeps ? 0 : (int)run->config.threads};
  return runner_timed(&s->runner, &job, 1); /* session_on_ended judges it */
}

void pipeline_settle(struct trial *t)
{
  char sentence[sizeof t->sentence];
  if (t->outcome != OUTCOME_FAIL || timing_quiet(t->elsewhere)) return;
  for (int i = 0; i < t->n_verdicts; i++) { /* a bubble without a value is wrong in its passes, not in its time */
    const struct verdict *v = &t->verdicts[i];
    if (v->outcome == OUTCOME_FAIL && (strcmp(v->check, "bubble") != 0 || isnan(v->value))) return;
  }
  t->outcome = OUTCOME_INCONCLUSIVE;
  snprintf(sentence, sizeof sentence, "others used %.1f cores when it began: %.500s", t->elsewhere, t->sentence);
  memcpy(t->sentence, sentence, sizeof sentence);
}

static bool may_start(struct session *s, int index)
{
  const double spent_s = (clock_ms() - s->runner.started_ms) / 1e3,
               wanted_s = s->plan.runs[s->plan.trials[index].run].estimate_s;
  if (interrupt_seen() || s->runner.unusable || s->runner.enough) return false;
  s->runner.out_of_budget = s->runner.budget_s > 0 && spent_s + wanted_s > s->runner.budget_s;
  return !s->runner.out_of_budget;
}

enum err pipeline_run(struct session *s, const struct suite *suite)
{
  double elsewhere = 0;
  int left = 0;
  for (int i = 0; i < s->plan.n_trials; i++)
    left += s->plan.trials[i].suite == suite && s->plan.trials[i].part == PART_TIMED &&
            s->plan.trials[i].state == TRIAL_WAITING;
  runner_phase(&s->runner, left, true);
  if (left) timing_wait_for_quiet(s, &elsewhere); /* if it stays loud, what is measured shows how late it is */
  for (int i; (i = next_trial(&s->plan, suite)) >= 0 && may_start(s, i);) TRY(time_trial(s, i));
  return ERR_OK;
}

/* --- records ----------------------------------------------------------------------------- */

static void record_parts(struct record_file *f, const struct idle *x)
{
  static const struct {
    const char *key;
    size_t offset;
  } parts[] = {{"got.stage_idle_ms", offsetof(struct idle_stage, idle_ms)},
               {"got.stage_schedule_ms", offsetof(struct idle_stage, schedule_ms)},
               {"got.stage_imbalance_ms", offsetof(struct idle_stage, imbalance_ms)},
               {"got.stage_transfer_ms", offsetof(struct idle_stage, transfer_ms)}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    double list[SCHEDULE_RANKS_MAX];
    for (int k = 0; k < x->stages; k++) list[k] = *(const double *)((const char *)&x->stage[k] + parts[i].offset);
    record_reals(f, parts[i].key, list, x->stages);
  }
}

static enum err record_bubble(struct record_file *f, const struct trial *t, const struct run_config *c,
                              const struct idle *x)
{
  struct cut_pipeline equal;
  char layout[CONFIG_NAME];
  TRY(cut_verify(c, &equal));
  cut_text(c, layout, sizeof layout);
  record_begin(f, "bubble", -1, -1);
  record_text(f, "got.suite", t->suite->name);
  record_text(f, "got.layout", layout);
  record_text(f, "got.schedule", schedule_name((enum schedule_kind)c->schedule));
  record_text(f, "got.compute", c->compute == COMPUTE_SLEEP ? "sleep" : "real");
  record_int(f, "got.stages", x->stages);
  record_int(f, "got.chunks", c->chunks);
  record_int(f, "got.microbatches", config_accumulation(c));
  record_int(f, "got.steps", x->steps);
  record_real(f, "got.window_ms", x->total_ms);
  record_real(f, "got.bubble_ms", x->bubble_ms);
  record_real(f, "got.of_ideal", x->bubble_ms / x->busy_ms);
  record_real(f, "got.of_total", x->bubble_ms / x->total_ms);
  record_real(f, "got.simulated_window_ms", x->simulated_total_ms);
  record_real(f, "got.simulated_bubble_ms", x->simulated_bubble_ms);
  record_real(f, "got.equal_of_ideal", equal.of_ideal);
  record_real(f, "got.equal_of_total", equal.of_total);
  record_real(f, "got.forward_ms", x->forward_ms);
  record_real(f, "got.input_ms", x->input_ms);
  record_real(f, "got.weight_ms", x->weight_ms);
  record_real(f, "got.transfer_ms", x->transfer_ms);
  record_real(f, "got.late_ms", x->late_ms);
  record_int(f, "got.live", equal.live);
  record_parts(f, x);
  return record_end(f);
}

/* Compute and transfers of one stage, in the order of its list. */
static enum err record_timeline(struct record_file *f, const struct idle *x, int stage)
{
  enum { ACTIONS = 4096, TEXT = 32 };
  const struct idle_stage *of = &x->stage[stage];
  const char *passes[ACTIONS];
  char texts[ACTIONS][TEXT];
  const int n = of->n < ACTIONS ? of->n : ACTIONS; /* more than that nobody can see in a figure */
  for (int i = 0; i < n; i++) {
    const struct schedule_action *a = &x->schedule->list[stage][i];
    snprintf(texts[i], TEXT, "%s %d %d", schedule_pass_name(a->pass), a->microbatch, a->chunk);
    passes[i] = texts[i];
  }
  record_begin(f, "timeline", x->shown, -1);
  record_int(f, "got.stage", stage);
  record_texts(f, "got.passes", passes, n);
  record_reals(f, "got.start_ms", of->start_ms, n);
  record_reals(f, "got.end_ms", of->end_ms, n);
  record_reals(f, "got.simulated_start_ms", of->simulated_start_ms, n);
  record_reals(f, "got.simulated_end_ms", of->simulated_end_ms, n);
  return record_end(f);
}

enum err pipeline_record(const struct plan *p, const struct trial *t, const struct results *r)
{
  enum err err;
  struct record_file *f;
  struct idle x;
  if (t->run < 0 || t->part != PART_TIMED || t->state != TRIAL_JUDGED) return ERR_OK;
  const struct run *run = &p->runs[t->run];
  if (!run->ended || idle_measure(&run->data, 0, 0, &x) != ERR_OK) return ERR_OK; /* its check says why */
  TRY_TO(free_idle, record_open(r->records, t->name, -1, &f));
  err = record_bubble(f, t, &run->config, &x);
  for (int stage = 0; !err && stage < x.stages; stage++) err = record_timeline(f, &x, stage);
  record_close(f);
free_idle:
  idle_free(&x);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
