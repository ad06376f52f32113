/* rng.c - random numbers by counter from Philox blocks (philox.h), so no state.
 *
 * The test holds the words against the vectors published with the cipher.
 */
#include "base/rng.h"

#include "base/philox.h"

#include <math.h>

void rng_block(struct rng_key key, uint64_t block, uint32_t out[4]) { philox_block(key, block, out); }

static uint64_t join(uint32_t low, uint32_t high) { return low | (uint64_t)high << 32; }

/* An odd multiple of 2^-53: never 0, never 1, exact in a double. */
static double open_unit(uint64_t bits) { return (double)(bits >> 11 | 1) * 0x1p-53; }

uint32_t rng_u32(struct rng_key key, uint64_t index)
{
  uint32_t words[4];
  rng_block(key, index / 4, words);
  return words[index % 4];
}

uint64_t rng_u64(struct rng_key key, uint64_t index)
{
  uint32_t words[4];
  rng_block(key, index / 2, words);
  return join(words[index % 2 * 2], words[index % 2 * 2 + 1]);
}

double rng_uniform(struct rng_key key, uint64_t index) { return open_unit(rng_u64(key, index)); }

/* Box and Muller 1958, the cosine half: one block a number, so neighbours share nothing. */
double rng_normal(struct rng_key key, uint64_t index)
{
  uint32_t words[4];
  rng_block(key, index, words);
  const double radius = sqrt(-2.0 * log(open_unit(join(words[0], words[1]))));
  return radius * cos(6.283185307179586 * open_unit(join(words[2], words[3])));
}

/* The high half of a product: off uniform by less than bound / 2^64. */
uint64_t rng_below(struct rng_key key, uint64_t index, uint64_t bound)
{
  return (uint64_t)((unsigned __int128)rng_u64(key, index) * bound >> 64);
}
