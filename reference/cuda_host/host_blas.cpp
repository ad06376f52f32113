/* host_blas.cpp - cuBLASLt's matrix product.  Operands are packed into rows of the type that sums
 * have; then each sum runs over k in order, or, where reductions in place are allowed, in either. */
#include "host_internal.h"

#include "cublasLt.h"
#include "cuda_fp16.h"

#include <algorithm>

struct cublasLtContext {
  int device;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t op_a, op_b;
  cublasLtEpilogue_t epilogue;
  const void *bias;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace;
  uint32_t reductions, align[4]; /* A B C D */
};

typedef cublasLtMatrixLayoutOpaque_t layout;

static size_t bytes_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

/* --- bookkeeping -------------------------------------------------------------------- */

size_t cublasLtGetVersion(void) { return 130000; }

const char *cublasLtGetStatusString(cublasStatus_t status)
{
  switch (status) {
  case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
  case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
  int device;
  if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext{device};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType scale)
{
  *desc = new cublasLtMatmulDescOpaque_t{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}

template <class T> static cublasStatus_t assign(T *to, const void *value, size_t bytes)
{
  if (bytes != sizeof *to || value == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name, const void *value,
                                              size_t bytes)
{
  switch (name) {
  case CUBLASLT_MATMUL_DESC_TRANSA: return assign(&desc->op_a, value, bytes);
  case CUBLASLT_MATMUL_DESC_TRANSB: return assign(&desc->op_b, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE: return assign(&desc->epilogue, value, bytes);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return assign(&desc->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
  *out = new layout{type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
  delete l;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *wish)
{
  *wish = new cublasLtMatmulPreferenceOpaque_t{0, 7, {256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t wish)
{
  delete wish;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wish, cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *value, size_t bytes)
{
  switch (name) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return assign(&wish->workspace, value, bytes);
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return assign(&wish->reductions, value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return assign(&wish->align[0], value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return assign(&wish->align[1], value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return assign(&wish->align[2], value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return assign(&wish->align[3], value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

/* --- which products there are ---------------------------------------------------------- */

static bool fits(const layout *l) { return l->ld >= 0 && (uint64_t)l->ld >= l->rows && l->rows > 0 && l->cols > 0; }

static cublasStatus_t check(const cublasLtMatmulDescOpaque_t *p, const layout *a, const layout *b, const layout *c, const layout *d)
{
  if (p == NULL || a == NULL || b == NULL || c == NULL || d == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  const uint64_t m = p->op_a == CUBLAS_OP_N ? a->rows : a->cols, k = p->op_a == CUBLAS_OP_N ? a->cols : a->rows;
  const uint64_t k_b = p->op_b == CUBLAS_OP_N ? b->rows : b->cols, n = p->op_b == CUBLAS_OP_N ? b->cols : b->rows;
  if (!fits(a) || !fits(b) || !fits(c) || !fits(d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (k != k_b || c->rows != m || c->cols != n || d->rows != m || d->cols != n) return CUBLAS_STATUS_INVALID_VALUE;
  if (a->type != b->type || c->type != d->type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT && p->epilogue != CUBLASLT_EPILOGUE_BIAS) return CUBLAS_STATUS_NOT_SUPPORTED;
  bool known = false;
  switch (p->compute) {
  case CUBLAS_COMPUTE_64F: known = p->scale == CUDA_R_64F && a->type == CUDA_R_64F && d->type == CUDA_R_64F; break;
  case CUBLAS_COMPUTE_32F:
    known = p->scale == CUDA_R_32F && ((a->type == CUDA_R_32F && d->type == CUDA_R_32F) ||
                                       (a->type == CUDA_R_16BF && (d->type == CUDA_R_16BF || d->type == CUDA_R_32F)) ||
                                       (a->type == CUDA_R_16F && (d->type == CUDA_R_16F || d->type == CUDA_R_32F)));
    break;
  case CUBLAS_COMPUTE_32F_FAST_TF32: known = p->scale == CUDA_R_32F && a->type == CUDA_R_32F && d->type == CUDA_R_32F; break;
  }
  return known ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* An algorithm: what it was chosen for. */
struct algorithm {
  uint64_t mark, m, n, k, workspace;
  uint32_t align[4], reductions;
};
static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "fits");
static const uint64_t MARK = 0x686f7374626c6173u;

static algorithm algorithm_for(const cublasLtMatmulDescOpaque_t *p, const layout *a, const layout *d)
{
  algorithm x = {MARK, d->rows, d->cols, p->op_a == CUBLAS_OP_N ? a->cols : a->rows, 0, {256, 256, 256, 256}, 0};
  return x;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int most, cublasLtMatmulHeuristicResult_t results[],
                                              int *found)
{
  *found = 0;
  if (handle == NULL || wish == NULL || most < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t status = check(desc, a, b, c, d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  algorithm x = algorithm_for(desc, a, d);
  x.workspace = wish->workspace;
  x.reductions = wish->reductions;
  memcpy(x.align, wish->align, sizeof x.align);
  results[0] = {};
  memcpy(&results[0].algo, &x, sizeof x);
  results[0].workspaceSize = x.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

/* --- arithmetic --------------------------------------------------------------------------- */

static float widen(uint16_t bits) { return cuda_host_bits<float>((uint32_t)bits << 16); }
static uint16_t narrow(float x)
{
  const uint32_t u = cuda_host_bits<uint32_t>(x);
  return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fff : (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
/* 10 bits of fraction, to nearest, ties away from zero. */
static float tf32(float x)
{
  const uint32_t u = cuda_host_bits<uint32_t>(x);
  return (u & 0x7f800000u) == 0x7f800000u ? x : cuda_host_bits<float>((u + 0x1000u) & ~0x1fffu);
}

template <class S> static S load(const void *at, cudaDataType type, size_t i)
{
  if (type == CUDA_R_64F) return static_cast<S>(static_cast<const double *>(at)[i]);
  if (type == CUDA_R_32F) return static_cast<S>(static_cast<const float *>(at)[i]);
  const uint16_t bits = static_cast<const uint16_t *>(at)[i];
  return static_cast<S>(type == CUDA_R_16F ? cuda_host_half_value(bits) : widen(bits));
}
template <class S> static void store(void *at, cudaDataType type, size_t i, S x)
{
  if (type == CUDA_R_64F) static_cast<double *>(at)[i] = static_cast<double>(x);
  else if (type == CUDA_R_32F) static_cast<float *>(at)[i] = static_cast<float>(x);
  else if (type == CUDA_R_16F) static_cast<uint16_t *>(at)[i] = cuda_host_half_bits(static_cast<float>(x));
  else static_cast<uint16_t *>(at)[i] = narrow(static_cast<float>(x));
}

enum { TILE = 64 };

/* to[j] = sum over k of a[k] b[k * stride + j], j < TILE.  Nothing here is fused: every width of
 * vectors gives the same bits. */
template <class S> static inline __attribute__((always_inline)) void tile_sums(S *to, const S *a, const S *b, size_t stride, size_t K)
{
  S sum[TILE];
  for (int j = 0; j < TILE; j++) sum[j] = 0;
  for (size_t k = 0; k < K; k++)
    for (int j = 0; j < TILE; j++) sum[j] += a[k] * b[k * stride + j];
  for (int j = 0; j < TILE; j++) to[j] = sum[j];
}
#define TILE_SUMS(name, S, attributes) \
  attributes static void name(S *to, const S *a, const S *b, size_t stride, size_t K) { tile_sums(to, a, b, stride, K); }
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))
TILE_SUMS(tile_f32, float, UNCHECKED)
TILE_SUMS(tile_f64, double, UNCHECKED)
#ifdef __x86_64__
TILE_SUMS(tile_f32_wide, float, UNCHECKED __attribute__((target("avx512f,prefer-vector-width=512"))))
TILE_SUMS(tile_f64_wide, double, UNCHECKED __attribute__((target("avx512f,prefer-vector-width=512"))))
static bool wide(void) { return __builtin_cpu_supports("avx512f"); }
#else
#define tile_f32_wide tile_f32
#define tile_f64_wide tile_f64
static bool wide(void) { return false; }
#endif

static void tile(float *to, const float *a, const float *b, size_t stride, size_t K)
{
  static const auto f = wide() ? tile_f32_wide : tile_f32;
  f(to, a, b, stride, K);
}
static void tile(double *to, const double *a, const double *b, size_t stride, size_t K)
{
  static const auto f = wide() ? tile_f64_wide : tile_f64;
  f(to, a, b, stride, K);
}

struct product {
  cublasLtMatmulDescOpaque_t desc;
  layout a, b, c, d;
  const void *A, *B, *C;
  void *D, *workspace;
  size_t workspace_bytes;
  double alpha, beta; /* exact: they were float or double */
  bool backwards;     /* the terms of each sum */
};

static bool there(const void *at, const layout &l) { return host_memory_holds(at, bytes_of(l.type) * ((size_t)l.ld * (l.cols - 1) + l.rows)); }

template <class S> static void multiply(const product &p)
{
  const size_t M = p.d.rows, N = p.d.cols, K = p.desc.op_a == CUBLAS_OP_N ? p.a.cols : p.a.rows;
  const size_t columns = (M + TILE - 1) / TILE * TILE; /* D's column j is our row j: a row of M sums */
  std::vector<S> a(K * columns), b(N * K), sums(columns);
  const bool cut = p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const auto nth = [&](size_t k) { return p.backwards ? K - 1 - k : k; };
  for (size_t k = 0; k < K; k++)
    for (size_t m = 0; m < M; m++) {
      const S x = load<S>(p.A, p.a.type, p.desc.op_a == CUBLAS_OP_N ? m + k * (size_t)p.a.ld : k + m * (size_t)p.a.ld);
      a[nth(k) * columns + m] = cut ? static_cast<S>(tf32(static_cast<float>(x))) : x;
    }
  for (size_t n = 0; n < N; n++)
    for (size_t k = 0; k < K; k++) {
      const S x = load<S>(p.B, p.b.type, p.desc.op_b == CUBLAS_OP_N ? k + n * (size_t)p.b.ld : n + k * (size_t)p.b.ld);
      b[n * K + nth(k)] = cut ? static_cast<S>(tf32(static_cast<float>(x))) : x;
    }
  const S alpha = static_cast<S>(p.alpha), beta = static_cast<S>(p.beta);
  for (size_t n = 0; n < N; n++) {
    for (size_t m = 0; m < columns; m += TILE) tile(&sums[m], &b[n * K], &a[m], columns, K);
    for (size_t m = 0; m < M; m++) {
      S x = alpha * sums[m];
      if (beta != 0) x += beta * load<S>(p.C, p.c.type, m + n * (size_t)p.c.ld); /* else C is not read */
      if (p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS) x += load<S>(p.desc.bias, p.d.type, m);
      store(p.D, p.d.type, m + n * (size_t)p.d.ld, x);
    }
  }
}

/* Its ends, at least: all of it would take longer than most products. */
static void use_workspace(const product &p, int byte)
{
  const size_t n = std::min(p.workspace_bytes, (size_t)2048);
  if (n == 0) return;
  memset(p.workspace, byte, n);
  memset(static_cast<char *>(p.workspace) + p.workspace_bytes - n, byte, n);
}

static cudaError_t run(const product &p)
{
  const bool bias = p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (!there(p.A, p.a) || !there(p.B, p.b) || !there(p.D, p.d) || (p.beta != 0 && !there(p.C, p.c)) ||
      (bias && !host_memory_holds(p.desc.bias, bytes_of(p.d.type) * p.d.rows)) ||
      (p.workspace_bytes > 0 && !host_memory_holds(p.workspace, p.workspace_bytes))) {
    host_fail(cudaErrorIllegalAddress, "cublasLtMatmul: a matrix, the bias or the workspace is not in one block of device memory");
    return cudaErrorIllegalAddress;
  }
  use_workspace(p, 0xFF);
  if (p.desc.compute == CUBLAS_COMPUTE_64F) multiply<double>(p);
  else multiply<float>(p);
  use_workspace(p, 0xFE);
  return cudaSuccess;
}

static bool aligned(const void *at, uint32_t bytes) { return reinterpret_cast<uintptr_t>(at) % bytes == 0; }

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
                              cublasLtMatrixLayout_t a, const void *B, cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t handle_of_stream)
{
  const cublasStatus_t status = check(desc, a, b, c, d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (handle == NULL || alpha == NULL || beta == NULL) return CUBLAS_STATUS_INVALID_VALUE;
  algorithm x = algorithm_for(desc, a, d); /* NULL: the library chooses for what it is given */
  const algorithm given = x;
  if (algo != NULL) memcpy(&x, algo, sizeof x);
  if (x.mark != MARK || x.m != given.m || x.n != given.n || x.k != given.k || x.workspace > workspace_bytes)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algo != NULL && (!aligned(A, x.align[0]) || !aligned(B, x.align[1]) || !aligned(C, x.align[2]) || !aligned(D, x.align[3])))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!aligned(A, (uint32_t)bytes_of(a->type)) || !aligned(B, (uint32_t)bytes_of(b->type)) || !aligned(D, (uint32_t)bytes_of(d->type)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (desc->epilogue == CUBLASLT_EPILOGUE_BIAS && desc->bias == NULL) return CUBLAS_STATUS_INVALID_VALUE;

  const bool doubles = desc->scale == CUDA_R_64F;
  product p = {*desc, *a, *b, *c, *d, A, B, C, D, workspace, x.workspace, 0, 0, false};
  p.alpha = doubles ? *static_cast<const double *>(alpha) : *static_cast<const float *>(alpha);
  p.beta = doubles ? *static_cast<const double *>(beta) : *static_cast<const float *>(beta);

  host_entry entry;
  auto stream = host_stream_of(handle_of_stream);
  if (stream == NULL || stream->device != handle->device) return CUBLAS_STATUS_INVALID_VALUE;
  if (host_state_get().sticky != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  p.backwards = (x.reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE) && host_random() % 2; /* blocks add as they end */
  host_work work;
  work.name = "cublasLtMatmul";
  work.start = [p] { return run(p); };
  host_stream_push(stream, std::move(work));
  return CUBLAS_STATUS_SUCCESS;
}
