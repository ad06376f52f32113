/* hash.h - FNV-1a over 64-bit words (Fowler, Noll, Vo), going on from `hash`. */
#ifndef TRAIN_HASH_H
#define TRAIN_HASH_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static const uint64_t hash_start = 0xcbf29ce484222325u;

/* What is left of less than a word is not taken. */
static inline uint64_t hash_words(uint64_t hash, const void *at, size_t bytes)
{
  uint64_t word;
  for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
    memcpy(&word, (const char *)at + i, sizeof word);
    hash = (hash ^ word) * 0x100000001b3u;
  }
  return hash;
}

/* Of a micro-batch with this hash at this place: what sums over any order and any ranks keep apart. */
static inline uint64_t hash_place(uint64_t hash, int64_t step, int64_t microbatch)
{
  const uint64_t words[] = {(uint64_t)step, (uint64_t)microbatch, hash};
  const uint64_t h = hash_words(hash_start, words, sizeof words);
  return h ^ h >> 29;
}
#endif
