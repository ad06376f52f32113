/* vector.h - vectors whose results do not depend on the machine, and how rows are shared out.
 *
 * Kernels are compiled for three instruction sets and chosen when the program starts.
 * All give the same bits: there is no contraction to fused operations (the build says
 * so) and a sum runs in LANES interleaved parts, whatever the width of the registers.
 * An OpenMP region is always outside of a cloned function: the compiler would build its
 * body for the oldest instruction set only.
 */
#ifndef OPS_VECTOR_H
#define OPS_VECTOR_H

#include "base/tensor.h"

#include <math.h>
#include <string.h>

/* The resolvers of clones run before the sanitizers' own start and would crash in them.  Levels of x86-64 can be
 * cloned for since GCC 12, single extensions before; other compilers build one version. */
#if !defined(__x86_64__) || defined(__clang__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CLONES
#elif __GNUC__ >= 12
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

#define SIMD _Pragma("omp simd")

/* Elements below which a second thread costs more than it brings.  Threads never change bits. */
enum { PARALLEL_FROM = 1 << 14 };

/* Elementwise work on [rows, cols] in pieces of at most SPAN columns: long vectors and tall
 * matrices are shared out alike.  Piece k of span_pieces(). */
enum { SPAN = 1 << 13 };
struct span {
  int64_t row, col, count;
};
static inline int64_t span_pieces(int64_t rows, int64_t cols) { return rows * ((cols + SPAN - 1) / SPAN); }
static inline struct span span_at(int64_t k, int64_t cols)
{
  const int64_t a_row = (cols + SPAN - 1) / SPAN, col = k % a_row * SPAN;
  return (struct span){k / a_row, col, cols - col < SPAN ? cols - col : SPAN};
}

/* Elements first .. first + n of x in row order: in place where they follow one another, else copied
 * into `room`, which holds n elements. */
static inline const void *row_order(const struct tensor *x, int64_t first, int64_t n, void *room)
{
  const int64_t bytes = (int64_t)dtype_bytes(x->type);
  if (tensor_contiguous(x)) return (const char *)x->at + first * bytes;
  for (int64_t i = 0; i < n;) {
    const int64_t row = (first + i) / x->cols, col = (first + i) % x->cols;
    const int64_t count = x->cols - col < n - i ? x->cols - col : n - i;
    memcpy((char *)room + i * bytes, tensor_row(x, row) + col * bytes, (size_t)(count * bytes));
    i += count;
  }
  return room;
}

/* Sums of n doubles: lane i adds elements i, i + LANES, ... in order, then the lanes are added in
 * order.  `x` is a piece that a kernel has just computed, of at most PIECE elements. */
enum { LANES = 16, PIECE = 512 };
static inline int64_t piece_size(int64_t left) { return left < PIECE ? left : PIECE; }
typedef double lanes __attribute__((vector_size(64), aligned(8)));

static inline double lanes_total(const double lane[LANES])
{
  double total = lane[0];
  for (int i = 1; i < LANES; i++) total += lane[i];
  return total;
}

/* lane[] += x[]; n <= PIECE; only the last piece of a sum may have an n that LANES does not divide. */
static inline __attribute__((always_inline)) void lanes_add(double lane[LANES], const double *x, int64_t n)
{
  lanes low, high, a, b;
  memcpy(&low, lane, sizeof low);
  memcpy(&high, lane + 8, sizeof high);
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    memcpy(&a, x + i, sizeof a);
    memcpy(&b, x + i + 8, sizeof b);
    low += a;
    high += b;
  }
  memcpy(lane, &low, sizeof low);
  memcpy(lane + 8, &high, sizeof high);
  for (int64_t l = 0; i < n; i++, l++) lane[l] += x[i];
}

static inline int32_t bits_of(float x)
{
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
static inline float float_of(int32_t bits)
{
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* e^x in float32, within 1.1 units in the last place.
 *
 * x = n ln 2 + r, |r| <= ln 2 / 2; e^r = 1 + r + r^2 q(r), q by interpolation in Chebyshev points
 * (relative error 1.1e-8).  ln 2 is split so that n * high is exact; 2^n is applied in two factors
 * so that results below the normal range are right.  The limits (e^105 is infinite, e^-105 is 0) and
 * NaN are handled on the bits: comparisons of floats would become branches, and the loop scalar. */
static inline __attribute__((always_inline)) float exp_f32(float any)
{
  const float magic = 0x1.8p23f; /* adding it rounds to an integer, held in the low bits */
  const int32_t size = bits_of(any) & 0x7fffffff, limit = 0x42d20000 /* 105 */;
  const int32_t is_nan = size > 0x7f800000 ? -1 : 0;
  const float x = float_of((bits_of(any) & (int32_t)0x80000000) | (size < limit ? size : limit));
  const float shifted = x * 0x1.715476p+0f + magic;
  const float n = shifted - magic;
  const float r = x - n * 0.693145751953125f - n * 1.42860682031e-6f;
  const float q =
      0.5f + r * (0.166665733819f + r * (0.0416665501103f + r * (0.00836377387441f + r * 0.0013926926614f)));
  const float e = 1.0f + (r + r * r * q);
  const int32_t power = bits_of(shifted) - bits_of(magic), half = power >> 1;
  const float scaled = e * float_of((half + 127) << 23) * float_of((power - half + 127) << 23);
  return float_of(bits_of(scaled) | is_nan);
}

/* In float64 the C library's: these kernels are the truth that others are held against. */
static inline double exp_f64(double x) { return exp(x); }

/* The narrow types are computed with in float32. */
static inline __attribute__((always_inline)) float exp_bf16(float x) { return exp_f32(x); }
static inline __attribute__((always_inline)) float exp_f16(float x) { return exp_f32(x); }

static inline float root_f32(float x) { return sqrtf(x); }
static inline double root_f64(double x) { return sqrt(x); }

#endif
