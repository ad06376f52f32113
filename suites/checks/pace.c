/* pace.c - O13: what sharded states and the recording of spans cost of a step, and what bf16 gains.
 *
 * Of each repeat the ratio of the two runs' median steps; the figure is the median of the ratios, their range its spread.
 * A figure on the wrong side of the limit fails only if its whole range is there.
 */
#include "pace.h"

#include "evidence.h"
#include "median.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double most_cost = 1.05; /* a step with zero 1 or 2 over one with zero 0, on one host */
static const double most_tracing = 1.01; /* a step whose spans are recorded over one without them   */
static const double least_gain = 1.4; /* a step in float32 over one in bf16, with a bf16 unit       */

enum { STEPS = 256, WARM = 2 };

/* Equal settings of two repeats are two runs, and so are those of two cases: their roles differ. */
static void role_of(int repeat, bool own, const struct run_config *c, char out[32])
{
  snprintf(out, 32, "rerun%d-%s%lld-%d%s", repeat, own ? "own" : "beside", (long long)c->zero, (int)c->precision, c->trace_spans ? "-spans" : "");
}

static int in_turn(const struct run_config *c, const struct run_config *other, struct companion *out, int max)
{
  int n = 0;
  for (int repeat = 0; repeat < PACE_REPEATS; repeat++)
    for (int i = 0; i < 2; i++) {
      const bool own = (i == 0) == (repeat % 2 == 0);
      if (repeat == 0 && own) continue; /* the case's */
      BUG_IF(n >= max);
      role_of(repeat, own, c, out[n].role);
      out[n].config = own ? *c : *other;
      memset(out[n].config.name, 0, sizeof out[n].config.name);
      memset(out[n].config.out, 0, sizeof out[n].config.out);
      n++;
    }
  return n;
}

int cost_companions(const struct run_config *c, struct companion *out, int max)
{
  struct run_config plain = *c;
  plain.zero = 0;
  plain.shard = 0;
  return in_turn(c, &plain, out, max);
}

int tracing_companions(const struct run_config *c, struct companion *out, int max)
{
  struct run_config plain = *c;
  plain.trace_spans = plain.trace_time = false;
  return in_turn(c, &plain, out, max);
}

int gain_companions(const struct run_config *c, struct companion *out, int max)
{
  struct run_config wide = *c;
  wide.precision = PRECISION_F32;
  return in_turn(c, &wide, out, max);
}

/* Median over the steps after the first WARM of the slowest rank's time; NaN: not told of all. */
static double step_ms(const struct run_data *run)
{
  double ms[STEPS];
  int n = 0;
  for (int64_t step = WARM; step < run->config.steps && n < STEPS; step++) {
    double slowest = 0;
    for (int r = 0; r < evidence_ranks(run); r++) {
      const double own = evidence_value(run, "time", r, step, -1, "got.step_ms");
      if (isnan(own)) return NAN;
      slowest = fmax(slowest, own);
    }
    ms[n++] = slowest;
  }
  return n ? median_sorting(ms, n) : NAN;
}

struct ratios {
  double value, low, high, own_ms, other_ms; /* over the other's; medians of repeats */
};

static bool measured(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                     struct ratios *out, struct verdict *v)
{
  double ratio[PACE_REPEATS], own_ms[PACE_REPEATS], other_ms[PACE_REPEATS];
  for (int repeat = 0; repeat < PACE_REPEATS; repeat++) {
    const struct run_data *pair[2] = {run, NULL};
    for (int own = 0; own < 2; own++) {
      char role[32];
      role_of(repeat, own, &run->config, role);
      const struct run_data **at = &pair[own ? 0 : 1];
      if (repeat > 0 || !own) *at = evidence_companion(wanted, companions, n, role);
      if (*at == NULL || !evidence_ended(*at)) {
        verdict_say(v, OUTCOME_INVALID, "the run '%s' did not run to its end", role);
        return false;
      }
    }
    own_ms[repeat] = step_ms(pair[0]);
    other_ms[repeat] = step_ms(pair[1]);
    ratio[repeat] = own_ms[repeat] / other_ms[repeat];
    if (!isfinite(ratio[repeat])) {
      verdict_say(v, OUTCOME_INVALID, "not every rank told the times of the steps after the first %d in repeat %d", WARM, repeat);
      return false;
    }
  }
  out->value = median_sorting(ratio, PACE_REPEATS); /* sorted by it */
  out->low = ratio[0];
  out->high = ratio[PACE_REPEATS - 1];
  out->own_ms = median_sorting(own_ms, PACE_REPEATS);
  out->other_ms = median_sorting(other_ms, PACE_REPEATS);
  return true;
}

/* The step over the other is at most `most`; `other`: which that is. */
static void judge_cost(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n, double most,
                       const char *other, struct verdict *out)
{
  struct ratios r;
  if (!measured(run, wanted, companions, n, &r, out)) return;
  out->value = r.value;
  out->bound = most;
  verdict_say(out, r.value <= most ? OUTCOME_PASS : r.low > most ? OUTCOME_FAIL : OUTCOME_INCONCLUSIVE,
              "a step takes %.3f [%.3f, %.3f] times one %s: %.4g ms, %.4g ms; at most %.2f", r.value, r.low, r.high, other, r.own_ms, r.other_ms,
              most);
}

void cost_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                struct verdict *out)
{
  verdict_start(out, "cost", "O13");
  judge_cost(run, wanted, companions, n, most_cost, "with zero 0", out);
}

void tracing_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                   struct verdict *out)
{
  verdict_start(out, "tracing", "O13");
  if (!run->config.trace_spans) verdict_say(out, OUTCOME_INVALID, "the case records no spans (trace_spans)");
  else judge_cost(run, wanted, companions, n, most_tracing, "without spans", out);
}

void gain_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                struct verdict *out)
{
  struct ratios r;
  verdict_start(out, "gain", "O13");
  const json_t *said = evidence_record(run, "run", -1, -1, -1);
  if (run->config.precision != PRECISION_BF16) verdict_say(out, OUTCOME_INVALID, "the case is not in bf16");
  else if (strstr(evidence_text(said, "env.matmul"), "bf16 widened"))
    verdict_say(out, OUTCOME_SKIPPED, "this processor has no bf16 unit: products are widened");
  else if (measured(run, wanted, companions, n, &r, out)) {
    out->value = 1 / r.value;
    out->bound = least_gain;
    verdict_say(out, out->value >= least_gain ? OUTCOME_PASS : 1 / r.low < least_gain ? OUTCOME_FAIL : OUTCOME_INCONCLUSIVE,
                "bf16 makes %.3f [%.3f, %.3f] steps in one of float32: %.4g ms, %.4g ms; at least %.2f", 1 / r.value, 1 / r.high, 1 / r.low,
                r.own_ms, r.other_ms, least_gain);
  }
}
