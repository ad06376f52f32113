/* matmul.c - matrix products: oneDNN for float32, our own loop for float64 (bf16, f16: matmul_narrow.c).
 *
 *   c [M, N] = op(a) [M, K] op(b) [K, N]     or c += with accumulate
 *
 * oneDNN's C interface is row-major since version 1 and this file uses nothing that
 * changed between 2 and 3.
 */
#include "ops/matmul.h"

#include "ops/matmul_args.h"
#include "ops/op_submit.h"
#include "ops/vector.h"
#ifdef SHARDMARK_HAS_CUDA
#include "ops/matmul_cuda.h"
#endif

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>

enum { ROWS = 128 };

#define KERNELS "ops/matmul_cpu.h"
#include "ops/each_state_type.h"

/* oneDNN shares out a product among as many threads as were asked for and does not look whether they came. */
enum err matmul_expect_team(void)
{
  const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  if (threads > omp_get_thread_limit())
    FAIL(ERR_UNAVAILABLE, "%d threads asked for, OMP_THREAD_LIMIT allows %d", threads, omp_get_thread_limit());
  if (threads > 1 && omp_get_dynamic())
    FAIL(ERR_UNAVAILABLE, "%d threads asked for, OMP_DYNAMIC may give fewer", threads);
  return ERR_OK;
}

enum err matmul_f64(int64_t M, int64_t N, int64_t K, const double *a, int64_t a_stride, bool transpose_a,
                    const double *b, int64_t b_stride, bool transpose_b, bool accumulate, double *c, int64_t c_stride)
{
  const struct operand_f64 left = {a, transpose_a ? 1 : a_stride, transpose_a ? a_stride : 1};
  const struct operand_f64 right = {b, transpose_b ? 1 : b_stride, transpose_b ? b_stride : 1};
  multiply_f64(M, N, K, left, right, accumulate, c, c_stride);
  return ERR_OK;
}

enum err matmul_f32(int64_t M, int64_t N, int64_t K, const float *a, int64_t a_stride, bool transpose_a, const float *b,
                    int64_t b_stride, bool transpose_b, bool accumulate, float *c, int64_t c_stride)
{
  if (M <= 1 || N <= 1 || K < 1) {
    const struct operand_f32 left = {a, transpose_a ? 1 : a_stride, transpose_a ? a_stride : 1};
    const struct operand_f32 right = {b, transpose_b ? 1 : b_stride, transpose_b ? b_stride : 1};
    multiply_f32(M, N, K, left, right, accumulate, c, c_stride);
    return ERR_OK;
  }
  TRY(matmul_expect_team());
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', M, N, K, 1.0f, a, a_stride,
                                          b, b_stride, accumulate ? 1.0f : 0.0f, c, c_stride);
  if (status != dnnl_success)
    FAIL(ERR_DEVICE, "oneDNN status %d for a float32 product [%" PRId64 ", %" PRId64 ", %" PRId64 "]", (int)status, M,
         N, K);
  return ERR_OK;
}

static enum err op_matmul_f32(void *args)
{
  const struct matmul_args *m = args;
  return matmul_f32(m->c.rows, m->c.cols, m->depth, m->a.at, m->a.stride, m->transpose_a, m->b.at, m->b.stride,
                    m->transpose_b, m->accumulate, m->c.at, m->c.stride);
}
static enum err op_matmul_f64(void *args)
{
  const struct matmul_args *m = args;
  return matmul_f64(m->c.rows, m->c.cols, m->depth, m->a.at, m->a.stride, m->transpose_a, m->b.at, m->b.stride,
                    m->transpose_b, m->accumulate, m->c.at, m->c.stride);
}
#define KERNEL(name)                                                                                                       \
  static enum err op_matmul_##name(void *args)                                                                             \
  {                                                                                                                        \
    const struct matmul_args *m = args;                                                                                    \
    if (m->c.type == DTYPE_F32)                                                                                            \
      return matmul_state_##name(m->c.rows, m->c.cols, m->depth, m->a.at, m->a.stride, m->transpose_a, m->b.at,            \
                                 m->b.stride, m->transpose_b, m->accumulate, m->c.at, m->c.stride);                        \
    return matmul_##name(m->c.rows, m->c.cols, m->depth, m->a.at, m->a.stride, m->transpose_a, m->b.at, m->b.stride,       \
                         m->transpose_b, m->accumulate, m->c.at, m->c.stride);                                             \
  }
KERNEL(bf16)
KERNEL(f16)
#undef KERNEL
OP_KERNELS(op_matmul);

enum err op_matmul(struct dev_stream *s, const struct tensor *c, const struct tensor *a, bool transpose_a,
                   const struct tensor *b, bool transpose_b, bool accumulate)
{
  TRY(op_expect_real("a", a));
  const int64_t depth = transpose_a ? a->rows : a->cols;
  TRY(OP_EXPECT({"c", c, c->type == op_state_type(a->type) ? c->type : a->type, -1, -1},
                {"a", a, a->type, transpose_a ? depth : c->rows, transpose_a ? c->rows : depth},
                {"b", b, a->type, transpose_b ? c->cols : depth, transpose_b ? depth : c->cols}));
  const struct matmul_args args = {*c, *a, *b, depth, transpose_a, transpose_b, accumulate};
  return OP_SUBMIT(s, &op_matmul_kernels[a->type], args, {c, OP_WRITE}, {a, OP_READ}, {b, OP_READ});
}

const char *op_matmul_library(enum dev_kind kind)
{
  static char text[160];
#ifdef SHARDMARK_HAS_CUDA
  if (kind == DEV_CUDA) {
    matmul_cuda_library(text, sizeof text);
    return text;
  }
#else
  (void)kind; /* no device but the CPU */
#endif
  const dnnl_version_t *version = dnnl_version();
  snprintf(text, sizeof text, "oneDNN %d.%d.%d; bf16 %s; fp16 widened, multiplied as float32, rounded once", version->major, version->minor, version->patch,
           matmul_bf16_unit() ? "multiplied as bf16" : "widened, multiplied as float32, rounded once");
  return text;
}
