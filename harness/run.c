/* run.c - the order of things in `shardmark run`. */
#include "harness/run.h"
#include "harness/dry.h"
#include "harness/frameworks.h"
#include "harness/interrupt.h"
#include "harness/cut.h"
#include "harness/memory.h"
#include "harness/scaling.h"
#include "harness/session.h"
#include "harness/timed.h"
#include "harness/trial.h"

#include "base/clock.h"
#include "base/nearest.h"
#include "reports/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum err load(struct session *s)
{
  for (int i = 0; i < s->asked->n_suites; i++) {
    char path[CONFIG_PATH];
    TRY(suite_path(s->asked->suites[i], path, sizeof path));
    TRY(suite_read(path, s->asked->full ? SUITE_FULL : SUITE_QUICK, &s->suites[i]));
    s->n_suites++;
    for (int k = 0; k < i; k++)
      if (strcmp(s->suites[k]->name, s->suites[i]->name) == 0) FAIL(ERR_CONFIG, "suite '%s' is named twice", s->suites[i]->name);
  }
  return ERR_OK;
}

static enum err check_fault(const struct asked *a)
{
  enum fault which;
  if (!*a->fault) return ERR_OK;
  TRY(fault_find(a->fault, &which));
  const struct fault_row *row = &fault_rows[which];
  if (row->status != FAULT_PLANTED)
    FAIL(ERR_UNAVAILABLE, "fault %s is %s: %s", a->fault, row->status == FAULT_LATER ? "not planted yet" : "impossible here", row->note);
  return ERR_OK;
}

/* A mistake of the command line, not of the first case that it is laid over. */
static enum err check_model(const struct asked *a)
{
  if (!*a->model || model_shape_find(a->model)) return ERR_OK;
  struct nearest near = nearest_to(a->model);
  char names[256];
  for (int i = 0; i < model_shapes_count; i++) nearest_offer(&near, model_shapes[i].name);
  FAIL(ERR_CONFIG, "--model %s: not known; nearest: %s", a->model, nearest_text(&near, names, sizeof names));
}

/* What a person asked instead of the suite's own settings must be had by a case of it. */
static enum err check_override(const struct session *s, const struct suite *suite, int before)
{
  const struct plan *p = &s->plan;
  if (p->n_trials == before || suite->kind == KIND_FRAMEWORKS) return ERR_OK; /* which may lack all its environments */
  for (int i = before; i < p->n_trials; i++)
    if (p->trials[i].run >= 0) return ERR_OK;
  FAIL(ERR_CONFIG, "no case of suite %s can have%s%s%s%s%s%s: %s", suite->name, *s->asked->model ? " --model " : "", s->asked->model,
       *s->asked->layout ? " --layout " : "", s->asked->layout, *s->asked->policy ? " --policy " : "", s->asked->policy, p->trials[before].sentence);
}

/* --policy changes no case that is about one: where all are, nothing would be other than without it. */
static enum err check_policy(const struct session *s, const struct suite *suite, int before)
{
  if (*s->asked->policy == '\0') return ERR_OK;
  for (int i = before; i < s->plan.n_trials; i++)
    if (s->plan.trials[i].of->config.policy == POLICY_PADDED) return ERR_OK;
  FAIL(ERR_CONFIG, "--policy %s: no case of suite %s is `padded`, so none would change; valid: suites that are, such as conformance and faults",
       s->asked->policy, suite->name);
}

static enum err make_plan(struct session *s)
{
  for (int i = 0; i < s->n_suites; i++) {
    const struct suite *suite = s->suites[i];
    const int before = s->plan.n_trials;
    if (suite->kind == KIND_FAULTS) TRY(faults_plan(&s->plan, s->asked, suite, &s->named));
    else if (suite->kind == KIND_SCALING) TRY(scaling_plan(&s->plan, s->asked, suite, &s->world));
    else if (suite->kind == KIND_FRAMEWORKS) TRY(frameworks_plan(&s->plan, s->asked, suite, &s->world));
    else if (suite_is_timed(suite->kind)) TRY(timed_plan(&s->plan, s->asked, suite));
    else TRY(plan_add_cases(&s->plan, s->asked, suite, PART_CASE));
    TRY(check_override(s, suite, before));
    TRY(check_policy(s, suite, before));
    if (s->plan.n_trials == before)
      FAIL(ERR_CONFIG, "suite %s has no case that fits: %s form%s%s%s%s%s%s%s", suite->name, s->asked->full ? "full" : "quick",
           s->asked->n_ranks ? ", --ranks" : "", *s->asked->only ? ", --only " : "", s->asked->only, *s->asked->layout ? ", --layout " : "",
           s->asked->layout, *s->asked->model ? ", --model " : "", s->asked->model);
  }
  TRY(plan_companions(&s->plan));
  s->kept = calloc((size_t)s->plan.n_runs + 1, sizeof *s->kept);
  if (s->kept == NULL) FAIL(ERR_MEMORY, "a list of %d runs", s->plan.n_runs);
  return ERR_OK;
}

/* Ranks that one host of the job may hold. */
static int ranks_a_host(const struct session *s) { return s->world.hosts[0] ? s->world.cores : 1 << 20; }

/* What of a layout can be told without a rank: that the launcher has room for it and splits no tensor group, and
 * that its schedule ends. */
static enum err check_layouts(const struct session *s)
{
  for (int i = 0; i < s->plan.n_runs; i++) {
    const struct run *r = &s->plan.runs[i];
    struct cut_pipeline pipeline;
    if (s->world.hosts[0] && r->ranks > s->world.slots)
      FAIL(ERR_CONFIG, "case %s: %d ranks wanted, host file %s offers %d; valid: --ranks 1..%d", r->name, r->ranks, s->world.hosts,
           s->world.slots, s->world.slots);
    enum err err = launch_check(&s->world, r->ranks);
    if (!err) err = cut_check_hosts(&r->config, &s->world.on);
    if (!err) err = cut_verify(&r->config, &pipeline);
    if (err) FAIL(err, "case %s: %s", r->name, err_text());
  }
  return ERR_OK;
}

static enum err check_sizes(const struct session *s)
{
  for (int i = 0; i < s->plan.n_runs; i++) {
    const struct run *r = &s->plan.runs[i];
    if (r->config.device == DEVICE_CUDA || r->foreign) continue; /* the card's, which is asked when it is opened; or nobody's prediction */
    char why[700];
    if (memory_needed(&r->config, ranks_a_host(s)) <= s->env.available_bytes) continue;
    memory_refusal(&r->config, ranks_a_host(s), s->env.available_bytes, why, sizeof why);
    FAIL(ERR_MEMORY, "case %s: %s", r->name, why);
  }
  return ERR_OK;
}

static double disk_needed(const struct session *s)
{
  double bytes = 1 << 20;
  for (int i = 0; i < s->plan.n_runs; i++) bytes += s->plan.runs[i].disk_bytes;
  return bytes;
}

static enum err open_results(struct session *s, struct asked *a, bool resumed)
{
  char suite[128] = "";
  for (int i = 0; i < s->n_suites; i++)
    snprintf(suite + strlen(suite), sizeof suite - strlen(suite), "%s%.30s", i ? "+" : "", s->suites[i]->name);
  if (!resumed) TRY(results_create(a->out, suite, disk_needed(s), &s->results));
  if (snprintf(s->plan.cases_dir, sizeof s->plan.cases_dir, "%s/cases", s->results.dir) >= (int)sizeof s->plan.cases_dir)
    FAIL(ERR_CONFIG, "path too long: %s", s->results.dir);
  for (int i = 0; i < s->plan.n_runs; i++) TRY(plan_place(&s->plan, i));
  results_latest(&s->results);
  return ERR_OK;
}

/* --- the runs --------------------------------------------------------------------------- */

static bool stopped(const struct session *s) { return interrupt_seen() || s->runner.unusable || s->runner.out_of_budget || s->runner.enough; }

static enum err run_checked(struct session *s)
{
  int n;
  int *list = malloc(((size_t)s->plan.n_runs + 1) * sizeof *list);
  if (list == NULL) FAIL(ERR_MEMORY, "a list of %d runs", s->plan.n_runs);
  enum err err = plan_order(&s->plan, list, &n);
  if (!err) {
    runner_phase(&s->runner, n, false);
    err = runner_all(&s->runner, list, n);
  }
  free(list);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

static enum err run_all(struct session *s, char *score, size_t bytes)
{
  TRY(env_record(&s->env, &s->world, &s->results));
  TRY(session_summary(s));
  TRY(run_checked(s));
  for (int i = 0; i < s->n_suites && !stopped(s); i++)
    if (s->suites[i]->kind == KIND_SCALING) TRY(scaling_run(s, s->suites[i]));
    else if (s->suites[i]->kind == KIND_FRAMEWORKS) TRY(frameworks_run(s, s->suites[i]));
    else if (suite_is_timed(s->suites[i]->kind)) TRY(timed_run(s, s->suites[i]));
  for (int i = 0; i < s->n_suites; i++)
    if (s->suites[i]->kind == KIND_FAULTS) TRY(faults_score(&s->plan, &s->results, score, bytes));
  for (int i = 0; i < s->n_suites; i++) {
    char line[512] = "";
    const size_t used = strlen(score);
    if (s->suites[i]->kind == KIND_FRAMEWORKS) frameworks_score(&s->plan, s->suites[i], line, sizeof line);
    if (*line) snprintf(score + used, bytes - used, "%s%s", used ? "\n" : "", line);
  }
  if (*s->asked->fault) faults_sentence(&s->plan, s->asked->fault, score, bytes);
  return ERR_OK;
}

/* --- the last lines ------------------------------------------------------------------------ */

static void list_skipped(const struct plan *p, char *out, size_t bytes)
{
  out[0] = '\0';
  for (int i = 0; i < p->n_trials; i++) {
    const struct trial *t = &p->trials[i];
    if (t->state != TRIAL_JUDGED || t->outcome != OUTCOME_SKIPPED || strstr(out, t->sentence)) continue;
    const size_t used = strlen(out);
    snprintf(out + used, bytes - used, "%s%s", used ? "; " : "", t->sentence);
  }
}

/* What was not run says why, in the summary too. */
static void explain_left_out(struct session *s)
{
  const char *why = s->interrupted            ? "interrupted"
                    : s->trouble[0]           ? "the run was stopped"
                    : s->runner.out_of_budget ? "left out by the budget"
                    : s->runner.enough        ? "a case had failed (--fail-fast)"
                                              : "its runs did not end";
  for (int i = 0; i < s->plan.n_trials; i++) {
    struct trial *t = &s->plan.trials[i];
    if (t->state == TRIAL_JUDGED) continue;
    snprintf(t->reason, sizeof t->reason, "not run");
    snprintf(t->sentence, sizeof t->sentence, "%s", why);
  }
}

static void list_left_out(const struct plan *p)
{
  for (int i = 0; i < p->n_trials; i++)
    if (p->trials[i].state != TRIAL_JUDGED) printf("%-12s %s: %s\n", "NOT RUN", p->trials[i].name, p->trials[i].sentence);
}

/* On the host build, what is called cuda is this machine's processor. */
static const char *not_a_gpu(const struct plan *p)
{
#ifdef SHARDMARK_CUDA_HOST
  for (int i = 0; i < p->n_runs; i++)
    if (p->runs[i].config.device == DEVICE_CUDA) return "device cuda: host build, not a GPU; no speed\n";
#endif
  (void)p;
  return "";
}

static enum status say_verdict(const struct session *s, const char *score, bool reported)
{
  char skipped[1024];
  const struct trial_count c = trial_count(&s->plan);
  enum outcome overall = trial_overall(&c);
  if (overall != OUTCOME_FAIL && s->trouble[0]) overall = OUTCOME_INVALID;
  list_left_out(&s->plan);
  list_skipped(&s->plan, skipped, sizeof skipped);
  if (*score) printf("%s\n", score);
  if (s->trouble[0]) printf("invalid: %s\n", s->trouble);
  printf("%sresults: %s\n", not_a_gpu(&s->plan), s->results.dir);
  if (reported) printf("report:  %s/report.html\n", s->results.dir);
  printf("%s: %d passed, %d failed, %d invalid, %d inconclusive, %d skipped%s%s%s, %d not run\n",
         s->interrupted ? "INTERRUPTED" : outcome_name(overall), c.passed, c.failed, c.invalid, c.inconclusive, c.skipped,
         *skipped ? " (" : "", skipped, *skipped ? ")" : "", c.not_run);
  fflush(stdout);
  return s->interrupted ? STATUS_INTERRUPTED : trial_status(overall);
}

/* Runs and writes; a disk that is full, or a launcher that does not launch, makes the whole INVALID but loses nothing. */
static enum err carry_out(struct session *s, enum status *status)
{
  char score[1024] = "";
  progress_start(&s->progress);
  s->runner = (struct runner){.plan = &s->plan, .world = &s->world, .results = &s->results, .progress = &s->progress,
                              .budget_s = s->asked->budget_s, .started_ms = clock_ms(), .on_ended = session_on_ended, .context = s};
  const enum err err = run_all(s, score, sizeof score);
  progress_end(&s->progress);
  if (err && err_status(err) != STATUS_INVALID) return err;
  if (err) snprintf(s->trouble, sizeof s->trouble, "%s", err_text());
  else if (s->runner.unusable) snprintf(s->trouble, sizeof s->trouble, "%s", s->runner.why_unusable);
  s->complete = !err && !stopped(s);
  s->interrupted = interrupt_seen(); /* from here on a signal comes too late to change what was found */
  explain_left_out(s);
  if (session_summary(s) != ERR_OK && !s->trouble[0]) snprintf(s->trouble, sizeof s->trouble, "%s", err_text());
  const bool reported = report_write(s->results.dir) == ERR_OK;
  if (!reported && !s->trouble[0]) snprintf(s->trouble, sizeof s->trouble, "no report: %s", err_text());
  *status = say_verdict(s, score, reported);
  return ERR_OK;
}

static void session_free(struct session *s)
{
  plan_free(&s->plan);
  for (int i = 0; i < s->n_suites; i++) suite_free(s->suites[i]);
  faults_suites_free(&s->named);
  free(s->kept);
  free(s);
}

enum err run_suites(struct asked *a, enum status *status)
{
  enum err err = ERR_OK;
  json_t *was = NULL;
  struct session *s = calloc(1, sizeof *s);
  if (s == NULL) FAIL(ERR_MEMORY, "a session: %zu bytes", sizeof *s);
  s->asked = a;
  interrupt_watch();
  if (*a->resume) {
    TRY_TO(done, results_resume(a->resume, &s->results, &was));
    TRY_TO(done, asked_from_json(was, a));
  }
  TRY_TO(done, check_fault(a));
  TRY_TO(done, check_model(a));
  TRY_TO(done, asked_check_layout(a));
  TRY_TO(done, load(s));
  env_look(0, &s->env);
  TRY_TO(done, launch_look(a->hosts, &s->world));
  TRY_TO(done, make_plan(s));
  TRY_TO(done, check_layouts(s));
  if (a->dry_run) {
    TRY_TO(done, dry_print(&s->plan, s->env.available_bytes, ranks_a_host(s), disk_needed(s), a->budget_s, s->world.cores, status));
    goto done;
  }
  TRY_TO(done, check_sizes(s));
  TRY_TO(done, open_results(s, a, *a->resume != '\0'));
  if (*a->resume) TRY_TO(done, session_restore(s));
  TRY_TO(done, carry_out(s, status));
done:
  json_decref(was);
  session_free(s);
  return err;
}
