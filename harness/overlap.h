/* overlap.h - suites of kind overlap: what the report draws of hidden and exposed communication. */
#ifndef HARNESS_OVERLAP_H
#define HARNESS_OVERLAP_H

#include "harness/plan.h"
#include "harness/results.h"

/* For a judged trial of such a suite, as one record.  Nothing where the figure could not be had, or where the timed runs
 * went wrong: a check says why. */
enum err overlap_record(const struct plan *p, const struct trial *t, const struct results *r);

#endif
