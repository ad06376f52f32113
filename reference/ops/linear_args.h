/* linear_args.h - what the kernels of linear.c and linear.cu are given. */
#ifndef OPS_LINEAR_ARGS_H
#define OPS_LINEAR_ARGS_H

#include "base/tensor.h"

struct linear_args {
  struct tensor y, x, w, b; /* y, b: dy, db in a backward; x: dx or x; w: dw or w */
  bool transposed;
};

#endif
