/* matmul.h - matrix products inside this room: what op_matmul, linear and attention call in kernels.
 *
 * c [M, N] = op(a) [M, K] op(b) [K, N], or c += with accumulate; row-major with leading
 * dimensions; op(a)'s memory is [K, M] with transpose_a.  Inside a parallel region the
 * calling thread works alone.  Threads change no bits.
 */
#ifndef OPS_MATMUL_H
#define OPS_MATMUL_H

#include "base/err.h"

#include <stdint.h>

/* oneDNN; a product with one row or one column by our own loop, since oneDNN's depends on threads there. */
enum err matmul_f32(int64_t M, int64_t N, int64_t K, const float *a, int64_t a_stride, bool transpose_a, const float *b,
                    int64_t b_stride, bool transpose_b, bool accumulate, float *c, int64_t c_stride);
/* Our own loop: each element adds its K terms in index order, starting from 0 or from c. */
enum err matmul_f64(int64_t M, int64_t N, int64_t K, const double *a, int64_t a_stride, bool transpose_a,
                    const double *b, int64_t b_stride, bool transpose_b, bool accumulate, double *c, int64_t c_stride);
/* Narrow operands, sums in float32, each element of c rounded once: bf16 by oneDNN where the processor multiplies it, else
 * pieces are widened and multiplied as float32.  matmul_state_*: c in the type of sums and gradients (S of ops.h). */
#define MATMUL_NARROW(name)                                                                                                \
  enum err matmul_##name(int64_t M, int64_t N, int64_t K, const uint16_t *a, int64_t a_stride, bool transpose_a,           \
                         const uint16_t *b, int64_t b_stride, bool transpose_b, bool accumulate, uint16_t *c,              \
                         int64_t c_stride);                                                                                \
  enum err matmul_state_##name(int64_t M, int64_t N, int64_t K, const uint16_t *a, int64_t a_stride, bool transpose_a,     \
                               const uint16_t *b, int64_t b_stride, bool transpose_b, bool accumulate, float *c,           \
                               int64_t c_stride);
MATMUL_NARROW(bf16)
MATMUL_NARROW(f16)
#undef MATMUL_NARROW
#define matmul_state_f32 matmul_f32
#define matmul_state_f64 matmul_f64

/* ERR_UNAVAILABLE if oneDNN would get fewer threads than it shares a product out to: rows would stay unwritten. */
enum err matmul_expect_team(void);
bool matmul_bf16_unit(void); /* this processor multiplies bf16, and oneDNN may use it */

#endif
