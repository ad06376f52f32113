/* ends.c - O14: the run ended by itself and every rank told its whole story, once. */
#include "evidence.h"
#include "fitting.h"
#include "verdict.h"

#include <stdio.h>
#include <string.h>

static const char *const cannot[] = {"unavailable", "config", "io", "memory", "invalid"}; /* err_name: not the run's fault */

static bool is_cannot(const char *kind)
{
  for (size_t i = 0; i < sizeof cannot / sizeof *cannot; i++)
    if (strcmp(kind, cannot[i]) == 0) return true;
  return false;
}

static const double LIBRARIES = 0.95; /* of a card is ours: contexts and libraries take some */

/* "; ..." for a run that wanted more than its card has. */
static void smaller(const struct run_data *run, const char *kind, char *out, size_t room)
{
  char layout[160] = "";
  const double bytes = evidence_value(run, "run", -1, -1, -1, "env.gpu_memory_bytes");
  if (strcmp(kind, "memory") == 0 && bytes > 0) fitting_text(&run->config, (struct fitting_room){LIBRARIES * bytes, 1}, layout, sizeof layout);
  snprintf(out, room, layout[0] ? "; %s" : "%s", layout);
}

/* The first rank that ended with a reason; false: none did. */
static bool refused(const struct run_data *run, struct verdict *out)
{
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *record = json_array_get(run->records, i);
    if (!evidence_is(record, "done") || strcmp(evidence_text(record, "got.error_kind"), "ok") == 0) continue;
    if (run->foreign && json_object_get(record, "got.error_kind") == NULL && evidence_text(record, "got.error")[0] == '\0') continue;
    const char *kind = evidence_text(record, "got.error_kind");
    if (strcmp(kind, "interrupted") == 0) continue; /* told to end by the job's end: no reason of its own */
    char fitting[200];
    smaller(run, kind, fitting, sizeof fitting);
    verdict_say(out, is_cannot(kind) ? OUTCOME_INVALID : OUTCOME_FAIL, "rank %lld ended with an error (%s%s): %s",
                (long long)evidence_rank(record), kind[0] ? kind : "its own words", fitting, evidence_text(record, "got.error"));
    return true;
  }
  return false;
}

/* Each rank one "done", and one "step" a step; of a foreign run perhaps rank 0 alone tells of steps. */
static bool complete(const struct run_data *run, struct verdict *out)
{
  for (int rank = 0; rank < (int)config_ranks(&run->config); rank++) {
    const int done = evidence_count(run, "done", rank, -1, -1);
    if (done != 1) {
      verdict_say(out, OUTCOME_FAIL, "rank %d closed its records %d times", rank, done);
      return false;
    }
    for (int64_t step = 0; run->config.task == TASK_TRAIN && rank < evidence_ranks(run) && step < run->config.steps; step++) {
      const int told = evidence_count(run, "step", rank, step, -1);
      if (told == 1) continue;
      verdict_first(out, step, "step %lld", (long long)step);
      if (run->foreign && told == 0 && evidence_count(run, "step", -1, -1, -1) == evidence_ranks(run) * step)
        verdict_say(out, OUTCOME_FAIL, "the run ended after %lld of %lld steps (set.steps, or else the case's)", (long long)step, (long long)run->config.steps);
      else verdict_say(out, OUTCOME_FAIL, "rank %d told of step %lld %d times", rank, (long long)step, told);
      return false;
    }
  }
  return true;
}

void ends_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "ends", "O14");
  if (strcmp(run->end, "interrupted") == 0 || strcmp(run->end, "not_started") == 0) {
    verdict_say(out, OUTCOME_INVALID, "the run was %s: %s", run->end[0] == 'i' ? "interrupted" : "not started", run->text);
    return;
  }
  if (refused(run, out)) return;
  if (strcmp(run->end, "slow") == 0) {
    verdict_say(out, OUTCOME_INVALID, "too slow to judge: %s", run->text);
    return;
  }
  if (strcmp(run->end, "timeout") == 0) {
    verdict_say(out, OUTCOME_FAIL, "no progress until the time limit: %s", run->text);
    return;
  }
  if (!evidence_ended(run)) { /* these statuses mean: not judged, by the machine's fault or the settings' */
    const bool cannot_run = strcmp(run->end, "exited") == 0 && (run->status == STATUS_INVALID || run->status == STATUS_USAGE);
    if (strcmp(run->end, "exited") == 0)
      verdict_say(out, cannot_run ? OUTCOME_INVALID : OUTCOME_FAIL, "the run ended with status %d: %s", run->status, run->text);
    else if (strcmp(run->end, "killed") == 0) verdict_say(out, OUTCOME_FAIL, "the run was killed by signal %d: %s", run->status, run->text);
    else verdict_say(out, OUTCOME_FAIL, "the run was %s: %s", run->end, run->text);
    return;
  }
  if (!complete(run, out)) return;
  verdict_say(out, OUTCOME_PASS, "%d ranks ran %lld steps to the end", (int)config_ranks(&run->config),
              (long long)(run->config.task == TASK_TRAIN ? run->config.steps : 0));
}
