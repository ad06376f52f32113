/* sample.h - the numbers of one timed run, from its records alone.
 *
 * A step's time is that of its slowest rank; warm-up steps are left out of times but not
 * of checks.  Anything that is missing or that contradicts itself is said in `why`, and
 * then no number counts.
 */
#ifndef HARNESS_SAMPLE_H
#define HARNESS_SAMPLE_H

#include "suites/checks/judge.h"

struct sample {
  bool ok;
  char why[256];          /* "" if ok */
  bool wrong;             /* not ok because the training went wrong, not because of the machine */
  double tokens_per_s;    /* valid tokens of the timed steps / their wall time */
  double step_ms;         /* median over steps of the slowest rank's          */
  double exposed;         /* median over steps of exposed / step, worst rank  */
  double balance;         /* median over steps of mean busy / largest busy    */
  double busy;            /* median over steps of mean busy / step            */
  double busy_a_token_s;  /* busy time of all ranks over valid tokens         */
  double flops_per_s;     /* matrix-product FLOPs of all ranks over wall time, per rank */
  double mfu;             /* model FLOPs (causal half) over the devices' published dense peak; NaN: not known */
  double peak_bytes;      /* worst rank's os_peak_bytes                       */
  double first_loss;
};
/* Steps left out of times at the start of a run of so many. */
int sample_warm_up(int64_t steps);
void sample_take(const struct run_data *run, struct sample *out);
/* Median of `seconds` of each `measure` record of a gemm run; returns the rate of the best size, FLOP/s; NaN: none. */
double sample_rate(const json_t *records);
#endif
