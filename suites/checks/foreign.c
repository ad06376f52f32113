/* foreign.c - how much a foreign run shows, and what its gaps hide. */
#include "foreign.h"
#include "evidence.h"
#include "observed.h"
#include "update.h"

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
  for (int64_t step = 0; step < run->config.steps; step++)
    if (update_shown(run, step, true)) return 2;
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
static int updates_shown(const struct run_data *run)
{
  int n = 0;
  for (int64_t step = 0; step < run->config.steps; step++) n += update_shown(run, step, false);
  return n;
}
static bool no_weights_after(const struct run_data *run) { return updates_shown(run) == 0; }
static bool no_later_weights(const struct run_data *run) { return !no_weights_after(run) && updates_shown(run) < run->config.steps; }
static bool no_moments(const struct run_data *run) { return !no_weights_after(run) && !(shows(run, "moments1") && shows(run, "moments2")); }
static bool is_narrow(const struct run_data *run, const char *what)
{
  for (int64_t step = 0; step <= run->config.steps; step++)
    if (evidence_has_tensors(run, what, step) && !update_wide(run, what, step)) return true;
  return false;
}
static bool narrow_weights(const struct run_data *run) { return is_narrow(run, "weights"); }
static bool narrow_moments(const struct run_data *run) { return is_narrow(run, "moments1") || is_narrow(run, "moments2"); }
static bool narrow_gradients(const struct run_data *run) { return is_narrow(run, "gradients"); }

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
  {"update", "O6", no_moments, "no moments", "moments that are wrong, but for what the weights after them show of it"},
  {"update", "O6", narrow_weights, "weights are told in a type narrower than float32", "masters that are rounded to it, and any update that is wrong"},
  {"update", "O6", narrow_moments, "moments are told in a type narrower than float32", "moments and updates from them that are wrong"},
  {"update", "O6", narrow_gradients, "gradients are told in a type narrower than float32", "moments that are not those of the gradients"},
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
