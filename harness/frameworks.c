/* frameworks.c - rows become an exported case, a run file and a job each. */
#include "harness/frameworks.h"
#include "harness/adapters.h"
#include "harness/cut.h"
#include "harness/export.h"
#include "harness/folder.h"
#include "harness/framework.h"
#include "harness/interrupt.h"
#include "harness/place.h"

#include "base/clock.h"
#include "suites/checks/companions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 8 * CONFIG_PATH };

/* --- plan ----------------------------------------------------------------------------------- */

static enum err add_row(struct plan *p, const struct asked *a, const struct suite *s, const struct suite_case *of, const struct launch_world *w)
{
  struct run_config c;
  char skip[512], python[CONFIG_PATH];
  TRY(plan_settings(a, of, &c, skip, sizeof skip));
  if (!plan_wants(a, of, &c)) return ERR_OK;
  if (*skip) return plan_add_skipped(p, s, of, skip);
  enum err err = adapters_python(of, python, sizeof python);
  if (!err) err = launch_check(w, (int)config_ranks(&c));
  if (err == ERR_UNAVAILABLE) return plan_add_skipped(p, s, of, err_text());
  return err ? err_trace(err, __FILE__, __LINE__) : plan_add_foreign(p, s, of, &c);
}

enum err frameworks_plan(struct plan *p, const struct asked *a, const struct suite *s, const struct launch_world *w)
{
  if (*a->fault) FAIL(ERR_CONFIG, "--fault %s: suite '%s' plants faults by its rows (plant, cause); valid: without --fault", a->fault, s->name);
  if (*a->device) FAIL(ERR_CONFIG, "--device %s: an adapter of suite '%s' chooses its device itself; valid: without --device", a->device, s->name);
  for (int i = 0; i < s->n; i++) TRY(add_row(p, a, s, &s->cases[i], w));
  return ERR_OK;
}

/* --- the exported case ------------------------------------------------------------------------ */

/* What a row trains, and nothing of how: equal for all rows that one case serves. */
static void trained(const struct run_config *c, struct run_config *out)
{
  struct companion truth;
  companions_truth(c, &truth, 1);
  *out = truth.config;
  out->precision = PRECISION_F32;
  out->weights_as = DTYPE_BF16; /* so that one truth serves both precisions */
}

static enum err export_dir(const struct session *s, const struct run_config *c, char *out, size_t bytes)
{
  struct run_config key;
  trained(c, &key);
  if (snprintf(out, bytes, "%s/exports/%.60s-%08x", s->results.dir, c->model, (unsigned)(plan_key(&key) >> 32)) >= (int)bytes)
    FAIL(ERR_CONFIG, "path too long: %s", s->results.dir);
  return ERR_OK;
}

/* Its legal serial runs split their sums as the widest of the rows that it serves. */
static void exported(const struct session *s, const struct run_config *c, struct run_config *out)
{
  trained(c, out);
  for (int i = 0; i < s->plan.n_trials; i++) {
    struct run_config other;
    const struct trial *t = &s->plan.trials[i];
    if (t->part != PART_FOREIGN || t->run < 0) continue;
    const struct run_config *row = &s->plan.runs[t->run].config;
    trained(row, &other);
    struct run_config mine = *out;
    mine.dp = mine.tp = 1;
    if (!plan_same(&mine, &other)) continue;
    if (row->dp > out->dp) out->dp = row->dp;
    if (row->tp > out->tp) out->tp = row->tp;
  }
}

/* Made once; why: "" or why it cannot be had. */
static enum err have_case(struct session *s, const struct run_config *c, char dir[CONFIG_PATH], char *why, size_t bytes)
{
  char marker[CONFIG_PATH + 16];
  struct run_config config;
  enum status status;
  why[0] = '\0';
  TRY(export_dir(s, c, dir, CONFIG_PATH));
  snprintf(marker, sizeof marker, "%s/case.json", dir);
  if (access(marker, R_OK) == 0) return ERR_OK;
  exported(s, c, &config);
  progress_say(&s->progress, "exporting the case of %s to %s", c->model, dir);
  const enum err err = export_run(&config, dir, false, &status);
  if (err) snprintf(why, bytes, "no case to be judged against: %s", err_text());
  else if (status != STATUS_PASS) snprintf(why, bytes, "no case to be judged against: export ended with status %d", (int)status);
  err_clear();
  return ERR_OK;
}

/* --- one row ------------------------------------------------------------------------------------ */

static void run_file(const struct suite_case *of, const struct run *r, const char *against, char *out, size_t bytes)
{
  const struct run_config *c = &r->config;
  char precision[32];
  opt_text(opt_find(run_options, run_options_count, "precision"), c, precision, sizeof precision);
  snprintf(out, bytes,
           "# adapter %s in environment %s\ncase: %s\nout: %s\nprecision: %s\ndp: %lld\ntp: %lld\npp: %lld\nzero: %lld\nschedule: %s\nchunks: %lld\n"
           "micro_batch: %lld\nsteps: %lld\nplant: %s\n",
           of->adapter, of->environment, against, r->dir, precision, (long long)c->dp, (long long)c->tp, (long long)c->pp, (long long)c->zero,
           schedule_name((enum schedule_kind)c->schedule), (long long)c->chunks, (long long)c->micro_batch, (long long)c->steps, of->plant);
}

bool frameworks_changed(const struct session *s, const struct trial *t)
{
  char path[CONFIG_PATH + 16], against[CONFIG_PATH], want[FILE_BYTES], have[FILE_BYTES];
  const struct run *r = &s->plan.runs[t->run];
  if (export_dir(s, &r->config, against, sizeof against) != ERR_OK) return true;
  snprintf(path, sizeof path, "%s/adapter.yaml", r->dir);
  FILE *f = fopen(path, "r");
  if (f == NULL) return true;
  const size_t n = fread(have, 1, sizeof have - 1, f);
  fclose(f);
  have[n] = '\0';
  run_file(t->of, r, against, want, sizeof want);
  return strcmp(want, have) != 0;
}

/* An empty folder with the run file: what an earlier try left (a rendezvous, a cache) would spoil this one. */
static enum err prepare(const struct suite_case *of, const struct run *r, const char *against, char *file, size_t bytes)
{
  char text[FILE_BYTES];
  folder_remove(r->dir);
  TRY(place_make(r->dir));
  run_file(of, r, against, text, sizeof text);
  snprintf(file, bytes, "%s/adapter.yaml", r->dir);
  FILE *f = fopen(file, "w");
  if (f == NULL) FAIL(ERR_IO, "%s: %s", file, strerror(errno));
  const bool wrote = fputs(text, f) >= 0;
  if (fclose(f) != 0 || !wrote) FAIL(ERR_IO, "%s: %s", file, strerror(errno));
  return ERR_OK;
}

static enum err settle(struct session *s, int index, enum outcome outcome, const char *reason, const char *why)
{
  struct trial *t = &s->plan.trials[index];
  t->state = TRIAL_JUDGED;
  t->outcome = outcome;
  snprintf(t->reason, sizeof t->reason, "%s", reason);
  snprintf(t->sentence, sizeof t->sentence, "%s", why);
  TRY(framework_record(&s->plan, t, NULL, "", &s->results));
  return session_settled(s, index);
}

/* None of the rows that this case was to serve can be judged: it is not tried again for each. */
static enum err settle_without(struct session *s, const char *against, const char *why)
{
  for (int i = 0; i < s->plan.n_trials; i++) {
    const struct trial *t = &s->plan.trials[i];
    char dir[CONFIG_PATH];
    if (t->part != PART_FOREIGN || t->run < 0 || t->state != TRIAL_WAITING) continue;
    TRY(export_dir(s, &s->plan.runs[t->run].config, dir, sizeof dir));
    if (strcmp(dir, against) == 0) TRY(settle(s, i, OUTCOME_INVALID, "export", why));
  }
  return ERR_OK;
}

static enum err run_row(struct session *s, int index)
{
  static const char *const settings[] = {"OMP_NUM_THREADS=1", "PYTHONUNBUFFERED=1", NULL};
  const struct trial *t = &s->plan.trials[index];
  const struct run *r = &s->plan.runs[t->run];
  char against[CONFIG_PATH], python[CONFIG_PATH], program[CONFIG_PATH], file[CONFIG_PATH + 16], why[1100];
  TRY(have_case(s, &r->config, against, why, sizeof why));
  if (interrupt_seen()) return ERR_OK;
  if (*why) return settle_without(s, against, why);
  if (adapters_python(t->of, python, sizeof python) != ERR_OK) return settle(s, index, OUTCOME_SKIPPED, "not here", err_text());
  TRY(adapters_program(t->suite, t->of, program, sizeof program));
  TRY(prepare(t->of, r, against, file, sizeof file));
  const char *const words[] = {python, program, NULL};
  const struct runner_timed job = {.runs = &t->run, .n = 1, .program = words, .settings = settings, .file = file};
  return runner_timed(&s->runner, &job, 1); /* session_on_ended calls frameworks_ended */
}

enum err frameworks_ended(struct session *s, int index)
{
  char against[CONFIG_PATH];
  TRY(export_dir(s, &s->plan.runs[s->plan.trials[index].run].config, against, sizeof against));
  return framework_judge(&s->plan, index, against, &s->results);
}

/* --- the suite ------------------------------------------------------------------------------------ */

/* The next that waits, of the best priority; -1: none. */
static int next_row(const struct plan *p, const struct suite *suite)
{
  int best = -1;
  for (int i = 0; i < p->n_trials; i++) {
    const struct trial *t = &p->trials[i];
    if (t->suite != suite || t->part != PART_FOREIGN || t->state != TRIAL_WAITING || p->runs[t->run].ended) continue;
    if (best < 0 || t->priority < p->trials[best].priority) best = i;
  }
  return best;
}

static bool may_start(struct session *s)
{
  const double spent_s = (clock_ms() - s->runner.started_ms) / 1e3;
  if (interrupt_seen() || s->runner.unusable || s->runner.enough) return false;
  s->runner.out_of_budget = s->runner.budget_s > 0 && spent_s > s->runner.budget_s;
  return !s->runner.out_of_budget;
}

enum err frameworks_run(struct session *s, const struct suite *suite)
{
  int there = 0, left = 0;
  char missing[sizeof s->trouble] = "";
  for (int i = 0; i < s->plan.n_trials; i++) {
    const struct trial *t = &s->plan.trials[i];
    if (t->suite != suite) continue;
    there += t->run >= 0;
    left += t->run >= 0 && t->state == TRIAL_WAITING;
    if (t->run >= 0) continue;
    TRY(framework_record(&s->plan, t, NULL, "", &s->results));
    const size_t used = strlen(missing);
    if (strstr(missing, t->sentence) == NULL) snprintf(missing + used, sizeof missing - used, "%s%s", used ? "; " : "", t->sentence);
  }
  if (there == 0) snprintf(s->trouble, sizeof s->trouble, "suite %s: none of its cases can run here: %.400s", suite->name, missing);
  runner_phase(&s->runner, left, true);
  for (int i; (i = next_row(&s->plan, suite)) >= 0 && may_start(s);) TRY(run_row(s, i));
  return ERR_OK;
}

/* The same row without its fault, or in a version that has it not; NULL: not run this time. */
static const struct trial *twin_of(const struct plan *p, const struct trial *t)
{
  const struct trial *best = NULL;
  for (int i = 0; i < p->n_trials; i++) {
    const struct trial *o = &p->trials[i];
    if (o->part != PART_FOREIGN || o->suite != t->suite || *o->of->cause || o->run < 0 || strcmp(o->of->adapter, t->of->adapter) != 0) continue;
    if (!plan_same(&p->runs[o->run].config, &p->runs[t->run].config)) continue;
    if (best == NULL || strcmp(o->of->environment, t->of->environment) == 0) best = o;
  }
  return best;
}

void frameworks_score(struct plan *p, const struct suite *s, char *line, size_t bytes)
{
  int planted = 0, caught = 0, named = 0, clean = 0, held = 0;
  for (int i = 0; i < p->n_trials; i++) {
    struct trial *t = &p->trials[i];
    if (t->suite != s || t->part != PART_FOREIGN || t->state != TRIAL_JUDGED || t->outcome == OUTCOME_SKIPPED) continue;
    clean += *t->of->cause == '\0';
    held += *t->of->cause == '\0' && t->outcome == OUTCOME_PASS;
    if (*t->of->cause == '\0') continue;
    const struct trial *twin = t->run >= 0 ? twin_of(p, t) : NULL;
    if (t->outcome == OUTCOME_PASS && twin && twin->state == TRIAL_JUDGED && twin->outcome != OUTCOME_PASS && twin->outcome != OUTCOME_SKIPPED) {
      t->outcome = OUTCOME_FAIL; /* red without its fault, too */
      snprintf(t->reason, sizeof t->reason, "twin");
      snprintf(t->sentence, sizeof t->sentence, "went red, but %s, the same without its fault, did not pass", twin->name);
    }
    planted++;
    caught += t->outcome == OUTCOME_PASS;
    named += t->outcome == OUTCOME_PASS && strcmp(t->diagnosis.fault, t->of->cause) == 0;
  }
  line[0] = '\0';
  if (planted + clean)
    snprintf(line, bytes, "%s: caught %d of %d, named %d of %d; %d of %d clean rows held", s->name, caught, planted, named, planted, held, clean);
}
