/* cross_entropy_args.h - what the kernels of cross_entropy.c and cross_entropy.cu are given. */
#ifndef OPS_CROSS_ENTROPY_ARGS_H
#define OPS_CROSS_ENTROPY_ARGS_H

#include "base/tensor.h"

struct cross_entropy_args {
  struct tensor logits, targets, lse;
  struct tensor losses;         /* forward  */
  struct tensor max, sums;      /* forward in parts */
  struct tensor dlogits, scale; /* backward */
  int64_t first, valid;         /* of this part: its first column's number, and how many count */
  int64_t vocab;
};

#endif
