/* matmul_cpu.h - the blocked product of matmul.c for one element type.
 *
 * Each element of c adds its K terms one after another in index order, so neither the
 * blocks nor the threads (which share out rows) change a bit.  A tile of MR x NR sums
 * stays in registers over a block of KC terms; op(b) is packed once per block into panels
 * of NR columns, op(a) per tile, so that all strides and transposes cost a copy only.
 */

enum {
  OP(MR) = 4,
  OP(VECTOR) = 64 / sizeof(REAL),
  OP(NR) = 2 * OP(VECTOR),
  OP(KC) = 128,
  OP(NC) = 1024 / sizeof(REAL)
};
typedef REAL OP(vector) __attribute__((vector_size(64), aligned(sizeof(REAL)), may_alias));

/* Element (i, j) of op(x) stands at at[i * row + j * col]. */
struct OP(operand) {
  const REAL *at;
  int64_t row, col;
};

/* c [rows, cols] += the product of the packed panels; rows <= MR, cols <= NR. */
static inline __attribute__((always_inline)) void OP(tile)(REAL *c, int64_t c_stride, int64_t rows, int64_t cols,
                                                           const REAL *a, const REAL *b, int64_t K)
{
  REAL whole[OP(MR)][OP(NR)] = {{0}};
  for (int64_t i = 0; i < rows; i++) memcpy(whole[i], c + i * c_stride, (size_t)cols * sizeof(REAL));
  OP(vector) sum[OP(MR)][2];
  memcpy(sum, whole, sizeof sum);
  for (int64_t k = 0; k < K; k++) {
    const OP(vector) *bk = (const OP(vector) *)(b + k * OP(NR));
    for (int i = 0; i < OP(MR); i++) {
      sum[i][0] += a[k * OP(MR) + i] * bk[0];
      sum[i][1] += a[k * OP(MR) + i] * bk[1];
    }
  }
  memcpy(whole, sum, sizeof sum);
  for (int64_t i = 0; i < rows; i++) memcpy(c + i * c_stride, whole[i], (size_t)cols * sizeof(REAL));
}

/* Rows [first, last) of c. */
CLONES static void OP(multiply_rows)(int64_t first, int64_t last, int64_t N, int64_t K, struct OP(operand) a,
                                     struct OP(operand) b, REAL *c, int64_t c_stride)
{
  REAL pack_b[OP(NC) * OP(KC)], pack_a[OP(MR) * OP(KC)];
  for (int64_t n0 = 0; n0 < N; n0 += OP(NC)) {
    const int64_t n1 = n0 + OP(NC) < N ? n0 + OP(NC) : N;
    for (int64_t k0 = 0; k0 < K; k0 += OP(KC)) {
      const int64_t depth = k0 + OP(KC) < K ? OP(KC) : K - k0;
      for (int64_t n = n0; n < n1; n += OP(NR)) {
        REAL *panel = pack_b + (n - n0) * depth;
        const int64_t cols = n1 - n < OP(NR) ? n1 - n : OP(NR);
        for (int64_t k = 0; k < depth; k++)
          for (int64_t j = 0; j < OP(NR); j++)
            panel[k * OP(NR) + j] = j < cols ? b.at[(k0 + k) * b.row + (n + j) * b.col] : 0;
      }
      for (int64_t m = first; m < last; m += OP(MR)) {
        const int64_t rows = last - m < OP(MR) ? last - m : OP(MR);
        for (int64_t k = 0; k < depth; k++)
          for (int64_t i = 0; i < OP(MR); i++)
            pack_a[k * OP(MR) + i] = i < rows ? a.at[(m + i) * a.row + (k0 + k) * a.col] : 0;
        for (int64_t n = n0; n < n1; n += OP(NR))
          OP(tile)(c + m * c_stride + n, c_stride, rows, n1 - n < OP(NR) ? n1 - n : OP(NR), pack_a,
                   pack_b + (n - n0) * depth, depth);
      }
    }
  }
}

/* Threads take ROWS rows at a time, each packing op(b) for itself. */
static void OP(multiply)(int64_t M, int64_t N, int64_t K, struct OP(operand) a, struct OP(operand) b, bool accumulate,
                         REAL *c, int64_t c_stride)
{
  for (int64_t m = 0; m < M && !accumulate; m++) memset(c + m * c_stride, 0, (size_t)N * sizeof(REAL));
#pragma omp parallel for schedule(static) if (M * N * K >= PARALLEL_FROM)
  for (int64_t m = 0; m < M; m += ROWS)
    OP(multiply_rows)(m, M - m < ROWS ? M : m + ROWS, N, K, a, b, c, c_stride);
}
