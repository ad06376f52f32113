/* host_blas_test.c - cublasLtMatmul() against sums written out, and what it refuses. */
#include "testing/check.h"

#include <cublasLt.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_CUDA(call) CHECK((call) == cudaSuccess)
#define CHECK_LT(call) CHECK((call) == CUBLAS_STATUS_SUCCESS)
enum { ROOM = 100 * 100, WORKSPACE = 4096 };

static cublasLtHandle_t library;
static void *a_at, *b_at, *c_at, *bias_at, *workspace;

struct shape {
  uint64_t m, n, k;
  bool transpose_a, transpose_b;
  cudaDataType type, type_c;
  cublasComputeType_t compute;
  int64_t pad; /* of the leading dimensions */
  double alpha, beta;
  bool bias;
};

static size_t size_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }
/* Of numbers from 2^-14 on that half holds. */
static double half_value(uint16_t bits)
{
  const double size = ldexp(1024 + (bits & 0x3ff), (bits >> 10 & 31) - 25);
  return (bits & 0x7fff) == 0 ? 0 : bits & 0x8000 ? -size : size;
}
static uint16_t half_bits(double x)
{
  int exponent;
  const double fraction = frexp(fabs(x), &exponent); /* 1/2 .. 1 */
  const int sign = x < 0 ? 0x8000 : 0;
  return (uint16_t)(x == 0 ? 0 : isnan(x) ? 0x7e00 : sign | (exponent + 14) << 10 | ((int)(fraction * 2048) & 0x3ff));
}
static double get(const void *at, cudaDataType type, size_t i)
{
  if (type == CUDA_R_64F) return ((const double *)at)[i];
  if (type == CUDA_R_32F) return ((const float *)at)[i];
  if (type == CUDA_R_16F) return half_value(((const uint16_t *)at)[i]);
  const uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
static void put(void *at, cudaDataType type, size_t i, double x) /* x has few digits: exact in every type */
{
  const float f = (float)x;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  if (type == CUDA_R_64F) ((double *)at)[i] = x;
  else if (type == CUDA_R_32F) ((float *)at)[i] = f;
  else if (type == CUDA_R_16F) ((uint16_t *)at)[i] = half_bits(x);
  else ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
}
static double number(size_t i, int of) { return (double)((i * 7 + (size_t)of * 5) % 15) / 4 - 1.75; }

static cublasLtMatrixLayout_t layout(cudaDataType type, uint64_t rows, uint64_t cols, bool turned, int64_t pad)
{
  cublasLtMatrixLayout_t l = NULL;
  if (turned) CHECK_LT(cublasLtMatrixLayoutCreate(&l, type, cols, rows, (int64_t)cols + pad));
  else CHECK_LT(cublasLtMatrixLayoutCreate(&l, type, rows, cols, (int64_t)rows + pad));
  return l;
}

/* Asks for an algorithm and multiplies; `found`: how the asking went. */
static cublasStatus_t multiply(const struct shape *s, uint32_t align, const char *a, size_t workspace_given, cublasStatus_t *found)
{
  cublasLtMatmulDesc_t desc;
  cublasLtMatmulPreference_t wish;
  cublasLtMatmulHeuristicResult_t result;
  const bool wide = s->compute == CUBLAS_COMPUTE_64F;
  const cublasOperation_t op_a = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasLtEpilogue_t epilogue = s->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  const uint64_t room = WORKSPACE;
  int n = 0;
  CHECK_LT(cublasLtMatmulDescCreate(&desc, s->compute, wide ? CUDA_R_64F : CUDA_R_32F));
  CHECK_LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
  CHECK_LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
  CHECK_LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
  CHECK_LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias_at, sizeof bias_at));
  CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, 1) == CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatrixLayout_t la = layout(s->type, s->m, s->k, s->transpose_a, s->pad), lb = layout(s->type, s->k, s->n, s->transpose_b, s->pad),
                         lc = layout(s->type_c, s->m, s->n, false, s->pad);
  CHECK_LT(cublasLtMatmulPreferenceCreate(&wish));
  CHECK_LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room));
  CHECK_LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof align));
  *found = cublasLtMatmulAlgoGetHeuristic(library, desc, la, lb, lc, lc, wish, 1, &result, &n);
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (*found == CUBLAS_STATUS_SUCCESS) {
    CHECK(n == 1);
    const float alpha = (float)s->alpha, beta = (float)s->beta;
    status = cublasLtMatmul(library, desc, wide ? (const void *)&s->alpha : &alpha, a, la, b_at, lb, wide ? (const void *)&s->beta : &beta,
                            c_at, lc, c_at, lc, &result.algo, workspace, workspace_given, NULL);
  }
  CHECK_LT(cublasLtMatmulPreferenceDestroy(wish));
  CHECK_LT(cublasLtMatrixLayoutDestroy(la));
  CHECK_LT(cublasLtMatrixLayoutDestroy(lb));
  CHECK_LT(cublasLtMatrixLayoutDestroy(lc));
  CHECK_LT(cublasLtMatmulDescDestroy(desc));
  return status;
}

static void check_product(const struct shape *s)
{
  static double a[ROOM], b[ROOM], c[ROOM], bias[ROOM], got[ROOM];
  cublasStatus_t found;
  for (size_t i = 0; i < ROOM; i++) {
    put(a, s->type, i, number(i, 1));
    put(b, s->type, i, number(i, 2));
    put(c, s->type_c, i, s->beta == 0 ? NAN : number(i, 3)); /* with beta 0, c is not read */
    put(bias, s->type_c, i, number(i, 4));
  }
  CHECK_CUDA(cudaMemcpy(a_at, a, ROOM * size_of(s->type), cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(b_at, b, ROOM * size_of(s->type), cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(c_at, c, ROOM * size_of(s->type_c), cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(bias_at, bias, ROOM * size_of(s->type_c), cudaMemcpyHostToDevice));
  CHECK_LT(multiply(s, 256, a_at, WORKSPACE, &found));
  CHECK_CUDA(cudaMemcpy(got, c_at, ROOM * size_of(s->type_c), cudaMemcpyDeviceToHost));
  const size_t ld_a = (s->transpose_a ? s->k : s->m) + (size_t)s->pad, ld_b = (s->transpose_b ? s->n : s->k) + (size_t)s->pad,
               ld_c = s->m + (size_t)s->pad;
  int right = 0, untouched = 0;
  for (size_t j = 0; j < s->n; j++) {
    for (size_t i = 0; i < s->m; i++) {
      double sum = 0; /* every sum of these numbers is exact in float32 */
      for (size_t k = 0; k < s->k; k++)
        sum += get(a, s->type, s->transpose_a ? k + i * ld_a : i + k * ld_a) * get(b, s->type, s->transpose_b ? j + k * ld_b : k + j * ld_b);
      sum = s->alpha * sum + (s->beta == 0 ? 0 : s->beta * get(c, s->type_c, i + j * ld_c)) + (s->bias ? get(bias, s->type_c, i) : 0);
      const double x = get(got, s->type_c, i + j * ld_c);
      right += s->type_c == CUDA_R_16BF  ? fabs(x - sum) <= fabs(sum) / 256
               : s->type_c == CUDA_R_16F ? fabs(x - sum) <= fabs(sum) / 2048
                                         : x == sum;
    }
    for (size_t i = s->m; i < ld_c; i++) untouched += memcmp((char *)got + (i + j * ld_c) * size_of(s->type_c), (char *)c + (i + j * ld_c) * size_of(s->type_c), size_of(s->type_c)) == 0;
  }
  CHECK(right == (int)(s->m * s->n));
  CHECK(untouched == (int)(s->n * (uint64_t)s->pad));
}

static void products_of_every_type_and_turn(void)
{
  static const struct {
    cudaDataType type, type_c;
    cublasComputeType_t compute;
  } types[] = {{CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F}, {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F}, {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
               {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F}, {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
               {CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F}, {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F}};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (int turn = 0; turn < 4; turn++) {
      struct shape s = {5, 3, 7, turn & 1, turn & 2, types[t].type, types[t].type_c, types[t].compute, 2, 1, 0, turn == 1};
      check_product(&s);
      s = (struct shape){70, 40, 33, turn & 1, turn & 2, types[t].type, types[t].type_c, types[t].compute, 0, 0.5, 1, turn == 2};
      check_product(&s);
    }
}

static void tf32_drops_thirteen_bits(void)
{
  const struct shape s = {1, 1, 1, false, false, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 0, 1, 0, false};
  const float a[3] = {1 + 0x1p-10f, 1 + 0x1p-12f, 1 + 0x1p-11f}, one = 1, want[3] = {1 + 0x1p-10f, 1, 1 + 0x1p-10f};
  for (int i = 0; i < 3; i++) {
    float got;
    cublasStatus_t found;
    CHECK_CUDA(cudaMemcpy(a_at, &a[i], sizeof *a, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(b_at, &one, sizeof one, cudaMemcpyHostToDevice));
    CHECK_LT(multiply(&s, 256, a_at, WORKSPACE, &found));
    CHECK_CUDA(cudaMemcpy(&got, c_at, sizeof got, cudaMemcpyDeviceToHost));
    CHECK(got == want[i]);
  }
}

static void what_the_library_has_not_is_refused(void)
{
  struct shape s = {4, 4, 4, false, false, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_64F, 0, 1, 0, false};
  cublasStatus_t found;
  multiply(&s, 256, a_at, WORKSPACE, &found);
  CHECK(found == CUBLAS_STATUS_NOT_SUPPORTED);
  s = (struct shape){4, 4, 4, false, false, CUDA_R_16BF, CUDA_R_64F, CUBLAS_COMPUTE_32F, 0, 1, 0, false};
  multiply(&s, 256, a_at, WORKSPACE, &found);
  CHECK(found == CUBLAS_STATUS_NOT_SUPPORTED);
  s = (struct shape){4, 4, 4, false, false, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, -1, 1, 0, false};
  multiply(&s, 256, a_at, WORKSPACE, &found);
  CHECK(found == CUBLAS_STATUS_INVALID_VALUE); /* columns that overlap */
}

/* An algorithm is of the alignment and the workspace that it was chosen for. */
static void an_algorithm_wants_what_it_was_promised(void)
{
  const struct shape s = {4, 4, 4, false, false, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 0, 1, 0, false};
  unsigned char kept[WORKSPACE];
  cublasStatus_t found;
  CHECK_CUDA(cudaMemset(workspace, 0, WORKSPACE));
  CHECK(multiply(&s, 256, (char *)a_at + 16, WORKSPACE, &found) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK_LT(multiply(&s, 16, (char *)a_at + 16, WORKSPACE, &found));
  CHECK(multiply(&s, 256, a_at, WORKSPACE - 1, &found) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK_CUDA(cudaMemcpy(kept, workspace, WORKSPACE, cudaMemcpyDeviceToHost));
  CHECK(kept[0] != 0 && kept[WORKSPACE - 1] != 0); /* its contents are lost */
}

/* Unless it is told to, the library adds in no order of its own. */
static void reductions_in_place_have_no_order(void)
{
  const struct shape s = {1, 1, 64, false, false, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 0, 1, 0, false};
  float a[64], b[64], got;
  int large_first = 0, large_last = 0;
  cublasStatus_t found;
  for (int k = 0; k < 64; k++) {
    a[k] = k == 0 ? 1e8f : 1;
    b[k] = 1;
  }
  CHECK_CUDA(cudaMemcpy(a_at, a, sizeof a, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(b_at, b, sizeof b, cudaMemcpyHostToDevice));
  for (int i = 0; i < 64; i++) {
    CHECK_LT(multiply(&s, 256, a_at, WORKSPACE, &found));
    CHECK_CUDA(cudaMemcpy(&got, c_at, sizeof got, cudaMemcpyDeviceToHost));
    large_first += got == 1e8f;
    large_last += got == 100000064.0f;
  }
  CHECK(large_first > 0 && large_last > 0 && large_first + large_last == 64);
}

static void matrices_outside_of_their_block_are_an_error(void)
{
  const struct shape s = {100, 100, 100, false, false, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 0, 1, 0, false};
  cublasStatus_t found;
  CHECK_LT(multiply(&s, 8, (char *)a_at + 8, WORKSPACE, &found));
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK_CUDA(cudaDeviceReset());
}

int main(void)
{
  static const struct test tests[] = {
    TEST(products_of_every_type_and_turn),
    TEST(tf32_drops_thirteen_bits),
    TEST(what_the_library_has_not_is_refused),
    TEST(an_algorithm_wants_what_it_was_promised),
    TEST(reductions_in_place_have_no_order),
    TEST(matrices_outside_of_their_block_are_an_error), /* last: it takes the device with it */
  };
  if (cublasLtCreate(&library) || cudaMalloc(&a_at, ROOM * 8) || cudaMalloc(&b_at, ROOM * 8) || cudaMalloc(&c_at, ROOM * 8) ||
      cudaMalloc(&bias_at, ROOM * 8) || cudaMalloc(&workspace, WORKSPACE))
    return 1;
  const int status = test_main("host_blas", tests, sizeof tests / sizeof *tests);
  cublasLtDestroy(library);
  return status;
}
