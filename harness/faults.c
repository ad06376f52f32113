/* faults.c - planted x diagnosed, and false alarms. */
#include "harness/faults.h"
#include "harness/stats.h"

#include "base/record.h"

#include <stdio.h>
#include <string.h>

void faults_suites_free(struct faults_suites *f)
{
  for (int i = 0; i < f->n; i++) suite_free(f->list[i]);
  f->n = 0;
}

/* The cases that faults name stand under `cases`: of no sweep. */
static enum err suite_of(struct faults_suites *f, const char *name, const struct suite **out)
{
  char path[CONFIG_PATH];
  for (int i = 0; i < f->n; i++)
    if (strcmp(f->list[i]->name, name) == 0) {
      *out = f->list[i];
      return ERR_OK;
    }
  BUG_IF(f->n == (int)(sizeof f->list / sizeof *f->list));
  TRY(suite_path(name, path, sizeof path));
  TRY(suite_read(path, SUITE_QUICK, &f->list[f->n]));
  *out = f->list[f->n++];
  return ERR_OK;
}

/* The same case with the fault and without; the twin is shared by faults with one smallest case. */
static enum err add_pair(struct plan *p, const struct asked *a, const struct suite *s, const struct suite_case *of,
                         const struct fault_row *row, const struct suite *own)
{
  struct run_config clean, planted;
  char name[CONFIG_NAME], skip[512];
  int twin = -1, index;
  TRY(plan_settings(a, of, &clean, skip, sizeof skip));
  if (*skip) return plan_add_skipped(p, own, of, skip);
  planted = clean;
  TRY(config_set(&planted, "fault", row->name));
  if (config_finish(&planted)) FAIL(ERR_CONFIG, "%s: case '%s' with fault %s: %s", of->where, of->name, row->name, err_text());
  for (int i = 0; i < p->n_trials; i++)
    if (p->trials[i].part == PART_TWIN && p->trials[i].suite == own && p->trials[i].of == of) twin = i;
  if (twin < 0) {
    snprintf(name, sizeof name, "clean-%.120s", of->name);
    TRY(plan_add_trial(p, own, of, name, &clean, PART_TWIN, &twin));
  }
  snprintf(name, sizeof name, "fault-%.120s", row->name);
  TRY(plan_add_trial(p, own, of, name, &planted, PART_PLANTED, &index));
  p->trials[index].twin = twin;
  (void)s;
  return ERR_OK;
}

enum err faults_plan(struct plan *p, const struct asked *a, const struct suite *own, struct faults_suites *f)
{
  if (*a->fault) FAIL(ERR_CONFIG, "--fault %s: suite '%s' plants each fault itself; give --fault to the suite that shows it", a->fault, own->name);
  for (int i = 1; i < FAULT_COUNT; i++) {
    const struct fault_row *row = &fault_rows[i];
    const struct suite *s;
    if (row->status != FAULT_PLANTED) continue;
    if (*a->only && strstr(row->name, a->only) == NULL) continue;
    TRY(suite_of(f, row->suite, &s));
    const struct suite_case *of = suite_find(s, row->smallest);
    if (of == NULL) FAIL(ERR_CONFIG, "fault %s: suite %s has no case '%s'", row->name, s->path, row->smallest);
    TRY(add_pair(p, a, s, of, row, own));
  }
  return plan_add_cases(p, a, own, PART_TWIN);
}

void faults_settle(struct trial *t)
{
  const struct fault_row *row = &fault_rows[t->fault];
  for (int i = 0; i < t->n_verdicts; i++) /* a run that the machine spoilt shows nothing, either way */
    if (strcmp(t->verdicts[i].observable, "O14") == 0 && t->verdicts[i].outcome == OUTCOME_INVALID) return;
  const bool caught = judge_caught(row->observable, t->verdicts, t->n_verdicts);
  char sentence[sizeof t->sentence];
  t->outcome = caught ? OUTCOME_PASS : OUTCOME_FAIL;
  if (!caught) {
    snprintf(sentence, sizeof sentence, "not caught: none of %s went red (%.400s)", row->observable, t->sentence);
    snprintf(t->reason, sizeof t->reason, "not caught");
  } else {
    const struct verdict *v = NULL;
    for (int i = 0; i < t->n_verdicts && v == NULL; i++)
      if (judge_caught(row->observable, &t->verdicts[i], 1)) v = &t->verdicts[i];
    snprintf(sentence, sizeof sentence, "caught by %s (%s): %.400s", v->observable, v->check, v->sentence);
    t->reason[0] = '\0';
  }
  memcpy(t->sentence, sentence, sizeof sentence);
}

static enum err record_fault(const struct plan *p, const struct trial *t, const struct results *r)
{
  struct record_file *f;
  const struct fault_row *row = &fault_rows[t->fault];
  const char *seen[SUITE_CHECKS_MAX + 1];
  int n = 0;
  for (int i = 0; i < t->n_verdicts; i++) {
    bool told = t->verdicts[i].outcome != OUTCOME_FAIL;
    for (int k = 0; k < n; k++) told = told || strcmp(seen[k], t->verdicts[i].observable) == 0;
    if (!told) seen[n++] = t->verdicts[i].observable;
  }
  const struct trial *twin = &p->trials[t->twin];
  TRY(record_open(r->records, t->name, -1, &f));
  record_begin(f, "fault", -1, -1);
  record_text(f, "got.fault", row->name);
  record_text(f, "got.observable", row->observable);
  record_bool(f, "got.caught", t->outcome == OUTCOME_PASS);
  record_texts(f, "got.seen_by", seen, n);
  record_text(f, "got.sentence", t->sentence);
  record_text(f, "got.cause", t->diagnosis.sentence);
  record_text(f, "got.diagnosed", t->diagnosis.fault);
  record_text(f, "got.twin", twin->state == TRIAL_JUDGED ? outcome_name(twin->outcome) : "NOT_RUN");
  const enum err err = record_end(f);
  record_close(f);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

enum err faults_score(struct plan *p, const struct results *r, char *line, size_t bytes)
{
  int planted = 0, caught = 0, clean = 0, alarms = 0, right = 0;
  for (int i = 0; i < p->n_trials; i++) {
    struct trial *t = &p->trials[i];
    if (t->state != TRIAL_JUDGED || t->outcome == OUTCOME_SKIPPED) continue;
    if (t->part == PART_TWIN) {
      clean++;
      alarms += t->outcome == OUTCOME_FAIL;
    }
    if (t->part != PART_PLANTED) continue;
    planted++;
    const struct trial *twin = &p->trials[t->twin];
    if (t->outcome == OUTCOME_PASS && (twin->state != TRIAL_JUDGED || twin->outcome != OUTCOME_PASS)) {
      t->outcome = OUTCOME_FAIL; /* a case that is red without the fault proves nothing with it */
      snprintf(t->reason, sizeof t->reason, "twin");
      snprintf(t->sentence, sizeof t->sentence, "went red, but its clean twin %s did not pass", twin->name);
    }
    caught += t->outcome == OUTCOME_PASS;
    right += strcmp(t->diagnosis.fault, fault_rows[t->fault].name) == 0;
    TRY(record_fault(p, t, r));
  }
  const double bound = clean ? stats_rate_upper(alarms, clean, 0.95) : 1;
  snprintf(line, bytes, "caught %d of %d, %d false alarm%s in %d clean runs (rate below %.3g at 95 %%); %d named by their cause", caught,
           planted, alarms, alarms == 1 ? "" : "s", clean, bound, right);
  struct record_file *f;
  TRY(record_open(r->records, "faults", -1, &f));
  record_begin(f, "faults", -1, -1);
  record_int(f, "got.planted", planted);
  record_int(f, "got.caught", caught);
  record_int(f, "got.clean_runs", clean);
  record_int(f, "got.false_alarms", alarms);
  record_real(f, "got.false_alarm_bound", bound);
  const enum err err = record_end(f);
  record_close(f);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

void faults_sentence(const struct plan *p, const char *fault, char *out, size_t bytes)
{
  enum fault which;
  if (fault_find(fault, &which) != ERR_OK) which = FAULT_NONE;
  const struct fault_row *row = &fault_rows[which];
  snprintf(out, bytes, "fault %s: not caught in any case (%s should have gone red)", fault, row->observable);
  for (int i = 0; i < p->n_trials; i++) {
    const struct trial *t = &p->trials[i];
    if (t->state != TRIAL_JUDGED) continue;
    for (int k = 0; k < t->n_verdicts; k++) {
      if (!judge_caught(row->observable, &t->verdicts[k], 1)) continue;
      snprintf(out, bytes, "fault %s: caught by %s in case %s (%s); likely cause: %s", fault, t->verdicts[k].observable, t->name,
               t->verdicts[k].sentence, t->diagnosis.sentence[0] ? t->diagnosis.sentence : "unknown");
      return;
    }
  }
}
