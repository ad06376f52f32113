/* scaling.h - the arithmetic of a scaling report: each word with one meaning.
 *
 * Pure.  Not a number where a value is missing or makes no sense; nothing is clamped.
 */
#ifndef CHECKS_SCALING_H
#define CHECKS_SCALING_H

#include <stdint.h>

/* E(N) = [X(N) / N] / [X(N0) / N0]; X: valid tokens of whole steps over wall time. */
double scaling_efficiency(double rate, double ranks, double base_rate, double base_ranks);
/* Load balance: mean over ranks of busy time (waiting excluded) / the largest; 1 is even. */
double scaling_balance(const double *busy, int n);
/* Model FLOPs per second and rank over the measured matrix-product rate of one rank; above 1 the
 * rate was measured under other conditions: the caller calls it INVALID. */
double scaling_rate_fraction(double flops_per_step, double ranks, double step_s, double measured_rate);
/* Model FLOPs utilisation against a published dense peak; peak 0 = unknown: NaN, printed n/a. */
double scaling_mfu(double flops_per_step, double ranks, double step_s, double peak);
/* nccl-tests: what a measured algorithm bandwidth is multiplied by. */
double scaling_bus_factor(const char *collective, int ranks);

/* Model state in bytes a rank (Rajbhandari et al. 2020): 2 + 2 bytes of weights and gradients in 16 bits and
 * 12 of optimizer a parameter; stage 0..3 shards none, optimizer, gradients too, weights too. */
double scaling_zero_bytes(double parameters, int stage, double ranks);

#endif
