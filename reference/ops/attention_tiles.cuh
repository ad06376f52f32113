/* attention_tiles.cuh - what all kernels of attention.cu share: where a block works, and which keys its queries see.
 *
 * A grain is GRAIN positions of one sequence.  For each the range of its document ids is known, so that whole tiles
 * can be left out (no query of the rows has an id of the columns) or taken without a mask (all ids are one).
 */
#ifndef OPS_ATTENTION_TILES_CUH
#define OPS_ATTENTION_TILES_CUH

#include "device/cuda_kernel.cuh"
#include "ops/attention_args.h"

#include <limits.h>

enum { GRAIN = 32 };
#define ALL_LANES 0xffffffffu

/* Smallest and largest document id of some rows, padding aside; low is above high where all are padding. */
struct ids {
  int low, high;
  int padding; /* whether there is any; rows past the sequence count */
};

struct attention_case {
  struct attention_args a;
  struct ids *grains; /* [B, grains_in(T)]                                                                        */
  void *stats;        /* backward: struct row_stats [sequences at once * heads, row_stats_rows(T)]                */
  int64_t sequence, sequences; /* the first of this launch, and how many                                          */
  int T, D;
  double scale; /* 1 / sqrt(D)                                                                              */
  bool aligned; /* every row of every head begins at a multiple of 16 bytes and holds a number of them      */
};

/* Of one (query, head), for the backward: lse (times log2 e for the tensor cores), and sum(do * o).  Rows past
 * the sequence have lse = infinity: their weights are 0. */
template <typename S> struct row_stats {
  S lse, delta;
};
static inline __host__ __device__ int grains_in(int T) { return (T + GRAIN - 1) / GRAIN; }
static inline __host__ __device__ int64_t row_stats_rows(int T) { return ((int64_t)T + 127) / 128 * 128; }

/* A block's sequence, head and tile of `rows` positions; blockIdx.x counts tiles first, the last first if `reverse`:
 * blocks that have most to do begin first. */
struct place {
  int64_t b;
  int h, first;
};
static __device__ __forceinline__ struct place place_of(const struct attention_case &c, int rows, bool reverse)
{
  const int tiles = (c.T + rows - 1) / rows, tile = (int)(blockIdx.x % (unsigned)tiles);
  const int64_t head = blockIdx.x / (unsigned)tiles;
  struct place p;
  p.b = c.sequence + head / c.a.heads;
  p.h = (int)(head % c.a.heads);
  p.first = (reverse ? tiles - 1 - tile : tile) * rows;
  return p;
}

/* Row 0 of sequence p.b, at column `column` of the head's. */
template <typename T>
static __device__ __forceinline__ T *head_rows(const struct tensor &t, const struct attention_case &c,
                                               const struct place &p, int64_t column)
{
  return (T *)t.at + p.b * c.T * t.stride + column + (int64_t)p.h * c.D;
}
static __device__ __forceinline__ const int *head_docs(const struct attention_case &c, const struct place &p)
{
  return (const int *)c.a.docs.at + p.b * c.a.docs.stride;
}
static __device__ __forceinline__ const struct ids *head_grains(const struct attention_case &c, const struct place &p)
{
  return c.grains + p.b * grains_in(c.T);
}
template <typename S>
static __device__ __forceinline__ const struct row_stats<S> *head_stats(const struct attention_case &c,
                                                                        const struct place &p) {
  return (const struct row_stats<S> *)c.stats + ((p.b - c.sequence) * c.a.heads + p.h) * row_stats_rows(c.T);
}

static __device__ __forceinline__ bool
sees(int query, int query_id, int key, int key_id)
{
  return key == query || (key < query && query_id >= 0 && key_id == query_id);
}

/* --- ranges of ids ---------------------------------------------------------------------- */

/* One warp a grain.  Reads 4 bytes a position, writes 12 a grain. */
static __global__ void grains_kernel(const struct attention_case c)
{
  const int n = grains_in(c.T), lane = (int)threadIdx.x % WARP;
  const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
  if (i >= c.a.docs.rows * n) return; /* a whole warp leaves together */
  const int t = (int)(i % n) * GRAIN + lane,
            id = t < c.T ? ((const int *)c.a.docs.at)[i / n * c.a.docs.stride + t] : -1;
  int low = id < 0 ? INT_MAX : id, high = id;
  for (int step = WARP / 2; step > 0; step /= 2) {
    low = min(low, __shfl_xor_sync(ALL_LANES, low, step));
    high = max(high, __shfl_xor_sync(ALL_LANES, high, step));
  }
  const struct ids all = {low, high < 0 ? -1 : high, __any_sync(ALL_LANES, id < 0)};
  if (lane == 0) c.grains[i] = all;
}

/* Of the grains [g, g + count) that there are. */
static __device__ __forceinline__ struct ids ids_of(const struct ids *grains, int g, int count, int n)
{
  struct ids all = grains[g];
  for (int i = g + 1; i < g + count && i < n; i++) {
    all.low = min(all.low, grains[i].low);
    all.high = max(all.high, grains[i].high);
    all.padding |= grains[i].padding;
  }
  return all;
}
static __device__ __forceinline__ bool ids_meet(struct ids a, struct ids b)
{
  return max(a.low, b.low) <= min(a.high, b.high);
}
static __device__ __forceinline__ bool ids_are_one(struct ids a, struct ids b)
{
  return !a.padding && !b.padding && a.low == a.high && b.low == a.low && b.high == a.low;
}

/* The first grain before `limit` with an id of `mine`, else limit; the last from `from` on, else from - 1.  Each warp
 * finds it for itself. */
static __device__ int first_grain(const struct ids *grains, int limit, struct ids mine)
{
  const int lane = (int)threadIdx.x % WARP;
  for (int g = 0; g < limit; g += WARP) {
    const unsigned hit = __ballot_sync(ALL_LANES, g + lane < limit && ids_meet(grains[min(g + lane, limit - 1)], mine));
    if (hit != 0) return g + __ffs((int)hit) - 1;
  }
  return limit;
}
static __device__ int last_grain(const struct ids *grains, int from, int n, struct ids mine)
{
  const int lane = (int)threadIdx.x % WARP;
  for (int g = n - 1; g >= from; g -= WARP) {
    const unsigned hit = __ballot_sync(ALL_LANES, g - lane >= from && ids_meet(grains[max(g - lane, 0)], mine));
    if (hit != 0) return g - (__ffs((int)hit) - 1);
  }
  return from - 1;
}

/* --- rows of the backward ----------------------------------------------------------------- */

enum { STATS_LANES = 8, STATS_THREADS = 256 };

/* delta = sum over d of do * o, STATS_LANES threads a (row, head), 8 columns each in turn, then a fixed tree.  Reads
 * 2 N C elements and N heads numbers, writes 2 N heads. */
template <typename T> static __global__ void stats_kernel(const struct attention_case c, double lse_factor)
{
  typedef stat_t<T> S;
  const int64_t rows = row_stats_rows(c.T), i = ((int64_t)blockIdx.x * STATS_THREADS + threadIdx.x) / STATS_LANES;
  const int lane = (int)threadIdx.x % STATS_LANES, t = (int)(i % rows);
  const int64_t head = i / rows;
  const struct place p = {c.sequence + head / c.a.heads, (int)(head % c.a.heads), 0};
  const bool there = head < c.sequences * c.a.heads, inside = there && t < c.T;
  S delta = 0;
  if (inside) {
    const T *o = head_rows<T>(c.a.o, c, p, 0) + t * c.a.o.stride,
            *d_o = head_rows<T>(c.a.d_o, c, p, 0) + t * c.a.d_o.stride;
    for (int d = lane * 8; d < c.D; d += STATS_LANES * 8) {
      if (c.aligned) {
        enum { WIDTH = vector_width<T>::value };
        for (int k = 0; k < 8 && d + k < c.D; k += WIDTH) {
          const vector<T, WIDTH> x = load_vector<T, WIDTH>(o + d + k), y = load_vector<T, WIDTH>(d_o + d + k);
          for (int j = 0; j < WIDTH; j++) delta += widen(x.at[j]) * widen(y.at[j]);
        }
      } else {
        for (int k = d; k < min(d + 8, c.D); k++) delta += widen(o[k]) * widen(d_o[k]);
      }
    }
  }
  for (int apart = STATS_LANES / 2; apart > 0; apart /= 2) delta += __shfl_xor_sync(ALL_LANES, delta, apart);
  if (lane != 0 || !there) return;
  struct row_stats<S> *to = (struct row_stats<S> *)c.stats + i;
  to->lse = inside ? ((const S *)c.a.lse.at)[(p.b * c.T + t) * c.a.lse.stride + p.h] * (S)lse_factor : (S)INFINITY;
  to->delta = delta;
}

#endif
