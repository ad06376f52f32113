/* finite.c - every loss, norm, factor, gradient and weight is a finite number.
 *
 * The observable named is that of the first value that is not: losses O3, gradients O4, norm O5,
 * factor and weights O6.
 */
#include "evidence.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *kind, *key, *observable;
} scalars[] = {
  {"microbatch", "got.loss_sum", "O3"}, {"step", "got.loss_sum", "O3"}, {"step", "got.loss", "O3"},        {"eval", "got.loss", "O3"},
  {"eval", "got.train_loss", "O3"},     {"step", "got.norm", "O5"},     {"step", "got.clip_factor", "O6"}, {"step", "got.lr", "O6"},
};

static void found(struct verdict *out, const char *observable, const char *what, int64_t rank, int64_t step)
{
  snprintf(out->observable, sizeof out->observable, "%s", observable);
  verdict_first(out, step, "%s at step %lld", what, (long long)step);
  verdict_say(out, OUTCOME_FAIL, "%s is not a finite number at step %lld (rank %lld)", what, (long long)step, (long long)rank);
}

/* Records are judged in the order in which a step makes them, so that the cause is named and not what followed:
 * losses (O3) before gradients, the rest behind them. */
static bool scalars_finite(const struct run_data *run, int64_t step, bool losses, int *seen, struct verdict *out)
{
  for (size_t s = 0; s < sizeof scalars / sizeof *scalars; s++)
    for (size_t i = 0; i < json_array_size(run->records); i++) {
      const json_t *record = json_array_get(run->records, i);
      if ((strcmp(scalars[s].observable, "O3") == 0) != losses) break;
      if (evidence_step(record) != step || !evidence_is(record, scalars[s].kind)) continue;
      if (run->foreign && json_object_get(record, scalars[s].key) == NULL) continue;
      ++*seen;
      if (isfinite(evidence_real(record, scalars[s].key))) continue;
      char what[64];
      snprintf(what, sizeof what, "%s of a %s record", scalars[s].key + 4, scalars[s].kind);
      found(out, scalars[s].observable, what, evidence_rank(record), step);
      return false;
    }
  return true;
}

/* ERR_NUMERIC with the tensor's name if one element is not finite; ERR_OK too if there is no such dump. */
static enum err dump_finite(const struct run_data *run, const char *what, int64_t step, int *seen, struct verdict *out)
{
  enum err err = ERR_OK;
  struct safetensors *f;
  double *x = NULL;
  if (evidence_tensors(run, what, step, &f) != ERR_OK) return ERR_OK;
  for (int i = 0; i < safetensors_count(f); i++) {
    const struct safetensor *t = safetensors_get(f, i);
    const int64_t n = tensor_count(&t->data);
    double *more = realloc(x, ((size_t)n + 1) * sizeof *x);
    if (more == NULL) FAIL_TO(close_file, ERR_MEMORY, "%lld elements", (long long)n);
    x = more;
    TRY_TO(close_file, evidence_elements(&t->data, x));
    ++*seen;
    for (int64_t k = 0; k < n; k++)
      if (!isfinite(x[k])) {
        char place[128];
        snprintf(place, sizeof place, "element %lld of %s of %s", (long long)k, what, t->name);
        found(out, what[0] == 'g' ? "O4" : "O6", place, 0, step);
        FAIL_TO(close_file, ERR_NUMERIC, "%s", place);
      }
  }
close_file:
  free(x);
  safetensors_close(f);
  return err;
}

void finite_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                  struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "finite", "O3");
  int seen = 0;
  for (int64_t step = 0; step <= run->config.steps; step++) {
    if (dump_finite(run, "weights", step, &seen, out) == ERR_NUMERIC) return;
    if (run->foreign && (dump_finite(run, "moments1", step, &seen, out) == ERR_NUMERIC ||
                         dump_finite(run, "moments2", step, &seen, out) == ERR_NUMERIC))
      return;
    if (!scalars_finite(run, step, true, &seen, out)) return;
    if (evidence_skipped(run, step)) continue; /* for an overflow: its losses are finite, the rest need not be */
    if (dump_finite(run, "gradients", step, &seen, out) == ERR_NUMERIC) return;
    if (!scalars_finite(run, step, false, &seen, out)) return;
  }
  if (seen == 0 || evidence_steps(run) < run->config.steps)
    verdict_say(out, OUTCOME_INVALID, "%d values of %lld steps were seen, %lld steps were asked for", seen,
                (long long)evidence_steps(run), (long long)run->config.steps);
  else
    verdict_say(out, OUTCOME_PASS, "%d scalars and tensors, all finite", seen);
}
