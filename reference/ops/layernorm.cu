/* layernorm.cu - layernorm and its backwards on CUDA; formulas and source: layernorm.c.
 *
 * fwd and bwd_x: one warp a row.  Lane l adds groups l, l + 32, ... in order, then the 32 sums meet in a fixed tree.
 * A row of up to 16 groups a lane (8 in bf16) stays in registers, so that memory is read once; longer ones are read
 * again, from the caches.  Bytes: x, y forward; x, dy, dx backward (w, b stay in the caches, mean and rstd are small).
 *
 * bwd_w: bytes are x and dy once.  Rows are cut into at most 128 slices, by their number alone; in a slice warp v of 8
 * adds rows v, v + 8, ... in order, then the 8 warps and, in a second kernel, the slices are added in order.
 */
#include "ops/layernorm_args.h"
#include "ops/rows.cuh"

#include <inttypes.h>

enum { ROWS_A_BLOCK = 4 };

/* This warp's row; rows that are not there are left by whole warps. */
static __device__ __forceinline__ int64_t my_row(void) { return (int64_t)blockIdx.x * ROWS_A_BLOCK + thread_warp(); }

/* The lane's k-th group of a row, from registers if they are kept. */
template <int n> static __device__ __forceinline__ struct rows_place lane_group(const rows_walk &w, int k)
{
  const int64_t group = thread_lane() + (int64_t)k * WARP;
  struct rows_place p = {group, 0, group * n, 0};
  if (group < w.groups) p.count = w.cols - p.col < n ? (int)(w.cols - p.col) : n;
  return p;
}
template <int n, int KEPT, typename T>
static __device__ __forceinline__ void keep(rows_group<T, n> kept[], const T *row, const rows_walk &w)
{
#pragma unroll
  for (int k = 0; k < KEPT; k++) {
    const rows_place p = lane_group<n>(w, k);
    if (p.count > 0) kept[k] = rows_load<T, n>(row + p.col, p.count, w.aligned);
  }
}
template <int n, int KEPT, typename T>
static __device__ __forceinline__ rows_group<T, n> taken(const rows_group<T, n> kept[], int k, const T *row,
                                                         const rows_walk &w, const rows_place &p)
{
  return KEPT > 0 ? kept[k] : rows_load<T, n>(row + p.col, p.count, w.aligned);
}
/* Goes through a lane's groups p, number k, in order. */
#define EACH_GROUP(KEPT, n, w, k, p)                            \
  for (int k = 0; KEPT == 0 || k < KEPT; k++)                   \
    if (const rows_place p = lane_group<n>(w, k); p.count == 0) \
      break;                                                    \
    else

template <typename T, int KEPT>
static __global__ void __launch_bounds__(ROWS_A_BLOCK *WARP)
    fwd_kernel(rows_view<T> y, rows_view<stat_t<T>> mean_out, rows_view<stat_t<T>> rstd_out, rows_view<const T> x,
               const T *scale, const T *shift, stat_t<T> eps, rows_walk w)
{
  typedef stat_t<T> S;
  const int n = vector_width<T>::value;
  const int64_t r = my_row();
  if (r >= w.rows) return;
  const T *in = x.at + r * x.stride;
  rows_group<T, n> kept[KEPT > 0 ? KEPT : 1];
  keep<n, KEPT>(kept, in, w);

  S sum = 0;
#pragma unroll
  EACH_GROUP(KEPT, n, w, k, p)
  {
    const rows_group<T, n> g = taken<n, KEPT>(kept, k, in, w, p);
#pragma unroll
    for (int c = 0; c < n; c++) sum += widen(g.at[c]); /* what is past the end is 0 */
  }
  const S mean = warp_sum(sum) / (S)w.cols;

  S squares = 0;
#pragma unroll
  EACH_GROUP(KEPT, n, w, k, p)
  {
    const rows_group<T, n> g = taken<n, KEPT>(kept, k, in, w, p);
#pragma unroll
    for (int c = 0; c < n; c++) {
      const S d = widen(g.at[c]) - mean;
      if (c < p.count) squares += d * d;
    }
  }
  const S rstd = 1 / sqrt(warp_sum(squares) / (S)w.cols + eps);
  if (thread_lane() == 0) {
    mean_out.at[r * mean_out.stride] = mean;
    rstd_out.at[r * rstd_out.stride] = rstd;
  }

#pragma unroll
  EACH_GROUP(KEPT, n, w, k, p)
  {
    rows_group<T, n> g = taken<n, KEPT>(kept, k, in, w, p);
    const rows_group<T, n> by = rows_load<T, n>(scale + p.col, p.count, w.aligned);
    const rows_group<T, n> plus = rows_load<T, n>(shift + p.col, p.count, w.aligned);
#pragma unroll
    for (int c = 0; c < n; c++)
      g.at[c] = narrow<T>((widen(g.at[c]) - mean) * rstd * widen(by.at[c]) + widen(plus.at[c]));
    rows_store<T, n>(y.at + r * y.stride + p.col, p.count, w.aligned, g);
  }
}

/* dx may be dy: a lane reads a group of dy for the last time before it writes it, and no other lane reads it. */
template <typename T, int KEPT>
static __global__ void __launch_bounds__(ROWS_A_BLOCK *WARP)
    bwd_x_kernel(rows_view<T> dx, rows_view<const T> dy, rows_view<const T> x, const T *scale,
                 rows_view<const stat_t<T>> mean_in, rows_view<const stat_t<T>> rstd_in, rows_walk w)
{
  typedef stat_t<T> S;
  const int n = vector_width<T>::value;
  const int64_t r = my_row();
  if (r >= w.rows) return;
  const T *in = x.at + r * x.stride, *slope = dy.at + r * dy.stride;
  const S mean = mean_in.at[r * mean_in.stride], rstd = rstd_in.at[r * rstd_in.stride];
  rows_group<T, n> kept_x[KEPT > 0 ? KEPT : 1], kept_dy[KEPT > 0 ? KEPT : 1];
  keep<n, KEPT>(kept_x, in, w);
  keep<n, KEPT>(kept_dy, slope, w);

  S of_g = 0, of_gx = 0;
#pragma unroll
  EACH_GROUP(KEPT, n, w, k, p)
  {
    const rows_group<T, n> gx = taken<n, KEPT>(kept_x, k, in, w, p), gdy = taken<n, KEPT>(kept_dy, k, slope, w, p);
    const rows_group<T, n> by = rows_load<T, n>(scale + p.col, p.count, w.aligned);
#pragma unroll
    for (int c = 0; c < n; c++) {
      const S g = widen(gdy.at[c]) * widen(by.at[c]); /* 0 past the end */
      of_g += g;
      of_gx += g * ((widen(gx.at[c]) - mean) * rstd);
    }
  }
  of_g = warp_sum(of_g) / (S)w.cols;
  of_gx = warp_sum(of_gx) / (S)w.cols;

#pragma unroll
  EACH_GROUP(KEPT, n, w, k, p)
  {
    const rows_group<T, n> gx = taken<n, KEPT>(kept_x, k, in, w, p);
    rows_group<T, n> gdy = taken<n, KEPT>(kept_dy, k, slope, w, p);
    const rows_group<T, n> by = rows_load<T, n>(scale + p.col, p.count, w.aligned);
#pragma unroll
    for (int c = 0; c < n; c++)
      gdy.at[c] =
          narrow<T>(rstd * (widen(gdy.at[c]) * widen(by.at[c]) - of_g - (widen(gx.at[c]) - mean) * rstd * of_gx));
    rows_store<T, n>(dx.at + r * dx.stride + p.col, p.count, w.aligned, gdy);
  }
}

template <typename T, int KEPT>
static enum err fwd_launch(const struct dev_cuda *at, const struct layernorm_args *l, const rows_walk &w)
{
  typedef stat_t<T> S;
  return LAUNCH(at, (fwd_kernel<T, KEPT>), blocks_for(w.rows, ROWS_A_BLOCK), ROWS_A_BLOCK * WARP, 0, rows_of<T>(&l->y),
                rows_of<S>(&l->mean), rows_of<S>(&l->rstd), rows_of<const T>(&l->x), (const T *)l->w.at,
                (const T *)l->b.at, (S)l->eps, w);
}
template <typename T, int KEPT>
static enum err bwd_x_launch(const struct dev_cuda *at, const struct layernorm_args *l, const rows_walk &w)
{
  typedef stat_t<T> S;
  return LAUNCH(at, (bwd_x_kernel<T, KEPT>), blocks_for(w.rows, ROWS_A_BLOCK), ROWS_A_BLOCK * WARP, 0,
                rows_of<T>(&l->dx), rows_of<const T>(&l->y), rows_of<const T>(&l->x), (const T *)l->w.at,
                rows_of<const S>(&l->mean), rows_of<const S>(&l->rstd), w);
}
/* Groups that a lane keeps: what the registers hold, two bf16 taking as many as one float while they are computed
 * with; none of longer rows. */
template <typename T> struct kept {
  enum { FEW = 4, MANY = sizeof(T) == 2 ? 8 : 16 };
};
template <typename T> static enum err fwd(const struct dev_cuda *at, void *args)
{
  const struct layernorm_args *l = (const struct layernorm_args *)args;
  const rows_walk w = rows_over(vector_width<T>::value, false, {&l->x, &l->y, &l->w, &l->b});
  if (w.groups <= kept<T>::FEW * WARP) return fwd_launch<T, kept<T>::FEW>(at, l, w);
  return w.groups <= kept<T>::MANY * WARP ? fwd_launch<T, kept<T>::MANY>(at, l, w) : fwd_launch<T, 0>(at, l, w);
}
template <typename T> static enum err bwd_x(const struct dev_cuda *at, void *args)
{
  const struct layernorm_args *l = (const struct layernorm_args *)args;
  const rows_walk w = rows_over(vector_width<T>::value, false, {&l->x, &l->dx, &l->y, &l->w});
  if (w.groups <= kept<T>::FEW * WARP) return bwd_x_launch<T, kept<T>::FEW>(at, l, w);
  return w.groups <= kept<T>::MANY * WARP ? bwd_x_launch<T, kept<T>::MANY>(at, l, w) : bwd_x_launch<T, 0>(at, l, w);
}
OP_CUDA_EACH_TYPE(op_layernorm_fwd, fwd)
OP_CUDA_EACH_TYPE(op_layernorm_bwd_x, bwd_x)

/* --- gradients of the weights: sums over rows ------------------------------------------------ */

enum { WARPS = 8, AHEAD = 4 };
static const int64_t SLICES = 128, SLICE_ROWS = 32; /* at most, and at least */

/* part[slice][0] = the slice's sums of dy * xh, part[slice][1] = of dy.  Blocks: tiles of 32 groups, then slices. */
template <typename T>
static __global__ void __launch_bounds__(WARPS *WARP)
    slice_kernel(stat_t<T> *part, rows_view<const T> dy, rows_view<const T> x, rows_view<const stat_t<T>> mean,
                 rows_view<const stat_t<T>> rstd, int64_t slice_rows, int tiles, rows_walk w)
{
  typedef stat_t<T> S;
  const int n = vector_width<T>::value;
  SHARED(S, of_warp, 2 * WARPS * n * WARP);
  const int tile = (int)blockIdx.x % tiles, slice = (int)blockIdx.x / tiles;
  const int64_t col = ((int64_t)tile * WARP + thread_lane()) * n;
  const int count = col >= w.cols ? 0 : w.cols - col < n ? (int)(w.cols - col) : n;
  const int64_t first = slice * slice_rows, end = first + slice_rows < w.rows ? first + slice_rows : w.rows;

  S dw[n] = {}, db[n] = {};
  const auto take = [&](const rows_group<T, n> &gx, const rows_group<T, n> &gdy, S m, S s) {
#pragma unroll
    for (int c = 0; c < n; c++) {
      dw[c] += widen(gdy.at[c]) * ((widen(gx.at[c]) - m) * s);
      db[c] += widen(gdy.at[c]);
    }
  };
  int64_t r = first + thread_warp();
  if (w.aligned && count == n)
    for (; r + (AHEAD - 1) * WARPS < end; r += AHEAD * WARPS) { /* loads of several rows are under way at once */
      rows_group<T, n> gx[AHEAD], gdy[AHEAD];
      S m[AHEAD], s[AHEAD];
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        const int64_t row = r + a * WARPS;
        gx[a] = rows_load<T, n>(x.at + row * x.stride + col, n, true);
        gdy[a] = rows_load<T, n>(dy.at + row * dy.stride + col, n, true);
        m[a] = mean.at[row * mean.stride];
        s[a] = rstd.at[row * rstd.stride];
      }
#pragma unroll
      for (int a = 0; a < AHEAD; a++) take(gx[a], gdy[a], m[a], s[a]);
    }
  for (; count > 0 && r < end; r += WARPS)
    take(rows_load<T, n>(x.at + r * x.stride + col, count, w.aligned),
         rows_load<T, n>(dy.at + r * dy.stride + col, count, w.aligned), mean.at[r * mean.stride],
         rstd.at[r * rstd.stride]);
#pragma unroll
  for (int c = 0; c < n; c++) { /* neighbouring lanes in neighbouring banks */
    of_warp[((0 * WARPS + thread_warp()) * n + c) * WARP + thread_lane()] = dw[c];
    of_warp[((1 * WARPS + thread_warp()) * n + c) * WARP + thread_lane()] = db[c];
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < 2 * n * WARP; i += WARPS * WARP) {
    const int which = i / (n * WARP), c = i / WARP % n, lane = i % WARP;
    const int64_t column = ((int64_t)tile * WARP + lane) * n + c;
    if (column >= w.cols) continue;
    S sum = 0;
#pragma unroll
    for (int v = 0; v < WARPS; v++) sum += of_warp[((which * WARPS + v) * n + c) * WARP + lane];
    part[((int64_t)slice * 2 + which) * w.cols + column] = sum;
  }
}

/* dw and db += the slices: warp v of 8 adds slices v, v + 8, ... of 32 columns, then the warps are added in order.
 * Blocks: pieces of 32 columns, then dw and db. */
template <typename S>
static __global__ void __launch_bounds__(WARPS *WARP)
    slices_kernel(S *dw, S *db, const S *part, int slices, int pieces, int64_t cols)
{
  SHARED(S, of_warp, WARPS * WARP);
  const int piece = (int)blockIdx.x % pieces, which = (int)blockIdx.x / pieces;
  const int64_t column = (int64_t)piece * WARP + thread_lane();
  S sum = 0;
  if (column < cols) {
#pragma unroll 4
    for (int s = thread_warp(); s < slices; s += WARPS) sum += part[((int64_t)s * 2 + which) * cols + column];
  }
  of_warp[threadIdx.x] = sum;
  __syncthreads();
  if (thread_warp() > 0 || column >= cols) return;
#pragma unroll
  for (int v = 1; v < WARPS; v++) sum += of_warp[v * WARP + thread_lane()];
  S *out = which == 0 ? dw : db;
  out[column] += sum;
}

template <typename T> static enum err bwd_w(const struct dev_cuda *at, void *args)
{
  typedef stat_t<T> S;
  const int n = vector_width<T>::value;
  const struct layernorm_args *l = (const struct layernorm_args *)args;
  const rows_walk w = rows_over(n, false, {&l->x, &l->y});
  const int64_t even = (w.rows + SLICES - 1) / SLICES, slice_rows = even > SLICE_ROWS ? even : SLICE_ROWS;
  const int64_t slices = (w.rows + slice_rows - 1) / slice_rows, tiles = (w.groups + WARP - 1) / WARP;
  const int64_t pieces = (w.cols + WARP - 1) / WARP;
  const size_t bytes = (size_t)(slices * 2 * w.cols) * sizeof(S);
  if (bytes > at->workspace_bytes)
    FAIL(ERR_MEMORY, "sums of %" PRId64 " columns in %" PRId64 " slices take %zu bytes, the workspace has %zu", w.cols,
         slices, bytes, at->workspace_bytes);
  S *part = (S *)at->workspace;
  TRY(LAUNCH(at, slice_kernel<T>, (unsigned int)(tiles * slices), WARPS * WARP, 0, part, rows_of<const T>(&l->y),
             rows_of<const T>(&l->x), rows_of<const S>(&l->mean), rows_of<const S>(&l->rstd), slice_rows, (int)tiles,
             w));
  return LAUNCH(at, slices_kernel<S>, (unsigned int)(2 * pieces), WARPS * WARP, 0, (S *)l->w.at, (S *)l->b.at, part,
                (int)slices, (int)pieces, w.cols);
}
OP_CUDA_EACH_TYPE(op_layernorm_bwd_w, bwd_w)
