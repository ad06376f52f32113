/* tasks_comm.h - the task `comm`. */
#ifndef TRAIN_TASKS_COMM_H
#define TRAIN_TASKS_COMM_H

#include "train/output.h"

enum err tasks_comm(const struct output *o, struct dev *d, struct dev_stream *compute, bool *fatal);

struct tasks_measure {
  const char *what;
  int64_t size;
  double flops;
  int64_t bytes, wrong;
};
/* The repeats are the intervals of this phase in the device's trace, one each, the first left out. */
enum { TASKS_TIMED = DEV_PHASE_FORWARD };
enum err tasks_say(const struct output *o, struct dev *d, const struct tasks_measure *m);
#endif
