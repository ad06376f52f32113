/* sleep.cu - a CUDA stream is busy for a stated time: one thread that looks at the card's clock. */
#include "device/cuda_clock.cuh"
#include "device/cuda_kernel.cuh"

static __global__ void sleep_kernel(uint64_t ns)
{
  const uint64_t until = clock_ns() + ns;
  for (uint64_t now = clock_ns(); now < until; now = clock_ns()) clock_nap(until - now);
}

extern "C" enum err op_sleep_cuda(const struct dev_cuda *at, void *args)
{
  return LAUNCH(at, sleep_kernel, 1, 1, 0, (uint64_t)(*(const double *)args * 1e6));
}
