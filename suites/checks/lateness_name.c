/* lateness_name.c - when a rank is named, and in which words.
 *
 * Somebody is named whose cost is more than balanced runs show, with all of its interval.
 */
#include "evidence.h"
#include "lateness.h"

#include <math.h>
#include <stdio.h>

static const double balanced_share = 0.02;   /* of a step: see lateness_chance_test.c */
static const double modelled_share = 0.15;   /* where peers do other work, and real compute is no formula */
static const double most_unexplained = 0.10; /* of a step, in no work and no transfer */
static const double sum_within = 0.02;       /* charges against the time lost */
static const double clock_within = 0.1;      /* of what is judged: the bound of the clocks' error */

static double least_share(const struct run_data *run, const struct lateness *x)
{
  return x->modelled && run->config.compute == COMPUTE_REAL ? modelled_share : balanced_share;
}

bool lateness_able(const struct run_data *run, const struct lateness *x, char *why, size_t bytes)
{
  const double least_ms = fmax(x->n_costs ? x->costs[0].cost_ms : 0, least_share(run, x) * x->step_ms);
  if (x->unexplained > most_unexplained)
    snprintf(why, bytes, "%.1f %% of the step is in no work and no transfer (at most %.0f %%): a thread woken late, or more to do than cores",
             100 * x->unexplained, 100 * most_unexplained);
  else if (fabs(x->charged_ms - x->lost_ms) > sum_within * fabs(x->lost_ms) + 1e-6 * x->step_ms)
    snprintf(why, bytes, "charges add up to %.4g ms of the %.4g ms lost", x->charged_ms, x->lost_ms);
  else if (x->error_ms > clock_within * least_ms)
    snprintf(why, bytes, "clocks may be %.3g ms off, more than a tenth of the %.3g ms that are judged", x->error_ms, least_ms);
  else
    return true;
  return false;
}

const struct lateness_cost *lateness_named(const struct run_data *run, const struct lateness *x)
{
  const struct lateness_cost *c = x->n_costs ? &x->costs[0] : NULL;
  return c && x->ranks > 1 && c->low_ms > least_share(run, x) * x->step_ms ? c : NULL;
}

static const char *out_of(enum graph_phase p)
{
  static const char *const words[GRAPH_PHASES] = {"its wait for data", "its forward", "its backward", "its optimizer", "its other work", "its transfers",
                                                  "what its host does between steps"};
  return words[p];
}

void lateness_sentence(const struct lateness *x, const struct lateness_cost *c, char *out, size_t bytes)
{
  char when[64] = "";
  if (c->period > 1) snprintf(when, sizeof when, ", every %d steps", c->period);
  snprintf(out, bytes, "rank %d was last in %.0f %% of the waits, out of %s%s; that costs %.1f %% of the step (%.4g ms [%.4g, %.4g])", c->rank,
           100 * c->waits, out_of(c->phase), when, 100 * c->cost_ms / x->step_ms, c->cost_ms, c->low_ms, c->high_ms);
}
