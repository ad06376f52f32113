/* evaluate.h - the loss on documents kept apart, without dropout. */
#ifndef TRAIN_EVALUATE_H
#define TRAIN_EVALUATE_H

#include "train/trainer.h"

struct evaluation {
  double loss_sum, valid_tokens, loss;
  double train_loss; /* the same batches at the same weights, normalised as training does */
};
/* run.evaluate_batches global batches, always the same.  All ranks of the data-parallel group. */
enum err evaluate(struct trainer *t, struct evaluation *out);
#endif
