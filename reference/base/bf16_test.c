/* bf16_test.c - rounding to the nearest bfloat16, held against a search over all of them. */
#include "base/bf16.h"

#include "base/rng.h"
#include "testing/check.h"

#include <float.h>
#include <math.h>

/* Every finite bfloat16 of one sign is two neighbours away from the next; bits order as values do. */
static uint16_t nearest_of(double x)
{
  const double size = fabs(x);
  int low = 0, high = 0x7f80; /* infinity: as if one step above the largest */
  while (high - low > 1) {
    const int mid = (low + high) / 2;
    if ((double)bf16_widen((uint16_t)mid) <= size) low = mid;
    else high = mid;
  }
  const double below = (double)bf16_widen((uint16_t)low), above = high == 0x7f80 ? 0x1p128 : (double)bf16_widen((uint16_t)high);
  const bool up = size - below > above - size || (size - below == above - size && low % 2 == 1);
  return (uint16_t)((up ? high : low) | (signbit(x) ? 0x8000 : 0));
}

static void every_value_is_its_own_nearest(void)
{
  int wrong = 0, lost = 0;
  for (int i = 0; i < 0x10000; i++) {
    const float wide = bf16_widen((uint16_t)i);
    if (isnan(wide)) {
      lost += !isnan(bf16_widen(bf16_round(wide))) || !isnan(bf16_widen(bf16_round_f64((double)wide)));
      continue;
    }
    wrong += bf16_round(wide) != i || bf16_round_f64((double)wide) != i;
  }
  CHECK(wrong == 0);
  CHECK(lost == 0);
}

static void ties_and_their_neighbours_round_as_ieee_says(void)
{
  int wrong = 0;
  for (int i = 0; i < 0x7f80; i += 7) {
    const double here = (double)bf16_widen((uint16_t)i), next = i == 0x7f7f ? 0x1p128 : (double)bf16_widen((uint16_t)(i + 1));
    const double tie = (here + next) / 2, sides[] = {tie, nextafter(tie, 0), nextafter(tie, INFINITY), -tie};
    for (int k = 0; k < 4; k++) wrong += bf16_round_f64(sides[k]) != nearest_of(sides[k]);
    const float narrow = (float)tie, near[] = {narrow, nextafterf(narrow, 0), nextafterf(narrow, INFINITY), -narrow};
    for (int k = 0; k < 4 && (double)narrow == tie; k++) wrong += bf16_round(near[k]) != nearest_of((double)near[k]);
  }
  CHECK(wrong == 0);
}

static void random_numbers_round_to_the_nearest(void)
{
  const struct rng_key key = {3, RNG_TEST, 0};
  int wrong = 0;
  for (uint64_t i = 0; i < 20000; i++) {
    const double x = ldexp(rng_normal(key, i), (int)(i % 300) - 150);
    wrong += bf16_round_f64(x) != nearest_of(x);
    wrong += bf16_round((float)x) != nearest_of((double)(float)x);
  }
  CHECK(wrong == 0);
}

static void numbers_outside_its_range_become_infinite(void)
{
  CHECK(bf16_round_f64(1e300) == 0x7f80);
  CHECK(bf16_round_f64(-1e300) == 0xff80);
  CHECK(bf16_round(FLT_MAX) == 0x7f80);
  CHECK(bf16_round(INFINITY) == 0x7f80);
  CHECK(bf16_round_f64(0x1.fep127) == 0x7f7f);
  CHECK(bf16_round_f64(1e-300) == 0);
  CHECK(bf16_round_f64(-1e-300) == 0x8000);
}

/* float32's nearest lies on a tie of bfloat16, where the number itself does not. */
static void double_numbers_are_rounded_once(void)
{
  const double above = 1 + 0x1p-8 + 0x1p-40, below = 1 + 3 * 0x1p-8 - 0x1p-40;
  CHECK(bf16_round((float)above) == 0x3f80);
  CHECK(bf16_round_f64(above) == 0x3f81);
  CHECK(bf16_round((float)below) == 0x3f82);
  CHECK(bf16_round_f64(below) == 0x3f81);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(every_value_is_its_own_nearest),
    TEST(ties_and_their_neighbours_round_as_ieee_says),
    TEST(random_numbers_round_to_the_nearest),
    TEST(numbers_outside_its_range_become_infinite),
    TEST(double_numbers_are_rounded_once),
  };
  return test_main("bf16", tests, sizeof tests / sizeof *tests);
}
