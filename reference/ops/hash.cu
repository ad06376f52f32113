/* hash.cu - the 64-bit hash of a tensor's bytes on CUDA: the CPU's value; how it is made: hash.c.
 *
 * Bytes: x once.  Sixteen threads take a chunk, one a lane; a warp mixes the chunks in order, one multiplication after
 * the other: about 20 clocks a chunk, of 16 KiB in float32.
 */
#include "ops/hash_args.h"
#include "ops/rows.cuh"

#include <inttypes.h>

enum { THREADS = 128, CHUNKS_A_BLOCK = THREADS / HASH_LANES };

/* Word `word` of the chunk of elements start .. end of x in row order; bytes past the end are 0. */
template <typename U>
static __device__ __forceinline__ uint64_t word_of(const rows_view<const U> &x, const rows_walk &w, int64_t start,
                                                   int64_t end, int64_t word)
{
  const int n = 8 / sizeof(U);
  const int64_t first = start + word * n;
  if (w.aligned && w.rows == 1 && first + n <= end) return *(const uint64_t *)(x.at + first);
  uint64_t bits = 0;
#pragma unroll
  for (int k = 0; k < n; k++) {
    const int64_t i = first + k;
    if (i >= end) break;
    const int64_t row = w.rows == 1 ? 0 : i / w.cols;
    bits |= (uint64_t)x.at[row * x.stride + (i - row * w.cols)] << 8 * (int)sizeof(U) * k;
  }
  return bits;
}

template <typename U>
static __global__ void chunks_kernel(uint64_t *part, rows_view<const U> x, int64_t chunks, rows_walk w)
{
  const int lane = (int)threadIdx.x % HASH_LANES;
  const int64_t chunk = (int64_t)blockIdx.x * CHUNKS_A_BLOCK + threadIdx.x / HASH_LANES;
  const int64_t start = chunk * HASH_CHUNK, count = w.rows * w.cols,
                end = start + HASH_CHUNK < count ? start + HASH_CHUNK : count;
  const int64_t words = chunk < chunks ? ((end - start) * (int64_t)sizeof(U) + 7) / 8 : 0;
  uint64_t mine = hash_lane(lane), h = 0;
#pragma unroll 4
  for (int64_t word = lane; word < (words + HASH_LANES - 1) / HASH_LANES * HASH_LANES; word += HASH_LANES)
    mine = hash_mix(mine, word_of(x, w, start, end, word));
#pragma unroll
  for (int l = 0; l < HASH_LANES; l++)
    h = hash_mix(h, __shfl_sync(0xFFFFFFFFu, (unsigned long long)mine, l, HASH_LANES));
  if (chunk < chunks && lane == 0) part[chunk] = h;
}

/* One warp. */
static __global__ void mix_kernel(int64_t *out, const uint64_t *part, int64_t chunks, uint64_t bytes)
{
  uint64_t h = 0, next = (int64_t)threadIdx.x < chunks ? part[threadIdx.x] : 0;
  for (int64_t first = 0; first < chunks; first += WARP) {
    const uint64_t mine = next;
    const int64_t ahead = first + WARP + threadIdx.x;
    next = ahead < chunks ? part[ahead] : 0; /* under way while these are mixed */
    const int n = chunks - first < WARP ? (int)(chunks - first) : (int)WARP;
    for (int l = 0; l < n; l++) h = hash_mix(h, __shfl_sync(0xFFFFFFFFu, (unsigned long long)mine, l));
  }
  if (threadIdx.x == 0) *out = (int64_t)hash_mix(h, bytes);
}

template <typename U> static enum err hash(const struct dev_cuda *at, const struct hash_args *a)
{
  const rows_walk w = rows_over(vector_width<U>::value, true, {&a->x});
  const int64_t chunks = (w.rows * w.cols + HASH_CHUNK - 1) / HASH_CHUNK;
  const size_t bytes = (size_t)chunks * sizeof(uint64_t);
  if (bytes > at->workspace_bytes)
    FAIL(ERR_MEMORY, "%" PRId64 " hashes take %zu bytes, the workspace has %zu", chunks, bytes, at->workspace_bytes);
  uint64_t *part = (uint64_t *)at->workspace;
  TRY(LAUNCH(at, chunks_kernel<U>, blocks_for(chunks, CHUNKS_A_BLOCK), THREADS, 0, part, rows_of<const U>(&a->x),
             chunks, w));
  return LAUNCH(at, mix_kernel, 1, WARP, 0, (int64_t *)a->out.at, part, chunks,
                (uint64_t)(w.rows * w.cols) * sizeof(U));
}
extern "C" enum err op_hash_cuda(const struct dev_cuda *at, void *args)
{
  const struct hash_args *a = (const struct hash_args *)args;
  switch (dtype_bytes(a->x.type)) {
  case 1: return hash<uint8_t>(at, a);
  case 2: return hash<uint16_t>(at, a);
  case 4: return hash<uint32_t>(at, a);
  default: return hash<uint64_t>(at, a);
  }
}
