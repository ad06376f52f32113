/* sweep.h - one entry of a suite's `sweeps`: what it varies, and the cases that come of it.
 *
 * vary: all combinations.  zip: lists walked together, crossed with vary.  pairs: each combination meets
 * each value of each of these keys, and any two values of two keys meet in some case (pairwise.h).
 * except: combinations that are left out.  legal: n says that combinations which the options table
 * refuses are left out too, and how many combinations of vary and zip there are then, so that none goes
 * missing unseen.  most_ranks: those of more ranks are left out.  In a name, {key} is the key's value,
 * {row} the number of the case among those of its combination.
 */
#ifndef HARNESS_SWEEP_H
#define HARNESS_SWEEP_H

#include "harness/suite_reader.h"

/* Appends the sweep's cases to the suite.  Fails: ERR_CONFIG with a place, ERR_MEMORY. */
enum err sweep_read(struct reader *r, const struct yaml *sweep, const struct suite_case *every);

#endif
