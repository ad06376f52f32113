/* reduce_args.h - what the kernels of reduce.c and reduce.cu are given. */
#ifndef OPS_REDUCE_ARGS_H
#define OPS_REDUCE_ARGS_H

#include "base/tensor.h"

struct reduce_args {
  struct tensor out, x;
};

#endif
