/* dev_delay_test.c - planted delays: what they hold back, how long, and that they are off by default. */
#include "base/rng.h"
#include "device/dev_testing.h"

static struct dev *open_late(enum dev_kind kind, unsigned delayed, double ms, uint64_t seed)
{
  const struct dev_config config = {.kind = kind, .threads = 1, .delayed = delayed, .delay_ms = ms, .delay_seed = seed};
  struct dev *d = NULL;
  CHECK_OK(dev_open(&config, &d));
  return d;
}

/* How long each of the first n delays took, in order. */
static int take(struct dev *d, double *ms, int room)
{
  const struct dev_interval *rows;
  int64_t n, lost;
  int found = 0;
  CHECK_OK(dev_sync(d));
  CHECK_OK(dev_trace_take(d, &rows, &n, &lost));
  for (int64_t i = 0; i < n && found < room; i++)
    if (strcmp(rows[i].kernel, "delay") == 0) ms[found++] = rows[i].end_ms - rows[i].start_ms;
  return found;
}

static void only_what_is_named_is_delayed(void)
{
  static const enum dev_delayed all[] = {DEV_DELAY_COLLECTIVES, DEV_DELAY_COPIES, DEV_DELAY_UPDATE};
  for (size_t k = 0; k < kind_count(); k++)
    for (unsigned mask = 0; mask < 8; mask++) {
      struct dev *d = open_late(kind_at(k), mask, 0.1, 1);
      struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
      double ms[8];
      CHECK_OK(dev_trace(d, 16));
      for (int i = 0; i < 3; i++) CHECK_OK(dev_delay(s, all[i]));
      CHECK(take(d, ms, 8) == (int)((mask & 1) + (mask >> 1 & 1) + (mask >> 2)));
      dev_close(d);
    }
}

static void copies_between_host_and_device_are_delayed(void)
{
  for (size_t k = 0; k < kind_count(); k++) {
    struct dev *d = open_late(kind_at(k), DEV_DELAY_COPIES, 0.1, 1);
    struct dev_stream *s = stream(d, "transfer", DEV_TRANSFER);
    int in = 5, out = 0;
    double ms[8];
    void *at;
    CHECK_OK(dev_alloc(d, sizeof in, DEV_OTHER, "test", &at));
    CHECK_OK(dev_trace(d, 16));
    CHECK_OK(dev_copy_in(s, at, &in, sizeof in));
    CHECK_OK(dev_copy_out(s, &out, at, sizeof out));
    CHECK(take(d, ms, 8) == 2);
    CHECK(out == 5);
    dev_free(d, at);
    dev_close(d);
  }
}

static void no_delay_is_shorter_than_its_seed_and_number_say(void)
{
  enum { N = 12 };
  for (size_t k = 0; k < kind_count(); k++)
    for (uint64_t seed = 4; seed < 6; seed++) {
      const struct rng_key key = {seed, RNG_DELAY, 0};
      struct dev *d = open_late(kind_at(k), DEV_DELAY_UPDATE, 5, seed);
      struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
      double ms[N];
      CHECK_OK(dev_trace(d, 2 * N));
      for (int i = 0; i < N; i++) CHECK_OK(dev_delay(s, DEV_DELAY_UPDATE));
      CHECK(take(d, ms, N) == N);
      for (int i = 0; i < N; i++) CHECK(ms[i] >= 5 * rng_uniform(key, (uint64_t)i));
      dev_close(d);
    }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(only_what_is_named_is_delayed),
    TEST(copies_between_host_and_device_are_delayed),
    TEST(no_delay_is_shorter_than_its_seed_and_number_say),
  };
  return test_main("planted delays", tests, sizeof tests / sizeof *tests);
}
