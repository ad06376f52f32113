/* curve.c - O3 over a long run: the loss curve beside the serial run's, and that anything was learned.
 *
 * A truth in float64 costs too much over hundreds of steps, so the serial run in the working precision stands for
 * it, and the noise is what other legal serial runs (other orders of the same sums) show.  Differences grow with
 * steps: at step k the bound is max(F, 4 Q), Q the largest relative difference that any of them showed up to k.
 */
#include "bound.h"
#include "evidence.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Of ln(vocabulary), the loss of knowing nothing: 3.0 nats for bytes (ln 256 = 5.545). */
static const double learned_fraction = 3.0 / 5.545177444479562;
enum { LAST = 5 }; /* steps whose mean is the final loss */

struct curves {
  int64_t steps;
  double *run, *serial, *noise[COMPANIONS_CURVE];
};

static double *losses_of(const struct run_data *r, int64_t steps)
{
  double *x = malloc(((size_t)steps + 1) * sizeof *x);
  if (x == NULL) return NULL;
  for (int64_t step = 0; step < steps; step++) x[step] = NAN;
  for (size_t i = 0; i < json_array_size(r->records); i++) {
    const json_t *record = json_array_get(r->records, i);
    const int64_t step = evidence_step(record);
    if (evidence_is(record, "step") && evidence_rank(record) == 0 && step >= 0 && step < steps) x[step] = evidence_real(record, "got.loss");
  }
  return x;
}

static void free_curves(struct curves *c)
{
  free(c->run);
  free(c->serial);
  for (int i = 0; i < COMPANIONS_CURVE; i++) free(c->noise[i]);
}

static void compare(const struct curves *c, enum precision precision, double parts, struct worst *w, struct verdict *out)
{
  double q = 0.0;
  for (int64_t step = 0; step < c->steps; step++) {
    for (int i = 0; i < COMPANIONS_CURVE; i++) {
      const double d = bound_relative(c->noise[i][step], c->serial[step]);
      q = isnan(d) || isnan(q) ? NAN : fmax(q, d);
    }
    const double value = bound_relative(c->run[step], c->serial[step]), bound = bound_measured(bound_floor(BOUND_LOSS, precision, parts), q);
    worst_see(w, value, bound, "loss at step %lld", (long long)step);
    verdict_detail(out, "loss", step, value, bound);
  }
}

void curve_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                 struct verdict *out)
{
  verdict_start(out, "curve", "O3");
  struct curves c = {.steps = evidence_steps(run)};
  const struct run_data *serial, *noise[COMPANIONS_CURVE];
  if (!companions_have_curve(wanted, companions, n, &serial, noise, out)) return;
  if (c.steps < run->config.steps || c.steps == 0) {
    verdict_say(out, OUTCOME_INVALID, "only %lld of %lld steps left evidence", (long long)c.steps, (long long)run->config.steps);
    return;
  }
  bool have = (c.run = losses_of(run, c.steps)) != NULL && (c.serial = losses_of(serial, c.steps)) != NULL;
  for (int i = 0; i < COMPANIONS_CURVE; i++) have = have && (c.noise[i] = losses_of(noise[i], c.steps)) != NULL;
  if (!have) {
    free_curves(&c);
    verdict_say(out, OUTCOME_INVALID, "no memory for curves of %lld steps", (long long)c.steps);
    return;
  }
  struct worst w;
  worst_start(&w);
  compare(&c, (enum precision)run->config.precision, (double)evidence_microbatches(&run->config), &w, out);
  free_curves(&c);
  worst_to(&w, out);
  if (w.over > 0)
    verdict_say(out, OUTCOME_FAIL, "%s is %.3g (relative) from the serial run's, bound %.2g; %lld of %lld steps off", w.place, w.value,
                w.bound, (long long)w.over, (long long)w.seen);
  else
    verdict_say(out, OUTCOME_PASS, "%lld steps beside the serial run; nearest to its bound: %s, %.2g of %.2g", (long long)w.seen, w.place,
                w.value, w.bound);
}

void learns_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                  struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "learns", "O3");
  const int64_t steps = evidence_steps(run);
  if (steps < run->config.steps || steps < 2 * LAST) {
    verdict_say(out, OUTCOME_INVALID, "%lld of %lld steps left evidence; %d are needed", (long long)steps, (long long)run->config.steps, 2 * LAST);
    return;
  }
  const double nothing = log((double)run->config.vocab), first = evidence_value(run, "step", 0, 0, -1, "got.loss");
  double last = 0.0;
  for (int64_t step = steps - LAST; step < steps; step++) last += evidence_value(run, "step", 0, step, -1, "got.loss") / LAST;
  out->value = last;
  out->bound = learned_fraction * nothing;
  snprintf(out->worst, sizeof out->worst, "mean loss of the last %d steps", LAST);
  const bool ok = fabs(first - nothing) < 0.1 * nothing && last < out->bound;
  verdict_say(out, ok ? OUTCOME_PASS : OUTCOME_FAIL, "loss goes from %.3f (ln %lld = %.3f) to %.3f nats in %lld steps, below %.3f is asked for",
              first, (long long)run->config.vocab, nothing, last, (long long)steps, out->bound);
}
