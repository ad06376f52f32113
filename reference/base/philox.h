/* philox.h - the block cipher behind rng.h, inline: kernels of every device draw the same words.
 *
 * Philox4x32-10.  J. Salmon, M. Moraes, R. Dror, D. Shaw: Parallel random numbers: as easy as 1, 2, 3.
 * SC11, section 3.3.
 */
#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H

#include "base/rng.h"

#ifdef __CUDACC__
#define PHILOX_INLINE static __host__ __device__ __forceinline__
#else
#define PHILOX_INLINE static inline
#endif

enum { PHILOX_ROUNDS = 10 };
#define PHILOX_MULTIPLIER_0 0xD2511F53u /* the paper's multipliers  */
#define PHILOX_MULTIPLIER_1 0xCD9E8D57u
#define PHILOX_WEYL_0 0x9E3779B9u /* golden ratio, sqrt 3 - 1 */
#define PHILOX_WEYL_1 0xBB67AE85u

/* The four words of block `block`: rng_block(). */
PHILOX_INLINE void philox_block(struct rng_key key, uint64_t block, uint32_t out[4])
{
  uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
  uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = key.purpose, c3 = key.step;
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    const uint64_t p0 = (uint64_t)PHILOX_MULTIPLIER_0 * c0, p1 = (uint64_t)PHILOX_MULTIPLIER_1 * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += PHILOX_WEYL_0;
    k1 += PHILOX_WEYL_1;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

#endif
