/* overlap.c - O13: how much of the transfers over replicas is hidden, with the parts of the figure; and whether that
 * is as much as a bare program hides.
 *
 * The first check judges whether the figure can be believed, not how large it is; the second holds it against the bare
 * program's, at a size where there is about as much to hide as to hide it behind.
 */
#include "hidden.h"

#include "evidence.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>

static const double least_share = 0.9;                  /* of what the bare program hides             */
static const double smallest_ratio = 0.6, largest_ratio = 0.9; /* transfers alone over compute alone */

static void say_parts(const struct hidden *h, char *out, size_t bytes)
{
  char transfers[32] = "";
  if (!isnan(h->transfer_slowdown.value)) snprintf(transfers, sizeof transfers, ", transfers %.2f", h->transfer_slowdown.value);
  snprintf(out, bytes, "hidden %.0f %% [%.0f, %.0f] of %.4g ms alone (coverable %.4g); exposed %.4g ms, %.4g by the streams; compute %.2f times as "
           "long%s", 100 * h->hidden.value, 100 * h->hidden.low, 100 * h->hidden.high, h->alone_ms.value, h->coverable_ms.value,
           h->exposed_ms.value, h->traced_ms.value, h->compute_slowdown.value, transfers);
}

/* False: said why there is nothing to judge. */
static bool measured(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                     struct hidden *h, struct verdict *out)
{
  if (hidden_measure(run, wanted, companions, n, h) == ERR_OK) return true;
  verdict_say(out, OUTCOME_INVALID, "%.400s", err_text());
  return false;
}

void overlap_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                   struct verdict *out)
{
  struct hidden h;
  char parts[400];
  verdict_start(out, "overlap", "O13");
  if (!measured(run, wanted, companions, n, &h, out)) return;
  say_parts(&h, parts, sizeof parts);
  out->value = fabs(h.exposed_ms.value - h.traced_ms.value);
  out->bound = fmax(0.1 * fmax(h.exposed_ms.value, h.traced_ms.value), 0.02 * h.alone_ms.value);
  if (hidden_agrees(&h)) verdict_say(out, OUTCOME_PASS, "%s", parts);
  else verdict_say(out, OUTCOME_INCONCLUSIVE, "exposed by the clock and by the streams are more than 10 %% apart: %s", parts);
}

void bare_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                struct verdict *out)
{
  struct hidden h;
  verdict_start(out, "bare", "O13");
  if (!measured(run, wanted, companions, n, &h, out)) return;
  if (!h.has_bare) {
    verdict_say(out, OUTCOME_INVALID, "there is no bare program of these settings: float32 on the cpu, zero 0");
    return;
  }
  const double ratio = h.alone_ms.value / h.compute_ms.value, want = least_share * h.bare_hidden.value;
  out->value = h.hidden.value;
  out->bound = want;
  if (ratio < smallest_ratio || ratio > largest_ratio)
    verdict_say(out, OUTCOME_INVALID, "transfers alone take %.0f %% of compute alone (%.4g of %.4g ms); a comparison needs 60 to 90 %%: another "
                "micro_batch or link rate", 100 * ratio, h.alone_ms.value, h.compute_ms.value);
  else if (h.hidden.value >= want)
    verdict_say(out, OUTCOME_PASS, "hidden %.0f %%, the bare program %.0f %%; compute %.2f times as long, the bare program's step %.2f; alone %.4g ms, "
                "%.0f %% of compute", 100 * h.hidden.value, 100 * h.bare_hidden.value, h.compute_slowdown.value, h.bare_slowdown.value,
                h.alone_ms.value, 100 * ratio);
  else
    verdict_say(out, hidden_agrees(&h) ? OUTCOME_FAIL : OUTCOME_INCONCLUSIVE, "hidden %.0f %%, less than 0.9 times the bare program's %.0f %%; "
                "compute %.2f times as long, the bare program's step %.2f", 100 * h.hidden.value, 100 * h.bare_hidden.value,
                h.compute_slowdown.value, h.bare_slowdown.value);
}
