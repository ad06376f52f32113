/* embedding.cu - rows of two tables by number, and their gradients, on CUDA: the CPU's bits.
 *
 * Forward moves y's and the chosen rows' bytes once (y twice for positions).
 *
 * Backward: every row of the table adds the dy[n] that asked for it, n in index order, one after the other, as the
 * CPU does: no atomics.  The order comes from counting, in the workspace: n goes to place
 *   #(n' with a smaller row) + #(n' < n with the same row)
 * so that the n of one row stand together in index order.  Counting takes N^2 comparisons of two instructions (2^31
 * at 32,768 tokens: below 1/1000 of the arithmetic of the smallest model's backward for as many), but no pass over
 * memory: the numbers are read N / 256 times from the caches.  Then the first n of each row takes all of them: bytes
 * are dy once and the rows asked for twice.
 */
#include "ops/embedding_args.h"
#include "ops/rows.cuh"

#include "base/clock.h"
#include "base/fault.h"

#include <inttypes.h>

/* What kernels need of the numbers. */
struct ids {
  const int32_t *at;
  int64_t cols, stride, row0; /* row0: of the numbers, for row 0 of y                     */
  int64_t first, rows;        /* the table's first row and how many it has                */
  int64_t limit;
  int64_t turn, n; /* of the n rows of y, the one that is looked at first: 0, but for a planted fault */
  struct dev_cuda_report *report;
  const char *format;
};
static struct ids ids_of(const struct dev_cuda *at, const struct embedding_args *e, const char *format)
{
  struct ids x = {(const int32_t *)e->ids.at,
                  e->ids.cols,
                  e->ids.stride,
                  e->row0,
                  e->first,
                  e->table.rows,
                  e->limit,
                  0,
                  e->y.rows,
                  at->report,
                  format};
  if (fault_is(FAULT_RNG_NONDETERMINISTIC_EMBEDDING_BWD)) x.turn = (int64_t)(clock_ms() * 1e6) % (x.n + 1);
  return x;
}
#define OUTSIDE(what) what " %lld at [%lld, %lld] is outside 0..%lld"

/* Row of the table that row n of y asks for; -1: of another part, or a number that cannot be. */
static __device__ __forceinline__ int row_for(const struct ids &x, int64_t n, bool tell)
{
  const int64_t i = x.row0 + n, past = x.stride - x.cols; /* numbers between two rows of them */
  const int64_t id = x.at[past == 0 ? i : i + i / x.cols * past];
  if (id < 0 || id >= x.limit) {
    if (tell) REPORT(x.report, x.format, id, i / x.cols, i % x.cols, x.limit - 1);
    return -1;
  }
  const int64_t row = id - x.first;
  return row >= 0 && row < x.rows ? (int)row : -1;
}
/* The i-th row of y to be looked at. */
static __device__ __forceinline__ int64_t nth(const struct ids &x, int64_t i)
{
  return i + x.turn < x.n ? i + x.turn : i + x.turn - x.n;
}

/* --- forward ---------------------------------------------------------------------------- */

template <typename T>
static __global__ void embedding_kernel(rows_view<T> y, rows_view<const T> table, struct ids x, rows_walk w)
{
  const int n = vector_width<T>::value;
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) {
    const int64_t row = row_for(x, p.row, p.col == 0);
    const rows_group<T, n> g =
        rows_load<T, n>(row < 0 ? table.at : table.at + row * table.stride + p.col, row < 0 ? 0 : p.count, w.aligned);
    rows_store(y, w, p, g);
  }
}
template <typename T>
static __global__ void position_kernel(rows_view<T> y, rows_view<const T> table, struct ids x, rows_walk w)
{
  const int n = vector_width<T>::value;
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) {
    const int64_t row = row_for(x, p.row, p.col == 0);
    if (row < 0) continue;
    const rows_group<T, n> add = rows_load<T, n>(table.at + row * table.stride + p.col, p.count, w.aligned);
    rows_group<T, n> g = rows_load<n>(y, w, p);
#pragma unroll
    for (int k = 0; k < n; k++) g.at[k] = narrow<T>(widen(g.at[k]) + widen(add.at[k]));
    rows_store(y, w, p, g);
  }
}

template <typename T> static enum err embedding_fwd(const struct dev_cuda *at, void *args)
{
  const struct embedding_args *e = (const struct embedding_args *)args;
  const rows_walk w = rows_over(vector_width<T>::value, false, {&e->y, &e->table});
  return ROWS_LAUNCH(at, embedding_kernel<T>, w, rows_of<T>(&e->y), rows_of<const T>(&e->table),
                     ids_of(at, e, OUTSIDE("token")), w);
}
template <typename T> static enum err position_fwd(const struct dev_cuda *at, void *args)
{
  const struct embedding_args *e = (const struct embedding_args *)args;
  const rows_walk w = rows_over(vector_width<T>::value, false, {&e->y, &e->table});
  return ROWS_LAUNCH(at, position_kernel<T>, w, rows_of<T>(&e->y), rows_of<const T>(&e->table),
                     ids_of(at, e, OUTSIDE("position")), w);
}
OP_CUDA_EACH_TYPE(op_embedding_fwd, embedding_fwd)
OP_CUDA_EACH_TYPE(op_position_fwd, position_fwd)

/* --- backward ---------------------------------------------------------------------------- */

enum { TILE = 256 };
static const int64_t SLICES = 64; /* at most */

/* part[slice * n + i] = how many of this slice's numbers stand before the i-th.  Blocks: tiles of i, then slices. */
static __global__ void count_kernel(int32_t *part, struct ids x, int tiles, int slices)
{
  SHARED(int, tile, TILE);
  const int my_tile = (int)blockIdx.x % tiles, slice = (int)blockIdx.x / tiles;
  const int64_t i = (int64_t)my_tile * TILE + threadIdx.x;
  const int mine = i < x.n ? row_for(x, nth(x, i), slice == 0) : -1;
  int before = 0;
  for (int other = slice; other < tiles; other += slices) {
    const int64_t j = (int64_t)other * TILE + threadIdx.x;
    __syncthreads(); /* the last tile has been read */
    tile[threadIdx.x] = j < x.n ? row_for(x, nth(x, j), false) : 0x7FFFFFFF;
    __syncthreads();
    if (other == my_tile) {
      for (int k = 0; k < TILE; k++) before += tile[k] < mine + (k < (int)threadIdx.x);
    } else {
      const int below = mine + (other < my_tile); /* of tiles before, equal ones stand before too */
#pragma unroll 8
      for (int k = 0; k < TILE; k++) before += tile[k] < below;
    }
  }
  if (i < x.n) part[slice * x.n + i] = before;
}

/* order[place of the i-th] = its row of y; rows[the same place] = the table's row that it asks for. */
static __global__ void order_kernel(int32_t *order, int32_t *rows, const int32_t *part, struct ids x, int slices)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= x.n) return;
  int place = 0;
  for (int s = 0; s < slices; s++) place += part[s * x.n + i];
  order[place] = (int32_t)nth(x, i);
  rows[place] = row_for(x, nth(x, i), false);
}

/* Blocks: places, then pieces of the columns.  The block of the first place of a row adds all of the row's. */
template <typename T>
static __global__ void scatter_kernel(rows_view<stat_t<T>> table, rows_view<const T> dy, const int32_t *order,
                                      const int32_t *rows, int64_t places, int pieces, rows_walk w)
{
  const int n = vector_width<T>::value, AHEAD = 4;
  const int64_t first = blockIdx.x / (unsigned int)pieces;
  const int64_t group = (int64_t)(blockIdx.x % (unsigned int)pieces) * blockDim.x + threadIdx.x, col = group * n;
  const int row = rows[first];
  if (row < 0 || (first > 0 && rows[first - 1] == row) || group >= w.groups) return;
  const int count = w.cols - col < n ? (int)(w.cols - col) : n;
  stat_t<T> *to = table.at + row * table.stride + col;
  rows_group<stat_t<T>, n> sum = rows_load<stat_t<T>, n>(to, count, w.aligned);
  for (int64_t i = first; i < places && rows[i] == row; i += AHEAD) {
    rows_group<T, n> g[AHEAD];
    bool taken[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; k++) { /* loads of several rows are under way at once */
      taken[k] = i + k < places && rows[i + k] == row;
      if (taken[k]) g[k] = rows_load<T, n>(dy.at + order[i + k] * dy.stride + col, count, w.aligned);
    }
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
      if (taken[k]) {
#pragma unroll
        for (int c = 0; c < n; c++) sum.at[c] += widen(g[k].at[c]);
      }
  }
  rows_store<stat_t<T>, n>(to, count, w.aligned, sum);
}

template <typename T>
static enum err scatter(const struct dev_cuda *at, const struct embedding_args *e, const char *format)
{
  const int n = vector_width<T>::value;
  const int64_t N = e->y.rows;
  if (N == 0) return ERR_OK;
  const struct ids x = ids_of(at, e, format);
  const rows_walk w = rows_over(n, false, {&e->y, &e->table});
  const int64_t tiles = (N + TILE - 1) / TILE, wanted = 4 * at->multiprocessors / tiles;
  const int64_t slices = wanted < 1 ? 1 : wanted > SLICES ? SLICES : wanted > tiles ? tiles : wanted;
  const size_t bytes = (size_t)(N * (slices + 2)) * sizeof(int32_t);
  if (N > INT32_MAX / 2 || bytes > at->workspace_bytes)
    FAIL(ERR_MEMORY, "the order of %" PRId64 " rows takes %zu bytes, the workspace has %zu", N, bytes,
         at->workspace_bytes);
  int32_t *order = (int32_t *)at->workspace, *rows = order + N, *part = rows + N;
  TRY(LAUNCH(at, count_kernel, (unsigned int)(tiles * slices), TILE, 0, part, x, (int)tiles, (int)slices));
  TRY(LAUNCH(at, order_kernel, blocks_for(N, TILE), TILE, 0, order, rows, part, x, (int)slices));
  const int threads = w.groups >= 128 ? 128 : (int)((w.groups + 31) / 32 * 32);
  const int64_t pieces = threads == 0 ? 0 : (w.groups + threads - 1) / threads;
  return LAUNCH(at, scatter_kernel<T>, (unsigned int)(N * pieces), threads, 0, rows_of<stat_t<T>>(&e->table),
                rows_of<const T>(&e->y), order, rows, N, (int)pieces, w);
}
template <typename T> static enum err embedding_bwd_w(const struct dev_cuda *at, void *args)
{
  return scatter<T>(at, (const struct embedding_args *)args, OUTSIDE("token"));
}
template <typename T> static enum err position_bwd_w(const struct dev_cuda *at, void *args)
{
  return scatter<T>(at, (const struct embedding_args *)args, OUTSIDE("position"));
}
OP_CUDA_EACH_TYPE(op_embedding_bwd_w, embedding_bwd_w)
OP_CUDA_EACH_TYPE(op_position_bwd_w, position_bwd_w)
