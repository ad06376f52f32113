/* framework_curve.h - losses of a foreign run beside the truth's, as lists in its record. */
#ifndef HARNESS_FRAMEWORK_CURVE_H
#define HARNESS_FRAMEWORK_CURVE_H

#include "harness/foreign.h"
#include "base/record.h"

/* Of each step that has a truth: its loss, the run's, and relative to the truth their distance, the largest distance of
 * eight legal serial runs in that precision, and the bound.  What cannot be read stays out: the verdict stands without. */
void framework_curve(struct record_file *f, const char *dir, const char *against, const char *precision);

#endif
