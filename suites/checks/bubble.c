/* bubble.c - O13: the idle time of a pipeline's stages beside that of its list, simulated with the run's median times.
 *
 * Compute: sleep within 3 %, real compute within 10 %.  What is farther decides nothing if a step was within that, or
 * no farther from it than this machine's own lateness explains (idle.c).
 */
#include "evidence.h"
#include "idle.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>

static const double sleep_margin = 0.03, real_margin = 0.10;
static const double clock_share = 0.1; /* of the bubble: the bound of the clocks' error */

/* The longest part of the split, as a person names it. */
static const char *largest_part(const struct idle *x)
{
  double schedule = 0, imbalance = 0, transfer = 0;
  for (int i = 0; i < x->stages; i++) {
    schedule += x->stage[i].schedule_ms;
    imbalance += x->stage[i].imbalance_ms;
    transfer += x->stage[i].transfer_ms;
  }
  return schedule >= imbalance && schedule >= transfer ? "the schedule"
         : imbalance >= transfer                       ? "stage imbalance"
                                                       : "exposed transfers";
}

/* Returns how far the bubble is off, as a share of the margin; adds what it found of this pipeline. */
static void judge_pipeline(const struct idle *x, double margin, const char *of, struct worst *w, struct verdict *out,
                           double *unexplained)
{
  const double off_ms = fabs(x->bubble_ms - x->simulated_bubble_ms), allowed_ms = margin * x->simulated_bubble_ms;
  char what[64];
  worst_see(w, off_ms, allowed_ms, "bubble%s: %.4g ms measured, %.4g ms simulated", of, x->bubble_ms,
            x->simulated_bubble_ms);
  *unexplained = fmax(*unexplained, x->nearest_ms - allowed_ms - x->late_ms);
  for (int i = 0; i < x->stages; i++) {
    snprintf(what, sizeof what, "idle of stage %d%s, ms", i, of);
    verdict_detail(out, what, -1, x->stage[i].idle_ms, x->stage[i].schedule_ms + x->stage[i].imbalance_ms);
  }
}

void bubble_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions,
                  int n, struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  const struct run_config *c = &run->config;
  const double margin = c->compute == COMPUTE_SLEEP ? sleep_margin : real_margin;
  double unexplained = -INFINITY, least_ms = INFINITY;
  struct worst w;
  struct idle x;
  char found[192] = "", of[48] = "";
  verdict_start(out, "bubble", "O13");
  worst_start(&w);
  if (c->pp < 2) {
    verdict_say(out, OUTCOME_INVALID, "one stage has no bubble: pp is %lld", (long long)c->pp);
    return;
  }
  for (int d = 0; d < c->dp; d++)
    for (int t = 0; t < c->tp; t++) {
      if (c->dp * c->tp > 1) snprintf(of, sizeof of, " of replica %d, tensor rank %d", d, t);
      const enum err err = idle_measure(run, d, t, &x);
      if (err) {
        verdict_say(out, err == ERR_FORMAT ? OUTCOME_FAIL : OUTCOME_INVALID, "%.400s", err_text());
        return;
      }
      judge_pipeline(&x, margin, of, &w, out, &unexplained);
      least_ms = fmin(least_ms, x.bubble_ms);
      if (found[0] == '\0')
        snprintf(found, sizeof found, "%.1f %% of ideal, %.1f %% of total time, mostly %s",
                 100 * x.bubble_ms / x.busy_ms, 100 * x.bubble_ms / x.total_ms, largest_part(&x));
      idle_free(&x);
    }
  worst_to(&w, out);
  if (evidence_clock_error_ms(run) > clock_share * least_ms)
    verdict_say(out, OUTCOME_INCONCLUSIVE, "clocks may be %.3g ms off, more than a tenth of the smallest bubble, %.3g ms", evidence_clock_error_ms(run),
                least_ms);
  else if (w.over == 0)
    verdict_say(out, OUTCOME_PASS, "%s; off by %.3g ms of the %.3g allowed; %s", w.place, w.value, w.bound, found);
  else if (unexplained <= 0)
    verdict_say(out, OUTCOME_INCONCLUSIVE,
                "%s; off by %.3g ms, allowed %.3g: noise, as its best step and this machine's own lateness show; %s",
                w.place, w.value, w.bound, found);
  else
    verdict_say(
        out, OUTCOME_FAIL,
        "%s; off by %.3g ms, allowed %.3g, of which %.3g ms are in every step and no lateness of this machine; %s",
        w.place, w.value, w.bound, unexplained, found);
}
