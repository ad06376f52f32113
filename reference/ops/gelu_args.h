/* gelu_args.h - what the kernels of gelu.c and gelu.cu are given. */
#ifndef OPS_GELU_ARGS_H
#define OPS_GELU_ARGS_H

#include "base/tensor.h"

struct gelu_args {
  struct tensor y, x, dy; /* y: dx in the backward */
};

#endif
