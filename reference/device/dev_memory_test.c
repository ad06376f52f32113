/* dev_memory_test.c - blocks: poison, alignment, who holds how much and when. */
#include "device/dev_testing.h"

#include <math.h>
#include <stdint.h>

static struct dev *open_poisoning(enum dev_kind kind, bool poison_end)
{
  const struct dev_config config = {.kind = kind, .threads = 1, .poison_end = poison_end};
  struct dev *d = NULL;
  CHECK_OK(dev_open(&config, &d));
  return d;
}

/* What device memory holds, and what it shall hold: the host reaches it by copies alone. */
static bool all_are(struct dev_stream *s, const void *at, int value, size_t bytes)
{
  unsigned char *copy = malloc(bytes + 1);
  bool ok = CHECK(copy != NULL) && CHECK_OK(dev_copy_out(s, copy, at, bytes)) && CHECK_OK(dev_sync_stream(s));
  for (size_t i = 0; i < bytes && ok; i++) ok = copy[i] == value;
  free(copy);
  return ok;
}

static void set(struct dev_stream *s, void *at, int value, size_t bytes)
{
  unsigned char *copy = malloc(bytes);
  if (CHECK(copy != NULL)) {
    memset(copy, value, bytes);
    CHECK_OK(dev_copy_in(s, at, copy, bytes));
    CHECK_OK(dev_sync_stream(s));
  }
  free(copy);
}

static void *block(struct dev *d, size_t bytes, enum dev_category c, const char *owner)
{
  void *at = NULL;
  CHECK_OK(dev_alloc(d, bytes, c, owner, &at));
  return at;
}

static void a_fresh_block_is_aligned_and_poisoned(void)
{
  EACH_KIND(d) {
    struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
    const size_t sizes[] = {1, 8, 255, 256, 257, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      char *at = block(d, sizes[i], DEV_OTHER, "block");
      CHECK((uintptr_t)at % 256 == 0);
      CHECK(all_are(s, at, 0xFF, sizes[i]));
      set(s, at, 0, sizes[i]); /* dirt for whoever gets this memory next */
      dev_free(d, at);
    }
    double real = 0;
    CHECK_OK(dev_copy_out(s, &real, block(d, 8, DEV_OTHER, "real"), 8));
    CHECK_OK(dev_sync(d));
    CHECK(isnan(real));
  }
}

static void a_block_of_no_bytes_is_a_block(void)
{
  struct dev *d = open_kind(kind_at(0));
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
  for (size_t k = 0; k < kind_count(); k++)
    for (int poison = 0; poison < 2; poison++) {
      struct dev *d = open_poisoning(kind_at(k), poison);
      struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
      char *at = block(d, 64, DEV_ACTIVATIONS, "acts");
      set(s, at, 1, 64);
      CHECK_OK(dev_begin(s, at + 8, 16));
      CHECK(all_are(s, at, 1, 8) && all_are(s, at + 8, 0xFF, 16) && all_are(s, at + 24, 1, 40));
      set(s, at, 2, 64);
      CHECK_OK(dev_retire(s, at + 16, 8));
      CHECK(all_are(s, at, 2, 16) && all_are(s, at + 16, poison ? 0xFF : 2, 8) && all_are(s, at + 24, 2, 40));
      dev_close(d);
    }
}

static void host_memory_is_reached_by_copies(void)
{
  EACH_KIND(d) {
    struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
    void *in, *out, *at = block(d, 1000, DEV_OTHER, "between");
    CHECK_OK(dev_host_alloc(d, 1000, "pinned", &in));
    CHECK_OK(dev_host_alloc(d, 1000, "pinned", &out));
    CHECK((uintptr_t)in % 256 == 0 && (uintptr_t)out % 256 == 0);
    memset(in, 7, 1000);
    CHECK_OK(dev_copy_in(s, at, in, 1000));
    CHECK_OK(dev_copy_out(s, out, at, 1000));
    CHECK_OK(dev_sync(d));
    CHECK_SAME_BITS(out, in, 1000);
    dev_host_free(d, in);
    dev_host_free(d, out);
    dev_host_free(d, NULL);
    CHECK_ERR(dev_host_alloc(d, SIZE_MAX, "pinned", &in), ERR_MEMORY);
    CHECK(in == NULL);
  }
}

/* More than any ring between, in parts that do not divide; none may be lost or swapped. */
static void a_large_copy_arrives_whole(void)
{
  EACH_KIND(d) {
    enum { N = (20 << 20) / 4 + 13 };
    struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
    uint32_t *in = malloc(N * sizeof *in), *out = malloc(N * sizeof *out), *at = block(d, N * sizeof *in, DEV_OTHER, "large");
    if (CHECK(in != NULL && out != NULL)) {
      for (uint32_t i = 0; i < N; i++) in[i] = i * 2654435761u;
      CHECK_OK(dev_copy_in(s, at, in, N * sizeof *in));
      CHECK_OK(dev_copy_out(s, out, at, N * sizeof *in));
      CHECK_OK(dev_sync(d));
      CHECK_SAME_BITS(out, in, N * sizeof *in);
    }
    free(in);
    free(out);
  }
}

static void usage_is_known_by_category_also_at_the_peak(void)
{
  struct dev *d = open_kind(kind_at(0));
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

static void what_was_not_given_back_shows(void)
{
  struct dev *d = open_kind(kind_at(0));
  CHECK(dev_is_idle(d));
  void *none = block(d, 0, DEV_OTHER, "none");
  CHECK(!dev_is_idle(d));
  dev_free(d, none);
  CHECK(dev_is_idle(d));
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  CHECK(!dev_is_idle(d));
  dev_stream_close(s);
  CHECK(dev_is_idle(d));
  dev_close(d);
}

static void the_mean_weighs_bytes_by_time(void)
{
  struct dev *d = open_kind(kind_at(0));
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
  struct dev *d = open_kind(kind_at(0));
  block(d, 100, DEV_PARAMETERS, "weights");
  block(d, 90, DEV_ACTIVATIONS, "acts");
  block(d, 30, DEV_OTHER, "small");
  block(d, 60, DEV_GRADIENTS, "grads");
  block(d, 30, DEV_ACTIVATIONS, "acts");
  void *at = d;
  const size_t much = on_cuda() ? (size_t)1 << 46 : 4096;
  check_fail_allocation(on_cuda() ? 0 : 1);
  CHECK_ERR(dev_alloc(d, much, DEV_OPTIMIZER, "moments", &at), ERR_MEMORY);
  check_fail_allocation(0);
  CHECK(at == NULL);
  CHECK_TEXT_HAS(err_text(), "optimizer 'moments': no memory for ");
  CHECK_TEXT_HAS(err_text(), on_cuda() ? "70368744177664 bytes beside the 310 held (device cuda 0, " : "4096 bytes beside the 310 held (host: ");
  CHECK_TEXT_HAS(err_text(), "the largest: acts 120 bytes, weights 100 bytes, grads 60 bytes");
  CHECK_ERR(dev_alloc(d, SIZE_MAX, DEV_OTHER, "all", &at), ERR_MEMORY);
  CHECK_ERR(dev_alloc(d, 8, DEV_CATEGORIES, "odd", &at), ERR_ARG);
  struct dev_usage u;
  dev_usage(d, &u);
  CHECK(u.allocations == 5 && u.peak == 310);
  dev_close(d);
}

/* The host's memory counts where it is the device's, and has a category of its own. */
static void memory_of_the_host_is_accounted_apart(void)
{
  EACH_KIND(d) {
    struct dev_usage u;
    void *host, *more;
    block(d, 100, DEV_PARAMETERS, "weights");
    CHECK_OK(dev_host_alloc(d, 1000, "moments", &host));
    dev_usage(d, &u);
    const bool apart = dev_kind_of(d) == DEV_CUDA;
    CHECK(u.now[DEV_ON_HOST] == 1000 && u.now[DEV_PARAMETERS] == 100 && u.allocations == 1 && u.host_allocations == 1);
    CHECK(u.peak == (apart ? 100 : 1100) && u.mean_bytes <= (double)u.peak);
    CHECK_ERR(dev_host_alloc(d, SIZE_MAX, "masters", &more), ERR_MEMORY);
    CHECK(more == NULL);
    CHECK_TEXT_HAS(err_text(), apart ? "bytes beside the 1000 held" : "bytes beside the 1100 held");
    CHECK_TEXT_HAS(err_text(), "host 'masters': no memory for 18446744073709551615 ");
    CHECK_TEXT_HAS(err_text(), "the largest: moments 1000 bytes, weights 100 bytes");
    CHECK_ERR(dev_alloc(d, 8, DEV_ON_HOST, "odd", &more), ERR_ARG);
    dev_host_free(d, host);
    block(d, 50, DEV_OTHER, "late");
    dev_usage(d, &u);
    CHECK(u.at_peak[DEV_ON_HOST] == 1000 && u.at_peak[DEV_OTHER] == (apart ? 50 : 0));
    CHECK(u.now[DEV_ON_HOST] == 0 && u.peak == (apart ? 150 : 1100));
  }
}

static void a_refusal_with_fewer_owners_names_those(void)
{
  struct dev *d = open_kind(kind_at(0));
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
  CHECK(strcmp(dev_category_name(DEV_ON_HOST), "host") == 0);
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
      TEST(host_memory_is_reached_by_copies),
      TEST(a_large_copy_arrives_whole),
      TEST(usage_is_known_by_category_also_at_the_peak),
      TEST(what_was_not_given_back_shows),
      TEST(the_mean_weighs_bytes_by_time),
      TEST(a_refusal_names_the_largest_owners),
      TEST(memory_of_the_host_is_accounted_apart),
    TEST(a_refusal_with_fewer_owners_names_those),
      TEST(categories_and_phases_have_names),
  };
  return test_main("dev_memory", tests, sizeof tests / sizeof *tests);
}
