/* hash.c - a 64-bit hash of a tensor's bytes in row order, into i64 [1, 1].
 *
 * Row stride, shape and type do not count: equal contents, equal hash.  It finds differences between
 * replicas; it does not withstand an adversary.  The bytes are cut into chunks of HASH_CHUNK elements, a
 * chunk into blocks of HASH_LANES 64-bit words (the last one padded with zeros); word l of a block goes to
 * lane l by
 *   h = (h ^ word) * M, h ^= h >> 32
 * which loses nothing: one changed word always changes its lane.  Lanes, then chunks, then the
 * number of bytes are mixed in order by the same step.  Threads share out chunks.
 */
#include "ops/hash_args.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

enum { BATCH = 512 };

CLONES static uint64_t chunk_hash(const char *bytes, int64_t n)
{
  uint64_t lane[HASH_LANES], h = 0;
  const int64_t block = sizeof lane;
  for (int l = 0; l < HASH_LANES; l++) lane[l] = hash_lane(l);
  for (int64_t i = 0; i < n; i += block) {
    uint64_t words[HASH_LANES] = {0};
    memcpy(words, bytes + i, (size_t)(n - i < block ? n - i : block));
    SIMD for (int l = 0; l < HASH_LANES; l++) lane[l] = hash_mix(lane[l], words[l]);
  }
  for (int l = 0; l < HASH_LANES; l++) h = hash_mix(h, lane[l]);
  return h;
}

static enum err hash_run(void *args)
{
  const struct hash_args *a = args;
  const int64_t bytes = (int64_t)dtype_bytes(a->x.type), count = tensor_count(&a->x),
                chunks = (count + HASH_CHUNK - 1) / HASH_CHUNK;
  uint64_t h = 0;
  for (int64_t first = 0; first < chunks; first += BATCH) {
    uint64_t part[BATCH];
    const int64_t n = chunks - first < BATCH ? chunks - first : BATCH;
#pragma omp parallel for schedule(static) if (n * HASH_CHUNK >= PARALLEL_FROM)
    for (int64_t k = 0; k < n; k++) {
      char room[HASH_CHUNK * 8];
      const int64_t start = (first + k) * HASH_CHUNK, size = count - start < HASH_CHUNK ? count - start : HASH_CHUNK;
      part[k] = chunk_hash(row_order(&a->x, start, size, room), size * bytes);
    }
    for (int64_t k = 0; k < n; k++) h = hash_mix(h, part[k]);
  }
  h = hash_mix(h, (uint64_t)(count * bytes));
  memcpy(a->out.at, &h, sizeof h);
  return ERR_OK;
}
OP_KERNEL(op_hash, hash_run);

enum err op_hash(struct dev_stream *s, const struct tensor *out, const struct tensor *x)
{
  TRY(op_expect("out", out, DTYPE_I64, 1, 1));
  TRY(tensor_expect("x", x, -1, -1));
  const struct hash_args args = {*out, *x};
  return OP_SUBMIT(s, &op_hash_kernel, args, {out, OP_WRITE}, {x, OP_READ});
}
