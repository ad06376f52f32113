/* rows_testing.h - what rows_cuda_test.cu runs for rows_cuda_test.c: quotients as kernels take them. */
#ifndef OPS_ROWS_TESTING_H
#define OPS_ROWS_TESTING_H

#include "device/dev_cuda.h"
#include "ops/ops.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { QUOTIENTS = 16 };
/* out[i] = of[i] / by, each [QUOTIENTS] of the device's memory. */
struct quotient_args {
  const int64_t *of;
  int64_t *out, by;
};
enum err quotients_cuda(const struct dev_cuda *at, void *args);

/* What rows_over() says of a float32 operand in groups of 4: for the host. */
struct walk_of {
  int64_t rows, cols, groups;
  bool aligned;
};
struct walk_of walk_of_f32(const struct tensor *t, bool flatten);

#ifdef __cplusplus
}
#endif
#endif
