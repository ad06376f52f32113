/* attention_mma.cuh - attention on tensor cores in T, bf16 or f16, for head sizes up to 160.
 *
 * A block has MMA_WARPS warps; each takes ATOMS * 16 rows of the block's tile and meets the tiles of the other side,
 * which cp.async brings in turn into one of two places while the warps compute on the other.  Tiles lie in shared
 * memory in rows of DP + 8 elements, DP being D rounded up (columns from D on are 0): 8 rows of 16 bytes, as ldmatrix
 * reads them, then lie in 8 different groups of banks.
 *
 *   forward    rows: queries.  s = q k^T; p = 2^(s - max), kept in registers as the left operand of p v
 *   dq         rows: queries.  s, dp = do v^T, ds = p (dp - delta); dq = ds k
 *   dk, dv     rows: keys.  s^T = k q^T and dp^T = v do^T, so that p^T and ds^T are left operands of p^T do and ds^T q
 *
 * Every sum is of one warp and in one order: no atomics.  Products accumulate in float; max, sum, lse and delta are
 * float; p and ds are rounded to T for their second product, as in Dao et al. 2022.  Scores are in units of log 2.
 */
#ifndef OPS_ATTENTION_MMA_CUH
#define OPS_ATTENTION_MMA_CUH

#include "device/cuda_mma.cuh"
#include "ops/attention_tiles.cuh"

enum { MMA_WARPS = 4, MMA_THREADS = MMA_WARPS * WARP };
#define LOG2_E 1.4426950408889634

/* --- tiles -------------------------------------------------------------------------------- */

/* Rows [first, first + ROWS) of one head; those from c.T on are 0. */
template <typename T, int DP, int ROWS>
static __device__ __forceinline__ void load_tile(T *to, const T *from, int64_t stride, int first,
                                                 const struct attention_case &c)
{
  enum { LD = DP + 8, PIECES = DP / 8 };
  if (c.aligned) {
#pragma unroll
    for (int i = (int)threadIdx.x; i < ROWS * PIECES; i += MMA_THREADS) {
      const int row = i / PIECES, col = i % PIECES * 8;
      const bool there = first + row < c.T && col < c.D;
      cp_async_16(to + row * LD + col, there ? from + (first + row) * stride + col : from, there ? 16 : 0);
    }
  } else {
    for (int i = (int)threadIdx.x; i < ROWS * DP; i += MMA_THREADS) {
      const int row = i / DP, col = i % DP;
      const bool there = first + row < c.T && col < c.D;
      to[row * LD + col] = there ? from[(first + row) * stride + col] : from_float<T>(0.0f);
    }
  }
}

/* The warp's own ROWS rows of a tile, to rows [first ..) of one head. */
template <typename T, int DP, int ROWS>
static __device__ __forceinline__ void store_rows(T *to, int64_t stride, int first, const T *from,
                                                  const struct attention_case &c)
{
  enum { LD = DP + 8, PIECES = DP / 8 };
  if (c.aligned) {
    for (int i = thread_lane(); i < ROWS * PIECES; i += WARP) {
      const int row = i / PIECES, col = i % PIECES * 8;
      if (first + row < c.T && col < c.D)
        store_vector<T, 8>(to + (first + row) * stride + col, load_vector<T, 8>(from + row * LD + col));
    }
  } else {
    for (int i = thread_lane(); i < ROWS * DP; i += WARP) {
      const int row = i / DP, col = i % DP;
      if (first + row < c.T && col < c.D) to[(first + row) * stride + col] = from[row * LD + col];
    }
  }
}

/* --- products of one warp ------------------------------------------------------------------- */

/* Where this lane reads a 16 x 16 piece of a tile for ldmatrix: as left operand, or transposed as right operand,
 * rows come first; as right operand columns do. */
template <typename T, int DP> static __device__ __forceinline__ const T *rows_first(const T *tile)
{
  const int lane = thread_lane();
  return tile + (lane & 15) * (DP + 8) + (lane >> 4) * 8;
}
template <typename T, int DP> static __device__ __forceinline__ const T *columns_first(const T *tile)
{
  const int lane = thread_lane();
  return tile + ((lane & 7) + (lane >> 4) * 8) * (DP + 8) + (lane >> 3 & 1) * 8;
}

/* Columns [16 k, 16 k + 16) of the warp's rows. */
template <typename T, int DP, int ATOMS>
static __device__ __forceinline__ void load_left(unsigned left[ATOMS][4], const T *rows, int k)
{
#pragma unroll
  for (int a = 0; a < ATOMS; a++) ldmatrix_x4(left[a], rows_first<T, DP>(rows) + a * 16 * (DP + 8) + k * 16);
}

/* s = the warp's rows * (COLUMNS rows of tile)^T: 2 * 16 ATOMS * COLUMNS * DP FLOPs. */
template <typename T, int DP, int ATOMS, int COLUMNS>
static __device__ __forceinline__ void scores(float s[ATOMS][COLUMNS / 8][4], const T *rows, const T *tile)
{
#pragma unroll
  for (int a = 0; a < ATOMS; a++)
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) s[a][n][i] = 0.0f;
#pragma unroll
  for (int k = 0; k < DP / 16; k++) {
    unsigned left[ATOMS][4];
    load_left<T, DP, ATOMS>(left, rows, k);
#pragma unroll
    for (int n = 0; n < COLUMNS / 16; n++) {
      unsigned right[4];
      ldmatrix_x4(right, columns_first<T, DP>(tile) + n * 16 * (DP + 8) + k * 16);
#pragma unroll
      for (int a = 0; a < ATOMS; a++) {
        mma<T>(s[a][2 * n], left[a], right);
        mma<T>(s[a][2 * n + 1], left[a], right + 2);
      }
    }
  }
}

/* sum += w * tile, w [16 ATOMS, ROWS] as scores() leaves it, tile ROWS rows: 2 * 16 ATOMS * ROWS * DP FLOPs. */
template <typename T, int DP, int ATOMS, int ROWS>
static __device__ __forceinline__ void add_product(float sum[ATOMS][DP / 8][4], const float w[ATOMS][ROWS / 8][4],
                                                   const T *tile)
{
#pragma unroll
  for (int k = 0; k < ROWS / 16; k++) {
    unsigned left[ATOMS][4];
#pragma unroll
    for (int a = 0; a < ATOMS; a++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        left[a][i] = pair_bits<T>(w[a][2 * k + i / 2][i % 2 * 2], w[a][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < DP / 16; n++) {
      unsigned right[4];
      ldmatrix_x4_trans(right, rows_first<T, DP>(tile) + k * 16 * (DP + 8) + n * 16);
#pragma unroll
      for (int a = 0; a < ATOMS; a++) {
        mma<T>(sum[a][2 * n], left[a], right);
        mma<T>(sum[a][2 * n + 1], left[a], right + 2);
      }
    }
  }
}

/* The warp's rows of `sum`, times a factor for each row, to its own rows of a tile that nobody else reads any more;
 * itself it read them as one, in ldmatrix. */
template <typename T, int DP, int ATOMS>
static __device__ __forceinline__ void put_rows(T *rows, const float sum[ATOMS][DP / 8][4],
                                                const float factor[ATOMS][2])
{
  const int lane = thread_lane();
#pragma unroll
  for (int a = 0; a < ATOMS; a++)
#pragma unroll
    for (int n = 0; n < DP / 8; n++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        T *to = rows + (a * 16 + r * 8 + lane / 4) * (DP + 8) + n * 8 + lane % 4 * 2;
        *reinterpret_cast<typename pair_of<T>::type *>(to) =
            pair_of<T>::rounded(sum[a][n][2 * r] * factor[a][r], sum[a][n][2 * r + 1] * factor[a][r]);
      }
  __syncwarp();
}

/* Of the four lanes that share a row. */
static __device__ __forceinline__ float quad_max(float x)
{
  x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
  return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}
static __device__ __forceinline__ float quad_sum(float x)
{
  x += __shfl_xor_sync(ALL_LANES, x, 1);
  return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* Of the tile whose first row is `first`: the warp's first row, and this lane's of piece a, half r. */
template <int ATOMS> static __device__ __forceinline__ int warp_row(int first)
{
  return first + thread_warp() * ATOMS * 16;
}
template <int ATOMS> static __device__ __forceinline__ int row_of(int first, int a, int r)
{
  return warp_row<ATOMS>(first) + a * 16 + r * 8 + thread_lane() / 4;
}

/* --- a block's work --------------------------------------------------------------------------- */

/* What a block needs once a tile, kept in shared memory, since its sums fill the registers: x and y of the side that
 * comes in tiles, and which tiles those are. */
template <typename T> struct mma_block {
  const T *x, *y;
  const struct row_stats<float> *stats;
  const int *docs;
  const struct ids *grains;
  struct ids mine; /* of the block's own rows */
  struct place p;
  int last;
};

template <typename T, int DP, int COLUMNS>
static __device__ __forceinline__ void load_pair(T *x_tile, T *y_tile, const struct mma_block<T> *b,
                                                 int64_t y_stride, int tile, const struct attention_case &c)
{
  load_tile<T, DP, COLUMNS>(x_tile, b->x, c.a.qkv.stride, tile * COLUMNS, c);
  load_tile<T, DP, COLUMNS>(y_tile, b->y, y_stride, tile * COLUMNS, c);
}

/* For rows that are queries: keys and values that they see.  Returns the first tile. */
template <typename T, int ROWS, int COLUMNS>
static __device__ __forceinline__ int block_of_queries(struct mma_block<T> *b, const struct attention_case &c)
{
  const struct place p = place_of(c, ROWS, true);
  const struct ids *grains = head_grains(c, p), mine = ids_of(grains, p.first / GRAIN, ROWS / GRAIN, grains_in(c.T));
  const int64_t C = (int64_t)c.a.heads * c.D;
  const T *k = head_rows<const T>(c.a.qkv, c, p, C);
  *b = {k, k + C, head_stats<float>(c, p), head_docs(c, p), grains, mine, p, (min(p.first + ROWS, c.T) - 1) / COLUMNS};
  return first_grain(grains, p.first / GRAIN, mine) * GRAIN / COLUMNS;
}

/* For rows that are keys: queries that see them, and do. */
template <typename T, int ROWS, int COLUMNS>
static __device__ __forceinline__ int block_of_keys(struct mma_block<T> *b, const struct attention_case &c)
{
  const struct place p = place_of(c, ROWS, false);
  const int n = grains_in(c.T), end = min((p.first + ROWS) / GRAIN, n);
  const struct ids *grains = head_grains(c, p), mine = ids_of(grains, p.first / GRAIN, ROWS / GRAIN, n);
  *b = {head_rows<const T>(c.a.qkv, c, p, 0),
        head_rows<const T>(c.a.d_o, c, p, 0),
        head_stats<float>(c, p),
        head_docs(c, p),
        grains,
        mine,
        p,
        last_grain(grains, end, n, mine) * GRAIN / COLUMNS};
  return p.first / COLUMNS;
}

/* Whether the columns [first, first + COLUMNS) all have the one document that the block's rows have. */
template <int COLUMNS, typename T>
static __device__ __forceinline__ bool one_document(const struct mma_block<T> *b, int first,
                                                    const struct attention_case &c)
{
  return ids_are_one(b->mine, ids_of(b->grains, first / GRAIN, COLUMNS / GRAIN, grains_in(c.T)));
}

/* s = -infinity where the query does not see the key; rows are queries, or with KEYS keys.  Rows past the sequence
 * may get anything: no query before T sees such a key, and such a query has zeros and lse = infinity. */
template <int ATOMS, int COLUMNS, bool KEYS, typename T>
static __device__ __forceinline__ void mask(float s[ATOMS][COLUMNS / 8][4], const struct mma_block<T> *b, int first_column,
                                            const struct attention_case &c)
{
  const int *docs = b->docs;
  const int first_row = b->p.first;
  int row_id[ATOMS][2];
#pragma unroll
  for (int a = 0; a < ATOMS; a++)
#pragma unroll
    for (int r = 0; r < 2; r++) row_id[a][r] = docs[min(row_of<ATOMS>(first_row, a, r), c.T - 1)];
#pragma unroll
  for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int column = first_column + n * 8 + thread_lane() % 4 * 2 + j, column_id = docs[min(column, c.T - 1)];
#pragma unroll
      for (int a = 0; a < ATOMS; a++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const int row = row_of<ATOMS>(first_row, a, r);
          const bool seen =
              KEYS ? sees(column, column_id, row, row_id[a][r]) : sees(row, row_id[a][r], column, column_id);
          if (!seen) s[a][n][2 * r + j] = -INFINITY;
        }
    }
}

/* --- forward ---------------------------------------------------------------------------------- */

/* FLOPs: 4 D for each pair of query and key in a tile that holds a pair that sees.  Bytes: q once, k and v once for
 * each tile of queries (mostly out of the L2 cache), o and lse written once. */
template <typename T, int DP, int ATOMS, int COLUMNS>
static __global__ void __launch_bounds__(MMA_THREADS, 2) mma_fwd(const struct attention_case c)
{
  enum { LD = DP + 8, ROWS = MMA_WARPS * ATOMS * 16, TILE = COLUMNS * LD };
  SHARED(struct mma_block<T>, block, 1);
  SHARED_DYNAMIC(T, q_tile);
  T *const k_tiles = q_tile + ROWS * LD, *const v_tiles = k_tiles + 2 * TILE;
  int tile;
  {
    struct mma_block<T> all;
    tile = block_of_queries<T, ROWS, COLUMNS>(&all, c);
    if (threadIdx.x == 0) *block = all;
    load_tile<T, DP, ROWS>(q_tile, head_rows<const T>(c.a.qkv, c, all.p, 0), c.a.qkv.stride, all.p.first, c);
    load_pair<T, DP, COLUMNS>(k_tiles, v_tiles, &all, c.a.qkv.stride, tile, c);
    cp_async_commit();
  }

  T *const rows = q_tile + thread_warp() * ATOMS * 16 * LD;
  const float unit = (float)(c.scale * LOG2_E);
  float o[ATOMS][DP / 8][4], most[ATOMS][2], sum[ATOMS][2];
#pragma unroll
  for (int a = 0; a < ATOMS; a++) {
#pragma unroll
    for (int n = 0; n < DP / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) o[a][n][i] = 0.0f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      most[a][r] = -INFINITY;
      sum[a][r] = 0.0f;
    }
  }

  for (int now = 0;; tile++, now ^= 1) {
    cp_async_wait<0>();
    __syncthreads(); /* this tile is here for all; nobody reads the one before it any more */
    const bool more = tile < block->last;
    if (more) {
      load_pair<T, DP, COLUMNS>(k_tiles + (now ^ 1) * TILE, v_tiles + (now ^ 1) * TILE, block, c.a.qkv.stride, tile + 1,
                             c);
      cp_async_commit();
    }
    float s[ATOMS][COLUMNS / 8][4];
    scores<T, DP, ATOMS, COLUMNS>(s, rows, k_tiles + now * TILE);
    if ((tile + 1) * COLUMNS > block->p.first || !one_document<COLUMNS>(block, tile * COLUMNS, c))
      mask<ATOMS, COLUMNS, false>(s, block, tile * COLUMNS, c);
#pragma unroll
    for (int a = 0; a < ATOMS; a++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float top = most[a][r];
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++) top = fmaxf(top, fmaxf(s[a][n][2 * r], s[a][n][2 * r + 1]));
        top = quad_max(top);
        const float shift = top == -INFINITY ? 0.0f : top * unit; /* nothing so far: 2^(-inf - 0) is 0 */
        const float shrink = exp2_approx(fmaf(most[a][r], unit, -shift));
        float added = 0.0f;
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
          for (int j = 2 * r; j < 2 * r + 2; j++) {
            s[a][n][j] = exp2_approx(fmaf(s[a][n][j], unit, -shift));
            added += s[a][n][j];
          }
        sum[a][r] = fmaf(sum[a][r], shrink, added);
        most[a][r] = top;
#pragma unroll
        for (int n = 0; n < DP / 8; n++) {
          o[a][n][2 * r] *= shrink;
          o[a][n][2 * r + 1] *= shrink;
        }
      }
    add_product<T, DP, ATOMS, COLUMNS>(o, s, v_tiles + now * TILE);
    if (!more) break;
  }

  const struct place p = block->p;
  float factor[ATOMS][2];
#pragma unroll
  for (int a = 0; a < ATOMS; a++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = row_of<ATOMS>(p.first, a, r);
      const float total = quad_sum(sum[a][r]);
      factor[a][r] = 1.0f / total;
      if (thread_lane() % 4 == 0 && row < c.T)
        ((float *)c.a.lse.at)[(p.b * c.T + row) * c.a.lse.stride + p.h] = most[a][r] * (float)c.scale + logf(total);
    }
  put_rows<T, DP, ATOMS>(rows, o, factor);
  store_rows<T, DP, ATOMS * 16>(head_rows<T>(c.a.o, c, p, 0), c.a.o.stride, warp_row<ATOMS>(p.first), rows, c);
}

/* --- backward ----------------------------------------------------------------------------------- */

/* In place, from scores s and dp of one group of columns: s -> p, dp -> ds / scale.  Rows are queries, or with KEYS
 * keys. */
template <int ATOMS, int COLUMNS, bool KEYS>
static __device__ __forceinline__ void
weights_and_slopes(float s[ATOMS][COLUMNS / 8][4], float dp[ATOMS][COLUMNS / 8][4], float unit,
                   const struct row_stats<float> row[ATOMS][2], const struct row_stats<float> *column)
{
#pragma unroll
  for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
    for (int j = 0; j < 2; j++) {
      struct row_stats<float> of = {
        0.0f, 0.0f
      };
      if (KEYS) of = column[n * 8 + thread_lane() % 4 * 2 + j];
#pragma unroll
      for (int a = 0; a < ATOMS; a++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          if (!KEYS) of = row[a][r];
          const float p = exp2_approx(fmaf(s[a][n][2 * r + j], unit, -of.lse));
          s[a][n][2 * r + j] = p;
          dp[a][n][2 * r + j] = p * (dp[a][n][2 * r + j] - of.delta);
        }
    }
}

/* dq of one tile of queries.  FLOPs: 6 D a pair in a tile that is looked at. */
template <typename T, int DP, int ATOMS, int COLUMNS, int GROUP>
static __global__ void __launch_bounds__(MMA_THREADS, 2) mma_bwd_q(const struct attention_case c)
{
  enum { LD = DP + 8, ROWS = MMA_WARPS * ATOMS * 16, TILE = COLUMNS * LD };
  SHARED(struct mma_block<T>, block, 1);
  SHARED_DYNAMIC(T, q_tile);
  T *const do_tile = q_tile + ROWS * LD, *const k_tiles = do_tile + ROWS * LD, *const v_tiles = k_tiles + 2 * TILE;
  struct row_stats<float> row[ATOMS][2];
  int tile;
  {
    struct mma_block<T> all;
    tile = block_of_queries<T, ROWS, COLUMNS>(&all, c);
    if (threadIdx.x == 0) *block = all;
    load_tile<T, DP, ROWS>(q_tile, head_rows<const T>(c.a.qkv, c, all.p, 0), c.a.qkv.stride, all.p.first, c);
    load_tile<T, DP, ROWS>(do_tile, head_rows<const T>(c.a.d_o, c, all.p, 0), c.a.d_o.stride, all.p.first, c);
    load_pair<T, DP, COLUMNS>(k_tiles, v_tiles, &all, c.a.qkv.stride, tile, c);
    cp_async_commit();
#pragma unroll
    for (int a = 0; a < ATOMS; a++)
#pragma unroll
      for (int r = 0; r < 2; r++) row[a][r] = all.stats[row_of<ATOMS>(all.p.first, a, r)];
  }

  const int own = thread_warp() * ATOMS * 16 * LD;
  const float unit = (float)(c.scale * LOG2_E);
  float dq[ATOMS][DP / 8][4];
#pragma unroll
  for (int a = 0; a < ATOMS; a++)
#pragma unroll
    for (int n = 0; n < DP / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) dq[a][n][i] = 0.0f;

  for (int now = 0;; tile++, now ^= 1) {
    cp_async_wait<0>();
    __syncthreads(); /* as in mma_fwd */
    const bool more = tile < block->last;
    if (more) {
      load_pair<T, DP, COLUMNS>(k_tiles + (now ^ 1) * TILE, v_tiles + (now ^ 1) * TILE, block, c.a.qkv.stride, tile + 1,
                             c);
      cp_async_commit();
    }
    const bool masked = (tile + 1) * COLUMNS > block->p.first || !one_document<COLUMNS>(block, tile * COLUMNS, c);
#pragma unroll 1
    for (int group = 0; group < COLUMNS; group += GROUP) {
      const T *k_rows = k_tiles + now * TILE + group * LD, *v_rows = v_tiles + now * TILE + group * LD;
      float s[ATOMS][GROUP / 8][4], dp[ATOMS][GROUP / 8][4];
      scores<T, DP, ATOMS, GROUP>(s, q_tile + own, k_rows);
      if (masked) mask<ATOMS, GROUP, false>(s, block, tile * COLUMNS + group, c);
      scores<T, DP, ATOMS, GROUP>(dp, do_tile + own, v_rows);
      weights_and_slopes<ATOMS, GROUP, false>(s, dp, unit, row, NULL);
      add_product<T, DP, ATOMS, GROUP>(dq, dp, k_rows);
    }
    if (!more) break;
  }

  const struct place p = block->p;
  float factor[ATOMS][2];
#pragma unroll
  for (int a = 0; a < ATOMS; a++) factor[a][0] = factor[a][1] = (float)c.scale;
  put_rows<T, DP, ATOMS>(q_tile + own, dq, factor);
  store_rows<T, DP, ATOMS * 16>(head_rows<T>(c.a.dqkv, c, p, 0), c.a.dqkv.stride, warp_row<ATOMS>(p.first),
                             q_tile + own, c);
}

/* Queries of a tile, their do and their rows, into one of two places. */
template <typename T, int DP, int COLUMNS>
static __device__ __forceinline__ void load_queries(T *q_tile, T *do_tile, struct row_stats<float> *stats_tile,
                                                    const struct mma_block<T> *b, int tile, const struct attention_case &c)
{
  load_pair<T, DP, COLUMNS>(q_tile, do_tile, b, c.a.d_o.stride, tile, c);
  for (int i = (int)threadIdx.x; i < COLUMNS / 2; i += MMA_THREADS) /* two of 8 bytes; rows past T are there */
    cp_async_16(stats_tile + 2 * i, b->stats + tile * COLUMNS + 2 * i, 16);
  cp_async_commit();
}

/* dk and dv of one tile of keys.  FLOPs: 8 D a pair in a tile that is looked at. */
template <typename T, int DP, int ATOMS, int COLUMNS, int GROUP>
static __global__ void __launch_bounds__(MMA_THREADS, 2) mma_bwd_kv(const struct attention_case c)
{
  enum { LD = DP + 8, ROWS = MMA_WARPS * ATOMS * 16, TILE = COLUMNS * LD };
  SHARED(struct mma_block<T>, block, 1);
  SHARED_DYNAMIC(T, k_tile);
  T *const v_tile = k_tile + ROWS * LD, *const q_tiles = v_tile + ROWS * LD, *const do_tiles = q_tiles + 2 * TILE;
  struct row_stats<float> *const stats_tiles = (struct row_stats<float> *)(do_tiles + 2 * TILE);
  const int64_t C = (int64_t)c.a.heads * c.D;
  int tile;
  {
    struct mma_block<T> all;
    tile = block_of_keys<T, ROWS, COLUMNS>(&all, c);
    if (threadIdx.x == 0) *block = all;
    load_tile<T, DP, ROWS>(k_tile, all.x + C, c.a.qkv.stride, all.p.first, c);
    load_tile<T, DP, ROWS>(v_tile, all.x + 2 * C, c.a.qkv.stride, all.p.first, c);
    load_queries<T, DP, COLUMNS>(q_tiles, do_tiles, stats_tiles, &all, tile, c);
  }

  const int own = thread_warp() * ATOMS * 16 * LD;
  const float unit = (float)(c.scale * LOG2_E);
  float dk[ATOMS][DP / 8][4], dv[ATOMS][DP / 8][4];
#pragma unroll
  for (int a = 0; a < ATOMS; a++)
#pragma unroll
    for (int n = 0; n < DP / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) dk[a][n][i] = dv[a][n][i] = 0.0f;

  for (int now = 0;; tile++, now ^= 1) {
    cp_async_wait<0>();
    __syncthreads(); /* as in mma_fwd */
    const int other = now ^ 1;
    const bool more = tile < block->last;
    if (more)
      load_queries<T, DP, COLUMNS>(q_tiles + other * TILE, do_tiles + other * TILE, stats_tiles + other * COLUMNS, block,
                                tile + 1, c);
    const bool masked = tile * COLUMNS < block->p.first + ROWS - 1 || !one_document<COLUMNS>(block, tile * COLUMNS, c);
#pragma unroll 1
    for (int group = 0; group < COLUMNS; group += GROUP) {
      const T *q_rows = q_tiles + now * TILE + group * LD, *do_rows = do_tiles + now * TILE + group * LD;
      float s[ATOMS][GROUP / 8][4], dp[ATOMS][GROUP / 8][4];
      scores<T, DP, ATOMS, GROUP>(s, k_tile + own, q_rows);
      if (masked) mask<ATOMS, GROUP, true>(s, block, tile * COLUMNS + group, c);
      scores<T, DP, ATOMS, GROUP>(dp, v_tile + own, do_rows);
      weights_and_slopes<ATOMS, GROUP, true>(s, dp, unit, NULL, stats_tiles + now * COLUMNS + group);
      add_product<T, DP, ATOMS, GROUP>(dv, s, do_rows);
      add_product<T, DP, ATOMS, GROUP>(dk, dp, q_rows);
    }
    if (!more) break;
  }

  const struct place p = block->p;
  float scale[ATOMS][2], one[ATOMS][2];
#pragma unroll
  for (int a = 0; a < ATOMS; a++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      scale[a][r] = (float)c.scale;
      one[a][r] = 1.0f;
    }
  const int first_row = warp_row<ATOMS>(p.first);
  put_rows<T, DP, ATOMS>(k_tile + own, dk, scale);
  put_rows<T, DP, ATOMS>(v_tile + own, dv, one);
  store_rows<T, DP, ATOMS * 16>(head_rows<T>(c.a.dqkv, c, p, C), c.a.dqkv.stride, first_row, k_tile + own, c);
  store_rows<T, DP, ATOMS * 16>(head_rows<T>(c.a.dqkv, c, p, 2 * C), c.a.dqkv.stride, first_row, v_tile + own, c);
}

#endif
