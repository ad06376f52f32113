/* attention_scalar.cuh - attention without tensor cores: float32, float64, f16, and bf16 with heads too wide for them.
 *
 * A block of 8 x 8 threads holds SIDE rows and meets SIDE columns at a time; thread (ty, tx) has rows 4 ty + i and
 * columns tx + 8 j, i and j below 4.  Heads of any size: scores add SIDE columns of the head at a time, and a block
 * makes SIDE columns of the result (blockIdx.y says which), so that its sums stay in registers; scores are
 * computed once for each such part.  Squares in shared memory have rows of SIDE + 1: a column is in 32 banks.
 */
#ifndef OPS_ATTENTION_SCALAR_CUH
#define OPS_ATTENTION_SCALAR_CUH

#include "ops/attention_tiles.cuh"

enum { SIDE = GRAIN, SQUARE = SIDE * (SIDE + 1), SCALAR_THREADS = 64 };

static __device__ __forceinline__ int at_square(int row, int col) { return row * (SIDE + 1) + col; }
static __device__ __forceinline__ int my_row(int i) { return (int)threadIdx.x / 8 * 4 + i; }
static __device__ __forceinline__ int my_column(int j) { return (int)threadIdx.x % 8 + 8 * j; }

/* Rows [first, first + SIDE) and columns [column, column + SIDE) of one head; 0 outside. */
template <typename T>
static __device__ __forceinline__ void load_square(stat_t<T> *to, const T *from, int64_t stride, int first, int column,
                                                   const struct attention_case &c)
{
  for (int i = (int)threadIdx.x; i < SIDE * SIDE; i += SCALAR_THREADS) {
    const int row = i / SIDE, col = i % SIDE;
    const bool there = first + row < c.T && column + col < c.D;
    to[at_square(row, col)] = there ? widen(from[(first + row) * stride + column + col]) : (stat_t<T>)0;
  }
}

/* sum += x y^T, over columns in index order. */
template <typename S> static __device__ __forceinline__ void add_outer(S sum[4][4], const S *x, const S *y)
{
#pragma unroll 4
  for (int d = 0; d < SIDE; d++) {
    S a[4], b[4];
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = x[at_square(my_row(i), d)];
#pragma unroll
    for (int j = 0; j < 4; j++) b[j] = y[at_square(my_column(j), d)];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) sum[i][j] += a[i] * b[j];
  }
}
/* sum += w x, over rows of x in index order. */
template <typename S> static __device__ __forceinline__ void add_inner(S sum[4][4], const S *w, const S *x)
{
#pragma unroll 4
  for (int u = 0; u < SIDE; u++) {
    S a[4], b[4];
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = w[at_square(my_row(i), u)];
#pragma unroll
    for (int j = 0; j < 4; j++) b[j] = x[at_square(u, my_column(j))];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) sum[i][j] += a[i] * b[j];
  }
}
template <typename S> static __device__ __forceinline__ void put_square(S *to, const S value[4][4])
{
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) to[at_square(my_row(i), my_column(j))] = value[i][j];
}

/* s = x y^T of whole heads: rows [x0 ..) of x, rows [y0 ..) of y.  Both places are free before and after. */
template <typename T>
static __device__ __forceinline__ void all_scores(stat_t<T> s[4][4], const T *x, int64_t x_stride, int x0, const T *y,
                                                  int64_t y_stride, int y0, stat_t<T> *x_square, stat_t<T> *y_square,
                                                  const struct attention_case &c)
{
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) s[i][j] = 0;
  for (int d = 0; d < c.D; d += SIDE) {
    load_square<T>(x_square, x, x_stride, x0, d, c);
    load_square<T>(y_square, y, y_stride, y0, d, c);
    __syncthreads();
    add_outer<stat_t<T>>(s, x_square, y_square);
    __syncthreads();
  }
}

/* This block's part of the result, times a factor for each row. */
template <typename T>
static __device__ __forceinline__ void store_part(T *to, int64_t stride, int first, int column,
                                                  const stat_t<T> sum[4][4], const stat_t<T> factor[4],
                                                  const struct attention_case &c)
{
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int row = first + my_row(i), col = column + my_column(j);
      if (row < c.T && col < c.D) to[row * stride + col] = narrow<T>(sum[i][j] * factor[i]);
    }
}

/* Of the eight threads that share rows. */
template <typename S> static __device__ __forceinline__ S row_max(S x)
{
  for (int apart = 4; apart > 0; apart /= 2) {
    const S other = __shfl_xor_sync(ALL_LANES, x, apart);
    x = other > x ? other : x;
  }
  return x;
}
template <typename S> static __device__ __forceinline__ S row_sum(S x)
{
  for (int apart = 4; apart > 0; apart /= 2) x += __shfl_xor_sync(ALL_LANES, x, apart);
  return x;
}

/* FLOPs: (2 D ceil(D / SIDE) + 2 D) for each pair of query and key in a square that is looked at. */
template <typename T> static __global__ void __launch_bounds__(SCALAR_THREADS) scalar_fwd(const struct attention_case c)
{
  typedef stat_t<T> S;
  SHARED(S, x_square, SQUARE);
  SHARED(S, y_square, SQUARE);
  SHARED(S, weights, SQUARE);
  const struct place p = place_of(c, SIDE, true);
  const int *docs = head_docs(c, p);
  const struct ids *grains = head_grains(c, p);
  const int64_t C = (int64_t)c.a.heads * c.D, stride = c.a.qkv.stride;
  const T *q = head_rows<const T>(c.a.qkv, c, p, 0), *k = q + C, *v = k + C;
  const int tile = p.first / GRAIN, column = (int)blockIdx.y * SIDE;
  S o[4][4] = {}, most[4], sum[4];
  for (int i = 0; i < 4; i++) {
    most[i] = -(S)INFINITY;
    sum[i] = 0;
  }
  for (int other = first_grain(grains, tile, grains[tile]); other <= tile; other++) {
    const int k0 = other * SIDE;
    S s[4][4];
    all_scores<T>(s, q, stride, p.first, k, stride, k0, x_square, y_square, c);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int query = p.first + my_row(i);
      S top = most[i];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int key = k0 + my_column(j);
        const bool seen =
            query < c.T && key < c.T && sees(query, docs[min(query, c.T - 1)], key, docs[min(key, c.T - 1)]);
        s[i][j] = seen ? s[i][j] * (S)c.scale : -(S)INFINITY;
        top = s[i][j] > top ? s[i][j] : top;
      }
      top = row_max(top);
      const bool nothing = top == -(S)INFINITY; /* so far: e^(-inf - 0) is 0 */
      const S shift = nothing ? (S)0 : top, shrink = nothing ? (S)1 : exp(most[i] - top);
      S added = 0;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        s[i][j] = exp(s[i][j] - shift);
        added += s[i][j];
        o[i][j] *= shrink;
      }
      sum[i] = sum[i] * shrink + row_sum(added);
      most[i] = top;
    }
    put_square<S>(weights, s);
    load_square<T>(y_square, v, stride, k0, column, c);
    __syncthreads();
    add_inner<S>(o, weights, y_square);
    __syncthreads(); /* read by all: may be written again */
  }
  S factor[4];
  for (int i = 0; i < 4; i++) {
    const int row = p.first + my_row(i);
    factor[i] = 1 / sum[i];
    if (blockIdx.y == 0 && my_column(0) == 0 && row < c.T)
      ((S *)c.a.lse.at)[(p.b * c.T + row) * c.a.lse.stride + p.h] = most[i] + log(sum[i]);
  }
  store_part<T>(head_rows<T>(c.a.o, c, p, 0), c.a.o.stride, p.first, column, o, factor, c);
}

/* From scores to weights p and slopes p (dp - delta), 0 where the query does not see the key. */
template <typename S>
static __device__ __forceinline__ void scalar_slopes(S s[4][4], S dp[4][4], const struct row_stats<S> *stats,
                                                     const int *docs, int first_row, int first_column,
                                                     bool rows_are_keys, const struct attention_case &c)
{
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int row = first_row + my_row(i), column = first_column + my_column(j), query = rows_are_keys ? column : row,
                key = rows_are_keys ? row : column;
      const bool seen =
          query < c.T && key < c.T && sees(query, docs[min(query, c.T - 1)], key, docs[min(key, c.T - 1)]);
      const struct row_stats<S> of = stats[query]; /* rows past T are there */
      const S weight = seen ? exp(s[i][j] * (S)c.scale - of.lse) : (S)0;
      s[i][j] = weight;
      dp[i][j] = seen ? weight * (dp[i][j] - of.delta) : (S)0;
    }
}

/* dq.  FLOPs: (4 D ceil(D / SIDE) + 2 D) a pair. */
template <typename T>
static __global__ void __launch_bounds__(SCALAR_THREADS) scalar_bwd_q(const struct attention_case c)
{
  typedef stat_t<T> S;
  SHARED(S, x_square, SQUARE);
  SHARED(S, y_square, SQUARE);
  SHARED(S, slopes, SQUARE);
  const struct place p = place_of(c, SIDE, true);
  const struct ids *grains = head_grains(c, p);
  const int64_t C = (int64_t)c.a.heads * c.D, stride = c.a.qkv.stride;
  const T *q = head_rows<const T>(c.a.qkv, c, p, 0), *k = q + C, *v = k + C,
          *d_o = head_rows<const T>(c.a.d_o, c, p, 0);
  const int tile = p.first / GRAIN, column = (int)blockIdx.y * SIDE;
  S dq[4][4] = {};
  for (int other = first_grain(grains, tile, grains[tile]); other <= tile; other++) {
    const int k0 = other * SIDE;
    S s[4][4], dp[4][4];
    all_scores<T>(s, q, stride, p.first, k, stride, k0, x_square, y_square, c);
    all_scores<T>(dp, d_o, c.a.d_o.stride, p.first, v, stride, k0, x_square, y_square, c);
    scalar_slopes<S>(s, dp, head_stats<S>(c, p), head_docs(c, p), p.first, k0, false, c);
    put_square<S>(slopes, dp);
    load_square<T>(y_square, k, stride, k0, column, c);
    __syncthreads();
    add_inner<S>(dq, slopes, y_square);
    __syncthreads();
  }
  const S scale = (S)c.scale, factor[4] = {scale, scale, scale, scale};
  store_part<T>(head_rows<T>(c.a.dqkv, c, p, 0), c.a.dqkv.stride, p.first, column, dq, factor, c);
}

/* dk and dv.  FLOPs: (4 D ceil(D / SIDE) + 4 D) a pair. */
template <typename T>
static __global__ void __launch_bounds__(SCALAR_THREADS) scalar_bwd_kv(const struct attention_case c)
{
  typedef stat_t<T> S;
  SHARED(S, x_square, SQUARE);
  SHARED(S, y_square, SQUARE);
  SHARED(S, weights, SQUARE);
  SHARED(S, slopes, SQUARE);
  const struct place p = place_of(c, SIDE, false);
  const struct ids *grains = head_grains(c, p);
  const int64_t C = (int64_t)c.a.heads * c.D, stride = c.a.qkv.stride;
  const T *q = head_rows<const T>(c.a.qkv, c, p, 0), *k = q + C, *v = k + C,
          *d_o = head_rows<const T>(c.a.d_o, c, p, 0);
  const int tile = p.first / GRAIN, column = (int)blockIdx.y * SIDE;
  const int last = last_grain(grains, tile + 1, grains_in(c.T), grains[tile]);
  S dk[4][4] = {}, dv[4][4] = {};
  for (int other = tile; other <= last; other++) {
    const int q0 = other * SIDE;
    S s[4][4], dp[4][4];
    all_scores<T>(s, k, stride, p.first, q, stride, q0, x_square, y_square, c);
    all_scores<T>(dp, v, stride, p.first, d_o, c.a.d_o.stride, q0, x_square, y_square, c);
    scalar_slopes<S>(s, dp, head_stats<S>(c, p), head_docs(c, p), p.first, q0, true, c);
    put_square<S>(weights, s);
    put_square<S>(slopes, dp);
    load_square<T>(x_square, q, stride, q0, column, c);
    load_square<T>(y_square, d_o, c.a.d_o.stride, q0, column, c);
    __syncthreads();
    add_inner<S>(dk, slopes, x_square);
    add_inner<S>(dv, weights, y_square);
    __syncthreads();
  }
  const S scale = (S)c.scale, factor[4] = {scale, scale, scale, scale}, one[4] = {1, 1, 1, 1};
  store_part<T>(head_rows<T>(c.a.dqkv, c, p, C), c.a.dqkv.stride, p.first, column, dk, factor, c);
  store_part<T>(head_rows<T>(c.a.dqkv, c, p, 2 * C), c.a.dqkv.stride, p.first, column, dv, one, c);
}

#endif
