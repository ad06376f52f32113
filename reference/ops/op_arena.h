/* op_arena.h - memory and values of this room's tests: tensors whose surroundings are watched.
 *
 * Only tests include this.  Inputs are seeded and never zero; outputs start as 0xFF, which is NaN.
 */
#ifndef OPS_OP_ARENA_H
#define OPS_OP_ARENA_H

#include "base/f16.h"
#include "base/rng.h"
#include "base/tensor.h"
#include "testing/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- memory whose every other byte is watched ------------------------------------- */

/* Around outputs stand other bytes than NaN: a kernel that wrote too far could have computed NaN there. */
enum { ARENA_BYTES = 1 << 23, ARENA_TENSORS = 48, ARENA_GUARD = 64, AROUND_INPUTS = 0xFF, AROUND_OUTPUTS = 0xA5 };
struct arena {
  unsigned char *at;
  size_t used;
  struct tensor tensor[ARENA_TENSORS];
  size_t end[ARENA_TENSORS]; /* of the bytes around tensor i */
  unsigned char around[ARENA_TENSORS];
  int n;
  struct arena *next; /* of those that are open */
};
static struct arena *arena_first;

static inline void arena_open(struct arena *a)
{
  a->at = malloc(ARENA_BYTES);
  a->used = 0;
  a->n = 0;
  a->next = arena_first;
  arena_first = a;
  CHECK(a->at != NULL);
}

/* The open arena that holds this address, or NULL. */
static inline const struct arena *arena_of(const void *at)
{
  const unsigned char *byte = at;
  const struct arena *a = arena_first;
  while (a != NULL && (byte < a->at || byte >= a->at + a->used)) a = a->next;
  return a;
}

/* Without looking at the bytes around tensors. */
static inline void arena_drop(struct arena *a)
{
  struct arena **link = &arena_first;
  while (*link != a) link = &(*link)->next;
  *link = a->next;
  free(a->at);
}

/* A tensor of 0xFF with `gap` columns between rows, `shift` elements off a multiple of 64 bytes, and `around` it. */
static inline struct tensor arena_place(struct arena *a, enum dtype type, int64_t rows, int64_t cols, int64_t gap,
                                        int64_t shift, unsigned char around)
{
  const size_t size = dtype_bytes(type), start = (a->used + ARENA_GUARD + 63) / 64 * 64 + (size_t)shift * size;
  const struct tensor t = {a->at + start, type, rows, cols, cols + gap};
  const size_t end = start + (size_t)(rows * t.stride) * size + ARENA_GUARD;
  BUG_IF(end > ARENA_BYTES || a->n == ARENA_TENSORS);
  memset(a->at + a->used, around, end - a->used);
  for (int64_t r = 0; r < rows; r++) memset(tensor_row(&t, r), 0xFF, (size_t)cols * size);
  a->tensor[a->n] = t;
  a->around[a->n] = around;
  a->end[a->n++] = a->used = end;
  return t;
}
static inline struct tensor arena_tensor(struct arena *a, enum dtype type, int64_t rows, int64_t cols, int64_t gap,
                                         int64_t shift)
{
  return arena_place(a, type, rows, cols, gap, shift, AROUND_INPUTS);
}

/* No byte that belongs to no tensor has changed. */
static inline bool arena_intact(const struct arena *a)
{
  const unsigned char *p = a->at;
  for (int i = 0; i < a->n; i++) {
    for (int64_t r = 0; r <= a->tensor[i].rows; r++) {
      const bool last = r == a->tensor[i].rows;
      const unsigned char *stop = last ? a->at + a->end[i] : (const unsigned char *)tensor_row(&a->tensor[i], r);
      for (; p < stop; p++)
        if (*p != a->around[i]) return false;
      if (!last) p = stop + (size_t)a->tensor[i].cols * dtype_bytes(a->tensor[i].type);
    }
  }
  return true;
}

static inline void arena_close(struct arena *a)
{
  CHECK(arena_intact(a));
  arena_drop(a);
}

/* --- values ------------------------------------------------------------------------ */

/* The work types: operations are tried in each. */
static const enum dtype reals[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_F16};
enum { REALS = sizeof reals / sizeof *reals };
static inline bool is_narrow(enum dtype type) { return type == DTYPE_BF16 || type == DTYPE_F16; }
/* Largest relative error of rounding to a type once, to nearest; of f16 from 2^-14 on. */
static inline double unit_of(enum dtype type)
{
  return type == DTYPE_F64 ? 0x1p-53 : type == DTYPE_F32 ? 0x1p-24 : type == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
}

static inline double get(const struct tensor *t, int64_t r, int64_t c)
{
  const void *at = tensor_row(t, r) + (size_t)c * dtype_bytes(t->type);
  if (t->type == DTYPE_F32) return (double)*(const float *)at;
  if (t->type == DTYPE_BF16) return (double)bf16_widen(*(const uint16_t *)at);
  if (t->type == DTYPE_F16) return (double)f16_widen(*(const uint16_t *)at);
  if (t->type == DTYPE_I32) return *(const int32_t *)at;
  if (t->type == DTYPE_I64) return (double)*(const int64_t *)at;
  return *(const double *)at;
}
static inline void put(const struct tensor *t, int64_t r, int64_t c, double value)
{
  void *at = tensor_row(t, r) + (size_t)c * dtype_bytes(t->type);
  if (t->type == DTYPE_F32)
    *(float *)at = (float)value;
  else if (t->type == DTYPE_BF16)
    *(uint16_t *)at = bf16_round_f64(value);
  else if (t->type == DTYPE_F16)
    *(uint16_t *)at = f16_round_f64(value);
  else if (t->type == DTYPE_I32)
    *(int32_t *)at = (int32_t)value;
  else if (t->type == DTYPE_I64)
    *(int64_t *)at = (int64_t)value;
  else
    *(double *)at = value;
}

/* x, computed in double or float, as an element of this type. */
static inline double stored(enum dtype type, double x)
{
  if (type == DTYPE_F16) return (double)f16_widen(f16_round((float)x));
  return type == DTYPE_F64 ? x : type == DTYPE_F32 ? (double)(float)x : (double)bf16_widen(bf16_round((float)x));
}

/* Reals in (-1, 1), never 0: odd multiples of 2^-23 in float32, their nearest in bfloat16; times 1 + 2^-27 / 3 in
 * float64, so that a cast to float shows.  Integers get 0 .. 6. */
static inline void fill_seeded(const struct tensor *t, uint32_t seed)
{
  const struct rng_key key = {seed, RNG_TEST, 0};
  const bool real = t->type == DTYPE_F32 || t->type == DTYPE_F64 || is_narrow(t->type);
  for (int64_t r = 0; r < t->rows; r++)
    for (int64_t c = 0; c < t->cols; c++) {
      const uint32_t word = rng_u32(key, (uint64_t)(r * t->cols + c));
      const double value = ((double)(word >> 8 | 1) * 0x1p-23 - 1) * (t->type == DTYPE_F64 ? 1 + 0x1p-27 / 3 : 1);
      put(t, r, c, real ? value : (double)(word % 7));
    }
}
static inline void fill_positive(const struct tensor *t, uint32_t seed)
{
  fill_seeded(t, seed);
  for (int64_t r = 0; r < t->rows; r++)
    for (int64_t c = 0; c < t->cols; c++) put(t, r, c, fabs(get(t, r, c)) + 0x1p-6);
}
static inline void fill_values(const struct tensor *t, const double *values)
{
  for (int64_t i = 0; i < tensor_count(t); i++) put(t, i / t->cols, i % t->cols, values[i]);
}
static inline bool all_finite(const struct tensor *t)
{
  for (int64_t r = 0; r < t->rows; r++)
    for (int64_t c = 0; c < t->cols; c++)
      if (!isfinite(get(t, r, c))) return false;
  return true;
}
static inline bool same_bits(const struct tensor *a, const struct tensor *b)
{
  for (int64_t r = 0; r < a->rows; r++)
    if (memcmp(tensor_row(a, r), tensor_row(b, r), (size_t)a->cols * dtype_bytes(a->type)) != 0) return false;
  return true;
}
/* max |a - b| */
static inline double distance(const struct tensor *a, const struct tensor *b)
{
  double most = 0;
  for (int64_t r = 0; r < a->rows; r++)
    for (int64_t c = 0; c < a->cols; c++) {
      const double d = fabs(get(a, r, c) - get(b, r, c));
      if (!(d <= most)) most = d;
    }
  return most;
}

#endif
