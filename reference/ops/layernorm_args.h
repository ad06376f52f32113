/* layernorm_args.h - what the kernels of layernorm.c and layernorm.cu are given. */
#ifndef OPS_LAYERNORM_ARGS_H
#define OPS_LAYERNORM_ARGS_H

#include "base/tensor.h"

struct layernorm_args {
  struct tensor y, mean, rstd, x, w, b; /* forward; y, w, b are dy, dw, db in a backward */
  struct tensor dx;
  double eps;
};

#endif
