/* fit_test.c - the micro-batch follows the ratio of transfers to compute, on machines made of two numbers. */
#include "harness/fit.h"

#include "suites/checks/hidden.h"
#include "testing/check.h"

/* Compute takes fixed_ms + each_ms a sequence, transfers alone_ms: the ratio after at most four tries. */
static double fitted(double alone_ms, double fixed_ms, double each_ms, int64_t first, int64_t most, int64_t *micro_batch)
{
  int64_t now = first;
  double percent = 0;
  for (int attempt = 0; attempt < 4; attempt++) {
    percent = 100 * alone_ms / (fixed_ms + each_ms * (double)now);
    const int64_t next = fit_next(now, percent, most);
    if (next == now) break;
    now = next;
  }
  *micro_batch = now;
  return 100 * alone_ms / (fixed_ms + each_ms * (double)now);
}

static void any_machine_is_brought_into_the_band(void)
{
  for (double each_ms = 3; each_ms < 80; each_ms *= 1.07)
    for (double fixed_ms = 0; fixed_ms <= 60; fixed_ms += 20) {
      int64_t n;
      const double percent = fitted(280, fixed_ms, each_ms, 12, 16 * 12, &n);
      CHECK(percent >= HIDDEN_LEAST && percent <= HIDDEN_MOST);
    }
}

static void what_is_well_inside_stays(void)
{
  CHECK(fit_next(12, HIDDEN_WANTED, 96) == 12);
  CHECK(fit_next(12, HIDDEN_LEAST + 7, 96) == 12 && fit_next(12, HIDDEN_MOST - 7, 96) == 12);
  CHECK(fit_next(12, HIDDEN_LEAST + 1, 96) < 12 && fit_next(12, HIDDEN_MOST - 1, 96) > 12);
}

static void the_largest_and_the_smallest_are_kept(void)
{
  CHECK(fit_next(12, 1e6, 96) == 96);
  CHECK(fit_next(12, 0.01, 96) == 1);
}

static void pairs_that_differ_are_no_measure(void)
{
  CHECK(fit_steady((double[]){70, 80}, 2) && fit_steady((double[]){78, 74, 79}, 3));
  CHECK(!fit_steady((double[]){78, 100}, 2) && !fit_steady((double[]){74, 75, 60}, 3));
}

int main(void)
{
  static const struct test tests[] = {
    TEST(any_machine_is_brought_into_the_band),
    TEST(what_is_well_inside_stays),
    TEST(the_largest_and_the_smallest_are_kept),
    TEST(pairs_that_differ_are_no_measure),
  };
  return test_main("fit", tests, sizeof tests / sizeof *tests);
}
