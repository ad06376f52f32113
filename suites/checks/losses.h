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
/* The same as if the run had so many replicas. */
struct loss_sums losses_over(const struct run_data *r, int64_t replicas, int64_t step, int64_t replica);
/* Of the run's own records of micro-batches, or of the truth's where a foreign run has none, over the run's replicas. */
struct loss_sums losses_shown(const struct run_data *run, const struct run_data *truth, int64_t step, int64_t replica);

#endif
