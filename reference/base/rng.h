/* rng.h - random numbers by counter: Philox4x32-10 (Salmon et al. 2011).
 *
 * Every number is a pure function of (seed, purpose, step, index), where index
 * is a global one (element of the whole parameter, token of the whole batch).
 * Nothing depends on rank, layout, thread or time, so weights and dropout masks
 * are equal under any cut and there is no state to save.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One value a use; a site (layer, parameter number) goes in the low 24 bits. */
enum rng_purpose {
  RNG_INIT = 1 << 24,    /* + row of the parameter table           */
  RNG_DROPOUT = 2 << 24, /* + layer * 4 + site                      */
  RNG_DATA = 3 << 24,    /* documents: lengths and tokens           */
  RNG_ORDER = 4 << 24,   /* shuffles of documents, micro-batches    */
  RNG_TEST = 5 << 24,    /* inputs of tests                         */
  RNG_LAZY = 6 << 24,    /* choices of the lazy executor            */
  RNG_DELAY = 7 << 24    /* planted delays                          */
};

struct rng_key {
  uint64_t seed;
  uint32_t purpose;
  uint32_t step;
};

/* The four 32-bit words of the block that holds words 4*block .. 4*block+3. */
void rng_block(struct rng_key key, uint64_t block, uint32_t out[4]);
uint32_t rng_u32(struct rng_key key, uint64_t index);     /* word `index`               */
uint64_t rng_u64(struct rng_key key, uint64_t index);     /* words 2*index, 2*index + 1 */
double rng_uniform(struct rng_key key, uint64_t index);   /* in (0, 1), 53 bits         */
double rng_normal(struct rng_key key, uint64_t index);    /* mean 0, deviation 1        */
uint64_t rng_below(struct rng_key key, uint64_t index, uint64_t bound); /* 0 .. bound-1 */

#ifdef __cplusplus
}
#endif
#endif
