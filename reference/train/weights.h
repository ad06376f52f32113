/* weights.h - the state that training starts from. */
#ifndef TRAIN_WEIGHTS_H
#define TRAIN_WEIGHTS_H

#include "train/trainer.h"

/* Weights from run.weights, or by counter from the seed; padding is zero.  Waits for the copies. */
enum err weights_start(struct trainer *t);
#endif
