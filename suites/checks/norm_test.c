/* norm_test.c - O5: the reported norm against the truth and against the run's own gradients. */
#include "fabricate_test.h"

static struct bench b;
static void setup(const char *frozen)
{
  struct run_config c = made_config(2);
  snprintf(c.frozen, sizeof c.frozen, "%s", frozen);
  bench_setup(&b, "norm", &c);
}

static void a_clean_run_passes_also_with_frozen_parameters(void)
{
  setup("");
  CHECK(bench_judge(&b, "norm") == OUTCOME_PASS);
  CHECK(json_array_size(b.verdict.details) == 2);
  bench_teardown(&b);
  setup("ln_f");
  CHECK(bench_judge(&b, "norm") == OUTCOME_PASS);
  bench_teardown(&b);
}

static void a_norm_that_its_own_gradients_do_not_have_fails_on_any_rank(void)
{
  setup("");
  made_set(&b.run, "step", 1, 1, -1, "got.norm", json_real(made_get(&b.run, "step", 1, 1, -1, "got.norm") * (1.0 + 1e-5)));
  CHECK(bench_judge(&b, "norm") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "rank 1");
  bench_teardown(&b);
}

static void a_norm_that_is_its_own_but_not_the_truths_fails(void)
{
  setup("");
  made_bend(&b.run, "gradients", 0, "", 1.001, 0.0);
  for (int rank = 0; rank < 2; rank++)
    made_set(&b.run, "step", rank, 0, -1, "got.norm", json_real(made_get(&b.run, "step", rank, 0, -1, "got.norm") * 1.001));
  CHECK(bench_judge(&b, "norm") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "truth");
  CHECK_NEAR(b.verdict.value, 1e-3, 1e-5);
  bench_teardown(&b);
}

static void missing_or_not_finite_never_passes(void)
{
  setup("");
  made_set(&b.run, "step", 0, 0, -1, "got.norm", json_string("inf"));
  CHECK(bench_judge(&b, "norm") == OUTCOME_FAIL);
  bench_teardown(&b);
  setup("");
  made_set(&b.other[0], "step", 0, 0, -1, "got.norm", json_string("nan")); /* the truth's */
  CHECK(bench_judge(&b, "norm") == OUTCOME_INVALID);
  bench_teardown(&b);
  setup("");
  made_drop(&b.run, "tensors", 0, 1, -1);
  CHECK(bench_judge(&b, "norm") == OUTCOME_INVALID);
  bench_teardown(&b);
  setup("");
  made_drop(&b.run, "parameter", -1, -1, -1);
  CHECK(bench_judge(&b, "norm") == OUTCOME_INVALID);
  bench_teardown(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_clean_run_passes_also_with_frozen_parameters),
    TEST(a_norm_that_its_own_gradients_do_not_have_fails_on_any_rank),
    TEST(a_norm_that_is_its_own_but_not_the_truths_fails),
    TEST(missing_or_not_finite_never_passes),
  };
  return test_main("norm", tests, sizeof tests / sizeof *tests);
}
