/* tasks_comm.h - the task `comm`. */
#ifndef TRAIN_TASKS_COMM_H
#define TRAIN_TASKS_COMM_H

#include "train/output.h"

enum err tasks_comm(const struct output *o, struct dev *d, struct dev_stream *compute, bool *fatal);

struct tasks_measure {
  const char *what;
  int64_t size;
  double flops, bytes;
  int64_t wrong;
};
/* Times of the repeats from the device's trace: every interval called `kernel` on `stream`, the first left out. */
enum err tasks_say(const struct output *o, struct dev *d, const char *stream, const char *kernel, const struct tasks_measure *m);
#endif
