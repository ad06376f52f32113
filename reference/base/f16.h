/* f16.h - IEEE binary16: 11 significant bits, 2^-24 to 65504.
 *
 * Storage only, as bf16.h: widened (exact), computed with in float32 and rounded once, to nearest, ties to even.  Unit
 * roundoff 2^-11 from 2^-14 on; below that steps of 2^-24.  From 65520 on a value becomes infinite; NaN stays NaN.
 * No function branches: loops over them are vectors.
 */
#ifndef BASE_F16_H
#define BASE_F16_H

#include "base/bf16.h"

BF16_INLINE float f16_widen(uint16_t x)
{
  const uint32_t up = (uint32_t)(x & 0x7fff) << 13, top = (uint32_t)0x7c00 << 13, exponent = up & top;
  const uint32_t unit_bits = (uint32_t)113 << 23; /* 2^-14 */
  /* the exponent's zero moves from 15 to 127; all ones stay all ones; without an implied bit it is 2^-14 too much */
  const uint32_t moved = up + ((uint32_t)112 << 23), full = moved + ((uint32_t)112 << 23), small = moved + ((uint32_t)1 << 23);
  float unit, low, wide;
  uint32_t bits, low_bits;
  memcpy(&unit, &unit_bits, sizeof unit);
  memcpy(&low, &small, sizeof low);
  low -= unit;
  memcpy(&low_bits, &low, sizeof low_bits);
  bits = exponent == 0 ? low_bits : exponent == top ? full : moved;
  bits |= (uint32_t)(x & 0x8000) << 16;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

BF16_INLINE uint16_t f16_round(float x)
{
  const uint32_t shift_bits = (uint32_t)126 << 23; /* 0.5: its unit in the last place is 2^-24, binary16's smallest step */
  uint32_t all, size, low_bits;
  float shift, low;
  memcpy(&all, &x, sizeof all);
  size = all & 0x7fffffff;
  const uint32_t clamped = size < ((uint32_t)113 << 23) ? size : 0;
  memcpy(&low, &clamped, sizeof low);
  memcpy(&shift, &shift_bits, sizeof shift);
  low += shift; /* the adder rounds as is wanted: to nearest even */
  memcpy(&low_bits, &low, sizeof low_bits);
  const uint32_t small = low_bits - shift_bits,
                 usual = (size - ((uint32_t)112 << 23) + 0xfff + (size >> 13 & 1)) >> 13,
                 most = size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x3ff) : 0x7c00;
  const uint32_t rounded = size < ((uint32_t)113 << 23) ? small : size < ((uint32_t)143 << 23) ? usual : most;
  return (uint16_t)(rounded | (all >> 16 & 0x8000));
}

BF16_INLINE uint16_t f16_round_f64(double x) { return f16_round(bf16_odd_f64(x)); }

#endif
