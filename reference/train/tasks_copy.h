/* tasks_copy.h - task copy, and the numbers that tasks start from. */
#ifndef TRAIN_TASKS_COPY_H
#define TRAIN_TASKS_COPY_H

#include "train/tasks_comm.h"

/* Two measurements: `copy`, a buffer of `size` bytes to another; `copy.far`, rows that lie more than 2^31
 * elements apart.  Every element is compared. */
enum err tasks_copy(const struct output *o, struct dev *d, struct dev_stream *s);
/* Normal numbers of `seed`; the stream is synchronised. */
enum err tasks_fill(struct dev_stream *s, const struct tensor *t, uint64_t seed);

#endif
