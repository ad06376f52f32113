/* median.h - the middle of numbers. */
#ifndef CHECKS_MEDIAN_H
#define CHECKS_MEDIAN_H

/* Sorts x[n], ascending.  0 of none; NaN, and x as it was, if one of them is. */
double median_sorting(double *x, int n);

#endif
