/* staged_args.h - what a copy to or from the host is given. */
#ifndef COMM_STAGED_ARGS_H
#define COMM_STAGED_ARGS_H

#include "base/tensor.h"

struct staged_copy_args {
  struct tensor to, from;
};

#endif
