/* dev_cuda_test.cu - the kernels of dev_cuda_test.c. */
#include "device/dev_cuda_testing.h"

#include "device/cuda_kernel.cuh"

static __global__ void append_kernel(int *at, int value) { at[++at[0]] = value; }

enum err append_cuda(const struct dev_cuda *at, void *args)
{
  const struct append_args *a = (const struct append_args *)args;
  return LAUNCH(at, append_kernel, 1, 1, 0, a->at, a->value);
}

static __global__ void add_kernel(int *to, const int *from, int add, int rounds)
{
  int sum = 0;
  for (int i = 0; i < rounds; i++) sum += atomicAdd(to, 0) & 0;
  *to = *from + add + sum;
}

enum err add_cuda(const struct dev_cuda *at, void *args)
{
  const struct add_args *a = (const struct add_args *)args;
  return LAUNCH(at, add_kernel, 1, 1, 0, a->to, a->from, a->add, a->rounds);
}

static __global__ void judge_kernel(const int *values, int n, struct dev_cuda_report *report, const char *format)
{
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n && values[i] < 0) REPORT(report, format, values[i], i, n, 7);
}

enum err judge_cuda(const struct dev_cuda *at, void *args)
{
  const struct judge_args *a = (const struct judge_args *)args;
  return LAUNCH(at, judge_kernel, blocks_for(a->n, 64), 64, 0, a->values, a->n, at->report, "token %lld at %lld of %lld is none (%lld)");
}

enum err oversized_cuda(const struct dev_cuda *at, void *args) { return LAUNCH(at, append_kernel, 1, 2048, 0, (int *)args, 0); }

enum err empty_cuda(const struct dev_cuda *at, void *args) { return LAUNCH(at, append_kernel, 0, 64, 0, (int *)args, 0); }
