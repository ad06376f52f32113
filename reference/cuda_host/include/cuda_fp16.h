/* cuda_fp16.h - stand-in of the host build: binary16 as storage with conversions, C++ only.
 * Rounding is to nearest even; NaN becomes 0x7FFF, as on a GPU. */
#ifndef CUDA_HOST_CUDA_FP16_H
#define CUDA_HOST_CUDA_FP16_H

#include "cuda_runtime.h"

#ifdef __cplusplus

/* Steps of the result's exponent; below 2^-14 they are 2^-24. */
static inline unsigned short cuda_host_half_bits(float x)
{
  const uint32_t u = cuda_host_bits<uint32_t>(x), size = u & 0x7fffffffu;
  const unsigned short sign = (unsigned short)(u >> 16 & 0x8000u);
  if (size > 0x7f800000u) return 0x7fff;
  if (size >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u); /* 65520 and more */
  if (size >= 0x38800000u) return (unsigned short)(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13));
  if (size < 0x33000000u) return sign; /* below half a step */
  const int shift = 126 - (int)(size >> 23);
  const uint32_t whole = (size & 0x7fffffu) | 0x800000u, kept = whole >> shift, rest = whole & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1);
  return (unsigned short)(sign | (kept + (rest > half || (rest == half && (kept & 1u)) ? 1u : 0u)));
}
static inline float cuda_host_half_value(unsigned short bits)
{
  /* Its bits as those of a float are 2^-112 times the value, subnormal ones too; without a branch: products wait for it. */
  const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, size = (uint32_t)(bits & 0x7fffu) << 13;
  const uint32_t value = cuda_host_bits<uint32_t>(cuda_host_bits<float>(size) * 0x1p112f);
  return cuda_host_bits<float>(sign | (size < 0x0f800000u ? value : size | 0x7f800000u));
}

struct __half {
  unsigned short bits;
  __half() = default;
  __half(float x) : bits(cuda_host_half_bits(x)) {}
  operator float() const { return cuda_host_half_value(bits); }
};
struct __attribute__((aligned(4))) __half2 {
  __half x, y;
};
typedef __half half;
static_assert(sizeof(__half) == 2 && sizeof(__half2) == 4, "storage");

static inline float __half2float(__half x) { return (float)x; }
static inline __half __float2half(float x) { return __half(x); }
static inline __half __float2half_rn(float x) { return __half(x); }
static inline __half2 __floats2half2_rn(float x, float y) { return __half2{__half(x), __half(y)}; }
static inline unsigned short __half_as_ushort(__half x) { return x.bits; }
static inline __half __ushort_as_half(unsigned short bits)
{
  __half x;
  x.bits = bits;
  return x;
}

#endif
#endif
