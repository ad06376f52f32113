/* rng.c - Philox4x32-10: a block cipher of (seed; purpose, step, block), so no state.
 *
 * J. Salmon, M. Moraes, R. Dror, D. Shaw: Parallel random numbers: as easy as 1, 2, 3.
 * SC11, section 3.3.  The test holds the words against the vectors published with it.
 */
#include "base/rng.h"

#include <math.h>

enum { ROUNDS = 10 };

void rng_block(struct rng_key key, uint64_t block, uint32_t out[4])
{
  const uint32_t multiply0 = 0xD2511F53u, multiply1 = 0xCD9E8D57u; /* the paper's multipliers  */
  const uint32_t weyl0 = 0x9E3779B9u, weyl1 = 0xBB67AE85u;         /* golden ratio, sqrt 3 - 1 */
  uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
  uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = key.purpose, c3 = key.step;

  for (int round = 0; round < ROUNDS; round++) {
    const uint64_t p0 = (uint64_t)multiply0 * c0, p1 = (uint64_t)multiply1 * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += weyl0;
    k1 += weyl1;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

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
