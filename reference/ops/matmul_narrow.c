/* matmul_narrow.c - matrix products of bf16 and f16 with sums in float32, each result rounded once.
 *
 * Where the processor multiplies bf16, oneDNN's primitive does it, in parts that threads share out: one thread a part,
 * since several would cut the sums of some products between them.  Elsewhere, for f16, and for a product with one row or one
 * column, pieces are widened and multiplied as float32: products of two bf16 or two f16 are exact in float32, so that the two
 * ways differ by the order of sums only.
 *
 * This is the one file that sees oneDNN's primitives; what changed in them between 2 and 3 stands at the top.
 */
#include "ops/matmul.h"
#include "ops/narrow.h"
#include "ops/vector.h"

#include <inttypes.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

/* --- oneDNN 2 and 3 ------------------------------------------------------------------------------ */

/* oneDNN has several kernels for a product and takes the first that its strides allow.  On a processor with matrix tiles (AMX)
 * they add in different orders, so it is always this one: then bits depend on the numbers alone.  Of 256 x 768 x 768 it does
 * 1041 GFLOP/s on one core where the first does 1349, and the best one without tiles 109. */
static bool is_pinned(const char *kernel) { return strstr(kernel, "gemm:jit") != NULL; }

/* Operand x of a product: its elements' type, shape [rows, cols], and distance of neighbours along both. */
struct operand {
  dnnl_data_type_t type;
  int64_t rows, cols, row, col;
  void *at;
};

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t description;
static dnnl_status_t describe(const struct operand *x, description *out)
{
  const dnnl_dims_t shape = {x->rows, x->cols}, strides = {x->row, x->col};
  return dnnl_memory_desc_create_with_strides(out, 2, shape, x->type, strides);
}
static void forget(description *d) { dnnl_memory_desc_destroy(*d); }
static dnnl_status_t remember(const description *d, dnnl_engine_t engine, void *at, dnnl_memory_t *out)
{
  return dnnl_memory_create(out, *d, engine, at);
}
static dnnl_status_t add_to_old(dnnl_post_ops_t ops)
{
  return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}
static dnnl_status_t plan(const description d[3], dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                          dnnl_primitive_desc_t *out)
{
  dnnl_status_t status = dnnl_matmul_primitive_desc_create(out, engine, d[0], d[1], NULL, d[2], attr);
  const char *kernel = NULL;
  while (status == dnnl_success) {
    status = dnnl_primitive_desc_query(*out, dnnl_query_impl_info_str, 0, &kernel);
    if (status != dnnl_success || is_pinned(kernel)) break;
    status = dnnl_primitive_desc_next_impl(*out);
  }
  return status == dnnl_last_impl_reached ? dnnl_unimplemented : status;
}
#else
typedef dnnl_memory_desc_t description;
static dnnl_status_t describe(const struct operand *x, description *out)
{
  const dnnl_dims_t shape = {x->rows, x->cols}, strides = {x->row, x->col};
  return dnnl_memory_desc_init_by_strides(out, 2, shape, x->type, strides);
}
static void forget(description *d) { (void)d; }
static dnnl_status_t remember(const description *d, dnnl_engine_t engine, void *at, dnnl_memory_t *out)
{
  return dnnl_memory_create(out, d, engine, at);
}
static dnnl_status_t add_to_old(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1.0f); }
static dnnl_status_t plan(const description d[3], dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                          dnnl_primitive_desc_t *out)
{
  dnnl_matmul_desc_t operation;
  dnnl_primitive_desc_iterator_t all = NULL;
  dnnl_status_t status = dnnl_matmul_desc_init(&operation, &d[0], &d[1], NULL, &d[2]);
  if (status == dnnl_success) status = dnnl_primitive_desc_iterator_create(&all, &operation, attr, engine, NULL);
  const char *kernel = NULL;
  while (status == dnnl_success) {
    const dnnl_primitive_desc_t one = dnnl_primitive_desc_iterator_fetch(all);
    status = one ? dnnl_primitive_desc_query(one, dnnl_query_impl_info_str, 0, &kernel) : dnnl_out_of_memory;
    if (status == dnnl_success && is_pinned(kernel)) {
      *out = one;
      break;
    }
    if (one) dnnl_primitive_desc_destroy(one);
    if (status == dnnl_success) status = dnnl_primitive_desc_iterator_next(all);
  }
  if (all) dnnl_primitive_desc_iterator_destroy(all);
  return status == dnnl_iterator_ends ? dnnl_unimplemented : status;
}
#endif

bool matmul_bf16_unit(void)
{
  const unsigned has = (unsigned)dnnl_get_effective_cpu_isa(), needs = dnnl_cpu_isa_avx512_core_bf16;
  return (has & needs) == needs;
}

/* What one product needs from oneDNN, in the order of creation. */
struct product {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_post_ops_t post;
  dnnl_primitive_attr_t attr;
  description desc[3];
  int described, remembered;
  dnnl_primitive_desc_t plan;
  dnnl_primitive_t primitive;
  dnnl_memory_t memory[3];
};

#define STEP(call)                               \
  do {                                           \
    const dnnl_status_t status_ = (call);        \
    if (status_ != dnnl_success) return status_; \
  } while (0)

static dnnl_status_t run(struct product *p, const struct operand x[3], bool accumulate)
{
  static const int role[3] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  dnnl_exec_arg_t args[3];
  STEP(dnnl_engine_create(&p->engine, dnnl_cpu, 0));
  STEP(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags));
  STEP(dnnl_primitive_attr_create(&p->attr));
  if (accumulate) {
    STEP(dnnl_post_ops_create(&p->post));
    STEP(add_to_old(p->post));
    STEP(dnnl_primitive_attr_set_post_ops(p->attr, p->post));
  }
  for (; p->described < 3; p->described++) STEP(describe(&x[p->described], &p->desc[p->described]));
  STEP(plan(p->desc, p->attr, p->engine, &p->plan));
  STEP(dnnl_primitive_create(&p->primitive, p->plan));
  for (; p->remembered < 3; p->remembered++) {
    const int i = p->remembered;
    STEP(remember(&p->desc[i], p->engine, x[i].at, &p->memory[i]));
    args[i] = (dnnl_exec_arg_t){role[i], p->memory[i]};
  }
  STEP(dnnl_primitive_execute(p->primitive, p->stream, 3, args));
  return dnnl_stream_wait(p->stream);
}

static void release(struct product *p)
{
  for (int i = 0; i < p->remembered; i++) dnnl_memory_destroy(p->memory[i]);
  if (p->primitive) dnnl_primitive_destroy(p->primitive);
  if (p->plan) dnnl_primitive_desc_destroy(p->plan);
  for (int i = 0; i < p->described; i++) forget(&p->desc[i]);
  if (p->post) dnnl_post_ops_destroy(p->post);
  if (p->attr) dnnl_primitive_attr_destroy(p->attr);
  if (p->stream) dnnl_stream_destroy(p->stream);
  if (p->engine) dnnl_engine_destroy(p->engine);
}

enum { PART = 256 }; /* rows, or columns where c has more of those */

/* Part i of c, and of what it is made of. */
static dnnl_status_t multiply_part(const struct operand x[3], bool by_rows, int64_t i, bool accumulate)
{
  struct operand part[3] = {x[0], x[1], x[2]};
  const int64_t total = by_rows ? x[2].rows : x[2].cols, first = i * PART;
  const int64_t count = total - first < PART ? total - first : PART;
  struct operand *const cut[2] = {&part[by_rows ? 0 : 1], &part[2]};
  for (int k = 0; k < 2; k++) {
    const size_t element = cut[k]->type == dnnl_f32 ? 4 : 2;
    cut[k]->at = (char *)cut[k]->at + (size_t)(first * (by_rows ? cut[k]->row : cut[k]->col)) * element;
    *(by_rows ? &cut[k]->rows : &cut[k]->cols) = count;
  }
  struct product p = {0};
  const dnnl_status_t status = run(&p, part, accumulate);
  release(&p);
  return status;
}

static dnnl_status_t multiply(const struct operand x[3], bool accumulate)
{
  const bool by_rows = x[2].rows >= x[2].cols;
  const int64_t parts = ((by_rows ? x[2].rows : x[2].cols) + PART - 1) / PART;
  dnnl_status_t worst = dnnl_success;
#pragma omp parallel for schedule(static) if (omp_get_max_threads() > 1)
  for (int64_t i = 0; i < parts; i++) {
    omp_set_num_threads(1); /* of this task: oneDNN plans for as many as may be, also inside of a region */
    const dnnl_status_t status = multiply_part(x, by_rows, i, accumulate);
    if (status != dnnl_success) {
#pragma omp critical(matmul_bf16)
      worst = status;
    }
  }
  return worst;
}

/* --- pieces in float32 --------------------------------------------------------------------------- */

enum { EDGE = 512, DEPTH = 2048 }; /* of a piece of c, and of the products in between: bounds the room */

static void widen_rows(float *wide, const uint16_t *x, enum dtype type, int64_t stride, int64_t rows, int64_t cols)
{
  for (int64_t r = 0; r < rows; r++) narrow_widen(wide + r * cols, x + r * stride, type, cols);
}

struct matrix {
  const uint16_t *at;
  enum dtype type; /* narrow */
  int64_t stride;
  bool transposed;
};

/* Rows [r, r + rows) and columns [c, c + cols) of op(x), as it lies in memory, transposed or not. */
static void widen_part(float *wide, const struct matrix *x, int64_t r, int64_t rows, int64_t c, int64_t cols)
{
  if (x->transposed)
    widen_rows(wide, x->at + c * x->stride + r, x->type, x->stride, cols, rows);
  else
    widen_rows(wide, x->at + r * x->stride + c, x->type, x->stride, rows, cols);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* One piece of c, `sum`, in float32: += op(a) op(b) over all of K. */
static enum err multiply_piece(int64_t m, int64_t rows, int64_t n, int64_t cols, int64_t K, const struct matrix *a,
                               const struct matrix *b, bool accumulate, float *room, float *sum, int64_t sum_stride)
{
  for (int64_t k = 0; k < K || k == 0; k += DEPTH) {
    const int64_t depth = least(DEPTH, K - k);
    float *left = room, *right = room + rows * depth;
    widen_part(left, a, m, rows, k, depth);
    widen_part(right, b, k, depth, n, cols);
    TRY(matmul_f32(rows, cols, depth, left, a->transposed ? rows : depth, a->transposed, right,
                   b->transposed ? depth : cols, b->transposed, accumulate || k > 0, sum, sum_stride));
  }
  return ERR_OK;
}

static enum err multiply_wide(int64_t M, int64_t N, int64_t K, const struct matrix *a, const struct matrix *b,
                              bool accumulate, void *c, int64_t c_stride, enum dtype type)
{
  const int64_t rows_max = least(M, EDGE), cols_max = least(N, EDGE), depth_max = least(K, DEPTH);
  const size_t elements = (size_t)((rows_max + cols_max) * depth_max + rows_max * cols_max + 1);
  float *room = malloc(elements * sizeof *room), *own = room + (rows_max + cols_max) * depth_max;
  if (room == NULL) FAIL(ERR_MEMORY, "a product in pieces: %zu bytes", elements * sizeof *room);
  enum err err = ERR_OK;
  for (int64_t m = 0; m < M && !err; m += EDGE)
    for (int64_t n = 0; n < N && !err; n += EDGE) {
      const int64_t rows = least(EDGE, M - m), cols = least(EDGE, N - n);
      if (type == DTYPE_F32) {
        err = multiply_piece(m, rows, n, cols, K, a, b, accumulate, room, (float *)c + m * c_stride + n, c_stride);
        continue;
      }
      uint16_t *at = (uint16_t *)c + m * c_stride + n;
      if (accumulate) widen_rows(own, at, type, c_stride, rows, cols);
      err = multiply_piece(m, rows, n, cols, K, a, b, accumulate, room, own, cols);
      for (int64_t r = 0; r < rows && !err; r++) narrow_round(at + r * c_stride, own + r * cols, type, cols);
    }
  free(room);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

/* --- both ---------------------------------------------------------------------------------------- */

static enum err matmul_any(int64_t M, int64_t N, int64_t K, const struct matrix *a, const struct matrix *b,
                           bool accumulate, void *c, int64_t c_stride, enum dtype type)
{
  if (M <= 1 || N <= 1 || K < 1 || a->type == DTYPE_F16 || !matmul_bf16_unit())
    return multiply_wide(M, N, K, a, b, accumulate, c, c_stride, type);
  TRY(matmul_expect_team());
  const struct operand x[3] = {
      {dnnl_bf16, M, K, a->transposed ? 1 : a->stride, a->transposed ? a->stride : 1, (void *)(uintptr_t)a->at},
      {dnnl_bf16, K, N, b->transposed ? 1 : b->stride, b->transposed ? b->stride : 1, (void *)(uintptr_t)b->at},
      {type == DTYPE_F32 ? dnnl_f32 : dnnl_bf16, M, N, c_stride, 1, c}};
  const dnnl_status_t status = multiply(x, accumulate);
  if (status != dnnl_success)
    FAIL(ERR_DEVICE, "oneDNN status %d for a bfloat16 product [%" PRId64 ", %" PRId64 ", %" PRId64 "]", (int)status, M,
         N, K);
  return ERR_OK;
}

#define PRODUCTS(name, TYPE)                                                                                             \
  enum err matmul_##name(int64_t M, int64_t N, int64_t K, const uint16_t *a, int64_t a_stride, bool transpose_a,           \
                         const uint16_t *b, int64_t b_stride, bool transpose_b, bool accumulate, uint16_t *c,              \
                         int64_t c_stride)                                                                                 \
  {                                                                                                                        \
    const struct matrix left = {a, TYPE, a_stride, transpose_a}, right = {b, TYPE, b_stride, transpose_b};                 \
    return matmul_any(M, N, K, &left, &right, accumulate, c, c_stride, TYPE);                                              \
  }                                                                                                                        \
  enum err matmul_state_##name(int64_t M, int64_t N, int64_t K, const uint16_t *a, int64_t a_stride, bool transpose_a,     \
                               const uint16_t *b, int64_t b_stride, bool transpose_b, bool accumulate, float *c,           \
                               int64_t c_stride)                                                                           \
  {                                                                                                                        \
    const struct matrix left = {a, TYPE, a_stride, transpose_a}, right = {b, TYPE, b_stride, transpose_b};                 \
    return matmul_any(M, N, K, &left, &right, accumulate, c, c_stride, DTYPE_F32);                                         \
  }
PRODUCTS(bf16, DTYPE_BF16)
PRODUCTS(f16, DTYPE_F16)
