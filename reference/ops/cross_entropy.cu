/* cross_entropy.cu - softmax cross-entropy on CUDA; formulas: cross_entropy.c.
 *
 * Forward reads the logits once: each thread of a row's block keeps the largest it has seen and the sum of
 * e^(x - largest), scaled down when a larger one comes (Milakov & Gimelshein 2018), and the threads meet at the end.
 * A part of the vocabulary sums in the same way before it goes over to the largest of all parts: one part of all
 * columns has the forward's bits.  Bytes: the logits, for each of fwd, max, sums; twice for bwd.
 *
 * A thread adds in the state type, at most a few hundred terms; threads are added in double.  Which thread takes
 * which columns depends on their number alone.  In bf16 the terms are the card's short exponential.
 */
#include "ops/cross_entropy_args.h"
#include "ops/rows.cuh"

struct targets {
  const int32_t *at;
  int64_t cols, stride;
  struct dev_cuda_report *report;
  int64_t limit; /* a target is below it */
};
static struct targets targets_of(const struct dev_cuda *at, const struct tensor *t, int64_t limit)
{
  return {(const int32_t *)t->at, t->cols, t->stride, at->report, limit};
}
static const char outside[] = "target %lld at [%lld, %lld] is outside -1..%lld";

/* The target of row n; -1 for one that cannot be. */
static __device__ __forceinline__ int64_t target(const struct targets &x, int64_t n, bool tell, const char *format)
{
  const int64_t past = x.stride - x.cols; /* numbers between two rows of them */
  const int64_t k = x.at[past == 0 ? n : n + n / x.cols * past];
  if (k >= -1 && k < x.limit) return k;
  if (tell) REPORT(x.report, format, k, n / x.cols, n % x.cols, x.limit - 1);
  return -1;
}

template <typename T> static __device__ __forceinline__ stat_t<T> exp_of(stat_t<T> x) { return exp(x); }
template <> __device__ __forceinline__ float exp_of<bf16>(float x) { return __expf(x); }

/* Of x[0 .. cols), by the whole block, to each of its threads: the largest, and the sum of e^(x - largest).
 * -infinity and 0 with no column.  A NaN is passed over by the largest and makes the sum NaN. */
template <typename T> struct soft {
  stat_t<T> largest;
  double sum;
};
template <typename T>
static __device__ __forceinline__ soft<T> soft_of(const T *x, int64_t cols, bool aligned, stat_t<T> *scratch,
                                                  double *scratch2)
{
  typedef stat_t<T> S;
  const int n = vector_width<T>::value;
  S largest = -(S)INFINITY, sum = 0;
  rows_each(x, cols, aligned, threadIdx.x, blockDim.x, [&](const rows_group<T, n> &g, int count) {
    S v[n], most = largest;
#pragma unroll
    for (int k = 0; k < n; k++) {
      v[k] = k < count ? widen(g.at[k]) : -(S)INFINITY; /* e^x is 0 */
      if (v[k] > most) most = v[k];
    }
    if (most > largest) {
      sum *= exp(largest - most);
      largest = most;
    }
    const S shift = largest == -(S)INFINITY ? 0 : largest; /* nothing but -infinity so far */
#pragma unroll
    for (int k = 0; k < n; k++) sum += exp_of<T>(v[k] - shift);
  });
  soft<T> all;
  all.largest = block_max(largest, scratch);
  const S shift = all.largest == -(S)INFINITY ? 0 : all.largest;
  all.sum = block_sum((double)sum * (double)exp(largest - shift), scratch2);
  return all;
}

/* One block a row: as many threads as leave each about four groups. */
template <typename T> static unsigned int threads_for(int64_t cols)
{
  const int64_t groups = (cols * (int64_t)sizeof(T) + 15) / 16, warps = (groups + 4 * WARP - 1) / (4 * WARP);
  return (unsigned int)(warps < 1 ? 1 : warps > 16 ? 16 : warps) * WARP;
}

template <typename T>
static __global__ void fwd_kernel(double *losses, int64_t losses_stride, stat_t<T> *lse, int64_t lse_stride,
                                  rows_view<const T> logits, struct targets targets, const char *format, int64_t cols,
                                  bool aligned)
{
  SHARED(stat_t<T>, scratch, WARP);
  SHARED(double, scratch2, WARP);
  const int64_t row = blockIdx.x;
  const T *x = logits.at + row * logits.stride;
  const soft<T> s = soft_of(x, cols, aligned, scratch, scratch2);
  if (threadIdx.x > 0) return;
  const int64_t k = target(targets, row, true, format);
  const double log_sum = log(s.sum), m = (double)s.largest;
  lse[row * lse_stride] = (stat_t<T>)(m + log_sum);
  losses[row * losses_stride] = k < 0 ? 0.0 : log_sum + (m - (double)widen(x[k]));
}
template <typename T> static enum err fwd(const struct dev_cuda *at, void *args)
{
  typedef stat_t<T> S;
  const struct cross_entropy_args *a = (const struct cross_entropy_args *)args;
  const int64_t V = a->logits.cols;
  return LAUNCH(at, fwd_kernel<T>, (unsigned int)a->logits.rows, threads_for<T>(V), 0, (double *)a->losses.at,
                a->losses.stride, (S *)a->lse.at, a->lse.stride, rows_of<const T>(&a->logits),
                targets_of(at, &a->targets, V), outside, V, vector_aligned(&a->logits));
}
OP_CUDA_EACH_TYPE(op_cross_entropy_fwd, fwd)

/* --- in parts of the vocabulary ---------------------------------------------------------------- */

template <typename T>
static __global__ void max_kernel(double *max, int64_t max_stride, rows_view<const T> logits, int64_t valid,
                                  bool aligned)
{
  typedef stat_t<T> S;
  const int n = vector_width<T>::value;
  SHARED(S, scratch, WARP);
  const T *x = logits.at + (int64_t)blockIdx.x * logits.stride;
  S most = -(S)INFINITY;
  rows_each(x, valid, aligned, threadIdx.x, blockDim.x, [&](const rows_group<T, n> &g, int count) {
#pragma unroll
    for (int k = 0; k < n; k++)
      if (k < count && widen(g.at[k]) > most) most = widen(g.at[k]);
  });
  most = block_max(most, scratch);
  if (threadIdx.x == 0) max[(int64_t)blockIdx.x * max_stride] = (double)most;
}
template <typename T> static enum err max_of_part(const struct dev_cuda *at, void *args)
{
  const struct cross_entropy_args *a = (const struct cross_entropy_args *)args;
  return LAUNCH(at, max_kernel<T>, (unsigned int)a->logits.rows, threads_for<T>(a->valid), 0, (double *)a->max.at,
                a->max.stride, rows_of<const T>(&a->logits), a->valid, vector_aligned(&a->logits));
}
OP_CUDA_EACH_TYPE(op_cross_entropy_max, max_of_part)

template <typename T>
static __global__ void sums_kernel(rows_view<double> sums, rows_view<const double> max, rows_view<const T> logits,
                                   struct targets targets, int64_t first, int64_t valid, bool aligned)
{
  SHARED(stat_t<T>, scratch, WARP);
  SHARED(double, scratch2, WARP);
  const int64_t row = blockIdx.x;
  const T *x = logits.at + row * logits.stride;
  const soft<T> s = soft_of(x, valid, aligned, scratch, scratch2);
  if (threadIdx.x > 0) return;
  const int64_t k = target(targets, row, false, NULL) - first;
  double *out = sums.at + row * sums.stride;
  out[0] = valid > 0 ? s.sum * exp((double)s.largest - max.at[row * max.stride]) : 0.0;
  out[1] = k < 0 || k >= valid ? 0.0 : (double)widen(x[k]);
}
template <typename T> static enum err sums_of_part(const struct dev_cuda *at, void *args)
{
  const struct cross_entropy_args *a = (const struct cross_entropy_args *)args;
  return LAUNCH(at, sums_kernel<T>, (unsigned int)a->logits.rows, threads_for<T>(a->valid), 0,
                rows_of<double>(&a->sums), rows_of<const double>(&a->max), rows_of<const T>(&a->logits),
                targets_of(at, &a->targets, (int64_t)INT32_MAX + 1), a->first, a->valid, vector_aligned(&a->logits));
}
OP_CUDA_EACH_TYPE(op_cross_entropy_sums, sums_of_part)

/* Bytes: a few numbers a row. */
template <typename S>
static __global__ void join_kernel(double *losses, int64_t losses_stride, S *lse, int64_t lse_stride,
                                   rows_view<const double> max, rows_view<const double> sums, struct targets targets,
                                   const char *format, int64_t rows)
{
  const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const int64_t k = target(targets, row, true, format);
  const double m = max.at[row * max.stride], *part = sums.at + row * sums.stride, log_sum = log(part[0]);
  lse[row * lse_stride] = (S)(m + log_sum);
  losses[row * losses_stride] = k < 0 ? 0.0 : log_sum + (m - part[1]);
}
template <typename S> static enum err join(const struct dev_cuda *at, void *args)
{
  const struct cross_entropy_args *a = (const struct cross_entropy_args *)args;
  return LAUNCH(at, join_kernel<S>, blocks_for(a->lse.rows, ROWS_THREADS), ROWS_THREADS, 0, (double *)a->losses.at,
                a->losses.stride, (S *)a->lse.at, a->lse.stride, rows_of<const double>(&a->max),
                rows_of<const double>(&a->sums), targets_of(at, &a->targets, a->vocab), outside, a->lse.rows);
}
OP_CUDA_EACH_STATE(op_cross_entropy_join, join)

/* --- backward ------------------------------------------------------------------------------------- */

/* dx may be x: a group is read before it is written, and the target's logit is in its own group. */
template <typename T>
static __global__ void bwd_kernel(rows_view<T> dx, rows_view<const T> logits, rows_view<const stat_t<T>> lse,
                                  struct targets targets, const char *format, const double *scale, int64_t first,
                                  int64_t valid, rows_walk w)
{
  typedef stat_t<T> S;
  const int n = vector_width<T>::value;
  const S by = (S)*scale;
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) {
    const int64_t k = target(targets, p.row, p.col == 0, format), column = k - first - p.col; /* in this group */
    const int64_t left = k < 0 ? 0 : valid - p.col;
    const int count = left < 0 ? 0 : left < p.count ? (int)left : p.count; /* the rest is 0 and not looked at */
    const S shift = lse.at[p.row * lse.stride];
    rows_group<T, n> g = rows_load<T, n>(logits.at + p.row * logits.stride + p.col, count, w.aligned);
#pragma unroll
    for (int c = 0; c < n; c++) {
      const S e = exp_of<T>(widen(g.at[c]) - shift);
      g.at[c] = narrow<T>(c >= count ? 0 : (c == column ? e - 1 : e) * by);
    }
    rows_store(dx, w, p, g);
  }
}
template <typename T> static enum err bwd(const struct dev_cuda *at, void *args)
{
  const struct cross_entropy_args *a = (const struct cross_entropy_args *)args;
  const rows_walk w = rows_over(vector_width<T>::value, false, {&a->dlogits, &a->logits});
  return ROWS_LAUNCH(at, bwd_kernel<T>, w, rows_of<T>(&a->dlogits), rows_of<const T>(&a->logits),
                     rows_of<const stat_t<T>>(&a->lse), targets_of(at, &a->targets, (int64_t)INT32_MAX + 1), outside,
                     (const double *)a->scale.at, a->first, a->valid, w);
}
OP_CUDA_EACH_TYPE(op_cross_entropy_bwd, bwd)
