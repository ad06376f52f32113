/* f16_test.c - rounding to the nearest binary16, held against a search over all of them. */
#include "base/f16.h"

#include "base/rng.h"
#include "testing/check.h"

#include <float.h>
#include <math.h>

/* Bits order as values do; infinity is as if one step above the largest. */
static uint16_t nearest_of(double x)
{
  const double size = fabs(x);
  int low = 0, high = 0x7c00;
  while (high - low > 1) {
    const int mid = (low + high) / 2;
    if ((double)f16_widen((uint16_t)mid) <= size) low = mid;
    else high = mid;
  }
  const double below = (double)f16_widen((uint16_t)low), above = high == 0x7c00 ? 0x1p16 : (double)f16_widen((uint16_t)high);
  const bool up = size - below > above - size || (size - below == above - size && low % 2 == 1);
  return (uint16_t)((up ? high : low) | (signbit(x) ? 0x8000 : 0));
}

static void every_value_is_its_own_nearest(void)
{
  int wrong = 0, lost = 0;
  for (int i = 0; i < 0x10000; i++) {
    const float wide = f16_widen((uint16_t)i);
    if (isnan(wide)) {
      lost += !isnan(f16_widen(f16_round(wide))) || !isnan(f16_widen(f16_round_f64((double)wide)));
      continue;
    }
    wrong += f16_round(wide) != i || f16_round_f64((double)wide) != i;
  }
  CHECK(wrong == 0);
  CHECK(lost == 0);
}

static void ties_and_their_neighbours_round_as_ieee_says(void)
{
  int wrong = 0;
  for (int i = 0; i < 0x7c00; i++) {
    const double here = (double)f16_widen((uint16_t)i), next = i == 0x7bff ? 0x1p16 : (double)f16_widen((uint16_t)(i + 1));
    const double tie = (here + next) / 2, sides[] = {tie, nextafter(tie, 0), nextafter(tie, INFINITY), -tie};
    for (int k = 0; k < 4; k++) wrong += f16_round_f64(sides[k]) != nearest_of(sides[k]);
    const float narrow = (float)tie, near[] = {narrow, nextafterf(narrow, 0), nextafterf(narrow, INFINITY), -narrow};
    for (int k = 0; k < 4 && (double)narrow == tie; k++) wrong += f16_round(near[k]) != nearest_of((double)near[k]);
  }
  CHECK(wrong == 0);
}

static void random_numbers_round_to_the_nearest(void)
{
  const struct rng_key key = {3, RNG_TEST, 0};
  int wrong = 0;
  for (uint64_t i = 0; i < 20000; i++) {
    const double x = ldexp(rng_normal(key, i), (int)(i % 50) - 30);
    wrong += f16_round_f64(x) != nearest_of(x);
    wrong += f16_round((float)x) != nearest_of((double)(float)x);
  }
  CHECK(wrong == 0);
}

static void values_are_the_standards(void)
{
  static const struct { uint16_t bits; double value; } known[] = {
    {0x3c00, 1}, {0xc000, -2}, {0x7bff, 65504}, {0x0400, 0x1p-14}, {0x03ff, 0x1p-14 - 0x1p-24}, {0x0001, 0x1p-24}, {0x3555, 0x1.554p-2}, {0, 0}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    CHECK((double)f16_widen(known[i].bits) == known[i].value);
    CHECK(f16_round((float)known[i].value) == known[i].bits);
  }
  CHECK(isinf(f16_widen(0x7c00)) && isinf(f16_widen(0xfc00)) && f16_widen(0xfc00) < 0);
}

static void numbers_outside_its_range_become_infinite_or_zero(void)
{
  CHECK(f16_round_f64(1e300) == 0x7c00);
  CHECK(f16_round_f64(-1e300) == 0xfc00);
  CHECK(f16_round(FLT_MAX) == 0x7c00);
  CHECK(f16_round(INFINITY) == 0x7c00);
  CHECK(f16_round(65520.0f) == 0x7c00 && f16_round(nextafterf(65520.0f, 0)) == 0x7bff);
  CHECK(f16_round(0x1p-25f) == 0 && f16_round(nextafterf(0x1p-25f, 1)) == 1 && f16_round(-0x1p-25f) == 0x8000);
  CHECK(f16_round_f64(1e-300) == 0 && f16_round(FLT_TRUE_MIN) == 0);
  CHECK(f16_round_f64(-1e-300) == 0x8000);
}

/* float32's nearest lies on a tie of binary16, where the number itself does not. */
static void double_numbers_are_rounded_once(void)
{
  const double above = 1 + 0x1p-11 + 0x1p-40, below = 1 + 3 * 0x1p-11 - 0x1p-40;
  CHECK(f16_round((float)above) == 0x3c00);
  CHECK(f16_round_f64(above) == 0x3c01);
  CHECK(f16_round((float)below) == 0x3c02);
  CHECK(f16_round_f64(below) == 0x3c01);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(values_are_the_standards),
    TEST(every_value_is_its_own_nearest),
    TEST(ties_and_their_neighbours_round_as_ieee_says),
    TEST(random_numbers_round_to_the_nearest),
    TEST(numbers_outside_its_range_become_infinite_or_zero),
    TEST(double_numbers_are_rounded_once),
  };
  return test_main("f16", tests, sizeof tests / sizeof *tests);
}
