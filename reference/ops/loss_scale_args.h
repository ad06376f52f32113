/* loss_scale_args.h - what the kernels of loss_scale.c and loss_scale.cu are given, and how a key is made. */
#ifndef OPS_LOSS_SCALE_ARGS_H
#define OPS_LOSS_SCALE_ARGS_H

#include "ops/ops.h"

struct overflow_args {
  struct tensor key, largest;
  int stage, rank, n;
};

struct loss_scale_args {
  struct tensor state, key;
  int64_t interval;
};

/* 1 + (stage, last bucket first, last rank first) in 12, 20 and 20 bits: whole numbers that a double holds. */
enum { OVERFLOW_PLACES = 1 << 20, OVERFLOW_STAGES = 1 << 12 };

#endif
