/* clock_test.c - time only grows and a sleep is never short. */
#include "base/clock.h"
#include "testing/check.h"

#include <math.h>

static void time_never_goes_back(void)
{
  double last = clock_ms();
  bool grows = true;
  for (int i = 0; i < 10000; i++) {
    const double now = clock_ms();
    grows = grows && now >= last;
    last = now;
  }
  CHECK(grows);
}

static void a_sleep_lasts_at_least_what_was_asked(void)
{
  static const double asked[] = {0.05, 1, 7.5};
  for (int i = 0; i < 3; i++) {
    const double start = clock_ms();
    clock_sleep_ms(asked[i]);
    CHECK(clock_ms() - start >= asked[i] - 1e-6); /* a rounding of the double, not of the clock */
  }
}

/* Were it taken for a time, the test would run into its time limit. */
static void nothing_to_sleep_returns(void)
{
  clock_sleep_ms(0);
  clock_sleep_ms(-1e12);
  clock_sleep_ms(NAN);
  CHECK(isfinite(clock_ms()));
}

int main(void)
{
  static const struct test tests[] = {
    TEST(time_never_goes_back),
    TEST(a_sleep_lasts_at_least_what_was_asked),
    TEST(nothing_to_sleep_returns),
  };
  return test_main("clock", tests, sizeof tests / sizeof *tests);
}
