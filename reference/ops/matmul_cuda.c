/* matmul_cuda.c - matrix products by cuBLASLt.
 *
 * The library's matrices have columns one after another, ours rows: its c^T = op(b)^T op(a)^T is our c, with operands
 * swapped and nothing moved.  2 M N K FLOPs.
 *
 * Which of its kernels runs is asked once for each shape and kept, so that a shape has one order of sums: of this
 * stream's workspace, without reductions in the output's place (they meet in the order in which blocks end).  A
 * product also knows how its operands are aligned, since the library chooses by that.
 */
#include "ops/matmul_cuda.h"

#include "ops/matmul_args.h"

#include <cublasLt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LT_ERR(call) lt_check((call), #call, __FILE__, __LINE__)
#define LT_TRY(call) TRY(LT_ERR(call))
#define LT_TRY_TO(label, call) TRY_TO(label, LT_ERR(call))

static enum err lt_check(cublasStatus_t status, const char *call, const char *file, int line)
{
  if (status == CUBLAS_STATUS_SUCCESS) return ERR_OK;
  const enum err code = status == CUBLAS_STATUS_ALLOC_FAILED    ? ERR_MEMORY
                        : status == CUBLAS_STATUS_NOT_SUPPORTED ? ERR_UNAVAILABLE
                                                                : ERR_DEVICE;
  FAIL(code, "%s: %s (%s:%d)", call, cublasLtGetStatusString(status), file, line);
}

/* What the choice of a kernel may depend on. */
struct shape {
  int64_t M, N, K, a_stride, b_stride, c_stride;
  int64_t a_align, b_align, c_align; /* the largest power of two up to 256 that divides the address */
  int32_t type, c_type, transpose_a, transpose_b, accumulate, bias;
};

struct plan {
  struct shape shape;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algorithm;
};

/* Of one stream. */
struct products {
  cublasLtHandle_t library;
  struct plan *plans;
  int n, room;
};

static void plan_release(struct plan *p)
{
  if (p->product != NULL) cublasLtMatmulDescDestroy(p->product);
  if (p->a != NULL) cublasLtMatrixLayoutDestroy(p->a);
  if (p->b != NULL) cublasLtMatrixLayoutDestroy(p->b);
  if (p->c != NULL) cublasLtMatrixLayoutDestroy(p->c);
}

static void products_destroy(void *kept)
{
  struct products *all = kept;
  for (int i = 0; i < all->n; i++) plan_release(&all->plans[i]);
  free(all->plans);
  cublasLtDestroy(all->library);
  free(all);
}

static enum err products_of(const struct dev_cuda *at, struct products **out)
{
  struct dev_cuda_kept *kept = at->products;
  if (kept->at == NULL) {
    struct products *all = calloc(1, sizeof *all);
    if (all == NULL) FAIL(ERR_MEMORY, "products: %zu bytes", sizeof *all);
    const enum err err = LT_ERR(cublasLtCreate(&all->library));
    if (err != ERR_OK) {
      free(all);
      return err;
    }
    *kept = (struct dev_cuda_kept){all, products_destroy};
  }
  *out = kept->at;
  return ERR_OK;
}

static cudaDataType lt_type(enum dtype type)
{
  return type == DTYPE_F64 ? CUDA_R_64F : type == DTYPE_F32 ? CUDA_R_32F : type == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static enum err plan_describe(struct plan *p, bool tf32)
{
  const struct shape *s = &p->shape;
  const bool wide = s->type == DTYPE_F64;
  const cublasComputeType_t compute = wide                           ? CUBLAS_COMPUTE_64F
                                      : tf32 && s->type == DTYPE_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                     : CUBLAS_COMPUTE_32F;
  const cublasOperation_t op_b = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                          op_a = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  LT_TRY(cublasLtMatmulDescCreate(&p->product, compute, wide ? CUDA_R_64F : CUDA_R_32F));
  LT_TRY(cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSA, &op_b, sizeof op_b));
  LT_TRY(cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSB, &op_a, sizeof op_a));
  if (s->bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    LT_TRY(cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
  }
  LT_TRY(cublasLtMatrixLayoutCreate(&p->b, lt_type((enum dtype)s->type), (uint64_t)(s->transpose_b ? s->K : s->N),
                                    (uint64_t)(s->transpose_b ? s->N : s->K), s->b_stride));
  LT_TRY(cublasLtMatrixLayoutCreate(&p->a, lt_type((enum dtype)s->type), (uint64_t)(s->transpose_a ? s->M : s->K),
                                    (uint64_t)(s->transpose_a ? s->K : s->M), s->a_stride));
  return LT_ERR(
      cublasLtMatrixLayoutCreate(&p->c, lt_type((enum dtype)s->c_type), (uint64_t)s->N, (uint64_t)s->M, s->c_stride));
}

static enum err plan_choose(struct plan *p, const struct dev_cuda *at, cublasLtHandle_t library)
{
  enum err err;
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const uint64_t workspace = at->workspace_bytes;
  const struct {
    cublasLtMatmulPreferenceAttributes_t name;
    uint32_t bytes;
  } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)p->shape.b_align},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)p->shape.a_align},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)p->shape.c_align},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)p->shape.c_align}};
  cublasLtMatmulPreference_t wish;
  cublasLtMatmulHeuristicResult_t found;
  int n = 0;
  LT_TRY(cublasLtMatmulPreferenceCreate(&wish));
  LT_TRY_TO(done, cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                       sizeof workspace));
  LT_TRY_TO(done, cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                                       sizeof reductions));
  for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
    LT_TRY_TO(done, cublasLtMatmulPreferenceSetAttribute(wish, alignments[i].name, &alignments[i].bytes,
                                                         sizeof alignments[i].bytes));
  err = LT_ERR(cublasLtMatmulAlgoGetHeuristic(library, p->product, p->b, p->a, p->c, p->c, wish, 1, &found, &n));
  if (err != ERR_OK || n == 0 || found.state != CUBLAS_STATUS_SUCCESS)
    FAIL_TO(done, ERR_UNAVAILABLE, "cuBLASLt has no kernel for %s [%" PRId64 ", %" PRId64 ", %" PRId64 "] to %s%s: %s",
            dtype_name((enum dtype)p->shape.type), p->shape.M, p->shape.N, p->shape.K,
            dtype_name((enum dtype)p->shape.c_type), p->shape.bias ? " with a bias" : "",
            err != ERR_OK ? err_text() : "none fits the workspace and the alignment");
  p->algorithm = found.algo;
done:
  cublasLtMatmulPreferenceDestroy(wish);
  return err;
}

static enum err plan_of(const struct dev_cuda *at, struct products *all, const struct shape *shape,
                        const struct plan **out)
{
  enum err err;
  for (int i = 0; i < all->n; i++)
    if (memcmp(&all->plans[i].shape, shape, sizeof *shape) == 0) {
      *out = &all->plans[i];
      return ERR_OK;
    }
  if (all->n == all->room) {
    const int room = 2 * all->room + 16;
    struct plan *plans = realloc(all->plans, (size_t)room * sizeof *plans);
    if (plans == NULL) FAIL(ERR_MEMORY, "products: %d plans", room);
    all->plans = plans;
    all->room = room;
  }
  struct plan *p = &all->plans[all->n];
  memset(p, 0, sizeof *p);
  p->shape = *shape;
  TRY_TO(release, plan_describe(p, at->tf32));
  TRY_TO(release, plan_choose(p, at, all->library));
  all->n++;
  *out = p;
  return ERR_OK;

release:
  plan_release(p);
  return err;
}

static int64_t alignment(const void *at)
{
  int64_t bytes = 256;
  while ((uintptr_t)at % (uintptr_t)bytes != 0) bytes /= 2;
  return bytes;
}

enum err matmul_cuda(const struct dev_cuda *at, const struct tensor *c, const struct tensor *a, bool transpose_a,
                     const struct tensor *b, bool transpose_b, bool accumulate, const void *bias)
{
  struct shape s;
  memset(&s, 0, sizeof s); /* compared as bytes */
  s.M = c->rows, s.N = c->cols, s.K = transpose_a ? a->rows : a->cols;
  s.a_stride = a->stride, s.b_stride = b->stride, s.c_stride = c->stride;
  s.a_align = alignment(a->at), s.b_align = alignment(b->at), s.c_align = alignment(c->at);
  s.type = a->type, s.c_type = c->type;
  s.transpose_a = transpose_a, s.transpose_b = transpose_b, s.accumulate = accumulate, s.bias = bias != NULL;
  if (s.M == 0 || s.N == 0 || (s.K == 0 && accumulate)) return ERR_OK;
  if (s.K == 0) {
    const size_t size = dtype_bytes(c->type);
    return CUDA_ERR(cudaMemset2DAsync(c->at, (size_t)c->stride * size, 0, (size_t)s.N * size, (size_t)s.M,
                                      (cudaStream_t)at->stream));
  }

  struct products *all = NULL;
  const struct plan *p = NULL;
  TRY(products_of(at, &all));
  TRY(plan_of(at, all, &s, &p));
  if (bias != NULL)
    LT_TRY(cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
  const double one_f64 = 1, keep_f64 = accumulate ? 1 : 0;
  const float one_f32 = 1, keep_f32 = accumulate ? 1 : 0;
  const bool wide = a->type == DTYPE_F64;
  return LT_ERR(cublasLtMatmul(all->library, p->product, wide ? (const void *)&one_f64 : &one_f32, b->at, p->b, a->at,
                               p->a, wide ? (const void *)&keep_f64 : &keep_f32, c->at, p->c, c->at, p->c,
                               &p->algorithm, at->workspace, at->workspace_bytes, (cudaStream_t)at->stream));
}

static enum err matmul_run(const struct dev_cuda *at, const void *args)
{
  const struct matmul_args *m = args;
  return matmul_cuda(at, &m->c, &m->a, m->transpose_a, &m->b, m->transpose_b, m->accumulate, NULL);
}
enum err op_matmul_cuda_f64(const struct dev_cuda *at, void *args);
enum err op_matmul_cuda_f32(const struct dev_cuda *at, void *args);
enum err op_matmul_cuda_bf16(const struct dev_cuda *at, void *args);
enum err op_matmul_cuda_f16(const struct dev_cuda *at, void *args);
enum err op_matmul_cuda_f64(const struct dev_cuda *at, void *args) { return matmul_run(at, args); }
enum err op_matmul_cuda_f32(const struct dev_cuda *at, void *args) { return matmul_run(at, args); }
enum err op_matmul_cuda_bf16(const struct dev_cuda *at, void *args) { return matmul_run(at, args); }
enum err op_matmul_cuda_f16(const struct dev_cuda *at, void *args) { return matmul_run(at, args); }

void matmul_cuda_library(char *text, size_t bytes)
{
  const size_t version = cublasLtGetVersion();
  snprintf(text, bytes, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}
