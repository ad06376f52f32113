/* foreign.c - from two folders to verdicts. */
#include "harness/foreign.h"
#include "harness/against.h"
#include "harness/foreign_records.h"

#include "base/record.h"
#include "suites/checks/evidence.h"
#include "suites/checks/foreign.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* In the order of observables: what goes wrong first is asked first. */
static const char *const asked[] = {"ends", "finite", "initial", "batch", "loss", "gradients", "norm", "update", "replicas", "trace"};
enum { ASKED = sizeof asked / sizeof *asked };

struct judging {
  struct against case_;
  struct run_data run;
  struct companion wanted[2];
  const struct run_data *companions[2];
  struct foreign *out;
};

/* --- the run's own words ------------------------------------------------------------------- */

/* Keys of its record `run` that are settings of the run and not of the case. */
static const char *const own_keys[] = {"precision", "dp", "tp", "pp", "zero", "chunks", "micro_batch", "steps", "global_batch"};

static enum err take_setting(struct run_config *c, const json_t *run, const char *key)
{
  char name[64], text[256];
  snprintf(name, sizeof name, "set.%s", key);
  const json_t *value = json_object_get(run, name);
  if (value == NULL) return ERR_OK;
  if (json_is_string(value)) snprintf(text, sizeof text, "%s", json_string_value(value));
  else if (json_is_integer(value)) snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
  else FAIL(ERR_CONFIG, "record `run`: %s is neither a text nor a whole number", name);
  if (config_set(c, key, text) == ERR_OK) return ERR_OK;
  struct err_saved why;
  err_save(&why, ERR_CONFIG);
  FAIL(ERR_CONFIG, "record `run`: set.%.400s", why.text);
}

/* The case's settings with what the run says of itself. */
static enum err settings(struct judging *j, const json_t *run)
{
  struct run_config *c = &j->run.config;
  const int64_t steps = j->case_.config.steps, batch = j->case_.config.global_batch;
  *c = j->case_.config;
  c->evaluate_each = 0;
  if (json_object_get(run, "set.precision") == NULL) FAIL(ERR_CONFIG, "record `run` has no set.precision; valid: that of a bounds file of the case");
  for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++) TRY(take_setting(c, run, own_keys[i]));
  if (take_setting(c, run, "schedule") != ERR_OK) err_clear(); /* a word of its own: for the reader alone */
  if (c->global_batch != batch)
    FAIL(ERR_CONFIG, "record `run`: set.global_batch %lld; valid: the case's %lld", (long long)c->global_batch, (long long)batch);
  if (c->steps < 1 || c->steps > steps) FAIL(ERR_CONFIG, "record `run`: set.steps %lld; valid: 1..%lld, the case's", (long long)c->steps, (long long)steps);
  const int64_t micro_batch = c->micro_batch;
  if (micro_batch < 1 || batch % (c->dp * micro_batch) != 0)
    FAIL(ERR_CONFIG, "record `run`: set.dp %lld, set.micro_batch %lld; valid: such that their product divides the case's batch of %lld", (long long)c->dp,
         (long long)micro_batch, (long long)batch);
  TRY(against_bounds(&j->case_, (enum precision)c->precision));
  return against_regroup(&j->case_, micro_batch);
}

static void copy_text(const json_t *record, const char *key, char *out, size_t bytes)
{
  const char *text = record_get_text(record, key);
  snprintf(out, bytes, "%s", text ? text : "");
}

/* Facts of parameters are the architecture's: those of the case serve both. */
static enum err adopt_parameters(struct judging *j)
{
  json_t *mine = (json_t *)j->run.records, *r;
  size_t i;
  for (i = json_array_size(mine); i > 0; i--)
    if (evidence_is(json_array_get(mine, i - 1), "parameter")) json_array_remove(mine, i - 1);
  json_array_foreach((json_t *)j->case_.truth.records, i, r) if (evidence_is(r, "parameter") && json_array_append(mine, r) != 0)
    FAIL(ERR_MEMORY, "records of parameters");
  return ERR_OK;
}

/* Ranks that are to tell of steps: all, or rank 0 if no other does. */
static int telling_ranks(const struct run_data *run)
{
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *r = json_array_get(run->records, i);
    if (evidence_is(r, "step") && evidence_rank(r) != 0) return (int)config_ranks(&run->config);
  }
  return 1;
}

static enum err open_run(const char *dir, struct judging *j)
{
  struct foreign *f = j->out;
  j->run = (struct run_data){.end = "exited", .foreign = true};
  if (snprintf(j->run.dir, sizeof j->run.dir, "%s", dir) >= (int)sizeof j->run.dir) FAIL(ERR_CONFIG, "path too long: %.80s...", dir);
  TRY(foreign_records_read(dir, (json_t **)&j->run.records));
  const json_t *run = evidence_record(&j->run, "run", -1, -1, -1);
  if (run == NULL) FAIL(ERR_CONFIG, "%s: no record of kind run; valid: one with set.precision, and set.dp, set.tp, set.pp above 1", dir);
  TRY(settings(j, run));
  TRY(adopt_parameters(j));
  j->run.ranks = telling_ranks(&j->run);
  copy_text(run, "got.framework", f->framework, sizeof f->framework);
  copy_text(run, "got.versions", f->versions, sizeof f->versions);
  snprintf(f->model, sizeof f->model, "%s", j->case_.model);
  f->config = j->run.config;
  return ERR_OK;
}

/* --- verdicts --------------------------------------------------------------------------------- */

static struct verdict *next(struct foreign *f)
{
  BUG_IF(f->n_verdicts >= FOREIGN_VERDICTS);
  return &f->verdicts[f->n_verdicts++];
}

static void note_unseen(struct foreign *f, const struct verdict *v)
{
  const size_t used = strlen(f->unseen);
  if (v->outcome != OUTCOME_SKIPPED || strncmp(v->sentence, "not judged: ", 12) != 0) return;
  snprintf(f->unseen + used, sizeof f->unseen - used, "%s%s: %s", used ? "; " : "", v->check, v->sentence + 12);
}

static void judge_all(struct judging *j)
{
  struct foreign *f = j->out;
  struct verdict *v = next(f), more;
  foreign_records_judge(&j->run, v);
  for (int i = 0; i < ASKED; i++) {
    v = next(f);
    judge_find(asked[i])->judge(&j->run, j->wanted, j->companions, 2, v);
    note_unseen(f, v);
    const bool whole = v->outcome == OUTCOME_SKIPPED;
    for (int k = 0; !whole && foreign_unseen(&j->run, asked[i], k, &more); k++) {
      *next(f) = more;
      note_unseen(f, &more);
    }
  }
  err_clear();
  for (int i = 0; i < f->n_verdicts; i++) /* words of another program may have lines */
    for (char *at = f->verdicts[i].sentence; *at; at++)
      if ((unsigned char)*at < ' ') *at = ' ';
  judge_diagnose(&j->run, j->wanted, j->companions, 2, f->verdicts, f->n_verdicts, &f->diagnosis);
}

/* Largest value / bound of all checks. */
static void find_worst(struct foreign *f)
{
  double most = -1.0;
  f->value_over_bound = NAN;
  for (int i = 0; i < f->n_verdicts; i++) {
    const struct verdict *v = &f->verdicts[i];
    const double excess = isfinite(v->value) && v->bound > 0.0 ? v->value / v->bound : v->bound == 0.0 && v->value > 0.0 ? INFINITY : -1.0;
    const bool shown = v->worst[0] != '\0' && strstr(v->worst, "clip factor") == NULL && strstr(v->worst, "learning rate") == NULL;
    if (!shown || !(excess > most)) continue;
    most = f->value_over_bound = excess;
    snprintf(f->worst, sizeof f->worst, "%s: %s", v->check, v->worst);
  }
}

/* The FAIL of the earliest step; in it of the first observable, which is the order of the list.  NULL: none names a step. */
static const struct verdict *earliest(const struct foreign *f)
{
  const struct verdict *first = NULL;
  for (int i = 0; i < f->n_verdicts; i++) {
    const struct verdict *v = &f->verdicts[i];
    if (v->outcome == OUTCOME_FAIL && v->first[0] != '\0' && (first == NULL || v->first_step < first->first_step)) first = v;
  }
  return first;
}

static void find_first(struct foreign *f)
{
  const struct verdict *first = earliest(f);
  if (first == NULL) return;
  if (first->first_step < 0) snprintf(f->first, sizeof f->first, "before step 0, %s (%s): %s", first->check, first->observable, first->first);
  else snprintf(f->first, sizeof f->first, "step %lld, %s (%s): %s", (long long)first->first_step, first->check, first->observable, first->first);
}

/* What the one sentence tells: records that are not in their places, for the rest follows from them; a run that did not end; the first
 * divergence; or else the first check with that outcome. */
static const struct verdict *telling(const struct foreign *f)
{
  const struct verdict *first = f->outcome == OUTCOME_FAIL ? earliest(f) : NULL;
  if (f->verdicts[0].outcome != OUTCOME_PASS) return &f->verdicts[0];
  for (int i = 1; i < f->n_verdicts; i++) {
    const struct verdict *v = &f->verdicts[i];
    if (v->outcome == f->outcome && (first == NULL || strcmp(v->check, "ends") == 0)) return v;
  }
  return first;
}

static void conclude(struct foreign *f)
{
  enum outcome all[FOREIGN_VERDICTS];
  int judged = 0;
  for (int i = 0; i < f->n_verdicts; i++) all[i] = f->verdicts[i].outcome;
  f->outcome = judge_worst(all, f->n_verdicts);
  for (int i = 1; i < f->n_verdicts; i++) judged += all[i] == OUTCOME_PASS; /* 0: that the records can be read */
  if (f->level == 0 && f->outcome == OUTCOME_PASS) f->outcome = OUTCOME_INVALID;
  if (f->outcome == OUTCOME_PASS)
    snprintf(f->sentence, sizeof f->sentence, "PASS at level %d: %d checks passed%s", f->level, judged, f->unseen[0] ? ", not all that they can see was shown" : "");
  else if (f->level == 0)
    snprintf(f->sentence, sizeof f->sentence, "%s: nothing that can be judged: no records of steps, no updates, no gradients", outcome_name(f->outcome));
  if (f->outcome == OUTCOME_PASS || f->level == 0) return;
  const struct verdict *v = telling(f);
  char step[32];
  snprintf(step, sizeof step, "step %lld", v ? (long long)v->first_step : -1LL);
  const bool elsewhere = v != NULL && v->outcome == OUTCOME_FAIL && v->first_step >= 0 && strcmp(v->check, "ends") != 0 && strstr(v->sentence, step) == NULL;
  if (v != NULL)
    snprintf(f->sentence, sizeof f->sentence, "%s at level %d: %s (%s): %s%s%s", outcome_name(f->outcome), f->level, v->check, v->observable,
             elsewhere ? v->first : "", elsewhere ? " is the first to differ; " : "", v->sentence);
}

enum err foreign_check(const char *dir, const char *against, struct foreign *out)
{
  enum err err = ERR_OK;
  struct judging j = {.out = out, .wanted = {{.role = "truth"}, {.role = "bounds"}}};
  memset(out, 0, sizeof *out);
  TRY(against_open(against, &j.case_));
  TRY_TO(close, open_run(dir, &j));
  j.companions[0] = &j.case_.truth;
  j.companions[1] = &j.case_.bounds;
  for (int i = 0; i < 2; i++) j.wanted[i].config = j.companions[i]->config;
  out->level = foreign_level(&j.run);
  judge_all(&j);
  find_worst(out);
  find_first(out);
  conclude(out);
close:
  json_decref((json_t *)j.run.records);
  against_close(&j.case_);
  if (err) foreign_release(out);
  return err;
}

void foreign_release(struct foreign *f)
{
  for (int i = 0; i < f->n_verdicts; i++) json_decref(f->verdicts[i].details);
  memset(f, 0, sizeof *f);
}
