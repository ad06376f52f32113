/* rows_cuda_test.cu - the kernel of rows_cuda_test.c. */
#include "ops/rows_testing.h"

#include "ops/rows.cuh"

static __global__ void quotients_kernel(int64_t *out, const int64_t *of, struct rows_divisor by)
{
  out[threadIdx.x] = rows_quotient(of[threadIdx.x], by);
}

enum err quotients_cuda(const struct dev_cuda *at, void *args)
{
  const struct quotient_args *a = (const struct quotient_args *)args;
  return LAUNCH(at, quotients_kernel, 1, QUOTIENTS, 0, a->out, a->of, rows_divisor_of(a->by));
}

struct walk_of walk_of_f32(const struct tensor *t, bool flatten)
{
  const struct rows_walk w = rows_over(4, flatten, {t});
  return {w.rows, w.cols, w.groups, w.aligned};
}
