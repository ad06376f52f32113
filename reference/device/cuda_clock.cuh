/* cuda_clock.cuh - the card's clock, for kernels that wait; the computer's in the host build. */
#ifndef DEVICE_CUDA_CLOCK_CUH
#define DEVICE_CUDA_CLOCK_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef SHARDMARK_CUDA_HOST

#include <time.h>

static inline uint64_t clock_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
static inline void clock_nap(uint64_t ns)
{
  const struct timespec nap = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  nanosleep(&nap, NULL);
}

#else

static __device__ __forceinline__ uint64_t clock_ns(void)
{
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
/* About as long; the card naps for up to twice what it is told, and not above 1 ms. */
static __device__ __forceinline__ void clock_nap(uint64_t ns)
{
  __nanosleep(ns < 200000 ? (unsigned int)ns / 2 : 100000u);
}

#endif

#endif
