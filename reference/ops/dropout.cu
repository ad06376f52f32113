/* dropout.cu - y = x * keep / (1 - p) on CUDA; which word an element draws: dropout.c.  The CPU's bits.
 *
 * Bytes: x, y.  A block of Philox is four words: a group draws the blocks that hold its words, once each; in bf16 its
 * 40 multiplications and as many exclusive ors for eight elements are about what the card does in the time of the
 * bytes, so nothing else may cost much.
 */
#include "ops/dropout_args.h"
#include "ops/rows.cuh"

#include "base/philox.h"

/* Bit k: word first + k of the key is at least `threshold`, k < n. */
template <int n>
static __device__ __forceinline__ unsigned int draw(struct rng_key key, uint64_t first, uint32_t threshold)
{
  const int skip = (int)(first % 4), blocks = (skip + n + 3) / 4;
  unsigned int kept = 0;
#pragma unroll
  for (int b = 0; b < n / 4 + 2; b++) {
    if (b >= blocks) break;
    uint32_t words[4];
    philox_block(key, first / 4 + (uint64_t)b, words);
#pragma unroll
    for (int j = 0; j < 4; j++) kept |= (unsigned int)(words[j] >= threshold) << (4 * b + j);
  }
  return kept >> skip;
}

/* g = g * keep * scale; its first element draws word `first`. */
template <typename T, int n>
static __device__ __forceinline__ void drop(rows_group<T, n> &g, struct rng_key key, uint64_t first, uint32_t threshold,
                                            stat_t<T> scale)
{
  if (n % 4 == 0 && first % 4 == 0) { /* whole blocks, as rows of a multiple of 4 have: no bits to carry */
#pragma unroll
    for (int b = 0; b < n / 4; b++) {
      uint32_t words[4];
      philox_block(key, first / 4 + (uint64_t)b, words);
#pragma unroll
      for (int j = 0; j < 4; j++)
        g.at[4 * b + j] = narrow<T>(words[j] >= threshold ? widen(g.at[4 * b + j]) * scale : 0);
    }
  } else {
    const unsigned int kept = draw<n>(key, first, threshold);
#pragma unroll
    for (int k = 0; k < n; k++) g.at[k] = narrow<T>(kept >> k & 1 ? widen(g.at[k]) * scale : 0);
  }
}

/* `first` is that of row 0 of x among the rows of all samples.  y may be x. */
template <typename T>
static __global__ void dropout_kernel(rows_view<T> y, rows_view<const T> x, rows_view<const int32_t> samples,
                                      const int32_t *step, struct rng_key key, struct rows_divisor sequence,
                                      int64_t first, int64_t positions_max, uint32_t threshold, stat_t<T> scale,
                                      rows_walk w)
{
  const int n = vector_width<T>::value;
  key.step = (uint32_t)*step;
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) {
    rows_group<T, n> g = rows_load<n>(x, w, p);
    const int64_t row = first + p.row, b = rows_quotient(row, sequence), t = row - b * sequence.by;
    const int64_t global = samples.at[b * samples.stride] * positions_max + t;
    drop(g, key, (uint64_t)global * (uint64_t)w.cols + (uint64_t)p.col, threshold, scale);
    rows_store(y, w, p, g);
  }
}

template <typename T> static enum err dropout(const struct dev_cuda *at, void *args)
{
  const struct dropout_args *d = (const struct dropout_args *)args;
  const rows_walk w = rows_over(vector_width<T>::value, false, {&d->y, &d->x});
  return ROWS_LAUNCH(at, dropout_kernel<T>, w, rows_of<T>(&d->y), rows_of<const T>(&d->x),
                     rows_of<const int32_t>(&d->samples), (const int32_t *)d->step.at, d->key, rows_divisor_of(d->T),
                     d->row0, d->positions_max, d->threshold, (stat_t<T>)d->scale, w);
}
OP_CUDA_EACH_TYPE(op_dropout, dropout)
