/* blame.c - O13: who is waited for, out of which phase, at what cost; beside what was planted.
 *
 * Where slowness was planted: its rank and phase are named, and its cost lies within 20 % of the planted time.  Less than a
 * tenth of a step may hide in what balanced runs show: nobody named is then no answer, and no failure; nor is what steps that
 * differ leave open, the planted time within the interval of the cost.  Where nothing was planted nobody is named.  Sleeping
 * passes show how busy the machine was with others: where they ended late, nothing fails.
 */
#include "evidence.h"
#include "lateness.h"
#include "planted.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>

static const double cost_within = 0.20, small_share = 0.10; /* of the step without what was planted */
static const double most_late = 0.05;                      /* of the step */

/* With compute: sleep, what passes took longer than they were asked to, of a step, on the rank where it is most: a thread is woken
 * late where the machine has other things to do, and then what was planted is not what happened. */
static double woken_late(const struct run_data *run, const struct lateness *x)
{
  double most = 0, asked_ms;
  for (int r = 0; r < x->ranks && run->config.compute == COMPUTE_SLEEP; r++) {
    if (planted_sleep(&run->config, r, &asked_ms) != ERR_OK) return 0;
    most = fmax(most, (x->parts[r].forward_ms + x->parts[r].backward_ms - asked_ms) / x->step_ms);
  }
  return most;
}

static void judge_even(const struct run_data *run, const struct lateness *x, struct verdict *out)
{
  const struct lateness_cost *c = lateness_named(run, x), *most = &x->costs[0];
  char said[300];
  if (c) {
    lateness_sentence(x, c, said, sizeof said);
    verdict_say(out, OUTCOME_FAIL, "nothing was planted, but %s", said);
  } else {
    verdict_say(out, OUTCOME_PASS, "nobody is to blame: the dearest, rank %d's %s, costs %.2g %% of the step", most->rank, graph_phase_name(most->phase),
                100 * most->cost_ms / x->step_ms);
  }
}

/* No part of the interval lies within the bounds. */
static bool surely_off(const struct lateness_cost *c, const struct planted *p)
{
  return c->low_ms > (1 + cost_within) * p->cost_ms || c->high_ms < (1 - cost_within) * p->cost_ms;
}

static void judge_planted(const struct run_data *run, const struct lateness *x, const struct planted *p, struct verdict *out)
{
  const struct lateness_cost *c = lateness_named(run, x), *most = &x->costs[0];
  const double share = p->cost_ms / (x->step_ms - (most->cost_ms > 0 ? most->cost_ms : 0)); /* of the step without it */
  char said[300];
  lateness_sentence(x, c ? c : most, said, sizeof said);
  out->value = c ? c->cost_ms : most->cost_ms;
  out->bound = p->cost_ms;
  const bool unsure = planted_is(&run->config, p, most->rank, most->phase) && !surely_off(most, p); /* steps differ too much to name it */
  if (c == NULL)
    verdict_say(out, share < small_share || unsure ? OUTCOME_INCONCLUSIVE : OUTCOME_FAIL,
                "nobody is named where rank %d's %s was made slower by %.4g ms, %.1f %% of the step; dearest: %s", p->rank, graph_phase_name(p->phase),
                p->cost_ms, 100 * share, said);
  else if (!planted_is(&run->config, p, c->rank, c->phase))
    verdict_say(out, OUTCOME_FAIL, "%s; but rank %d's %s was made slower", said, p->rank, graph_phase_name(p->phase));
  else if (fabs(c->cost_ms - p->cost_ms) > cost_within * p->cost_ms) /* false where it is not known */
    verdict_say(out, share < small_share || !surely_off(c, p) ? OUTCOME_INCONCLUSIVE : OUTCOME_FAIL, "%s; planted were %.4g ms: %.0f %% off, at most %.0f %%", said, p->cost_ms,
                100 * fabs(c->cost_ms / p->cost_ms - 1), 100 * cost_within);
  else if (p->period > 1 && c->period != p->period)
    verdict_say(out, OUTCOME_FAIL, "%s; planted was a stall every %d steps", said, p->period);
  else if (isnan(p->cost_ms))
    verdict_say(out, OUTCOME_PASS, "%s; that is what was made slower", said);
  else
    verdict_say(out, OUTCOME_PASS, "%s; planted: %.4g ms", said, p->cost_ms);
}

void blame_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n, struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  struct lateness x;
  struct planted p;
  char why[300];
  verdict_start(out, "blame", "O13");
  enum err err = planted_of(&run->config, &p);
  if (!err) err = lateness_measure(run, &x);
  if (err) {
    verdict_say(out, err == ERR_FORMAT ? OUTCOME_FAIL : OUTCOME_INVALID, "%.400s", err_text());
    return;
  }
  for (int i = 0; i < x.n_costs && x.costs[i].cost_ms > 0.005 * x.step_ms; i++) {
    char what[64];
    snprintf(what, sizeof what, "cost of rank %d's %s, ms", x.costs[i].rank, graph_phase_name(x.costs[i].phase));
    const bool planted = planted_is(&run->config, &p, x.costs[i].rank, x.costs[i].phase);
    verdict_detail(out, what, -1, x.costs[i].cost_ms, planted ? p.cost_ms : 0);
  }
  if (!lateness_able(run, &x, why, sizeof why)) verdict_say(out, OUTCOME_INCONCLUSIVE, "%s", why);
  else if (p.any) judge_planted(run, &x, &p, out);
  else judge_even(run, &x, out);
  const double late = woken_late(run, &x);
  if (out->outcome == OUTCOME_FAIL && late > most_late) {
    snprintf(why, sizeof why, "%.290s", out->sentence);
    verdict_say(out, OUTCOME_INCONCLUSIVE, "the machine had other things to do: passes slept %.0f %% of a step longer than they were to; %s", 100 * late, why);
  }
  lateness_free(&x);
}
