/* dropout_args.h - what the kernels of dropout.c and dropout.cu are given. */
#ifndef OPS_DROPOUT_ARGS_H
#define OPS_DROPOUT_ARGS_H

#include "base/rng.h"
#include "base/tensor.h"

struct dropout_args {
  struct tensor y, x, step, samples;
  struct rng_key key;
  int64_t T, row0, positions_max;
  uint32_t threshold;
  double scale;
};

#endif
