/* overlap.c - O13: how much of the transfers over replicas is hidden, with the parts of the figure; and whether that
 * is as much as a bare program hides.
 *
 * The first check judges whether the figure can be believed, not how large it is; the second holds it against the bare
 * program's, at a size where there is about as much to hide as to hide it behind.  A bare program that hides nothing
 * is no measure: any trainer would pass.
 */
#include "hidden.h"

#include "evidence.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>

static const double least_share = 0.9; /* of what the bare program hides */
static const double most_off = 0.1;    /* of the transfers' time, by the clocks of several hosts */

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
  const double off_ms = 2 * evidence_clock_error_ms(run) * (double)h.calls; /* each transfer: from one rank's clock to another's */
  if (off_ms > most_off * h.alone_ms.value)
    verdict_say(out, OUTCOME_INCONCLUSIVE, "the ranks' clocks are known to %.3g ms, so %lld transfers of %.4g ms in all may be off by %.3g ms: %s",
                evidence_clock_error_ms(run), (long long)h.calls, h.alone_ms.value, off_ms, parts);
  else if (hidden_agrees(&h)) verdict_say(out, OUTCOME_PASS, "%s", parts);
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
  const double percent = 100 * h.alone_ms.value / h.compute_ms.value, want = least_share * h.bare_hidden.value;
  out->value = h.hidden.value;
  out->bound = want;
  if (percent < HIDDEN_LEAST || percent > HIDDEN_MOST)
    verdict_say(out, OUTCOME_INVALID, "transfers alone take %.0f %% of compute alone (%.4g of %.4g ms) with micro_batch %lld; a comparison needs %d to "
                "%d %%", percent, h.alone_ms.value, h.compute_ms.value, (long long)run->config.micro_batch, HIDDEN_LEAST, HIDDEN_MOST);
  else if (!(h.bare_hidden.value > 0))
    verdict_say(out, OUTCOME_INCONCLUSIVE, "the bare program hides nothing (%.0f %%), so it measures nothing; the trainer hides %.0f %%; transfers of "
                "%.4g ms take %.4g ms of a rank's processor, so at most %.0f %% could be hidden", 100 * h.bare_hidden.value, 100 * h.hidden.value,
                h.bare_alone_ms.value, h.bare_processor_ms.value, 100 * h.bare_most.value);
  else {
    const bool enough = h.hidden.value >= want;
    verdict_say(out, enough ? OUTCOME_PASS : hidden_agrees(&h) ? OUTCOME_FAIL : OUTCOME_INCONCLUSIVE,
                "hidden %.0f %%, %sthe bare program%s %.0f %% of at most %.0f; compute %.2f times as long, the bare program's step %.2f; alone %.4g ms, "
                "%.0f %% of compute with micro_batch %lld", 100 * h.hidden.value, enough ? "" : "less than 0.9 times ", enough ? "" : "'s",
                100 * h.bare_hidden.value, 100 * h.bare_most.value, h.compute_slowdown.value, h.bare_slowdown.value, h.alone_ms.value, percent,
                (long long)run->config.micro_batch);
  }
}
