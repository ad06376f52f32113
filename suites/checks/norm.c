/* norm.c - O5: the global gradient norm: against the truth, and recomputed from the run's own
 * gradients (frozen and unused parameters are not in it). */
#include "bound.h"
#include "noise.h"
#include "observed.h"
#include "verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Per-parameter sums of squares in file order, as the optimizer combines them. */
static enum err recompute(const struct run_data *run, int64_t step, double *norm)
{
  enum err err = ERR_OK;
  struct observed o;
  double *x = NULL, sum = 0.0;
  TRY(observed_open(run, step, &o));
  for (int i = 0; i < safetensors_count(o.now); i++) {
    const struct safetensor *t = safetensors_get(o.now, i);
    const json_t *facts = evidence_parameter(run, t->name);
    if (facts == NULL && run->foreign) continue; /* the tied matrix once more; of anything else the gradients check speaks */
    if (facts == NULL) FAIL_TO(close_file, ERR_FORMAT, "no parameter record of %s", t->name);
    if (evidence_flag(facts, "got.frozen")) continue;
    const int64_t n = tensor_count(&t->data);
    double *more = realloc(x, ((size_t)n + 1) * sizeof *x), mine = 0.0;
    if (more == NULL) FAIL_TO(close_file, ERR_MEMORY, "%lld elements", (long long)n);
    x = more;
    TRY_TO(close_file, observed_elements(&o, t->name, x));
    for (int64_t k = 0; k < n; k++) mine += x[k] * x[k];
    sum += mine;
  }
  *norm = sqrt(sum);
close_file:
  free(x);
  observed_close(&o);
  return err;
}

void norm_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                struct verdict *out)
{
  verdict_start(out, "norm", "O5");
  const struct run_data *truth;
  struct noise noise;
  if (run->foreign && !evidence_tells(run, "step", "got.norm")) {
    verdict_unseen(out, "no got.norm in records of steps", "a norm of something else than all gradients");
    return;
  }
  if (!noise_have(wanted, companions, n, &truth, &noise, out)) return;
  const enum precision precision = bound_precision(&run->config, BOUND_NORM, 0), own_precision = (enum precision)run->config.precision;
  const int64_t steps = evidence_steps(run);
  const double floor = bound_floor(BOUND_NORM, precision, (double)evidence_microbatches(&run->config));
  struct worst w;
  worst_start(&w);
  double capped = 0.0;
  for (int64_t step = 0; step < steps; step++) {
    if (evidence_skipped(truth, step)) continue; /* nothing was to be learned from it */
    const double want = evidence_value(truth, "step", -1, step, -1, "got.norm"),
                 q = noise_of(&noise, truth, "step", step, -1, "got.norm");
    const double bound = bound_measured(floor, q);
    double own = NAN;
    if (isnan(want) || isnan(q)) {
      verdict_say(out, OUTCOME_INVALID, "a companion tells no finite norm of step %lld", (long long)step);
      return;
    }
    const bool shown = !run->foreign || observed_has(run, step);
    w.step = step;
    if (shown && recompute(run, step, &own) != ERR_OK) {
      verdict_say(out, OUTCOME_INVALID, "the norm of step %lld cannot be recomputed: %s", (long long)step, err_text());
      return;
    }
    for (int rank = 0; rank < evidence_ranks(run); rank++) {
      const double got = evidence_value(run, "step", rank, step, -1, "got.norm");
      worst_see(&w, bound_relative(got, want), bound, "norm of rank %d at step %lld beside the truth's", rank, (long long)step);
      if (shown)
        worst_see(&w, bound_relative(got, own), bound_ceiling(BOUND_NORM_OWN, own_precision, step),
                  "norm of rank %d at step %lld beside its own gradients'", rank, (long long)step);
    }
    verdict_detail(out, "norm", step, bound_relative(evidence_value(run, "step", 0, step, -1, "got.norm"), want), bound);
    if (bound > bound_ceiling(BOUND_NORM, precision, step)) capped = fmax(capped, bound);
  }
  worst_to(&w, out);
  if (w.over > 0)
    verdict_say(out, OUTCOME_FAIL, "%s is off by %.3g (relative), bound %.2g; %lld of %lld comparisons off", w.place, w.value, w.bound,
                (long long)w.over, (long long)w.seen);
  else if (steps < run->config.steps || w.seen == 0)
    verdict_say(out, OUTCOME_INVALID, "only %lld of %lld steps left evidence", (long long)steps, (long long)run->config.steps);
  else if (capped > 0.0)
    verdict_say(out, OUTCOME_INVALID, "the legal serial runs differ too much to decide: measured bound %.2g", capped);
  else {
    out->smallest = w.bound + w.value;
    verdict_say(out, OUTCOME_PASS, "%lld norms at %lld steps; nearest to its bound: %s, %.2g of %.2g", (long long)w.seen,
                (long long)steps, w.place, w.value, w.bound);
  }
}
