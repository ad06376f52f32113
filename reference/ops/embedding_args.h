/* embedding_args.h - what the kernels of embedding.c and embedding.cu are given. */
#ifndef OPS_EMBEDDING_ARGS_H
#define OPS_EMBEDDING_ARGS_H

#include "base/tensor.h"

struct embedding_args {
  struct tensor y, table, ids; /* gradients in a backward */
  int64_t first, limit;        /* number of the table's first row; numbers are below limit */
  int64_t row0;                /* of ids, for row 0 of y */
};

#endif
