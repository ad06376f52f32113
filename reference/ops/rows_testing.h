/* rows_testing.h - what rows_cuda_test.cu runs for rows_cuda_test.c: quotients as kernels take them. */
#ifndef OPS_ROWS_TESTING_H
#define OPS_ROWS_TESTING_H

#include "device/dev_cuda.h"

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

#ifdef __cplusplus
}
#endif
#endif
