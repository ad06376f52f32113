/* framework.c - what is said of one foreign run. */
#include "harness/framework.h"
#include "harness/cut.h"
#include "harness/framework_curve.h"
#include "harness/trial.h"

#include "base/record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NOT_RUN_STATUS = 77 };

/* The last "not run: WHY" of its output; false: it said nothing of the kind. */
static bool said_why(const struct run *run, char *out, size_t bytes)
{
  char path[CONFIG_PATH + 16], line[512];
  bool said = false;
  snprintf(path, sizeof path, "%s/output.txt", run->dir);
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f)) {
    const char *at = strstr(line, "not run: ");
    if (at == NULL) continue;
    line[strcspn(line, "\r\n")] = '\0';
    snprintf(out, bytes, "%.400s", at);
    said = true;
  }
  if (f) fclose(f);
  return said;
}

/* Verdict 0: how its processes ended. */
static void judge_end(const struct run *run, struct trial *t)
{
  struct verdict *v = &t->verdicts[0];
  t->n_verdicts = 1;
  trial_of_end(&run->data, v);
  if (strcmp(run->data.end, "exited") != 0 || run->data.status != NOT_RUN_STATUS) return;
  if (said_why(run, v->sentence, sizeof v->sentence)) {
    v->outcome = OUTCOME_SKIPPED;
  } else {
    v->outcome = OUTCOME_INVALID;
    snprintf(v->sentence, sizeof v->sentence, "exit status %d without a line 'not run: WHY' in its output", NOT_RUN_STATUS);
  }
}

/* What it wrote, once it has ended well.  False: that cannot be judged, which verdict 0 says. */
static bool judge_words(const struct run *run, const char *against, struct trial *t, struct foreign *found)
{
  const enum err err = foreign_check(run->dir, against, found);
  if (err) {
    struct verdict *v = &t->verdicts[0];
    v->outcome = err_status(err) == STATUS_INVALID && err != ERR_FORMAT ? OUTCOME_INVALID : OUTCOME_FAIL;
    snprintf(v->sentence, sizeof v->sentence, "what it wrote cannot be judged: %.400s", err_text());
    err_clear();
    return false;
  }
  for (int i = 0; i < found->n_verdicts && t->n_verdicts < SUITE_CHECKS_MAX + 1; i++) {
    t->verdicts[t->n_verdicts] = found->verdicts[i];
    json_incref(t->verdicts[t->n_verdicts++].details); /* trial_release() */
  }
  t->diagnosis = found->diagnosis;
  return true;
}

/* The worst of both: how it ended, and the outcome of its checks, which knows what is missing. */
static void settle(struct trial *t, const struct foreign *found, bool checked)
{
  trial_settle(t);
  if (!checked || (t->outcome == found->outcome && t->outcome != OUTCOME_PASS)) return;
  t->outcome = found->outcome;
  snprintf(t->reason, sizeof t->reason, "%s", t->outcome == OUTCOME_PASS ? "" : "evidence");
  snprintf(t->sentence, sizeof t->sentence, "%s", found->sentence);
}

/* Of a row that has to go red.  A crash or a hang is what its fault does only where the catalogue says so. */
static const struct verdict *red_of(const struct trial *t)
{
  enum fault which;
  if (fault_find(t->of->cause, &which) != ERR_OK) {
    which = FAULT_NONE; /* a cause of foreign runs alone */
    err_clear();
  }
  for (int i = 0; i < t->n_verdicts; i++) {
    const struct verdict *v = &t->verdicts[i];
    if (v->outcome == OUTCOME_FAIL && (strcmp(v->observable, "O14") != 0 || strstr(fault_rows[which].observable, "O14"))) return v;
  }
  return NULL;
}

static void settle_planted(struct trial *t, const char *first)
{
  char sentence[sizeof t->sentence];
  const struct verdict *red = red_of(t);
  if (t->outcome == OUTCOME_SKIPPED || (t->verdicts[0].outcome == OUTCOME_INVALID)) return; /* a run that the machine spoilt shows nothing */
  if (red == NULL) {
    snprintf(sentence, sizeof sentence, "not caught: has to go red (%s), and no check did (%.400s)", t->of->cause, t->sentence);
    snprintf(t->reason, sizeof t->reason, "not caught");
    t->outcome = OUTCOME_FAIL;
  } else {
    const bool named = strcmp(t->diagnosis.fault, t->of->cause) == 0;
    snprintf(sentence, sizeof sentence, "caught by %s (%s), %s%s%s%s; first: %.350s", red->observable, red->check, named ? "named " : "taken for ",
             t->diagnosis.fault[0] ? t->diagnosis.fault : "nothing known", named ? "" : " in place of ", named ? "" : t->of->cause,
             first[0] ? first : red->sentence);
    t->reason[0] = '\0';
    t->outcome = OUTCOME_PASS;
  }
  memcpy(t->sentence, sentence, sizeof sentence);
}

enum err framework_judge(struct plan *p, int index, const char *against, const struct results *r)
{
  struct trial *t = &p->trials[index];
  const struct run *run = &p->runs[t->run];
  struct foreign found = {0};
  judge_end(run, t);
  const bool checked = t->verdicts[0].outcome == OUTCOME_PASS && judge_words(run, against, t, &found);
  settle(t, &found, checked);
  found.outcome = t->outcome; /* of the record, whatever its row expects */
  if (*t->of->cause) settle_planted(t, found.first);
  const enum err err = framework_record(p, t, &found, against, r);
  if (checked) foreign_release(&found);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

/* --- the record --------------------------------------------------------------------------------- */

/* "dp2 pp2 1f1b", and what replicas share. */
static void layout_text(const struct run_config *c, char *out, size_t bytes)
{
  cut_text(c, out, bytes);
  const size_t used = strlen(out);
  if (c->zero) snprintf(out + used, bytes - used, " zero%lld", (long long)c->zero);
}

static void record_row(struct record_file *f, const struct trial *t, const struct run_config *c)
{
  char text[CONFIG_NAME];
  record_text(f, "got.suite", t->suite->name);
  record_text(f, "got.adapter", t->of->adapter);
  record_text(f, "got.environment", t->of->environment);
  layout_text(c, text, sizeof text);
  record_text(f, "got.layout", text);
  opt_text(opt_find(run_options, run_options_count, "precision"), c, text, sizeof text);
  record_text(f, "got.precision", text);
  record_text(f, "got.planted", t->of->plant);
  record_text(f, "got.expected", t->of->cause);
  record_text(f, "got.note", t->of->note);
}

static void record_found(struct record_file *f, const struct trial *t, const struct foreign *found)
{
  if (found->framework[0]) record_text(f, "got.framework", found->framework);
  if (found->versions[0]) record_text(f, "got.versions", found->versions);
  record_int(f, "got.level", found->level);
  record_text(f, "got.outcome", outcome_name(found->outcome));
  record_text(f, "got.worst", found->worst);
  if (isfinite(found->value_over_bound) && found->worst[0]) record_real(f, "got.value_over_bound", found->value_over_bound);
  record_text(f, "got.first", found->first);
  record_text(f, "got.cause", t->diagnosis.sentence);
  record_text(f, "got.diagnosed", t->diagnosis.fault);
  record_text(f, "got.why", found->outcome == OUTCOME_PASS || found->level > 0 ? found->unseen : t->sentence);
}

enum err framework_record(const struct plan *p, const struct trial *t, const struct foreign *found, const char *against, const struct results *r)
{
  struct record_file *f;
  char precision[32];
  const struct run_config *c = t->run >= 0 ? &p->runs[t->run].config : &t->of->config;
  TRY(record_open(r->records, t->name, -1, &f));
  record_begin(f, "framework", -1, -1);
  record_row(f, t, c);
  if (found) {
    record_found(f, t, found);
    opt_text(opt_find(run_options, run_options_count, "precision"), c, precision, sizeof precision);
    if (found->level > 0) framework_curve(f, p->runs[t->run].dir, against, precision);
  } else {
    record_text(f, "got.outcome", outcome_name(t->outcome));
    record_text(f, "got.why", t->sentence);
  }
  if (*t->of->cause && t->outcome != OUTCOME_SKIPPED) {
    record_bool(f, "got.caught", t->outcome == OUTCOME_PASS);
    record_bool(f, "got.named", t->outcome == OUTCOME_PASS && strcmp(t->diagnosis.fault, t->of->cause) == 0);
  }
  const enum err err = record_end(f);
  record_close(f);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
