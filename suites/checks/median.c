/* median.c - the middle one, or the mean of the two in the middle. */
#include "median.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double median_sorting(double *x, int n)
{
  if (n == 0) return 0;
  for (int i = 0; i < n; i++)
    if (isnan(x[i])) return NAN;
  qsort(x, (size_t)n, sizeof *x, ascending);
  return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}
