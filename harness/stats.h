/* stats.h - medians with intervals that assume nothing about the distribution. */
#ifndef HARNESS_STATS_H
#define HARNESS_STATS_H

#include <stdbool.h>
#include <stdint.h>

struct stats_interval {
  double value, low, high;
};

/* Values need no order; n >= 1.  NaN anywhere gives NaN. */
double stats_median(const double *x, int n);
/* Linear between order statistics at (n - 1) q; 0 <= q <= 1. */
double stats_quantile(const double *x, int n, double q);

/* Median with the interval between order statistics that covers the true median with at least `level` (binomial,
 * Hahn and Meeker 1991, section 5.2); with fewer values than that needs, the whole range. */
struct stats_interval stats_median_interval(const double *x, int n, double level);

/* Ratio median(a) / median(b) with the percentile interval of a bootstrap over both samples
 * (Efron and Tibshirani 1993, section 13.3): `draws` resamples of a seeded counter, so the same
 * data gives the same interval.  paired: a[i] and b[i] were measured side by side and are drawn together. */
struct stats_interval stats_ratio_interval(const double *a, int na, const double *b, int nb, bool paired, double level, int draws,
                                           uint64_t seed);

/* Upper end of the one-sided interval of a rate, `hits` of n (Clopper and Pearson 1934). */
double stats_rate_upper(int hits, int n, double level);

#endif
