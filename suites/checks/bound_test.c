/* bound_test.c - the bound in force, its ceilings, and the worst of many comparisons. */
#include "bound.h"
#include "testing/check.h"
#include "verdict.h"

#include <math.h>

static void bound_is_the_larger_of_floor_and_four_times_the_noise(void)
{
  CHECK(bound_measured(1.0, 0.1) == 1.0);
  CHECK(bound_measured(1.0, 1.0) == 4.0);
  CHECK(isnan(bound_measured(1.0, NAN))); /* noise that is not finite bounds nothing */
}

static void units_are_those_of_the_types(void)
{
  CHECK(1.0 + bound_unit(PRECISION_F64) == 1.0 && 1.0 + 2.0 * bound_unit(PRECISION_F64) > 1.0);
  CHECK(1.0f + (float)bound_unit(PRECISION_F32) == 1.0f && 1.0f + 2.0f * (float)bound_unit(PRECISION_F32) > 1.0f);
  CHECK(bound_unit(PRECISION_BF16) == 1.0 / 256.0); /* 8 significant bits */
}

static void ceilings_are_the_tables(void)
{
  CHECK(bound_ceiling(BOUND_LOSS, PRECISION_F64, 0) == 1e-13 && bound_ceiling(BOUND_LOSS, PRECISION_F32, 0) == 1e-6);
  CHECK(bound_ceiling(BOUND_LOSS, PRECISION_F64, 20) == 1e-10 && bound_ceiling(BOUND_LOSS, PRECISION_F32, 20) == 1e-5);
  CHECK(bound_ceiling(BOUND_LOSS, PRECISION_F64, 100) == 1e-8 && bound_ceiling(BOUND_LOSS, PRECISION_F32, 100) == 1e-4);
  CHECK(bound_ceiling(BOUND_GRADIENT, PRECISION_F64, 3) == 1e-11 && bound_ceiling(BOUND_GRADIENT, PRECISION_F32, 3) == 1e-4);
  CHECK(bound_ceiling(BOUND_NORM, PRECISION_F64, 0) == 1e-12 && bound_ceiling(BOUND_NORM_OWN, PRECISION_F32, 0) == 1e-6);
  CHECK(bound_ceiling(BOUND_UPDATE, PRECISION_F64, 0) == 1e-12 && bound_ceiling(BOUND_UPDATE, PRECISION_F32, 0) == 0x1p-21); /* 4 ulp of 2^-23 */
}

/* tf32 and bf16: the table's figures for bf16, an eighth of them for tf32; updates are made in float32. */
static void narrow_precisions_have_ceilings_of_their_own(void)
{
  CHECK(bound_unit(PRECISION_TF32) == 8.0 * 0x1p-14 && bound_is_narrow(PRECISION_TF32) && !bound_is_narrow(PRECISION_F32));
  CHECK(bound_ceiling(BOUND_LOSS, PRECISION_BF16, 20) == 5e-3 && bound_ceiling(BOUND_LOSS, PRECISION_BF16, 100) == 2e-2);
  CHECK(bound_ceiling(BOUND_GRADIENT, PRECISION_BF16, 0) == 0.15 && bound_ceiling(BOUND_NORM_OWN, PRECISION_BF16, 0) == 1e-5);
  CHECK(bound_unit(PRECISION_F16) == 1.0 / 2048.0 && bound_is_narrow(PRECISION_F16)); /* 11 significant bits */
  for (int kind = 0; kind <= BOUND_NORM; kind++) /* the roundings of bf16, 8 times finer, as tf32's */
    CHECK(bound_ceiling((enum bound_kind)kind, PRECISION_F16, 0) == bound_ceiling((enum bound_kind)kind, PRECISION_TF32, 0));
  for (int p = PRECISION_TF32; p <= PRECISION_F16; p++)
    CHECK(bound_ceiling(BOUND_UPDATE, (enum precision)p, 0) == bound_ceiling(BOUND_UPDATE, PRECISION_F32, 0));
  for (int kind = 0; kind <= BOUND_NORM_OWN; kind++)
    for (int p = PRECISION_F32; p < PRECISION_BF16; p++)
      CHECK(bound_ceiling((enum bound_kind)kind, (enum precision)p, 0) <= bound_ceiling((enum bound_kind)kind, (enum precision)(p + 1), 0));
}

/* Gradients that were rounded on their way are held to what that rounding does; what does not know of it is not. */
static void rounding_between_replicas_widens_what_it_reaches(void)
{
  struct run_config c = {.precision = PRECISION_F32, .dp = 2, .replicas = 1, .reduce_type = REDUCE_TYPE_BF16};
  CHECK(bound_precision(&c, BOUND_GRADIENT, 0) == PRECISION_BF16 && bound_precision(&c, BOUND_NORM, 0) == PRECISION_BF16);
  CHECK(bound_precision(&c, BOUND_LOSS, 0) == PRECISION_F32 && bound_precision(&c, BOUND_LOSS, 1) == PRECISION_BF16);
  CHECK(bound_precision(&c, BOUND_NORM_OWN, 1) == PRECISION_F32 && bound_precision(&c, BOUND_UPDATE, 1) == PRECISION_F32);
  c.dp = 1;
  CHECK(bound_precision(&c, BOUND_GRADIENT, 1) == PRECISION_F32);
  c.replicas = 2;
  CHECK(bound_precision(&c, BOUND_GRADIENT, 1) == PRECISION_BF16);
  c.reduce_type = REDUCE_TYPE_F32;
  CHECK(bound_precision(&c, BOUND_GRADIENT, 1) == PRECISION_F32);
}

/* A floor must leave room below the ceiling, or nothing could be decided. */
static void floors_are_below_their_ceilings(void)
{
  static const enum bound_kind kinds[] = {BOUND_LOSS, BOUND_GRADIENT, BOUND_NORM};
  for (int k = 0; k < 3; k++)
    for (int p = PRECISION_F64; p <= PRECISION_F16; p++)
      CHECK(bound_floor(kinds[k], (enum precision)p, 12.0) < bound_ceiling(kinds[k], (enum precision)p, 0));
  CHECK(bound_floor(BOUND_GRADIENT, PRECISION_BF16, 1.0) == 4.0 / 256.0 && bound_floor(BOUND_NORM, PRECISION_F32, 4.0) == 8.0 * 0x1p-24);
  CHECK(bound_floor(BOUND_LOSS, PRECISION_BF16, 12.0) == 0x1p-9 && bound_floor(BOUND_NORM, PRECISION_TF32, 12.0) == 0x1p-12);
}

static void not_finite_never_agrees(void)
{
  CHECK(isnan(bound_relative(NAN, NAN)));
  CHECK(isnan(bound_relative(INFINITY, INFINITY)));
  CHECK(bound_relative(0.0, 0.0) == 0.0);
  CHECK(isinf(bound_relative(1.0, 0.0)));
  CHECK_NEAR(bound_relative(1.5, -1.0), 2.5, 1e-15);
}

static void the_worst_is_the_largest_share_of_its_bound(void)
{
  struct worst w;
  worst_start(&w);
  CHECK(worst_see(&w, 1.0, 10.0, "small"));
  CHECK(worst_see(&w, 0.5, 1.0, "half"));
  CHECK(worst_see(&w, 0.0, 0.0, "nothing"));
  CHECK_TEXT_HAS(w.place, "half");
  CHECK(!worst_see(&w, 2.0, 1.0, "over"));
  CHECK_TEXT_HAS(w.place, "over");
  CHECK(!worst_see(&w, 1e-30, 0.0, "any above a bound of nothing"));
  CHECK_TEXT_HAS(w.place, "any above");
  CHECK(w.seen == 5 && w.over == 2);
  worst_start(&w);
  CHECK(!worst_see(&w, NAN, 1.0, "nan"));
  CHECK(!worst_see(&w, 1.0, NAN, "no bound"));
  CHECK(w.over == 2);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(bound_is_the_larger_of_floor_and_four_times_the_noise),
    TEST(units_are_those_of_the_types),
    TEST(ceilings_are_the_tables),
    TEST(narrow_precisions_have_ceilings_of_their_own),
    TEST(rounding_between_replicas_widens_what_it_reaches),
    TEST(floors_are_below_their_ceilings),
    TEST(not_finite_never_agrees),
    TEST(the_worst_is_the_largest_share_of_its_bound),
  };
  return test_main("bound", tests, sizeof tests / sizeof *tests);
}
