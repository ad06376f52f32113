/* hidden.h - how much of the communication over replicas is hidden behind compute, from runs with and without it.
 *
 * Of the same settings, in turn and repeatedly:
 *   with     as they are
 *   silent   no transfer over replicas; each rank keeps its own part, so buffers hold valid data
 *   alone    nothing overlaps and a barrier stands before each transfer
 *   bare     the bare program (task overlap), where there is one
 *
 *   alone       time of all transfers of a step, in `alone`: from the last rank's being ready to the last rank's end
 *   exposed     step time with - step time silent, of the slowest rank; and read from the streams: what the compute
 *               stream waited for transfers and was busy, and what the sum of losses at the step's end waited for others,
 *               with, less the same silent
 *   hidden      1 - exposed / alone
 *   coverable   min(alone, compute left from the first transfer's being ready to the end of the last backward, silent; and
 *               the next step's forward, where weights are gathered beside it)
 *   slowdowns   compute stream's busy time, with / silent; time of all transfers, with / alone
 *
 * The slowdown of transfers is not known (NaN) where some go on beside the next step.
 *
 * Each is a median over steps of a run, then over repeats; ratios are of one repeat's runs.
 */
#ifndef CHECKS_HIDDEN_H
#define CHECKS_HIDDEN_H

#include "judge.h"

enum { HIDDEN_REPEATS = 5 };

/* A figure of each repeat, their median and range. */
struct hidden_figure {
  double value, low, high;
  double each[HIDDEN_REPEATS];
};

struct hidden {
  int repeats;
  int64_t calls; /* transfers of a step */
  struct hidden_figure step_ms, silent_ms, compute_ms; /* step; step silent; compute stream busy, silent */
  struct hidden_figure alone_ms, exposed_ms, traced_ms, coverable_ms;
  struct hidden_figure hidden, compute_slowdown, transfer_slowdown;
  bool has_bare;
  struct hidden_figure bare_alone_ms, bare_products_ms, bare_hidden, bare_slowdown; /* of its products and waits */
  /* Processor's time that its sums cost a rank, and the largest share that could be hidden if only that were lost:
   * 1 - bare_processor / bare_alone. */
  struct hidden_figure bare_processor_ms, bare_most;
};

/* Where the bare program is a measure: transfers alone, in % of compute alone.  With less there is little to hide, with
 * more there is nothing to hide it behind. */
enum { HIDDEN_LEAST = 60, HIDDEN_WANTED = 75, HIDDEN_MOST = 90 };
/* The two runs that tell this ratio of a case: settings of the silent one and of the one with transfers alone. */
void hidden_probe(const struct run_config *c, struct run_config *silent, struct run_config *alone);
/* Of two such runs, in %; medians over steps.  Fails: as hidden_measure(). */
enum err hidden_ratio(const struct run_data *silent, const struct run_data *alone, double *percent);

/* The runs beside the case's own, in the order in which they are best made: every other repeat backwards. */
int hidden_companions(const struct run_config *c, struct companion *out, int max);
/* Fails: ERR_UNAVAILABLE when a run or a record is missing or the settings have no transfers over replicas to hide;
 * ERR_FORMAT when records contradict each other. */
enum err hidden_measure(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions,
                        int n, struct hidden *out);
/* Exposed by the clock and by the streams agree: within a tenth of the larger, or within a fiftieth of `alone`, which
 * moves `hidden` by no more than that. */
bool hidden_agrees(const struct hidden *h);

#endif
