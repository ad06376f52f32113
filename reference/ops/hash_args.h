/* hash_args.h - what the kernels of hash.c and hash.cu are given, and the step that both are made of. */
#ifndef OPS_HASH_ARGS_H
#define OPS_HASH_ARGS_H

#include "base/tensor.h"

#ifdef __CUDACC__
#define HASH_INLINE static __host__ __device__ __forceinline__
#else
#define HASH_INLINE static inline
#endif

struct hash_args {
  struct tensor out, x;
};

/* Elements of a chunk; words of 64 bits of a block. */
enum { HASH_CHUNK = 4096, HASH_LANES = 16 };

/* What lane l of a chunk begins with. */
HASH_INLINE uint64_t hash_lane(int l) { return (uint64_t)l + 1; }

HASH_INLINE uint64_t hash_mix(uint64_t h, uint64_t word)
{
  h = (h ^ word) * 0x9E3779B97F4A7C15u; /* odd: 2^64 over the golden ratio */
  return h ^ h >> 32;
}

#endif
