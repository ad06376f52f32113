/* train.h - the task `train`: steps, evaluations and what is written about them. */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "train/output.h"

/* All ranks.  `fatal` says whether, on failure, other ranks may be waiting for this one. */
enum err train_run(const struct output *o, bool *fatal);
#endif
