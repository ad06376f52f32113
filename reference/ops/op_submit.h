/* op_submit.h - from a checked call to queued work: what all operations share.
 *
 * An operation is one file: its checks and declared ranges here on the host, its CPU
 * kernels in `<file>_cpu.h`, written once and compiled for each element type by
 * each_type.h.  Adding a type is one more inclusion there and one more entry in
 * OP_KERNELS.  Its CUDA kernels are in `<file>.cu`; what both are given is `<file>_args.h`.
 */
#ifndef OPS_OP_SUBMIT_H
#define OPS_OP_SUBMIT_H

#include "ops/ops.h"

#include <inttypes.h>

/* The CUDA kernel `name` of the .cu beside the operation, after OP_CUDA_KERNEL has declared it; NULL in a build
 * without CUDA. */
struct dev_cuda;
#ifdef SHARDMARK_HAS_CUDA
#define OP_CUDA_KERNEL(name) enum err name(const struct dev_cuda *at, void *args)
#define OP_CUDA(name) name
#else
#define OP_CUDA_KERNEL(name) struct dev_cuda
#define OP_CUDA(name) NULL
#endif

/* The kernels of one operation, indexed by work type; OP_STATE_KERNELS: of one whose tensors have the state type. */
#define OP_KERNELS(op)                                                                 \
  OP_CUDA_KERNEL(op##_cuda_f64);                                                       \
  OP_CUDA_KERNEL(op##_cuda_f32);                                                       \
  OP_CUDA_KERNEL(op##_cuda_bf16);                                                      \
  OP_CUDA_KERNEL(op##_cuda_f16);                                                       \
  static const struct dev_kernel op##_kernels[DTYPE_COUNT] = {                         \
      [DTYPE_F64] = {.name = #op, .run = op##_f64, .cuda = OP_CUDA(op##_cuda_f64)},    \
      [DTYPE_F32] = {.name = #op, .run = op##_f32, .cuda = OP_CUDA(op##_cuda_f32)},    \
      [DTYPE_BF16] = {.name = #op, .run = op##_bf16, .cuda = OP_CUDA(op##_cuda_bf16)}, \
      [DTYPE_F16] = {.name = #op, .run = op##_f16, .cuda = OP_CUDA(op##_cuda_f16)},    \
  }
#define OP_STATE_KERNELS(op)                                                        \
  OP_CUDA_KERNEL(op##_cuda_f64);                                                    \
  OP_CUDA_KERNEL(op##_cuda_f32);                                                    \
  static const struct dev_kernel op##_kernels[DTYPE_COUNT] = {                      \
      [DTYPE_F64] = {.name = #op, .run = op##_f64, .cuda = OP_CUDA(op##_cuda_f64)}, \
      [DTYPE_F32] = {.name = #op, .run = op##_f32, .cuda = OP_CUDA(op##_cuda_f32)}, \
  }

/* The kernel of an operation that has one whatever the type. */
#define OP_KERNEL(op, function) \
  OP_CUDA_KERNEL(op##_cuda);    \
  static const struct dev_kernel op##_kernel = {.name = #op, .run = function, .cuda = OP_CUDA(op##_cuda)}

/* The type of statistics, gradients of weights and updates for a work type (ops.h: S for X). */
static inline enum dtype op_state_type(enum dtype work) { return work == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32; }

static inline bool op_is_state(enum dtype type) { return type == DTYPE_F32 || type == DTYPE_F64; }
static inline bool op_is_narrow(enum dtype type) { return type == DTYPE_BF16 || type == DTYPE_F16; } /* storage alone */
static inline bool op_is_real(enum dtype type) { return op_is_state(type) || op_is_narrow(type); }

/* A work type, or one of the state types among them. */
static inline enum err op_expect_real(const char *name, const struct tensor *t)
{
  if (!op_is_real(t->type)) FAIL(ERR_ARG, "%s is %s, expected float32, float64, bfloat16 or float16", name, dtype_name(t->type));
  return tensor_expect(name, t, -1, -1);
}
static inline enum err op_expect_state(const char *name, const struct tensor *t)
{
  if (!op_is_state(t->type)) FAIL(ERR_ARG, "%s is %s, expected float32 or float64", name, dtype_name(t->type));
  return tensor_expect(name, t, -1, -1);
}

static inline enum err op_expect(const char *name, const struct tensor *t, enum dtype type, int64_t rows, int64_t cols)
{
  TRY(tensor_expect_type(name, t, type));
  return tensor_expect(name, t, rows, cols);
}

/* What each operand must be; a dimension of -1 is not looked at; an absent tensor (NULL) is fine. */
struct op_want {
  const char *name;
  const struct tensor *t;
  enum dtype type;
  int64_t rows, cols;
};
static inline enum err op_expect_all(const struct op_want *want, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (want[i].t != NULL) TRY(op_expect(want[i].name, want[i].t, want[i].type, want[i].rows, want[i].cols));
  return ERR_OK;
}
#define OP_EXPECT(...)                                 \
  op_expect_all((const struct op_want[]){__VA_ARGS__}, \
                sizeof((const struct op_want[]){__VA_ARGS__}) / sizeof(struct op_want))

/* A [B, T] tensor of int32 with one entry for each of `rows` rows. */
static inline enum err op_expect_tokens(const char *name, const struct tensor *t, int64_t rows)
{
  TRY(op_expect(name, t, DTYPE_I32, -1, -1));
  if (tensor_count(t) != rows)
    FAIL(ERR_ARG, "%s is [%" PRId64 ", %" PRId64 "], expected %" PRId64 " entries", name, t->rows, t->cols, rows);
  return ERR_OK;
}

/* Entry n of a [B, T] tensor of int32, counted row by row. */
static inline int32_t op_token(const struct tensor *t, int64_t n)
{
  return ((const int32_t *)t->at)[n / t->cols * t->stride + n % t->cols];
}

/* dev_submit() of the ranges that are there: an absent tensor (NULL) or an empty one has none. */
enum { OP_READ, OP_WRITE };
struct op_touch {
  const struct tensor *t;
  int write;
};
static inline enum err op_submit_touching(struct dev_stream *s, const struct dev_kernel *kernel, const void *args,
                                          size_t bytes, const struct op_touch *touched, int n)
{
  struct dev_range ranges[DEV_RANGES_MAX];
  int used = 0;
  for (int i = 0; i < n; i++) {
    const struct tensor *t = touched[i].t;
    if (t != NULL && tensor_count(t) > 0) ranges[used++] = touched[i].write == OP_WRITE ? dev_writes(t) : dev_reads(t);
  }
  return dev_submit(s, kernel, args, bytes, ranges, used);
}
#define OP_SUBMIT(s, kernel, args, ...)                                                            \
  op_submit_touching((s), (kernel), &(args), sizeof(args), (const struct op_touch[]){__VA_ARGS__}, \
                     (int)(sizeof((const struct op_touch[]){__VA_ARGS__}) / sizeof(struct op_touch)))

#endif
