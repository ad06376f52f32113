/* adamw_args.h - what the kernels of adamw.c and adamw.cu are given. */
#ifndef OPS_ADAMW_ARGS_H
#define OPS_ADAMW_ARGS_H

#include "ops/ops.h"

struct update_args {
  struct tensor w, rounded, m, v, g, lr, t, factor, skip; /* rounded.at and skip.at may be NULL */
  struct op_adamw rule;
};

#endif
