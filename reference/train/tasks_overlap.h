/* tasks_overlap.h - task overlap: the bare program that a run's overlap is compared with.
 *
 * The matrix products of one training step of the run's model, in their order, and the sums of its gradient buckets,
 * each begun when the products of its rows are done; nothing else, and none of the trainer's machinery.  Each repeat
 * makes them three times: together, products alone, sums alone with a barrier before each.  The first is not counted.
 */
#ifndef TRAIN_TASKS_OVERLAP_H
#define TRAIN_TASKS_OVERLAP_H

#include "train/output.h"

/* All ranks.  Writes `measure` records overlap.both, overlap.products and overlap.sums, with run.steps repeats.  Fails: ERR_CONFIG where there
 * is no bare program: other than float32 on the cpu, ranks that cut a model, a sharded optimizer. */
enum err tasks_overlap(const struct output *o, struct dev_stream *compute, bool *fatal);

#endif
