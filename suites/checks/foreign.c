/* foreign.c - how much a foreign run shows, and what its gaps hide. */
#include "foreign.h"
#include "evidence.h"
#include "observed.h"

#include <string.h>

static bool shows(const struct run_data *run, const char *what)
{
  for (int64_t step = 0; step <= run->config.steps; step++)
    if (evidence_has_tensors(run, what, step)) return true;
  return false;
}

int foreign_level(const struct run_data *run)
{
  if (shows(run, "gradients")) return 3;
  if (shows(run, "weights") || shows(run, "moments1")) return 2;
  return evidence_tells(run, "step", NULL) ? 1 : 0;
}

/* --- gaps -------------------------------------------------------------------------------------- */

static bool no_microbatches(const struct run_data *run) { return !evidence_tells(run, "microbatch", NULL); }
static bool no_counts(const struct run_data *run) { return !evidence_tells(run, "step", "got.valid_tokens"); }
static bool no_own_gradients(const struct run_data *run) { return !observed_has(run, 0); }
static bool no_factor(const struct run_data *run) { return !evidence_tells(run, "step", "got.clip_factor"); }
static bool no_rate(const struct run_data *run) { return !evidence_tells(run, "step", "got.lr"); }
static bool no_later_gradients(const struct run_data *run)
{
  return observed_has(run, 0) && !shows(run, "gradients") && run->config.steps > 1 && !observed_has(run, run->config.steps - 1);
}
static bool no_weights_after(const struct run_data *run)
{
  return !(evidence_has_tensors(run, "weights", 0) && evidence_has_tensors(run, "weights", 1) &&
           (evidence_has_tensors(run, "gradients", 0) || evidence_has_tensors(run, "moments2", 1)));
}
static bool no_later_weights(const struct run_data *run)
{
  if (no_weights_after(run)) return false;
  for (int64_t step = 2; step <= run->config.steps; step++)
    if (!evidence_has_tensors(run, "weights", step) || !(shows(run, "gradients") || evidence_has_tensors(run, "moments2", step))) return true;
  return false;
}

static const struct {
  const char *check, *observable;
  bool (*lacks)(const struct run_data *run);
  const char *what, *hidden;
} gaps[] = {
  {"loss", "O3", no_microbatches, "no records of micro-batches", "which micro-batch is off, and errors of several that cancel"},
  {"loss", "O3", no_counts, "no count of valid tokens", "a count that is wrong beside a sum that is wrong alike"},
  {"gradients", "O4", no_later_gradients, "no moments of later steps", "gradients of later steps that are stale or were not cleared"},
  {"norm", "O5", no_own_gradients, "no gradients and no first moments", "a norm that is told and not the one that was used"},
  {"update", "O6", no_factor, "no clip factor", "a factor that does not follow from the norm, but for what moments and weights show of it"},
  {"update", "O6", no_rate, "no learning rate", "a schedule that is ahead or behind, but for what weights show of it"},
  {"update", "O6", no_weights_after, "no weights before and after a step with its gradients or moments",
   "decay where it does not belong, missing bias correction, moments or weights updated wrongly"},
  {"update", "O6", no_later_weights, "weights, gradients or moments of some steps are missing", "what goes wrong in those updates"},
};

bool foreign_unseen(const struct run_data *run, const char *check, int i, struct verdict *out)
{
  for (size_t k = 0; k < sizeof gaps / sizeof *gaps; k++) {
    if (strcmp(gaps[k].check, check) != 0 || !gaps[k].lacks(run) || i-- > 0) continue;
    verdict_start(out, check, gaps[k].observable);
    verdict_unseen(out, gaps[k].what, gaps[k].hidden);
    return true;
  }
  return false;
}
