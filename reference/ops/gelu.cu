/* gelu.cu - GELU on CUDA; formula and source: gelu.c.
 *
 * Bytes: x, y forward, x, dy, dx backward; the arithmetic stays below what they take.  In bf16, whose rounding is
 * 2^-8, s is taken from the card's short exponential and reciprocal (relative error below 2^-16 where s counts).
 */
#include "ops/gelu_args.h"
#include "ops/rows.cuh"

/* 1 / (1 + e^-v) */
template <typename T> static __device__ __forceinline__ stat_t<T> logistic(stat_t<T> v) { return 1 / (1 + exp(-v)); }
template <> __device__ __forceinline__ float logistic<bf16>(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }

/* s(x) */
template <typename T> static __device__ __forceinline__ stat_t<T> share(stat_t<T> x)
{
  const stat_t<T> two_root = 1.5957691216057308, cube = 0.044715; /* 2 sqrt(2 / pi) */
  return logistic<T>(two_root * (x + cube * (x * x * x)));
}

template <typename T> static __global__ void fwd_kernel(rows_view<T> y, rows_view<const T> x, rows_walk w)
{
  const int n = vector_width<T>::value;
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) {
    rows_group<T, n> g = rows_load<n>(x, w, p);
#pragma unroll
    for (int k = 0; k < n; k++) {
      const stat_t<T> v = widen(g.at[k]);
      g.at[k] = narrow<T>(v * share<T>(v));
    }
    rows_store(y, w, p, g);
  }
}

/* dx may be dy: a group is read before it is written. */
template <typename T>
static __global__ void bwd_kernel(rows_view<T> dx, rows_view<const T> dy, rows_view<const T> x, rows_walk w)
{
  const int n = vector_width<T>::value;
  const stat_t<T> two_root = 1.5957691216057308, cube = 0.044715;
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) {
    const rows_group<T, n> in = rows_load<n>(x, w, p);
    rows_group<T, n> g = rows_load<n>(dy, w, p);
#pragma unroll
    for (int k = 0; k < n; k++) {
      const stat_t<T> v = widen(in.at[k]), s = share<T>(v);
      const stat_t<T> slope = s + v * s * (1 - s) * (two_root * (1 + 3 * cube * (v * v)));
      g.at[k] = narrow<T>(widen(g.at[k]) * slope);
    }
    rows_store(dx, w, p, g);
  }
}

template <typename T> static enum err fwd(const struct dev_cuda *at, void *args)
{
  const struct gelu_args *a = (const struct gelu_args *)args;
  const rows_walk w = rows_over(vector_width<T>::value, true, {&a->y, &a->x});
  return ROWS_LAUNCH(at, fwd_kernel<T>, w, rows_of<T>(&a->y), rows_of<const T>(&a->x), w);
}
template <typename T> static enum err bwd(const struct dev_cuda *at, void *args)
{
  const struct gelu_args *a = (const struct gelu_args *)args;
  const rows_walk w = rows_over(vector_width<T>::value, true, {&a->y, &a->dy, &a->x});
  return ROWS_LAUNCH(at, bwd_kernel<T>, w, rows_of<T>(&a->y), rows_of<const T>(&a->dy), rows_of<const T>(&a->x), w);
}
OP_CUDA_EACH_TYPE(op_gelu_fwd, fwd)
OP_CUDA_EACH_TYPE(op_gelu_bwd, bwd)
