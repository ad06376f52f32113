/* bf16.h - the upper half of a float32: 8 significant bits, the range of float32.
 *
 * Storage only: nothing computes in it.  Values are widened (exact), computed with in float32 and rounded once, to
 * nearest, ties to even.  Unit roundoff 2^-8.  NaN stays NaN (quiet); what is too large becomes infinite.
 */
#ifndef BASE_BF16_H
#define BASE_BF16_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define BF16_INLINE static __host__ __device__ inline
#else
#define BF16_INLINE static inline __attribute__((always_inline))
#endif

BF16_INLINE float bf16_widen(uint16_t x)
{
  const uint32_t bits = (uint32_t)x << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

BF16_INLINE uint16_t bf16_round(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t quiet = bits >> 16 | 0x40, nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : nearest);
}

/* A float32 beside x that is x itself or, where that cannot be, the odd one of its two neighbours: it lies on no tie of a
 * type with two bits less, so that rounding it to one rounds x once. */
BF16_INLINE float bf16_odd_f64(double x)
{
  float near = (float)x;
  const double back = (double)near;
  uint32_t bits;
  memcpy(&bits, &near, sizeof bits);
  if (x == x && back != x && (bits & 1) == 0) {
    bits = (back < 0 ? -back : back) > (x < 0 ? -x : x) ? bits - 1 : bits + 1;
    memcpy(&near, &bits, sizeof near);
  }
  return near;
}

BF16_INLINE uint16_t bf16_round_f64(double x) { return bf16_round(bf16_odd_f64(x)); }

#endif
