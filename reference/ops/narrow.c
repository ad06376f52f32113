/* narrow.c - loops that widen and round, for three instruction sets. */
#include "ops/narrow.h"

#include "base/f16.h"
#include "ops/vector.h"

CLONES static void widen_bf16(float *wide, const uint16_t *x, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) wide[i] = bf16_widen(x[i]);
}
CLONES static void widen_f16(float *wide, const uint16_t *x, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) wide[i] = f16_widen(x[i]);
}
CLONES static void round_bf16(uint16_t *x, const float *wide, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) x[i] = bf16_round(wide[i]);
}
CLONES static void round_f16(uint16_t *x, const float *wide, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) x[i] = f16_round(wide[i]);
}

void narrow_widen(float *wide, const uint16_t *x, enum dtype type, int64_t n)
{
  BUG_IF(type != DTYPE_BF16 && type != DTYPE_F16);
  (type == DTYPE_BF16 ? widen_bf16 : widen_f16)(wide, x, n);
}

void narrow_round(uint16_t *x, const float *wide, enum dtype type, int64_t n)
{
  BUG_IF(type != DTYPE_BF16 && type != DTYPE_F16);
  (type == DTYPE_BF16 ? round_bf16 : round_f16)(x, wide, n);
}
