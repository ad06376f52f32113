/* dump_batches.h - what a run trained on, in one file that the option batch_file reads. */
#ifndef TRAIN_DUMP_BATCHES_H
#define TRAIN_DUMP_BATCHES_H
#include "train/trainer.h"

/* Rows of all steps on the host of rank 0, if run.dump_batches and run.out ask for them; else *out is NULL, which the others
 * allow.  Step s has rows s G .. (s + 1) G - 1 of `tokens`, `targets`, `positions`, `documents`, int32 [steps * G, T], its
 * micro-batch m of them rows m B .. (m + 1) B - 1.  Fails: ERR_MEMORY. */
struct batch_rows;
enum err dump_batches_create(const struct trainer *t, struct batch_rows **out);
void dump_batches_destroy(struct batch_rows *r);
/* After a step, while its micro-batches are still there. */
void dump_batches_take(struct batch_rows *r, int64_t step);
/* <out>/batches.safetensors, after the last step.  Fails: ERR_IO, ERR_MEMORY. */
enum err dump_batches_write(const struct batch_rows *r);
#endif
