/* policies.h - the same corpus and layout under each batch policy, in turn and repeatedly.
 *
 *   fixed      the case: chunked, every pass as wide as `sequence`, so that every micro-batch costs the same
 *   padded     documents in the order of the epoch, passes as wide as the longest of their micro-batch (narrow), like the others
 *   bucketed, packed, balanced   as data.h says
 *
 * A figure is taken of each repeat; its value is their median, its interval their range, which covers the median of more
 * repeats with 94 % (5 of them: 1 - 2^-4).  `excess` is of runs of one repeat.
 */
#ifndef CHECKS_POLICIES_H
#define CHECKS_POLICIES_H

#include "costs.h"
#include "uneven.h"

enum { POLICIES_REPEATS = 5 };
enum policies_kind { POLICIES_FIXED, POLICIES_PADDED, POLICIES_BUCKETED, POLICIES_PACKED, POLICIES_BALANCED, POLICIES_KINDS };
const char *policies_name(enum policies_kind k); /* "fixed" */

struct policies_figure {
  double value, low, high, each[POLICIES_REPEATS];
};

struct policies {
  struct policies_one {
    struct policies_figure lost;        /* share of the step in which ranks wait for the busiest (uneven.h) */
    struct policies_figure excess;      /* lost less that of fixed in the same repeat */
    struct policies_figure balance, step_ms, busy_ms, persistent_ms, jitter_ms;
    struct policies_figure tokens_per_s, computed_per_s;
    double padding, token_balance;      /* the same in every repeat */
    double rest_ms;                     /* uneven.h: the least of the repeats */
    double predicted;                   /* lost, by `costs` and the lengths: what is beside passes takes as long as it did; NaN: not (fixed,
                                         * or no costs) */
  } of[POLICIES_KINDS];
  bool has_costs;
  struct costs costs; /* fitted to the micro-batches of padded, bucketed, packed and balanced, each the median of its repeats */
};

/* The runs beside the case's own, every other repeat backwards. */
int policies_companions(const struct run_config *c, struct companion *out, int max);
/* One of them, or the case's own; NULL: it could not be had. */
const struct run_data *policies_run(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                                    int repeat, enum policies_kind k);
/* Fails: ERR_UNAVAILABLE when a run or a record is missing, or the case is not fixed; ERR_MEMORY. */
enum err policies_measure(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                          struct policies *out);

#endif
