/* rng_test.c - the words are those of the paper, and numbers depend on the counter alone. */
#include "base/rng.h"
#include "testing/check.h"

#include <math.h>

/* Known answers for philox4x32, 10 rounds, published with Random123 1.14 (kat_vectors). */
static void words_are_the_published_ones(void)
{
  static const struct {
    uint32_t counter[4], key[2], answer[4];
  } known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const struct rng_key key = {.seed = known[i].key[0] | (uint64_t)known[i].key[1] << 32,
                                .purpose = known[i].counter[2],
                                .step = known[i].counter[3]};
    uint32_t got[4];
    rng_block(key, known[i].counter[0] | (uint64_t)known[i].counter[1] << 32, got);
    CHECK_SAME_BITS(got, known[i].answer, sizeof got);
  }
}

static void an_index_names_one_word_of_one_block(void)
{
  const struct rng_key key = {7, RNG_TEST, 3};
  for (uint64_t block = 0; block < 8; block++) {
    uint32_t words[4];
    rng_block(key, block, words);
    for (uint64_t i = 0; i < 4; i++) CHECK(rng_u32(key, 4 * block + i) == words[i]);
    CHECK(rng_u64(key, 2 * block) == (words[0] | (uint64_t)words[1] << 32));
    CHECK(rng_u64(key, 2 * block + 1) == (words[2] | (uint64_t)words[3] << 32));
  }
}

static void seed_purpose_step_and_index_each_matter(void)
{
  const struct rng_key a = {1, RNG_INIT, 0}, seed = {2, RNG_INIT, 0}, high = {1 + (1ull << 32), RNG_INIT, 0},
                       purpose = {1, RNG_INIT + 1, 0}, step = {1, RNG_INIT, 1};
  const uint64_t word = rng_u64(a, 0);
  CHECK(word != rng_u64(seed, 0));
  CHECK(word != rng_u64(high, 0));
  CHECK(word != rng_u64(purpose, 0));
  CHECK(word != rng_u64(step, 0));
  CHECK(word != rng_u64(a, 1));
  CHECK(word != rng_u64(a, 1ull << 40)); /* an index past 2^32 is not cut */
  CHECK(word == rng_u64(a, 0));
}

/* Moments of 100,000 draws of one fixed seed, each within 5 standard errors. */
static void uniform_and_normal_have_their_moments(void)
{
  enum { N = 100000 };
  const struct rng_key key = {11, RNG_TEST, 0};
  double u1 = 0, u2 = 0, z1 = 0, z2 = 0, z4 = 0, lag = 0, last = 0;
  bool inside = true;
  for (uint64_t i = 0; i < N; i++) {
    const double u = rng_uniform(key, i), z = rng_normal(key, i);
    inside = inside && u > 0 && u < 1 && isfinite(z);
    u1 += u / N;
    u2 += u * u / N;
    z1 += z / N;
    z2 += z * z / N;
    z4 += z * z * z * z / N;
    lag += z * last / N;
    last = z;
  }
  const double error = 5 / sqrt(N);
  CHECK(inside);
  CHECK_NEAR(u1, 0.5, error * sqrt(1.0 / 12));
  CHECK_NEAR(u2, 1.0 / 3, error * sqrt(4.0 / 45));
  CHECK_NEAR(z1, 0, error);
  CHECK_NEAR(z2, 1, error * sqrt(2));
  CHECK_NEAR(z4, 3, error * sqrt(96));
  CHECK_NEAR(lag, 0, error);
}

static void below_covers_its_range_evenly(void)
{
  enum { N = 70000, BOUND = 7 };
  const struct rng_key key = {5, RNG_ORDER, 0};
  int count[BOUND] = {0};
  for (uint64_t i = 0; i < N; i++) {
    const uint64_t at = rng_below(key, i, BOUND);
    if (CHECK(at < BOUND)) count[at]++;
  }
  for (int i = 0; i < BOUND; i++) CHECK_NEAR(count[i], N / BOUND, 5 * sqrt(N / BOUND));
  CHECK(rng_below(key, 0, 1) == 0);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(words_are_the_published_ones),
    TEST(an_index_names_one_word_of_one_block),
    TEST(seed_purpose_step_and_index_each_matter),
    TEST(uniform_and_normal_have_their_moments),
    TEST(below_covers_its_range_evenly),
  };
  return test_main("rng", tests, sizeof tests / sizeof *tests);
}
