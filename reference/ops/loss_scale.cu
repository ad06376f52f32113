/* loss_scale.cu - dynamic loss scale on a CUDA device; what it is: loss_scale.c.  One block looks through a few numbers. */
#include "ops/loss_scale_args.h"

#include "device/cuda_kernel.cuh"

enum { THREADS = 256 };

static __global__ void overflow_kernel(double *key, const double *largest, int64_t stride, int64_t rows, int64_t cols, int stage,
                                       int rank, int n)
{
  SHARED(double, scratch, WARP);
  double mine = 0;
  for (int64_t i = threadIdx.x; i < rows * cols; i += THREADS) {
    const int64_t row = i / cols, bucket = i % cols;
    if (isfinite(largest[row * stride + bucket])) continue;
    const double place = (double)(OVERFLOW_PLACES - 1 - (bucket < OVERFLOW_PLACES ? bucket : OVERFLOW_PLACES - 1));
    const double last = (double)(OVERFLOW_PLACES - 1 - (rank + row % n));
    mine = fmax(mine, 1 + ((double)stage * OVERFLOW_PLACES + place) * OVERFLOW_PLACES + last);
  }
  mine = block_max(mine, scratch);
  if (threadIdx.x == 0) *key = mine;
}
extern "C" enum err op_overflow_cuda(const struct dev_cuda *at, void *args)
{
  const struct overflow_args *a = (const struct overflow_args *)args;
  return LAUNCH(at, overflow_kernel, 1, THREADS, 0, (double *)a->key.at, (const double *)a->largest.at, a->largest.stride,
                a->largest.rows, a->largest.cols, a->stage, a->rank, a->n);
}

static __global__ void loss_scale_kernel(double *state, const double *key, int64_t interval)
{
  const bool skip = *key != 0, grown = !skip && state[OP_SCALE_GOOD] + 1 >= (double)interval;
  state[OP_SCALE_USED] = state[OP_SCALE_NEXT];
  state[OP_SCALE_SKIP] = skip ? 1 : 0;
  state[OP_SCALE_NEXT] *= skip ? 0.5 : grown ? 2 : 1;
  state[OP_SCALE_GOOD] = skip || grown ? 0 : state[OP_SCALE_GOOD] + 1;
}
extern "C" enum err op_loss_scale_cuda(const struct dev_cuda *at, void *args)
{
  const struct loss_scale_args *a = (const struct loss_scale_args *)args;
  return LAUNCH(at, loss_scale_kernel, 1, 1, 0, (double *)a->state.at, (const double *)a->key.at, a->interval);
}
