/* elementwise.c - fill, copy, add, accumulate, scale: one rounding an element, no sums. */
#include "ops/elementwise_args.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

#include "base/fault.h"

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

static enum err copy_narrow(void *args)
{
  const struct elementwise_args *a = args;
  for (int64_t r = 0; r < a->y.rows; r++) {
    float *y = (float *)copy_row(&a->y, r);
    const double *x = (const double *)copy_row(&a->x, r);
    SIMD for (int64_t c = 0; c < a->y.cols; c++) y[c] = (float)x[c];
  }
  return ERR_OK;
}

static enum err copy_widen(void *args)
{
  const struct elementwise_args *a = args;
  for (int64_t r = 0; r < a->y.rows; r++) {
    double *y = (double *)copy_row(&a->y, r);
    const float *x = (const float *)copy_row(&a->x, r);
    SIMD for (int64_t c = 0; c < a->y.cols; c++) y[c] = x[c];
  }
  return ERR_OK;
}

OP_CUDA_KERNEL(op_copy_cuda); /* whatever the types */
static const struct dev_kernel copy_same_kernel = {
    .name = "op_copy", .run = copy_same, .cuda = OP_CUDA(op_copy_cuda)};
static const struct dev_kernel copy_narrow_kernel = {
    .name = "op_copy", .run = copy_narrow, .cuda = OP_CUDA(op_copy_cuda)};
static const struct dev_kernel copy_widen_kernel = {
    .name = "op_copy", .run = copy_widen, .cuda = OP_CUDA(op_copy_cuda)};

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
  const struct dev_kernel *kernel;
  if (y->type == x->type)
    kernel = &copy_same_kernel;
  else if (y->type == DTYPE_F32 && x->type == DTYPE_F64)
    kernel = &copy_narrow_kernel;
  else if (y->type == DTYPE_F64 && x->type == DTYPE_F32)
    kernel = &copy_widen_kernel;
  else
    FAIL(ERR_ARG, "y is %s and x %s: a copy converts between float32 and float64 only", dtype_name(y->type),
         dtype_name(x->type));
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
                {"factor", factor, factor->type == DTYPE_F64 ? DTYPE_F64 : y->type, 1, 1}));
  const struct elementwise_args args = {.y = *y, .x = *x, .b = *factor};
  return OP_SUBMIT(s, &op_scale_kernels[y->type], args, {y, OP_WRITE}, {x, OP_READ}, {factor, OP_READ});
}
