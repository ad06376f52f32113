/* scale.c - O7: the loss scale of every step by its closed form, the decision to skip a step the same on every rank, and the
 * rank whose gradient overflowed named by all: where an infinity was planted, that rank.
 *
 * The scale begins with loss_scale, halves after a step that is skipped and doubles after scale_interval others in a row.
 */
#include "evidence.h"
#include "verdict.h"

#include <stdio.h>

/* What the scale of the next step is, and the good steps since it changed. */
struct replay {
  double scale;
  int64_t good;
};

static void advance(const struct run_config *c, struct replay *r, bool skipped)
{
  r->good = skipped ? 0 : r->good + 1;
  if (skipped) r->scale /= 2.0;
  if (r->good < c->scale_interval) return;
  r->scale *= 2.0;
  r->good = 0;
}

static bool off(struct verdict *out, const char *what, int64_t step)
{
  snprintf(out->worst, sizeof out->worst, "%s at step %lld", what, (long long)step);
  return false;
}

/* One rank's word about a step, beside rank 0's. */
static bool agrees(const struct run_data *run, int rank, int64_t step, struct verdict *out)
{
  const json_t *mine = evidence_record(run, "step", rank, step, -1), *first = evidence_record(run, "step", 0, step, -1);
  if (!json_is_boolean(json_object_get(mine, "got.skipped"))) {
    verdict_say(out, OUTCOME_INVALID, "rank %d does not tell whether step %lld was skipped", rank, (long long)step);
    return false;
  }
  const bool skipped = evidence_flag(mine, "got.skipped");
  const double who = evidence_real(mine, "got.overflow_rank");
  if (skipped == evidence_flag(first, "got.skipped") && who == evidence_real(first, "got.overflow_rank")) return true;
  verdict_say(out, OUTCOME_FAIL, "rank 0 %s step %lld (overflow of rank %.0f), rank %d %s it (rank %.0f)",
              evidence_flag(first, "got.skipped") ? "skipped" : "took", (long long)step, evidence_real(first, "got.overflow_rank"), rank,
              skipped ? "skipped" : "took", who);
  return off(out, "decision to skip", step);
}

/* And beside what it has to be. */
static bool judge_rank(const struct run_data *run, int rank, int64_t step, double scale, struct verdict *out)
{
  const struct run_config *c = &run->config;
  const json_t *mine = evidence_record(run, "step", rank, step, -1);
  const bool skipped = evidence_flag(mine, "got.skipped");
  const double said = evidence_real(mine, "got.scale"), who = evidence_real(mine, "got.overflow_rank");
  if (said != scale) {
    out->value = said;
    out->bound = scale;
    verdict_say(out, OUTCOME_FAIL, "rank %d multiplied the losses of step %lld by %g; its closed form gives %g", rank, (long long)step, said,
                scale);
    return off(out, "scale", step);
  }
  if (skipped != (who >= 0.0) || who >= evidence_ranks(run)) {
    verdict_say(out, OUTCOME_FAIL, "rank %d %s step %lld and names rank %.0f", rank, skipped ? "skipped" : "took", (long long)step, who);
    return off(out, "rank that overflowed", step);
  }
  if (step == c->inf_step && who != (double)c->inf_rank) {
    verdict_say(out, OUTCOME_FAIL, "a gradient of rank %lld was infinite at step %lld; rank %d %s it and names rank %.0f",
                (long long)c->inf_rank, (long long)step, rank, skipped ? "skipped" : "took", who);
    return off(out, "rank that overflowed", step);
  }
  return true;
}

void scale_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                 struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "scale", "O7");
  const struct run_config *c = &run->config;
  const int64_t steps = evidence_steps(run);
  struct replay at = {c->loss_scale, 0};
  int skipped = 0;
  if (c->loss_scale == 0.0) {
    verdict_say(out, OUTCOME_SKIPPED, "no loss is scaled");
    return;
  }
  for (int64_t step = 0; step < steps; step++) {
    for (int rank = 0; rank < evidence_ranks(run); rank++)
      if (!agrees(run, rank, step, out)) return;
    for (int rank = 0; rank < evidence_ranks(run); rank++)
      if (!judge_rank(run, rank, step, at.scale, out)) return;
    skipped += evidence_skipped(run, step);
    advance(c, &at, evidence_skipped(run, step));
  }
  if (steps < c->steps || steps == 0)
    verdict_say(out, OUTCOME_INVALID, "only %lld of %lld steps left evidence", (long long)steps, (long long)c->steps);
  else
    verdict_say(out, OUTCOME_PASS, "%lld steps scaled by the closed form, %d of them skipped by all %d ranks", (long long)steps, skipped,
                evidence_ranks(run));
}
