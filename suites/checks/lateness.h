/* lateness.h - who is waited for, out of which phase, and what that costs of a step.
 *
 * Peers of a rank are those of its stage, which do the same work; where it is alone on its stage, all others, work scaled
 * by what the configuration says of their layers.
 *
 * What would be.  Played again, a step's lengths are replaced:
 *   forward, backward, optimizer, other   times the peers' median over a rank's own, each of its medians over steps.  The
 *       peers' median leaves the rank itself out: with two ranks that is the other one, and of three or more none that is
 *       slow can move what it is held against.  Medians over steps, not the peers' time in the same step: the later of
 *       two equal ranks is by chance later, and that would be charged to it.
 *   link      of each collective of two or more, the rank's transfer moved by the peers' median less its own, over steps
 *   data, between    the peers' median in that step: such pauses come and go, and a median over steps would not see them
 * A transfer that nobody waited for has the length of those of its kind that somebody did: beside compute it took its time.
 * The cost of a rank's phase is the step as it was less the step with that one replaced; its interval is a bootstrap over steps
 * (Efron and Tibshirani 1993, section 13.3) of lengths and medians together.
 *
 * Charges.  T(s), the step with all that is longer than its peers' put back by the share 1 - s, is convex and piecewise
 * linear in s, and its slope is the sum of (length - replaced) along the path that decides T: followed back from the last rank's
 * end, through whoever was last in each group, to work that did not wait.  Its integral over s, split by rank and phase
 * (Aumann and Shapley 1974, prices), is what each is charged: the charges add up to the time lost, T(1) - T(0).
 *
 * Waits.  For each wait the path of who was last is followed back to where it meets that of who waited, their last common
 * synchronisation; the wait goes to the ranks and phases on it in proportion to what they were longer than their peers'.
 */
#ifndef CHECKS_LATENESS_H
#define CHECKS_LATENESS_H

#include "graph.h"

/* Of one rank, means over steps; they add up to its step, from the end of the one before. */
struct lateness_parts {
  double data_ms, forward_ms, backward_ms, optimizer_ms, other_ms; /* other: also the host's launching and waking */
  double transfer_ms;  /* the compute stream stood still for a transfer that all had entered */
  double waiting_ms;   /* ... that a peer had not entered yet                                 */
  double bubble_ms;    /* ... of a pipeline, that it has as well with nothing longer than its peers' */
  double between_ms;   /* evaluation, records, logs                                           */
  double step_ms;
};

/* Of one rank's phase. */
struct lateness_cost {
  int rank;
  enum graph_phase phase;
  double cost_ms, low_ms, high_ms; /* of a step, mean; 0: surely below 0.5 % of it; interval, NaN below that */
  double charge_ms;                /* of a step, mean                                               */
  double waits;                    /* share of all waiting that was followed back to it              */
  int period;                      /* steps between two stalls; 1: in every step; 0: at no fixed distance */
};

struct lateness {
  int ranks;
  int64_t first, steps;            /* steps that count: no warm-up                                   */
  double step_ms;                  /* mean of T(1): from the end of the last step to the last rank's end */
  double lost_ms, charged_ms;      /* means: T(1) - T(0); the sum of all charges                     */
  double unexplained;              /* share of the step that is in no work and no transfer           */
  double error_ms;                 /* bound of the clocks' error                                     */
  struct lateness_parts *parts;    /* [ranks]                                                        */
  struct lateness_cost *costs;     /* [ranks * GRAPH_PHASES], dearest first                          */
  int n_costs;
  /* Factors of efficiency, in POP's words; `busy`: compute stream's work, mean over ranks, over the step. */
  double load_balance, serialisation, transfer, busy; /* their product is busy as the graph has it   */
  double measured_busy;            /* as `time` records have it                                      */
  bool modelled;                   /* some ranks are alone on their stage: peers' work was scaled    */
};

/* Owner of *out: the caller, until lateness_free().  Fails as graph_read; ERR_UNAVAILABLE with fewer than LATENESS_STEPS
 * steps that count. */
enum { LATENESS_STEPS = 6 };
enum err lateness_measure(const struct run_data *run, struct lateness *out);
void lateness_free(struct lateness *x);

/* Whether x is able to name anybody; if not, why.  Stated tolerances: see lateness_name.c. */
bool lateness_able(const struct run_data *run, const struct lateness *x, char *why, size_t bytes);
/* The rank and phase that are to blame: the dearest, if its cost is surely more than balanced runs show; NULL: nobody. */
const struct lateness_cost *lateness_named(const struct run_data *run, const struct lateness *x);
/* "rank 1 was last in 81 % of the waits, out of its forward; that costs 9 % of the step" */
void lateness_sentence(const struct lateness *x, const struct lateness_cost *c, char *out, size_t bytes);

#endif
