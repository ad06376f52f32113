/* view.c - packing of strided views and the rank-ordered reduction. */
#include "comm/view.h"

#include "base/f16.h"
#include "base/fault.h"

#include <string.h>

enum { PACK, UNPACK };

struct tensor view_packed(const struct tensor *t)
{
  struct tensor v = *t;
  if (fault_is(FAULT_CL_NONCONTIGUOUS_TENSOR)) v.stride = v.cols;
  return v;
}

static void copy(const struct tensor *t, int64_t first, int64_t count, char *packed, int direction)
{
  const struct tensor v = direction == PACK ? view_packed(t) : *t;
  const size_t size = dtype_bytes(v.type);
  while (count > 0) {
    const int64_t row = first / v.cols, col = first % v.cols, n = v.cols - col < count ? v.cols - col : count;
    char *at = tensor_row(&v, row) + (size_t)col * size;
    if (direction == PACK)
      memmove(packed, at, (size_t)n * size);
    else
      memmove(at, packed, (size_t)n * size);
    packed += (size_t)n * size;
    first += n;
    count -= n;
  }
}

void view_pack(const struct tensor *t, int64_t first, int64_t count, void *at) { copy(t, first, count, at, PACK); }

void view_unpack(const struct tensor *t, int64_t first, int64_t count, const void *at)
{
  copy(t, first, count, (char *)(uintptr_t)at, UNPACK);
}

void view_extent(const struct tensor *t, const char **first, const char **end)
{
  *first = *end = t->at;
  if (tensor_count(t) > 0) *end = tensor_row(t, t->rows - 1) + (size_t)t->cols * dtype_bytes(t->type);
}

/* One pass over the first part for each further one: the order of additions is that of the
 * ranks for every element, and each pass is a plain vector loop.  They are added as A: whole numbers wrap around. */
#define REDUCE(T, A)                                                                  \
  do {                                                                                \
    T *sum = parts;                                                                   \
    for (int r = 1; r < n; r++) {                                                     \
      const T *x = (const T *)parts + (size_t)r * (size_t)count;                      \
      if (op == COMM_SUM)                                                             \
        for (int64_t i = 0; i < count; i++) sum[i] = (T)((A)sum[i] + (A)x[i]);        \
      else                                                                            \
        for (int64_t i = 0; i < count; i++)                                           \
          if (x[i] > sum[i] || x[i] != x[i]) sum[i] = x[i]; /* a NaN stays */         \
    }                                                                                 \
  } while (0)

/* Added in float32 in rank order, rounded once. */
#define REDUCE_NARROW(name)                                                                     \
  static void reduce_##name(uint16_t *parts, int n, int64_t count, enum comm_op op)             \
  {                                                                                             \
    for (int64_t i = 0; i < count; i++) {                                                       \
      float sum = name##_widen(parts[i]);                                                       \
      for (int r = 1; r < n; r++) {                                                             \
        const float x = name##_widen(parts[(int64_t)r * count + i]);                            \
        if (op == COMM_SUM) sum += x;                                                           \
        else if (x > sum || x != x) sum = x;                                                    \
      }                                                                                         \
      parts[i] = name##_round(sum);                                                             \
    }                                                                                           \
  }
REDUCE_NARROW(bf16)
REDUCE_NARROW(f16)

void view_reduce(void *parts, int n, int64_t count, enum dtype type, enum comm_op op)
{
  switch (type) {
  case DTYPE_F64: REDUCE(double, double); break;
  case DTYPE_F32: REDUCE(float, float); break;
  case DTYPE_BF16: reduce_bf16(parts, n, count, op); break;
  case DTYPE_F16: reduce_f16(parts, n, count, op); break;
  case DTYPE_I32: REDUCE(int32_t, uint32_t); break;
  case DTYPE_I64: REDUCE(int64_t, uint64_t); break;
  default: BUG_IF(true);
  }
}
