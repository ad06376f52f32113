/* stats_test.c - medians, intervals and the one rate. */
#include "harness/stats.h"
#include "testing/check.h"

#include <math.h>

static void median_of_odd_and_even_counts(void)
{
  const double odd[] = {5, 1, 9}, even[] = {4, 1, 3, 2};
  CHECK_NEAR(stats_median(odd, 3), 5, 0);
  CHECK_NEAR(stats_median(even, 4), 2.5, 0);
}

static void quantiles_are_linear_between_order_statistics(void)
{
  const double x[] = {10, 20, 30, 40, 50};
  CHECK_NEAR(stats_quantile(x, 5, 0), 10, 0);
  CHECK_NEAR(stats_quantile(x, 5, 0.25), 20, 1e-12);
  CHECK_NEAR(stats_quantile(x, 5, 0.9), 46, 1e-12);
  CHECK_NEAR(stats_quantile(x, 5, 1), 50, 0);
}

static void nan_is_never_a_median(void)
{
  const double x[] = {1, NAN, 3};
  CHECK(isnan(stats_median(x, 3)));
  CHECK(isnan(stats_median_interval(x, 3, 0.95).low));
}

/* Five values cannot give 95 %: the whole range.  For 10 the table of Hahn and Meeker gives ranks 2 and 9
 * (97.9 %), for 20 ranks 6 and 15 (95.9 %). */
static void median_interval_takes_the_tabled_ranks(void)
{
  double x[20];
  for (int i = 0; i < 20; i++) x[i] = 20 - i;
  const struct stats_interval five = stats_median_interval(x, 5, 0.95), ten = stats_median_interval(x, 10, 0.95),
                              twenty = stats_median_interval(x, 20, 0.95);
  CHECK_NEAR(five.low, 16, 0);
  CHECK_NEAR(five.high, 20, 0);
  CHECK_NEAR(ten.low, 12, 0);
  CHECK_NEAR(ten.high, 19, 0);
  CHECK_NEAR(twenty.low, 6, 0);
  CHECK_NEAR(twenty.high, 15, 0);
}

static void ratio_of_equal_samples_is_one_and_repeats(void)
{
  const double a[] = {1.0, 1.1, 0.9, 1.05, 0.95}, b[] = {2.0, 2.2, 1.8, 2.1, 1.9};
  const struct stats_interval r = stats_ratio_interval(a, 5, b, 5, true, 0.95, 1000, 7), again = stats_ratio_interval(a, 5, b, 5, true, 0.95, 1000, 7);
  CHECK_NEAR(r.value, 0.5, 1e-12);
  CHECK_NEAR(r.low, 0.5, 1e-12); /* paired and proportional: every resample has the same ratio */
  CHECK_NEAR(r.high, 0.5, 1e-12);
  CHECK_SAME_BITS(&r, &again, sizeof r);
  const struct stats_interval apart = stats_ratio_interval(a, 5, b, 5, false, 0.95, 1000, 7);
  CHECK(apart.low < 0.5 && apart.high > 0.5);
}

/* No hit in n: 1 - 0.05^(1/n).  Three of 100: 7.571 % (Clopper and Pearson, one-sided). */
static void upper_rate_matches_closed_forms(void)
{
  CHECK_NEAR(stats_rate_upper(0, 200, 0.95), 1 - pow(0.05, 1.0 / 200), 1e-12);
  CHECK_NEAR(stats_rate_upper(3, 100, 0.95), 0.07571, 5e-5);
  CHECK_NEAR(stats_rate_upper(4, 4, 0.95), 1, 0);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(median_of_odd_and_even_counts),
    TEST(quantiles_are_linear_between_order_statistics),
    TEST(nan_is_never_a_median),
    TEST(median_interval_takes_the_tabled_ranks),
    TEST(ratio_of_equal_samples_is_one_and_repeats),
    TEST(upper_rate_matches_closed_forms),
  };
  return test_main("stats", tests, sizeof tests / sizeof *tests);
}
