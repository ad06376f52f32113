/* clip_args.h - what the kernels of clip.c and clip.cu are given. */
#ifndef OPS_CLIP_ARGS_H
#define OPS_CLIP_ARGS_H

#include "base/tensor.h"

struct clip_args {
  struct tensor factor, norm, sum_squares;
  double limit; /* infinite: off */
};

struct reciprocal_args {
  struct tensor y, x;
};

#endif
