/* clock.c - O13: a step's time is the whole of it: no shorter than its parts, and all steps no longer than the run.
 *
 * Parts of one rank do not overlap: waiting for data, then the compute stream busy (forward, backward, optimizer,
 * other) or idle for a transfer.  The rest, launching work, is in the step and in no part.
 */
#include "evidence.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>

static const char *const parts[] = {"got.data_ms", "got.forward_ms", "got.backward_ms", "got.optimizer_ms", "got.other_ms", "got.exposed_ms"};
static const double slack = 0.01, slack_ms = 0.1; /* clocks are read a moment before and after the work */

static void judge_step(const json_t *record, struct worst *w)
{
  const double step_ms = evidence_real(record, "got.step_ms");
  double sum_ms = 0.0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) sum_ms += evidence_real(record, parts[i]);
  worst_see(w, sum_ms, step_ms * (1.0 + slack) + slack_ms, "parts of step %lld on rank %lld", (long long)evidence_step(record),
            (long long)evidence_rank(record));
}

void clock_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                 struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "clock", "O13");
  struct worst w;
  worst_start(&w);
  for (int rank = 0; rank < evidence_ranks(run); rank++) {
    double all_ms = 0.0;
    for (int64_t step = 0; step < run->config.steps; step++) {
      const json_t *record = evidence_record(run, "time", rank, step, -1);
      if (record == NULL) {
        verdict_say(out, OUTCOME_INVALID, "rank %d told no time of step %lld", rank, (long long)step);
        return;
      }
      judge_step(record, &w);
      all_ms += evidence_real(record, "got.step_ms");
    }
    worst_see(&w, all_ms, 1000.0 * evidence_value(run, "done", rank, -1, -1, "got.seconds"), "all steps on rank %d beside the whole run", rank);
  }
  worst_to(&w, out);
  if (w.over > 0)
    verdict_say(out, OUTCOME_FAIL, "%s take %.4g ms, the whole is told as %.4g ms; %lld of %lld such sums do not fit", w.place, w.value,
                w.bound, (long long)w.over, (long long)w.seen);
  else if (w.seen == 0)
    verdict_say(out, OUTCOME_INVALID, "no step was timed");
  else
    verdict_say(out, OUTCOME_PASS, "%lld times are no shorter than their parts; fullest: %s, %.4g of %.4g ms", (long long)w.seen, w.place,
                w.value, w.bound);
}
