/* uneven.h - how unevenly the ranks of one run are busy, and with how many tokens: from its records, waiting excluded.
 *
 * Busy: the compute stream's forward, backward, optimizer and other times (kind "time").  After the first UNEVEN_WARM steps:
 *
 *   lost         median over steps of (busiest rank's time - mean of all) / step: the share in which ranks wait for the busiest; a
 *                median, so that a step in which the machine did something else is none of it
 *   balance      median over steps of mean / busiest (LB of the POP metrics)
 *   largest      mean over steps of the busiest rank's time
 *   persistent   the largest over ranks of the mean over steps, less the mean of all: the same rank, step after step
 *   jitter       largest less the largest over ranks of the mean over steps: now this rank, now another
 */
#ifndef CHECKS_UNEVEN_H
#define CHECKS_UNEVEN_H

#include "judge.h"

enum { UNEVEN_WARM = 2, UNEVEN_RANKS = 64, UNEVEN_STEPS = 64 };
enum uneven_phase { UNEVEN_FORWARD, UNEVEN_BACKWARD, UNEVEN_OPTIMIZER, UNEVEN_OTHER, UNEVEN_PHASES };
const char *uneven_phase_name(enum uneven_phase p); /* "forward" */

/* Means over steps unless said; of all replicas. */
struct uneven {
  int ranks, steps;
  double step_ms, mean_ms, largest_ms, persistent_ms, jitter_ms, lost, balance;
  double rest_ms;               /* median over steps of the step less the longest forward and backward of a rank */
  double rank_ms[UNEVEN_RANKS]; /* busy of each rank */
  int worst;                    /* rank that is busiest on the mean                   */
  enum uneven_phase phase;      /* in which it has most more than the others          */
  double last;                  /* share of the steps in which it was the busiest one */
  double tokens_per_s;          /* valid tokens of all steps over their time          */
  double computed_per_s;        /* positions that passes computed, padding included   */
  double padding;               /* share of these that hold no token                  */
  double token_balance;         /* mean over largest of a rank's valid tokens, median over steps */
};

/* Fails: ERR_UNAVAILABLE naming what is missing. */
enum err uneven_measure(const struct run_data *run, struct uneven *out);

/* One micro-batch, and how long its passes took on the rank that told of it. */
struct uneven_micro {
  int rank;
  int64_t step;
  double tokens, pairs, busy_ms; /* tokens of documents; pairs of tokens of one document; forward and backward */
};
/* Those after the warm-up, of runs with trace_time: *n of them (<= max).  Fails: ERR_UNAVAILABLE. */
enum err uneven_micros(const struct run_data *run, struct uneven_micro *out, int max, int *n);

/* Of a rank: peak_bytes, the most over the least of all ranks.  NaN: they did not tell. */
double uneven_memory(const struct run_data *run, int *most);

#endif
