/* session.c - from an ended run to verdicts, records and the summary. */
#include "harness/session.h"
#include "harness/blame.h"
#include "harness/frameworks.h"
#include "harness/imbalance.h"
#include "harness/memory.h"
#include "harness/overlap.h"
#include "harness/pipeline.h"
#include "harness/timed.h"
#include "harness/timeline.h"
#include "harness/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEEDED_MAX = SUITE_CHECKS_MAX * JUDGE_COMPANIONS_MAX + 1 };

/* --- summary -------------------------------------------------------------------------- */

static const char *word_of(const struct trial *t) { return t->state == TRIAL_JUDGED ? outcome_name(t->outcome) : "NOT_RUN"; }

static json_t *case_json(const struct trial *t)
{
  json_t *j = json_pack("{s:s,s:s,s:s,s:s,s:s}", "name", t->name, "suite", t->suite->name, "verdict", word_of(t), "reason", t->reason,
                        "sentence", t->sentence);
  if (t->diagnosis.sentence[0]) json_object_set_new(j, "cause", json_string(t->diagnosis.sentence));
  return j;
}

enum err session_summary(const struct session *s)
{
  const struct trial_count c = trial_count(&s->plan);
  enum outcome overall = trial_overall(&c);
  /* What has not ended is no pass, whatever comes of it. */
  if (overall != OUTCOME_FAIL && (!s->complete || s->trouble[0])) overall = OUTCOME_INVALID;
  json_t *cases = json_array();
  for (int i = 0; i < s->plan.n_trials; i++) json_array_append_new(cases, case_json(&s->plan.trials[i]));
  json_t *counts = json_pack("{s:i,s:i,s:i,s:i,s:i,s:i}", "passed", c.passed, "failed", c.failed, "invalid", c.invalid,
                             "inconclusive", c.inconclusive, "skipped", c.skipped, "not_run", c.not_run);
  json_t *summary = json_pack("{s:i,s:s,s:b,s:s,s:o,s:o,s:o}", "schema", RECORD_SCHEMA, "verdict", outcome_name(overall), "complete",
                              s->complete, "trouble", s->trouble, "counts", counts, "asked", asked_json(s->asked), "cases", cases);
  return results_summary(&s->results, summary);
}

/* --- a trial ends ------------------------------------------------------------------------ */

static void say(struct session *s, const struct trial *t)
{
  if (t->outcome == OUTCOME_PASS && t->part != PART_PLANTED && t->part != PART_FOREIGN) return;
  progress_say(&s->progress, "%-12s %s: %s%s%s", outcome_name(t->outcome), t->name, t->sentence,
               t->diagnosis.sentence[0] ? "; likely cause: " : "", t->diagnosis.sentence);
}

/* Records and tensors of runs that nobody needs any more. */
static void release(struct session *s, const struct trial *t)
{
  int needed[NEEDED_MAX];
  if (t->part == PART_POINT) return; /* its runs are the bench's */
  const int n = plan_runs_of(t, needed, NEEDED_MAX);
  const bool keep = s->asked->keep || t->outcome == OUTCOME_FAIL || t->outcome == OUTCOME_INVALID;
  for (int i = 0; i < n; i++) {
    struct run *run = &s->plan.runs[needed[i]];
    if (keep) s->kept[needed[i]] = true;
    if (--run->users > 0) continue;
    json_decref((json_t *)run->data.records);
    run->data.records = NULL;
    if (!s->kept[needed[i]]) results_drop_tensors(run->dir);
  }
}

enum err session_settled(struct session *s, int index)
{
  struct trial *t = &s->plan.trials[index];
  if (t->suite->kind == KIND_MEMORY) TRY(memory_record(&s->plan, t, &s->results));
  if (t->suite->kind == KIND_PIPELINE) TRY(pipeline_record(&s->plan, t, &s->results));
  if (t->suite->kind == KIND_OVERLAP) TRY(overlap_record(&s->plan, t, &s->results));
  if (t->suite->kind == KIND_IMBALANCE) TRY(imbalance_record(&s->plan, t, &s->results));
  if (t->suite->kind == KIND_BLAME) TRY(blame_record(&s->plan, t, &s->results));
  TRY(trial_record(&s->plan, t, &s->results));
  trial_release(t);
  release(s, t);
  say(s, t);
  if (s->asked->fail_fast && t->outcome == OUTCOME_FAIL) s->runner.enough = true;
  return session_summary(s);
}

enum err session_on_ended(void *session, int run)
{
  struct session *s = session;
  if (s->plan.runs[run].config.trace_spans) TRY(timeline_write(&s->plan.runs[run].data));
  for (int i = 0; i < s->plan.n_trials; i++) {
    struct trial *t = &s->plan.trials[i];
    int needed[NEEDED_MAX];
    if (t->state != TRIAL_WAITING || t->run < 0 || t->part == PART_POINT) continue;
    const int n = plan_runs_of(t, needed, NEEDED_MAX);
    bool concerns = false;
    for (int k = 0; k < n; k++) concerns = concerns || needed[k] == run;
    if (!concerns || !trial_ready(&s->plan, t)) continue;
    if (t->part == PART_FOREIGN) TRY(frameworks_ended(s, i));
    else trial_judge(&s->plan, i);
    if (t->part == PART_PLANTED) faults_settle(t);
    if (t->part == PART_TIMED) timed_settle(&s->plan, t);
    TRY(session_settled(s, i));
  }
  return ERR_OK;
}

/* --- resume --------------------------------------------------------------------------------- */

static struct trial *trial_named(struct plan *p, const char *name)
{
  for (int i = 0; name && i < p->n_trials; i++)
    if (strcmp(p->trials[i].name, name) == 0) return &p->trials[i];
  return NULL;
}

static struct run *run_named(struct plan *p, const char *name)
{
  for (int i = 0; name && i < p->n_runs; i++)
    if (strcmp(p->runs[i].name, name) == 0) return &p->runs[i];
  return NULL;
}

static bool is_kind(const json_t *r, const char *kind)
{
  const char *is = json_string_value(json_object_get(r, "kind"));
  return is && strcmp(is, kind) == 0;
}

static void copy_text(const json_t *r, const char *key, char *out, size_t bytes)
{
  const char *text = record_get_text(r, key);
  snprintf(out, bytes, "%s", text ? text : "");
}

static bool outcome_of(const char *word, enum outcome *out)
{
  for (int o = OUTCOME_PASS; word && o <= OUTCOME_SKIPPED; o++)
    if (strcmp(word, outcome_name((enum outcome)o)) == 0) {
      *out = (enum outcome)o;
      return true;
    }
  return false;
}

static void take_verdict(struct trial *t, const json_t *r)
{
  if (t->n_verdicts > SUITE_CHECKS_MAX) return;
  struct verdict *v = &t->verdicts[t->n_verdicts];
  *v = (struct verdict){0};
  if (!outcome_of(record_get_text(r, "got.outcome"), &v->outcome)) return;
  copy_text(r, "got.check", v->check, sizeof v->check);
  copy_text(r, "got.observable", v->observable, sizeof v->observable);
  copy_text(r, "got.sentence", v->sentence, sizeof v->sentence);
  copy_text(r, "got.cause", v->cause, sizeof v->cause);
  t->n_verdicts++;
}

static void take_judged(struct trial *t, const json_t *r)
{
  if (!outcome_of(record_get_text(r, "got.outcome"), &t->outcome)) return;
  t->state = TRIAL_JUDGED;
  copy_text(r, "got.reason", t->reason, sizeof t->reason);
  copy_text(r, "got.sentence", t->sentence, sizeof t->sentence);
  copy_text(r, "got.cause", t->diagnosis.sentence, sizeof t->diagnosis.sentence);
  copy_text(r, "got.diagnosed", t->diagnosis.fault, sizeof t->diagnosis.fault);
}

/* The settings that the run had when it was last started, or none that can be read. */
static bool settings_of(const struct run *run, struct run_config *out)
{
  char path[CONFIG_PATH];
  config_default(out);
  return snprintf(path, sizeof path, "%s/run.yaml", run->dir) < (int)sizeof path && config_read(path, out) == ERR_OK;
}

/* Its suite says something else now: the verdict is of another case. */
static bool settings_changed(const struct session *s, const struct trial *t)
{
  struct run_config was;
  if (t->run < 0 || t->part == PART_POINT || t->part == PART_TIMED) return false;
  if (t->part == PART_FOREIGN) return frameworks_changed(s, t);
  const struct run *run = &s->plan.runs[t->run];
  return settings_of(run, &was) && !plan_same(&was, &run->config);
}

/* A trial that waits compares its runs' times, so all of them are made anew, in turn. */
static bool is_compared(const struct session *s, const struct run *run)
{
  for (int k = 0; k < s->plan.n_trials; k++) {
    const struct trial *t = &s->plan.trials[k];
    int needed[NEEDED_MAX];
    if (t->part != PART_TIMED || t->state == TRIAL_JUDGED || t->run < 0) continue;
    const int n = plan_runs_of(t, needed, NEEDED_MAX);
    for (int m = 0; m < n; m++)
      if (&s->plan.runs[needed[m]] == run) return true;
  }
  return false;
}

/* A run is taken over if it ended well, with these very settings, and what it wrote is still there. */
static enum err take_run(struct run *run, const json_t *r)
{
  struct run_config c;
  json_t *records;
  const char *end = record_get_text(r, "got.end"), *text = record_get_text(r, "got.text");
  if (end == NULL || strcmp(end, "exited") != 0 || record_get_int(r, "got.status", -1) != 0 || (text && *text)) return ERR_OK;
  if (run->foreign || !settings_of(run, &c) || !plan_same(&c, &run->config)) return ERR_OK;
  if (results_read_run(run->dir, &records) != ERR_OK) return ERR_OK;
  if (json_array_size(records) == 0 || !results_tensors_there(run->dir, records)) {
    json_decref(records);
    return ERR_OK;
  }
  json_decref((json_t *)run->data.records);
  run->data = (struct run_data){.config = run->config, .records = records, .end = "exited"};
  snprintf(run->data.dir, sizeof run->data.dir, "%s", run->dir);
  runner_make_blind(&run->data);
  run->ended = true;
  return ERR_OK;
}

/* Of judged trials and of runs that are taken over or no longer needed, all; of everything else nothing. */
static bool stays(const json_t *r, void *session)
{
  struct session *s = session;
  const char *name = json_string_value(json_object_get(r, "case"));
  const struct trial *t = trial_named(&s->plan, name);
  const struct run *run = run_named(&s->plan, name);
  if (is_kind(r, "judged") || is_kind(r, "verdict") || is_kind(r, "bound") || is_kind(r, "memory_point") || is_kind(r, "point") ||
      is_kind(r, "bubble") || is_kind(r, "hidden") || is_kind(r, "blame") || is_kind(r, "timeline") || is_kind(r, "imbalance") ||
      is_kind(r, "busy") || is_kind(r, "lengths"))
    return t && t->state == TRIAL_JUDGED;
  if (is_kind(r, "framework")) return t && t->run >= 0 && t->state == TRIAL_JUDGED; /* of a row that cannot run here it is written anew */
  return run && (run->ended || run->users == 0);
}

enum err session_restore(struct session *s)
{
  json_t *all, *r;
  size_t i;
  int cut;
  const enum err err = record_read(s->results.records, &all, &cut);
  if (err == ERR_IO) return ERR_OK; /* it ended before its first record */
  TRY(err);
  json_array_foreach(all, i, r)
  {
    struct trial *t = trial_named(&s->plan, json_string_value(json_object_get(r, "case")));
    if (t && is_kind(r, "verdict")) take_verdict(t, r);
    if (t && is_kind(r, "judged")) take_judged(t, r);
  }
  for (int k = 0; k < s->plan.n_trials; k++) {
    struct trial *t = &s->plan.trials[k];
    int needed[NEEDED_MAX];
    if (t->state == TRIAL_JUDGED && settings_changed(s, t)) {
      progress_say(&s->progress, "%s: its settings are not those of its verdict, so it runs again", t->name);
      t->state = TRIAL_WAITING;
    }
    if (t->state != TRIAL_JUDGED) t->n_verdicts = 0;
    if (t->state != TRIAL_JUDGED || t->run < 0 || t->part == PART_POINT) continue;
    const int n = plan_runs_of(t, needed, NEEDED_MAX);
    for (int m = 0; m < n; m++) s->plan.runs[needed[m]].users--;
  }
  json_array_foreach(all, i, r)
  {
    struct run *run = run_named(&s->plan, json_string_value(json_object_get(r, "case")));
    if (run && run->users > 0 && is_kind(r, "case") && !is_compared(s, run)) TRY(take_run(run, r));
  }
  json_decref(all);
  TRY(results_filter(&s->results, stays, s));
  for (int k = 0; k < s->plan.n_runs; k++) /* a trial may have all it needs already */
    if (s->plan.runs[k].ended) TRY(session_on_ended(s, k));
  return ERR_OK;
}
