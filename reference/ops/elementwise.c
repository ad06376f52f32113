/* elementwise.c - fill, copy, add, accumulate, scale: one rounding an element, no sums. */
#include "ops/elementwise_args.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

#include "base/f16.h"
#include "base/fault.h"

static inline float rounded_f32(double x) { return (float)x; }
static inline double rounded_f64(double x) { return x; }
static inline uint16_t rounded_bf16(double x) { return bf16_round_f64(x); }
static inline uint16_t rounded_f16(double x) { return f16_round_f64(x); }

#define KERNELS "ops/elementwise_cpu.h"
#include "ops/each_type.h"

OP_KERNELS(op_fill);
OP_KERNELS(op_add);
OP_KERNELS(op_accumulate);
OP_KERNELS(op_scale);

/* Row `row` of t.  Offsets are 64-bit everywhere: models pass 2^31 elements. */
static char *copy_row(const struct tensor *t, int64_t row)
{
  if (fault_is(FAULT_MM_INT32_INDEX_OVERFLOW))
    return (char *)t->at + (int)(row * t->stride) * (int64_t)dtype_bytes(t->type);
  return tensor_row(t, row);
}

static enum err copy_same(void *args)
{
  const struct elementwise_args *a = args;
  const int64_t bytes = (int64_t)dtype_bytes(a->y.type), cols = a->y.cols;
  const int64_t pieces = span_pieces(a->y.rows, cols);
#pragma omp parallel for schedule(static) if (tensor_count(&a->y) >= PARALLEL_FROM)
  for (int64_t k = 0; k < pieces; k++) {
    const struct span p = span_at(k, cols);
    memcpy(copy_row(&a->y, p.row) + p.col * bytes, copy_row(&a->x, p.row) + p.col * bytes, (size_t)(p.count * bytes));
  }
  return ERR_OK;
}

/* Elements [0, n) from one type to another by way of float64, which holds all of them: rounded once. */
CLONES static void convert_piece(void *y, enum dtype to, const void *x, enum dtype from, int64_t n)
{
  double wide[PIECE];
  if (from == DTYPE_F64) memcpy(wide, x, (size_t)n * sizeof *wide);
  if (from == DTYPE_F32) SIMD for (int64_t i = 0; i < n; i++) wide[i] = ((const float *)x)[i];
  if (from == DTYPE_BF16) SIMD for (int64_t i = 0; i < n; i++) wide[i] = bf16_widen(((const uint16_t *)x)[i]);
  if (from == DTYPE_F16) SIMD for (int64_t i = 0; i < n; i++) wide[i] = f16_widen(((const uint16_t *)x)[i]);
  if (to == DTYPE_F64) memcpy(y, wide, (size_t)n * sizeof *wide);
  if (to == DTYPE_F32) SIMD for (int64_t i = 0; i < n; i++)((float *)y)[i] = (float)wide[i];
  if (to == DTYPE_BF16) SIMD for (int64_t i = 0; i < n; i++)((uint16_t *)y)[i] = bf16_round_f64(wide[i]);
  if (to == DTYPE_F16) SIMD for (int64_t i = 0; i < n; i++)((uint16_t *)y)[i] = f16_round_f64(wide[i]);
}

static enum err copy_convert(void *args)
{
  const struct elementwise_args *a = args;
  const size_t to = dtype_bytes(a->y.type), from = dtype_bytes(a->x.type);
  const int64_t pieces = span_pieces(a->y.rows, a->y.cols);
#pragma omp parallel for schedule(static) if (tensor_count(&a->y) >= PARALLEL_FROM)
  for (int64_t k = 0; k < pieces; k++) {
    const struct span p = span_at(k, a->y.cols);
    char *y = copy_row(&a->y, p.row) + (size_t)p.col * to;
    const char *x = copy_row(&a->x, p.row) + (size_t)p.col * from;
    for (int64_t c = 0; c < p.count; c += PIECE)
      convert_piece(y + (size_t)c * to, a->y.type, x + (size_t)c * from, a->x.type, piece_size(p.count - c));
  }
  return ERR_OK;
}

OP_CUDA_KERNEL(op_copy_cuda); /* whatever the types */
static const struct dev_kernel copy_same_kernel = {.name = "op_copy", .run = copy_same, .cuda = OP_CUDA(op_copy_cuda)};
static const struct dev_kernel copy_convert_kernel = {
    .name = "op_copy", .run = copy_convert, .cuda = OP_CUDA(op_copy_cuda)};

enum err op_fill(struct dev_stream *s, const struct tensor *y, double value)
{
  TRY(op_expect_real("y", y));
  const struct elementwise_args args = {.y = *y, .value = value};
  return OP_SUBMIT(s, &op_fill_kernels[y->type], args, {y, OP_WRITE});
}

enum err op_copy(struct dev_stream *s, const struct tensor *y, const struct tensor *x)
{
  TRY(tensor_expect("y", y, -1, -1));
  TRY(tensor_expect("x", x, y->rows, y->cols));
  const struct elementwise_args args = {.y = *y, .x = *x};
  if (y->type != x->type && (!op_is_real(y->type) || !op_is_real(x->type)))
    FAIL(ERR_ARG, "y is %s and x %s: a copy converts between float64, float32, bfloat16 and float16 only", dtype_name(y->type),
         dtype_name(x->type));
  TRY(dev_delay(s, DEV_DELAY_COPIES));
  const struct dev_kernel *kernel = y->type == x->type ? &copy_same_kernel : &copy_convert_kernel;
  return OP_SUBMIT(s, kernel, args, {y, OP_WRITE}, {x, OP_READ});
}

enum err op_add(struct dev_stream *s, const struct tensor *y, const struct tensor *a, const struct tensor *b)
{
  TRY(op_expect_real("y", y));
  TRY(OP_EXPECT({"a", a, y->type, y->rows, y->cols}, {"b", b, y->type, y->rows, y->cols}));
  const struct elementwise_args args = {.y = *y, .x = *a, .b = *b};
  return OP_SUBMIT(s, &op_add_kernels[y->type], args, {y, OP_WRITE}, {a, OP_READ}, {b, OP_READ});
}

enum err op_accumulate(struct dev_stream *s, const struct tensor *y, const struct tensor *x)
{
  TRY(op_expect_real("y", y));
  TRY(op_expect("x", x, y->type, y->rows, y->cols));
  const struct elementwise_args args = {.y = *y, .x = *x};
  return OP_SUBMIT(s, &op_accumulate_kernels[y->type], args, {y, OP_WRITE}, {x, OP_READ});
}

enum err op_scale(struct dev_stream *s, const struct tensor *y, const struct tensor *x, const struct tensor *factor)
{
  TRY(op_expect_real("y", y));
  TRY(OP_EXPECT({"x", x, y->type, y->rows, y->cols},
                {"factor", factor, factor->type == DTYPE_F64 ? DTYPE_F64 : op_state_type(y->type), 1, 1}));
  const struct elementwise_args args = {.y = *y, .x = *x, .b = *factor};
  return OP_SUBMIT(s, &op_scale_kernels[y->type], args, {y, OP_WRITE}, {x, OP_READ}, {factor, OP_READ});
}
