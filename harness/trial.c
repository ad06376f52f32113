/* trial.c - the rule FAIL > INVALID > INCONCLUSIVE > PASS, at every level. */
#include "harness/trial.h"
#include "harness/cut.h"

#include "base/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- one run ---------------------------------------------------------------------- */

void trial_of_end(const struct run_data *run, struct verdict *out)
{
  *out = (struct verdict){.outcome = OUTCOME_PASS, .value = NAN, .bound = NAN, .smallest = NAN};
  snprintf(out->check, sizeof out->check, "ended");
  snprintf(out->observable, sizeof out->observable, "O14");
  const bool exited = strcmp(run->end, "exited") == 0;
  if (exited && run->status == 0 && run->text[0] == '\0') {
    snprintf(out->sentence, sizeof out->sentence, "every rank finished");
    return;
  }
  const bool machine = exited ? run->status == STATUS_INVALID || run->status == STATUS_USAGE
                              : strcmp(run->end, "not_started") == 0 || strcmp(run->end, "slow") == 0;
  out->outcome = machine ? OUTCOME_INVALID : OUTCOME_FAIL;
  snprintf(out->sentence, sizeof out->sentence, "%s%s%.400s", exited ? "" : run->end, exited ? "" : ": ", run->text);
}

static bool is_clean(const struct run_data *run)
{
  struct verdict v;
  trial_of_end(run, &v);
  return v.outcome == OUTCOME_PASS;
}

/* --- one trial -------------------------------------------------------------------- */

bool trial_ready(const struct plan *p, const struct trial *t)
{
  int needed[SUITE_CHECKS_MAX * JUDGE_COMPANIONS_MAX + 1];
  const int n = plan_runs_of(t, needed, (int)(sizeof needed / sizeof *needed));
  if (n > 0 && p->runs[t->run].ended && strcmp(p->runs[t->run].data.end, "exited") != 0) return true;
  for (int i = 0; i < n; i++)
    if (!p->runs[needed[i]].ended) return false;
  return n > 0;
}

void trial_settle(struct trial *t)
{
  enum outcome all[SUITE_CHECKS_MAX + 1];
  for (int i = 0; i < t->n_verdicts; i++) all[i] = t->verdicts[i].outcome;
  t->outcome = judge_worst(all, t->n_verdicts);
  t->state = TRIAL_JUDGED;
  t->reason[0] = '\0';
  int passed = 0;
  for (int i = 0; i < t->n_verdicts; i++) passed += t->verdicts[i].outcome == OUTCOME_PASS;
  snprintf(t->sentence, sizeof t->sentence, "%d checks passed", passed);
  if (t->outcome == OUTCOME_PASS) return;
  for (int i = 0; i < t->n_verdicts; i++) {
    const struct verdict *v = &t->verdicts[i];
    if (v->outcome != t->outcome) continue;
    snprintf(t->reason, sizeof t->reason, "%s", v->check);
    snprintf(t->sentence, sizeof t->sentence, "%s (%s): %s", v->check, v->observable, v->sentence);
    return;
  }
}

/* A companion that could not be had is NULL: the check says what that means. */
static int gather(const struct plan *p, const struct trial *t, int check, struct companion *wanted, const struct run_data **have)
{
  const struct check *how = t->checks[check];
  if (how->companions == NULL) return 0;
  how->companions(&p->runs[t->run].config, wanted, JUDGE_COMPANIONS_MAX);
  for (int i = 0; i < t->n_companions[check]; i++) {
    const struct run *run = &p->runs[t->companions[check][i]];
    wanted[i].config.fault[0] = '\0'; /* blind */
    have[i] = run->ended && is_clean(&run->data) ? &run->data : NULL;
  }
  return t->n_companions[check];
}

/* A check says only that it missed a companion; how that run ended is known here. */
static void say_missing(const struct plan *p, const struct trial *t, int check, const struct companion *wanted,
                        const struct run_data *const *have, struct verdict *v)
{
  if (v->outcome == OUTCOME_PASS) return;
  for (int i = 0; i < t->n_companions[check]; i++) {
    const struct run *run = &p->runs[t->companions[check][i]];
    const size_t used = strlen(v->sentence);
    if (have[i] != NULL || run->data.text[0] == '\0') continue;
    snprintf(v->sentence + used, sizeof v->sentence - used, "; companion '%s': %s", wanted[i].role, run->data.text);
    return;
  }
}

void trial_judge(struct plan *p, int index)
{
  enum { ALL = SUITE_CHECKS_MAX * JUDGE_COMPANIONS_MAX };
  struct trial *t = &p->trials[index];
  struct companion *wanted = calloc(ALL, sizeof *wanted);
  const struct run_data *have[ALL];
  int total = 0;
  const struct run_data *run = &p->runs[t->run].data;
  t->n_verdicts = 0;
  bool judged = false; /* by a check of the suite */
  for (int c = 0; c < t->n_checks; c++) judged = judged || strcmp(t->checks[c]->observable, "O14") == 0;
  if (!judged || wanted == NULL) trial_of_end(run, &t->verdicts[t->n_verdicts++]);
  if (wanted == NULL) {
    t->verdicts[0].outcome = OUTCOME_INVALID;
    snprintf(t->verdicts[0].sentence, sizeof t->verdicts[0].sentence, "no memory to judge: %zu bytes", ALL * sizeof *wanted);
    trial_settle(t);
    return;
  }
  /* Faults of formulas live in this process: they are on only while this trial is judged. */
  const bool planted = t->fault != FAULT_NONE && fault_plant(fault_rows[t->fault].name, 1, 0) == ERR_OK;
  for (int c = 0; c < t->n_checks; c++) {
    struct verdict *v = &t->verdicts[t->n_verdicts++];
    *v = (struct verdict){.outcome = OUTCOME_INVALID, .value = NAN, .bound = NAN, .smallest = NAN};
    snprintf(v->check, sizeof v->check, "%s", t->checks[c]->name);
    snprintf(v->observable, sizeof v->observable, "%s", t->checks[c]->observable);
    const int n = gather(p, t, c, wanted + total, have + total);
    t->checks[c]->judge(run, wanted + total, have + total, n, v);
    say_missing(p, t, c, wanted + total, have + total, v);
    total += n;
  }
  judge_diagnose(run, wanted, have, total, t->verdicts, t->n_verdicts, &t->diagnosis);
  if (planted) fault_plant("", 1, 0);
  free(wanted);
  trial_settle(t);
}

void trial_release(struct trial *t)
{
  for (int i = 0; i < t->n_verdicts; i++) {
    json_decref(t->verdicts[i].details);
    t->verdicts[i].details = NULL;
  }
}

/* --- records ------------------------------------------------------------------------ */

static void record_known(struct record_file *f, const char *key, double value)
{
  if (!isnan(value)) record_real(f, key, value);
}

static enum err record_details(struct record_file *f, const struct verdict *v)
{
  size_t i;
  json_t *d;
  json_array_foreach(v->details, i, d)
  {
    const json_t *step = json_object_get(d, "step"), *what = json_object_get(d, "what");
    record_begin(f, "bound", json_is_integer(step) ? json_integer_value(step) : -1, -1);
    record_text(f, "got.check", v->check);
    record_text(f, "got.what", json_is_string(what) ? json_string_value(what) : "");
    record_real(f, "got.value", json_number_value(json_object_get(d, "value")));
    record_real(f, "got.bound", json_number_value(json_object_get(d, "bound")));
    TRY(record_end(f));
  }
  return ERR_OK;
}

enum err trial_record_verdict(struct record_file *f, const struct verdict *v)
{
  record_begin(f, "verdict", -1, -1);
  record_text(f, "got.check", v->check);
  record_text(f, "got.observable", v->observable);
  record_text(f, "got.outcome", outcome_name(v->outcome));
  record_text(f, "got.sentence", v->sentence);
  record_text(f, "got.cause", v->cause);
  record_text(f, "got.worst", v->worst);
  record_known(f, "got.value", v->value);
  record_known(f, "got.bound", v->bound);
  record_known(f, "got.smallest", v->smallest);
  TRY(record_end(f));
  return record_details(f, v);
}

static json_t *companions_of(const struct plan *p, const struct trial *t)
{
  json_t *list = json_array();
  for (int c = 0; c < t->n_checks; c++) {
    struct companion wanted[JUDGE_COMPANIONS_MAX];
    if (t->checks[c]->companions == NULL) continue;
    t->checks[c]->companions(&p->runs[t->run].config, wanted, JUDGE_COMPANIONS_MAX);
    for (int i = 0; i < t->n_companions[c]; i++) {
      char text[2 * CONFIG_NAME];
      size_t k;
      json_t *other;
      bool told = false;
      snprintf(text, sizeof text, "%.31s=%.127s", wanted[i].role, p->runs[t->companions[c][i]].name);
      json_array_foreach(list, k, other) told = told || strcmp(json_string_value(other), text) == 0;
      if (!told) json_array_append_new(list, json_string(text));
    }
  }
  return list;
}

enum err trial_record(const struct plan *p, const struct trial *t, const struct results *r)
{
  enum err err;
  char layout[CONFIG_NAME];
  struct record_file *f;
  TRY(record_open(r->records, t->name, -1, &f));
  for (int i = 0; i < t->n_verdicts; i++) TRY_TO(close, trial_record_verdict(f, &t->verdicts[i]));
  record_begin(f, "judged", -1, -1);
  record_text(f, "got.suite", t->suite->name);
  record_text(f, "got.suite_kind", suite_kind_names[t->suite->kind]);
  record_text(f, "got.outcome", outcome_name(t->outcome));
  record_text(f, "got.reason", t->reason);
  record_text(f, "got.sentence", t->sentence);
  record_text(f, "got.cause", t->diagnosis.sentence);
  record_text(f, "got.diagnosed", t->diagnosis.fault);
  record_text(f, "got.run", t->run >= 0 ? p->runs[t->run].name : "");
  if (t->run >= 0) {
    cut_text(&p->runs[t->run].config, layout, sizeof layout);
    record_text(f, "got.layout", layout);
    record_json(f, "got.companions", companions_of(p, t));
  }
  err = record_end(f);
close:
  record_close(f);
  return err;
}

/* --- the whole ------------------------------------------------------------------------ */

struct trial_count trial_count(const struct plan *p)
{
  struct trial_count c = {0};
  for (int i = 0; i < p->n_trials; i++) {
    const struct trial *t = &p->trials[i];
    if (t->state != TRIAL_JUDGED) c.not_run++;
    else if (t->outcome == OUTCOME_PASS) c.passed++;
    else if (t->outcome == OUTCOME_FAIL) c.failed++;
    else if (t->outcome == OUTCOME_INVALID) c.invalid++;
    else if (t->outcome == OUTCOME_INCONCLUSIVE) c.inconclusive++;
    else c.skipped++;
  }
  return c;
}

enum outcome trial_overall(const struct trial_count *c)
{
  if (c->failed) return OUTCOME_FAIL;
  if (c->invalid || c->passed + c->inconclusive == 0) return OUTCOME_INVALID;
  return c->inconclusive ? OUTCOME_INCONCLUSIVE : OUTCOME_PASS;
}

enum status trial_status(enum outcome o)
{
  switch (o) {
  case OUTCOME_PASS: return STATUS_PASS;
  case OUTCOME_FAIL: return STATUS_FAIL;
  case OUTCOME_INCONCLUSIVE: return STATUS_INCONCLUSIVE;
  default: return STATUS_INVALID;
  }
}
