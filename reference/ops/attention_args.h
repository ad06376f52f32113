/* attention_args.h - what the kernels of attention.c and attention.cu are given. */
#ifndef OPS_ATTENTION_ARGS_H
#define OPS_ATTENTION_ARGS_H

#include "base/tensor.h"

struct attention_args {
  struct tensor o, lse, qkv, docs;
  struct tensor d_o, dqkv; /* backward */
  int heads;
};

#endif
