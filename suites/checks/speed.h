/* speed.h - what a timed training run says of its speed, from its records alone.
 *
 * A step's time is that of its slowest rank; steps before the first timed one are left out of times, not of
 * checks.  A run that ended with an error, whose loss is not finite, that ran on no real device, whose ranks went by the
 * host, or that was faster than its device can be has no speed, and `why` says so.
 */
#ifndef CHECKS_SPEED_H
#define CHECKS_SPEED_H

#include "judge.h"

struct speed {
  enum outcome outcome; /* PASS: the numbers count; FAIL: the training went wrong; INVALID: the machine or the run */
  char why[256];        /* "" if PASS                                             */
  char device[128];     /* name of the device                                     */
  int64_t steps;        /* that were timed                                        */
  double step_ms, tokens_per_s;          /* median; valid tokens over wall time   */
  double mfu_causal, mfu_full;           /* NaN: the device's peak is not known   */
  double hfu;                            /* mfu_causal with what recompute makes again */
  double mj_per_token, power_w, clock_mhz; /* of all devices, of all steps; at the end; NaN: not said */
};
/* warm: steps left out at the start. */
void speed_take(const struct run_data *run, int64_t warm, struct speed *out);

#endif
