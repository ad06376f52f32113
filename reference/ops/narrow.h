/* narrow.h - rows of the narrow types, bf16 and f16, widened to float32 and rounded back. */
#ifndef OPS_NARROW_H
#define OPS_NARROW_H

#include "base/tensor.h"

/* n elements of `type`, DTYPE_BF16 or DTYPE_F16; each is exact when widened and rounded once, to nearest, when stored. */
void narrow_widen(float *wide, const uint16_t *x, enum dtype type, int64_t n);
void narrow_round(uint16_t *x, const float *wide, enum dtype type, int64_t n);

#endif
