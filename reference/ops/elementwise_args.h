/* elementwise_args.h - what the kernels of elementwise.c and elementwise.cu are given. */
#ifndef OPS_ELEMENTWISE_ARGS_H
#define OPS_ELEMENTWISE_ARGS_H

#include "base/tensor.h"

struct elementwise_args {
  struct tensor y, x, b; /* b: second term, or the factor of scale */
  double value;
};

#endif
