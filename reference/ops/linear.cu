/* linear.cu - y = x w + b on CUDA: products by matmul_cuda.c, with the bias in the product's own last step.
 *
 * The bias's gradient is a sum over rows: each block adds ROWS rows of 32 vectors of columns, each of its warps every
 * WARPS-th row, the warps' sums in their order; a second kernel adds the blocks' in theirs.  dy is read once.
 */
#include "ops/linear_args.h"
#include "ops/matmul_cuda.h"
#include "ops/rows.cuh"

#include <inttypes.h>

extern "C" enum err op_bias_fwd_cuda_f64(const struct dev_cuda *at, void *args); /* bias.cu */

enum { WARPS = 8, THREADS = WARPS * WARP, ROWS = 256 };

/* part [blockIdx.y, O] = the sum of `rows` rows of dy.  Reads N O elements. */
template <typename T, int WIDTH>
static __global__ void column_sums_kernel(stat_t<T> *part, struct tensor dy, int64_t rows)
{
  typedef stat_t<T> S;
  SHARED(S, sums, WARPS * WARP * WIDTH);
  const int64_t col = ((int64_t)blockIdx.x * WARP + thread_lane()) * WIDTH, first = (int64_t)blockIdx.y * rows,
                end = min(first + rows, dy.rows);
  S sum[WIDTH] = {};
  if (col < dy.cols)
    for (int64_t r = first + thread_warp(); r < end; r += WARPS) {
      const vector<T, WIDTH> x = load_vector<T, WIDTH>((const T *)dy.at + r * dy.stride + col);
      for (int j = 0; j < WIDTH; j++) sum[j] += widen(x.at[j]);
    }
  for (int j = 0; j < WIDTH; j++) sums[(thread_warp() * WIDTH + j) * WARP + thread_lane()] = sum[j];
  __syncthreads();
  for (int i = (int)threadIdx.x; i < WARP * WIDTH; i += THREADS) {
    S total = 0;
    for (int w = 0; w < WARPS; w++) total += sums[w * WARP * WIDTH + i];
    const int64_t to = ((int64_t)blockIdx.x * WARP + i % WARP) * WIDTH + i / WARP;
    if (to < dy.cols) part[blockIdx.y * dy.cols + to] = total;
  }
}
template <typename S> static __global__ void add_parts_kernel(S *db, const S *part, int64_t cols, int64_t parts)
{
  const int64_t col = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (col >= cols) return;
  S sum = 0;
  for (int64_t i = 0; i < parts; i++) sum += part[i * cols + col];
  db[col] += sum;
}

template <typename T> static enum err run_bias_gradient(const struct dev_cuda *at, const struct linear_args *l)
{
  typedef stat_t<T> S;
  enum { WIDE = vector_width<T>::value };
  const struct tensor *dy = &l->y;
  S *part = (S *)at->workspace;
  int64_t rows = ROWS;
  while ((dy->rows + rows - 1) / rows > 65535 ||
         (size_t)((dy->rows + rows - 1) / rows * dy->cols) * sizeof(S) > at->workspace_bytes) {
    if (rows >= dy->rows)
      FAIL(ERR_MEMORY, "a bias's gradient of %" PRId64 " columns needs more than %zu bytes of workspace", dy->cols,
           at->workspace_bytes);
    rows *= 2;
  }
  const unsigned parts = blocks_for(dy->rows, rows);
  if (vector_aligned(dy) && (size_t)dy->cols * sizeof(T) % 16 == 0)
    TRY(LAUNCH(at, (column_sums_kernel<T, WIDE>), dim3(blocks_for(dy->cols, WARP * WIDE), parts), THREADS, 0, part, *dy,
               rows));
  else
    TRY(LAUNCH(at, (column_sums_kernel<T, 1>), dim3(blocks_for(dy->cols, WARP), parts), THREADS, 0, part, *dy, rows));
  return LAUNCH(at, add_parts_kernel<S>, blocks_for(dy->cols, THREADS), THREADS, 0, (S *)l->b.at, part, dy->cols,
                parts);
}

/* The library fuses no bias into a float64 product: it is added after. */
template <typename T> static enum err run_fwd(const struct dev_cuda *at, void *args)
{
  const struct linear_args *l = (const struct linear_args *)args;
  const bool apart = l->b.at != NULL && sizeof(T) == sizeof(double);
  TRY(matmul_cuda(at, &l->y, &l->x, false, &l->w, l->transposed, false, apart ? NULL : l->b.at));
  return apart ? op_bias_fwd_cuda_f64(at, args) : ERR_OK;
}

template <typename T> static enum err run_bwd_x(const struct dev_cuda *at, void *args)
{
  const struct linear_args *l = (const struct linear_args *)args;
  return matmul_cuda(at, &l->x, &l->y, false, &l->w, !l->transposed, false, NULL);
}

template <typename T> static enum err run_bwd_w(const struct dev_cuda *at, void *args)
{
  const struct linear_args *l = (const struct linear_args *)args;
  const struct tensor *left = l->transposed ? &l->y : &l->x, *right = l->transposed ? &l->x : &l->y;
  TRY(matmul_cuda(at, &l->w, left, true, right, false, true, NULL));
  return l->b.at == NULL ? ERR_OK : run_bias_gradient<T>(at, l);
}

OP_CUDA_EACH_TYPE(op_linear_fwd, run_fwd)
OP_CUDA_EACH_TYPE(op_linear_bwd_x, run_bwd_x)
OP_CUDA_EACH_TYPE(op_linear_bwd_w, run_bwd_w)
