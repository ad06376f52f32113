/* dump_blocks.h - O15: what each block gave and the gradient in it, in full, by rank 0. */
#ifndef TRAIN_DUMP_BLOCKS_H
#define TRAIN_DUMP_BLOCKS_H
#include "train/output.h"
#include "train/trainer.h"
/* All ranks; dump: all.  Of the step's last micro-batch, the last replica's.  Waits for the device. */
enum err dump_blocks(struct trainer *t, const struct output *o, int64_t step);
#endif
