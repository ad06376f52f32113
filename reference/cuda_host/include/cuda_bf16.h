/* cuda_bf16.h - stand-in of the host build: bfloat16 as storage with conversions, C++ only.
 * Rounding is to nearest even; NaN becomes 0x7FFF, as on a GPU. */
#ifndef CUDA_HOST_CUDA_BF16_H
#define CUDA_HOST_CUDA_BF16_H

#include "cuda_runtime.h"

#ifdef __cplusplus

static inline unsigned short cuda_host_bf16_bits(float x)
{
  const uint32_t u = cuda_host_bits<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float x) : bits(cuda_host_bf16_bits(x)) {}
  operator float() const { return cuda_host_bits<float>((uint32_t)bits << 16); }
};
struct __attribute__((aligned(4))) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
typedef __nv_bfloat16 nv_bfloat16;
static_assert(sizeof(__nv_bfloat16) == 2 && sizeof(__nv_bfloat162) == 4, "storage");

static inline float __bfloat162float(__nv_bfloat16 x) { return (float)x; }
static inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
  __nv_bfloat16 x;
  x.bits = bits;
  return x;
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return __nv_bfloat162{__nv_bfloat16(x), __nv_bfloat16(y)}; }

#endif
#endif
