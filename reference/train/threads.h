/* threads.h - how many threads a compute stream really has. */
#ifndef TRAIN_THREADS_H
#define TRAIN_THREADS_H
#include "device/dev.h"

/* Counted inside a parallel region on the stream itself, for what main() sets does not reach it. */
enum err threads_count(struct dev_stream *compute, int *out);
#endif
