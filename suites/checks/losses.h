/* losses.h - what a step's loss must be, from the sums that the ranks told per micro-batch. */
#ifndef CHECKS_LOSSES_H
#define CHECKS_LOSSES_H

#include "evidence.h"

/* Sums in micro-batch order over those of one replica; -1: over all.  NaN where a record is missing. */
struct loss_sums {
  double sum, tokens;
  double mean_of_means; /* of the micro-batches' own means */
  int microbatches;
};
struct loss_sums losses_gather(const struct run_data *r, int64_t step, int64_t replica);

#endif
