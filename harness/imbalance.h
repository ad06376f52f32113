/* imbalance.h - suites of kind imbalance: what the report draws of uneven work under each batch policy. */
#ifndef HARNESS_IMBALANCE_H
#define HARNESS_IMBALANCE_H

#include "harness/plan.h"
#include "harness/results.h"

/* For a judged trial of such a suite: a record of each policy, of each rank's busy times in its first run, and of the lengths.
 * Nothing where the figures could not be had: a check says why. */
enum err imbalance_record(const struct plan *p, const struct trial *t, const struct results *r);

#endif
