/* stats.c - order statistics, a seeded bootstrap, and one binomial tail. */
#include "harness/stats.h"

#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_MAX = 4096 };

static int by_value(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorted copy; false if a value is NaN. */
static bool sorted(const double *x, int n, double *out)
{
  BUG_IF(n < 1 || n > SAMPLES_MAX);
  for (int i = 0; i < n; i++)
    if (isnan(x[i])) return false;
  memcpy(out, x, (size_t)n * sizeof *x);
  qsort(out, (size_t)n, sizeof *out, by_value);
  return true;
}

static double quantile_sorted(const double *s, int n, double q)
{
  const double at = (n - 1) * q;
  const int i = (int)floor(at);
  return i + 1 < n ? s[i] + (at - i) * (s[i + 1] - s[i]) : s[n - 1];
}

double stats_quantile(const double *x, int n, double q)
{
  double s[SAMPLES_MAX];
  BUG_IF(!(q >= 0 && q <= 1));
  return sorted(x, n, s) ? quantile_sorted(s, n, q) : NAN;
}

double stats_median(const double *x, int n) { return stats_quantile(x, n, 0.5); }

/* P(X <= k) of Binomial(n, p), by logarithms. */
static double binomial_below(int k, int n, double p)
{
  double sum = 0;
  if (p <= 0) return 1;
  if (p >= 1) return k >= n ? 1 : 0;
  for (int i = 0; i <= k; i++)
    sum += exp(lgamma(n + 1.0) - lgamma(i + 1.0) - lgamma(n - i + 1.0) + i * log(p) + (n - i) * log1p(-p));
  return sum > 1 ? 1 : sum;
}

struct stats_interval stats_median_interval(const double *x, int n, double level)
{
  double s[SAMPLES_MAX];
  if (!sorted(x, n, s)) return (struct stats_interval){NAN, NAN, NAN};
  /* s[k] .. s[n-1-k] misses the median with probability 2 P(X <= k), X ~ Binomial(n, 1/2). */
  int k = 0;
  while (2 * (k + 1) < n - 1 && 2 * binomial_below(k + 1, n, 0.5) <= 1 - level) k++;
  return (struct stats_interval){quantile_sorted(s, n, 0.5), s[k], s[n - 1 - k]};
}

struct stats_interval stats_ratio_interval(const double *a, int na, const double *b, int nb, bool paired, double level, int draws,
                                           uint64_t seed)
{
  double x[SAMPLES_MAX], y[SAMPLES_MAX], ratios[SAMPLES_MAX];
  BUG_IF(draws < 1 || draws > SAMPLES_MAX || na < 1 || nb < 1 || na > SAMPLES_MAX || nb > SAMPLES_MAX || (paired && na != nb));
  const struct rng_key key = {.seed = seed, .purpose = RNG_TEST, .step = 0};
  uint64_t at = 0;
  for (int d = 0; d < draws; d++) {
    for (int i = 0; i < na; i++) {
      const int k = (int)rng_below(key, at++, (uint64_t)na);
      x[i] = a[k];
      if (paired) y[i] = b[k];
    }
    for (int i = 0; i < nb && !paired; i++) y[i] = b[rng_below(key, at++, (uint64_t)nb)];
    ratios[d] = stats_median(x, na) / stats_median(y, nb);
  }
  const double tail = (1 - level) / 2;
  return (struct stats_interval){stats_median(a, na) / stats_median(b, nb), stats_quantile(ratios, draws, tail),
                                 stats_quantile(ratios, draws, 1 - tail)};
}

double stats_rate_upper(int hits, int n, double level)
{
  BUG_IF(n < 1 || hits < 0 || hits > n);
  if (hits == n) return 1;
  double low = (double)hits / n, high = 1;
  for (int i = 0; i < 60; i++) { /* the rate at which so few hits are just as unlikely as 1 - level */
    const double middle = (low + high) / 2;
    if (binomial_below(hits, n, middle) > 1 - level) low = middle;
    else high = middle;
  }
  return high;
}
