/* deal.h - the sequences of a step to ranks, so that each has about the same cost. */
#ifndef DATA_DEAL_H
#define DATA_DEAL_H

#include "base/err.h"

#include <stdint.h>

/* order[place]: which of n sequences stands at a place, n / ranks places in a row for each rank; a rank's are in their
 * order.  The most expensive first, each to the rank that has the least cost so far among those with a place free (Graham
 * 1969, with equal numbers); of equals the first.  ranks divides n.  Fails: ERR_MEMORY. */
enum err deal(const double *cost, int64_t n, int64_t ranks, int32_t *order);

#endif
