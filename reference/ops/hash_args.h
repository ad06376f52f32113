/* hash_args.h - what the kernels of hash.c and hash.cu are given. */
#ifndef OPS_HASH_ARGS_H
#define OPS_HASH_ARGS_H

#include "base/tensor.h"

struct hash_args {
  struct tensor out, x;
};

#endif
