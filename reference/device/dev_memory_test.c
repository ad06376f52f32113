/* dev_memory_test.c - blocks: poison, alignment, who holds how much and when. */
#include "base/clock.h"
#include "device/dev.h"
#include "testing/check.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static const enum dev_kind kinds[] = {DEV_CPU, DEV_LAZY};

static struct dev *open_kind(enum dev_kind kind, bool poison_end)
{
  const struct dev_config config = {.kind = kind, .threads = 1, .poison_end = poison_end};
  struct dev *d = NULL;
  CHECK_OK(dev_open(&config, &d));
  return d;
}

static void *block(struct dev *d, size_t bytes, enum dev_category c, const char *owner)
{
  void *at = NULL;
  CHECK_OK(dev_alloc(d, bytes, c, owner, &at));
  return at;
}

static bool all_are(const void *at, int value, size_t bytes)
{
  const unsigned char *p = at;
  for (size_t i = 0; i < bytes; i++)
    if (p[i] != value) return false;
  return true;
}

static void a_fresh_block_is_aligned_and_poisoned(void)
{
  struct dev *d = open_kind(DEV_CPU, false);
  const size_t sizes[] = {1, 8, 255, 256, 257, 100000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char *at = block(d, sizes[i], DEV_OTHER, "block");
    CHECK((uintptr_t)at % 256 == 0);
    CHECK(all_are(at, 0xFF, sizes[i]));
    memset(at, 0, sizes[i]); /* dirt for whoever gets this memory next */
    dev_free(d, at);
  }
  const double *as_double = block(d, 8, DEV_OTHER, "real");
  CHECK(isnan(*as_double));
  dev_close(d);
}

static void a_block_of_no_bytes_is_a_block(void)
{
  struct dev *d = open_kind(DEV_CPU, false);
  struct dev_usage u;
  void *at = block(d, 0, DEV_OTHER, "empty");
  CHECK(at != NULL);
  dev_usage(d, &u);
  CHECK(u.allocations == 1 && u.now[DEV_OTHER] == 0 && u.peak == 0);
  dev_free(d, at);
  dev_free(d, NULL);
  dev_close(d);
}

static void lifetimes_are_poisoned_at_begin_and_on_request_at_end(void)
{
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (int poison = 0; poison < 2; poison++) {
      struct dev *d = open_kind(kinds[k], poison);
      struct dev_stream *s = NULL;
      CHECK_OK(dev_stream_open(d, "compute", DEV_COMPUTE, &s));
      char *at = block(d, 64, DEV_ACTIVATIONS, "acts");
      memset(at, 1, 64);
      CHECK_OK(dev_begin(s, at + 8, 16));
      CHECK_OK(dev_sync(d));
      CHECK(all_are(at, 1, 8) && all_are(at + 8, 0xFF, 16) && all_are(at + 24, 1, 40));
      memset(at, 2, 64);
      CHECK_OK(dev_retire(s, at + 16, 8));
      CHECK_OK(dev_sync(d));
      CHECK(all_are(at, 2, 16) && all_are(at + 16, poison ? 0xFF : 2, 8) && all_are(at + 24, 2, 40));
      dev_close(d);
    }
}

static void usage_is_known_by_category_also_at_the_peak(void)
{
  struct dev *d = open_kind(DEV_CPU, false);
  struct dev_usage u;
  void *weights = block(d, 1000, DEV_PARAMETERS, "weights");
  void *acts = block(d, 500, DEV_ACTIVATIONS, "acts");
  dev_free(d, acts);
  void *moments = block(d, 300, DEV_OPTIMIZER, "moments");
  dev_usage(d, &u);
  CHECK(u.peak == 1500 && u.allocations == 3);
  CHECK(u.now[DEV_PARAMETERS] == 1000 && u.now[DEV_ACTIVATIONS] == 0 && u.now[DEV_OPTIMIZER] == 300);
  CHECK(u.at_peak[DEV_PARAMETERS] == 1000 && u.at_peak[DEV_ACTIVATIONS] == 500 && u.at_peak[DEV_OPTIMIZER] == 0);
  acts = block(d, 201, DEV_ACTIVATIONS, "acts");
  dev_usage_restart(d);
  dev_usage(d, &u);
  CHECK(u.peak == 1501 && u.at_peak[DEV_ACTIVATIONS] == 201 && u.at_peak[DEV_OPTIMIZER] == 300);
  dev_free(d, acts);
  dev_free(d, weights);
  dev_free(d, moments);
  dev_usage(d, &u);
  for (int c = 0; c < DEV_CATEGORIES; c++) CHECK(u.now[c] == 0);
  CHECK(u.peak == 1501);
  dev_close(d);
}

static void the_mean_weighs_bytes_by_time(void)
{
  struct dev *d = open_kind(DEV_CPU, false);
  struct dev_usage u;
  block(d, 1000, DEV_PARAMETERS, "weights");
  clock_sleep_ms(1);
  dev_usage(d, &u);
  CHECK(u.mean_bytes > 1 && u.mean_bytes <= 1000); /* since the device was opened, not the machine */
  dev_usage_restart(d);
  dev_usage(d, &u);
  CHECK_NEAR(u.mean_bytes, 1000, 1e-6);
  clock_sleep_ms(1);
  void *acts = block(d, 500, DEV_ACTIVATIONS, "acts");
  clock_sleep_ms(1);
  dev_usage(d, &u);
  CHECK(u.mean_bytes > 1000 && u.mean_bytes < 1500);
  dev_free(d, acts);
  dev_usage_restart(d);
  clock_sleep_ms(1);
  dev_usage(d, &u);
  CHECK_NEAR(u.mean_bytes, 1000, 1e-6);
  dev_close(d);
}

static void a_refusal_names_the_largest_owners(void)
{
  struct dev *d = open_kind(DEV_CPU, false);
  block(d, 100, DEV_PARAMETERS, "weights");
  block(d, 90, DEV_ACTIVATIONS, "acts");
  block(d, 30, DEV_OTHER, "small");
  block(d, 60, DEV_GRADIENTS, "grads");
  block(d, 30, DEV_ACTIVATIONS, "acts");
  void *at = d;
  check_fail_allocation(1);
  CHECK_ERR(dev_alloc(d, 4096, DEV_OPTIMIZER, "moments", &at), ERR_MEMORY);
  check_fail_allocation(0);
  CHECK(at == NULL);
  CHECK_TEXT_HAS(err_text(), "optimizer 'moments': no memory for 4096 bytes beside the 310 held");
  CHECK_TEXT_HAS(err_text(), "the largest: acts 120 bytes, weights 100 bytes, grads 60 bytes");
  CHECK_ERR(dev_alloc(d, SIZE_MAX, DEV_OTHER, "all", &at), ERR_MEMORY);
  CHECK_ERR(dev_alloc(d, 8, DEV_CATEGORIES, "odd", &at), ERR_ARG);
  struct dev_usage u;
  dev_usage(d, &u);
  CHECK(u.allocations == 5 && u.peak == 310);
  dev_close(d);
}

static void a_refusal_with_fewer_owners_names_those(void)
{
  struct dev *d = open_kind(DEV_CPU, false);
  void *at;
  CHECK_ERR(dev_alloc(d, SIZE_MAX, DEV_OTHER, "all", &at), ERR_MEMORY);
  CHECK_TEXT_HAS(err_text(), "nothing is held");
  block(d, 100, DEV_PARAMETERS, "weights");
  CHECK_ERR(dev_alloc(d, SIZE_MAX, DEV_OTHER, "all", &at), ERR_MEMORY);
  const char *end = strstr(err_text(), "the largest: weights 100 bytes");
  CHECK(end != NULL && strcmp(end, "the largest: weights 100 bytes") == 0);
  dev_close(d);
}

static void categories_and_phases_have_names(void)
{
  CHECK(strcmp(dev_category_name(DEV_PARAMETERS), "parameters") == 0);
  CHECK(strcmp(dev_category_name(DEV_OTHER), "other") == 0);
  CHECK(strcmp(dev_category_name(DEV_CATEGORIES), "unknown") == 0);
  CHECK(strcmp(dev_phase_name(DEV_PHASE_DATA), "data") == 0);
  CHECK(strcmp(dev_phase_name(DEV_PHASE_EVAL), "eval") == 0);
  CHECK(strcmp(dev_phase_name(DEV_PHASES), "unknown") == 0);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(a_fresh_block_is_aligned_and_poisoned),
      TEST(a_block_of_no_bytes_is_a_block),
      TEST(lifetimes_are_poisoned_at_begin_and_on_request_at_end),
      TEST(usage_is_known_by_category_also_at_the_peak),
      TEST(the_mean_weighs_bytes_by_time),
      TEST(a_refusal_names_the_largest_owners),
      TEST(a_refusal_with_fewer_owners_names_those),
      TEST(categories_and_phases_have_names),
  };
  return test_main("dev_memory", tests, sizeof tests / sizeof *tests);
}
