/* bias.cu - y += b on every row, on CUDA: of a linear layer (linear.c), the CPU's bits.
 *
 * Bytes: y twice; b stays in the caches.
 */
#include "ops/linear_args.h"
#include "ops/rows.cuh"

template <typename T> static __global__ void bias_kernel(rows_view<T> y, rows_view<const T> b, rows_walk w)
{
  const int n = vector_width<T>::value;
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) {
    rows_group<T, n> g = rows_load<n>(y, w, p);
    const rows_group<T, n> add = rows_load<T, n>(b.at + p.col, p.count, w.aligned);
#pragma unroll
    for (int k = 0; k < n; k++) g.at[k] = narrow<T>(widen(g.at[k]) + widen(add.at[k]));
    rows_store(y, w, p, g);
  }
}

template <typename T> static enum err bias(const struct dev_cuda *at, void *args)
{
  const struct linear_args *l = (const struct linear_args *)args;
  const rows_walk w = rows_over(vector_width<T>::value, false, {&l->y, &l->b});
  return ROWS_LAUNCH(at, bias_kernel<T>, w, rows_of<T>(&l->y), rows_of<const T>(&l->b), w);
}
OP_CUDA_EACH_TYPE(op_bias_fwd, bias)
