/* reduce.cu - sum, sum of squares and largest magnitude of a whole tensor on CUDA, into f64 [1, 1].
 *
 * Bytes: x once.  The elements, in row order whatever the row stride, are cut into chunks of CHUNK.  A block adds one
 * chunk in double: thread t takes groups t, t + 256, ..., then the threads meet in a fixed tree; one block adds the
 * chunks' sums in the same way.  So the order is that of the number of elements and their type.
 */
#include "ops/reduce_args.h"
#include "ops/rows.cuh"

#include <inttypes.h>

static const int64_t CHUNK = 16384;
enum { THREADS = 256, LAST_THREADS = 1024 };

/* What is summed of an element, and how two sums meet.  Without its sign bit a double orders like an integer, and
 * every NaN is above infinity: the largest is taken of the bits. */
enum kind { SUM, SQUARES, LARGEST };
template <enum kind kind> static __device__ __forceinline__ double term(double x)
{
  return kind == SUM ? x : kind == SQUARES ? x * x : fabs(x);
}
template <enum kind kind> static __device__ __forceinline__ double joined(double a, double b)
{
  if constexpr (kind == LARGEST)
    return __double_as_longlong(a) > __double_as_longlong(b) ? a : b;
  else
    return a + b;
}
/* Of the whole block; thread 0 has it. */
template <enum kind kind> static __device__ __forceinline__ double block_joined(double value, double *scratch)
{
  for (int apart = WARP / 2; apart > 0; apart /= 2)
    value = joined<kind>(value, __shfl_xor_sync(0xFFFFFFFFu, value, apart));
  if (thread_lane() == 0) scratch[thread_warp()] = value;
  __syncthreads();
  for (int v = 1; v < thread_count() / WARP; v++) value = joined<kind>(value, scratch[v]);
  return value;
}

/* Elements first .. first + count of x, whose rows do not follow one another, in row order; the rest is 0. */
template <typename T, int n>
static __device__ __forceinline__ rows_group<T, n> across_rows(const rows_view<const T> &x, int64_t cols, int64_t first,
                                                               int count)
{
  rows_group<T, n> g;
  int64_t row = first / cols, col = first - row * cols;
#pragma unroll
  for (int k = 0; k < n; k++) {
    g.at[k] = k < count ? x.at[row * x.stride + col] : T(0);
    if (++col == cols) {
      row++;
      col = 0;
    }
  }
  return g;
}

template <typename T, enum kind kind>
static __global__ void chunk_kernel(double *part, rows_view<const T> x, int64_t chunk, rows_walk w)
{
  const int n = vector_width<T>::value;
  SHARED(double, scratch, WARP);
  const int64_t first = (int64_t)blockIdx.x * chunk, left = w.rows * w.cols - first, size = left < chunk ? left : chunk;
  double sum = 0;
  const auto take = [&](const rows_group<T, n> &g, int) { /* what is past the end is 0 and changes none of them */
#pragma unroll
                                                          for (int k = 0; k < n; k++)
                                                            sum = joined<kind>(sum, term<kind>((double)widen(g.at[k])));
  };
  if (w.rows == 1)
    rows_each(x.at + first, size, w.aligned, threadIdx.x, THREADS, take);
  else
    for (int64_t i = (int64_t)threadIdx.x * n; i < size; i += (int64_t)THREADS * n)
      take(across_rows<T, n>(x, w.cols, first + i, size - i < n ? (int)(size - i) : n), n);
  sum = block_joined<kind>(sum, scratch);
  if (threadIdx.x == 0) part[blockIdx.x] = sum;
}
template <enum kind kind> static __global__ void last_kernel(double *out, const double *part, int64_t n)
{
  SHARED(double, scratch, WARP);
  double sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < n; i += LAST_THREADS) sum = joined<kind>(sum, part[i]);
  sum = block_joined<kind>(sum, scratch);
  if (threadIdx.x == 0) *out = sum;
}

template <typename T, enum kind kind> static enum err reduce(const struct dev_cuda *at, const struct reduce_args *a)
{
  const int n = vector_width<T>::value;
  const rows_walk w = rows_over(n, true, {&a->x});
  const int64_t chunks = (w.rows * w.cols + CHUNK - 1) / CHUNK;
  const size_t bytes = (size_t)chunks * sizeof(double);
  if (bytes > at->workspace_bytes)
    FAIL(ERR_MEMORY, "%" PRId64 " sums take %zu bytes, the workspace has %zu", chunks, bytes, at->workspace_bytes);
  double *part = (double *)at->workspace;
  TRY(LAUNCH(at, (chunk_kernel<T, kind>), (unsigned int)chunks, THREADS, 0, part, rows_of<const T>(&a->x), CHUNK, w));
  return LAUNCH(at, last_kernel<kind>, 1, LAST_THREADS, 0, (double *)a->out.at, part, chunks);
}
template <typename T> static enum err sum(const struct dev_cuda *at, void *args)
{
  return reduce<T, SUM>(at, (const struct reduce_args *)args);
}
template <typename T> static enum err sum_squares(const struct dev_cuda *at, void *args)
{
  return reduce<T, SQUARES>(at, (const struct reduce_args *)args);
}
template <typename T> static enum err max_abs(const struct dev_cuda *at, void *args)
{
  return reduce<T, LARGEST>(at, (const struct reduce_args *)args);
}
OP_CUDA_EACH_TYPE(op_sum, sum)
OP_CUDA_EACH_TYPE(op_sum_squares, sum_squares)
OP_CUDA_EACH_TYPE(op_max_abs, max_abs)
