/* batch.c - the arrays of one micro-batch. */
#include "data/data.h"

#include <stdlib.h>

size_t batch_bytes(int64_t B, int64_t T) { return (size_t)(B * (4 * T + 1)) * sizeof(int32_t); }

struct batch batch_at(void *block, int64_t B, int64_t T)
{
  int32_t *at = block;
  return (struct batch){.B = B, .T = T, .tokens = at, .targets = at + B * T, .positions = at + 2 * B * T,
                        .documents = at + 3 * B * T, .samples = at + 4 * B * T};
}

enum err batch_create(int64_t B, int64_t T, struct batch *out)
{
  void *block = malloc(batch_bytes(B, T));
  if (block == NULL) FAIL(ERR_MEMORY, "batch: %lld x %lld positions", (long long)B, (long long)T);
  *out = batch_at(block, B, T);
  return ERR_OK;
}

void batch_destroy(struct batch *b)
{
  free(b->tokens);
  *b = (struct batch){0};
}

void batch_count(struct batch *b)
{
  int64_t first = 0; /* of the run of one document that i is in */
  b->n_tokens = b->n_valid = b->n_pairs = 0;
  for (int64_t i = 0; i < b->B * b->T; i++) {
    const bool here = b->documents[i] >= 0;
    if (i % b->T == 0 || b->documents[i] != b->documents[i - 1]) first = i;
    b->n_tokens += here;
    b->n_valid += b->targets[i] >= 0;
    b->n_pairs += here ? 2 * (i - first) + 1 : 0; /* squares as sums of odd numbers */
  }
}

int64_t batch_width(const struct batch *b, int64_t shards)
{
  int64_t longest = 1;
  for (int64_t i = 0; i < b->B; i++)
    for (int64_t t = b->T; t > longest; t--)
      if (b->documents[i * b->T + t - 1] >= 0) longest = t;
  int64_t width = (longest + BATCH_WIDTH - 1) / BATCH_WIDTH * BATCH_WIDTH;
  while (width < b->T && b->B * width % shards != 0) width += BATCH_WIDTH;
  return width < b->T ? width : b->T;
}

/* FNV-1a with a 32-bit word a turn (Fowler, Noll, Vo); the four arrays are one block. */
uint64_t batch_hash(const struct batch *b)
{
  uint64_t hash = 0xcbf29ce484222325u;
  for (int64_t i = 0; i < 4 * b->B * b->T; i++) hash = (hash ^ (uint32_t)b->tokens[i]) * 0x100000001b3u;
  return hash;
}
