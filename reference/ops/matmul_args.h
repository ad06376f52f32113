/* matmul_args.h - what the kernels of matmul.c and matmul.cu are given. */
#ifndef OPS_MATMUL_ARGS_H
#define OPS_MATMUL_ARGS_H

#include "base/tensor.h"

struct matmul_args {
  struct tensor c, a, b;
  int64_t depth;
  bool transpose_a, transpose_b, accumulate;
};

#endif
