/* gradients_test.c - O4 passes clean runs and names the parameter that is off. */
#include "fabricate_test.h"

static struct bench b;
static void setup(void)
{
  const struct run_config c = made_config(2);
  bench_setup(&b, "gradients", &c);
}

static void a_clean_run_passes_and_shows_each_parameter(void)
{
  setup();
  CHECK(bench_judge(&b, "gradients") == OUTCOME_PASS);
  CHECK(b.verdict.smallest > 0.0 && b.verdict.smallest < 1e-4);
  CHECK((int)json_array_size(b.verdict.details) == shapes_count(&b.run.data.config) + 1); /* the key bias is a row of its own */
  bench_teardown(&b);
}

static void the_smallest_planted_error_it_promises_is_caught_in_every_parameter(void)
{
  setup();
  bench_judge(&b, "gradients");
  const double smallest = b.verdict.smallest;
  bench_teardown(&b);
  static const char *const parts[] = {"wte", "wpe", "ln_1.weight", "c_attn.weight", "mlp.c_proj.bias", "ln_f.bias"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    setup();
    made_bend(&b.run, "gradients", 1, parts[i], 1.0 + 1.01 * smallest, 0.0);
    CHECK(bench_judge(&b, "gradients") == OUTCOME_FAIL);
    CHECK_TEXT_HAS(b.verdict.worst, parts[i]);
    CHECK_TEXT_HAS(b.verdict.worst, "step 1");
    bench_teardown(&b);
  }
}

static void a_halved_parameter_tells_its_ratio(void)
{
  setup();
  made_bend(&b.run, "gradients", 0, "mlp.c_fc.weight", 0.5, 0.0);
  CHECK(bench_judge(&b, "gradients") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "ratio 0.5");
  CHECK_TEXT_HAS(b.verdict.sentence, "cosine 1");
  CHECK_NEAR(b.verdict.value, 0.5, 1e-5);
  bench_teardown(&b);
}

static void the_key_bias_is_judged_by_size_and_the_unused_must_stay_zero(void)
{
  setup();
  made_bend(&b.run, "gradients", 0, "extra.unused", 1.0, 1e-12);
  CHECK(bench_judge(&b, "gradients") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "extra.unused");
  bench_teardown(&b);
  setup();
  made_bend(&b.run, "gradients", 0, "c_attn.bias", 1.0, 1e-4); /* the whole fused bias, so that both rows move */
  CHECK(bench_judge(&b, "gradients") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "c_attn.bias");
  bench_teardown(&b);
}

static void not_a_number_fails_even_if_the_truth_has_one(void)
{
  setup();
  made_bend(&b.run, "gradients", 1, "ln_f.weight", NAN, 0.0);
  CHECK(bench_judge(&b, "gradients") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "ln_f.weight");
  for (int i = 0; i < b.n; i++) made_bend(&b.other[i], "gradients", 1, "ln_f.weight", NAN, 0.0);
  CHECK(bench_judge(&b, "gradients") != OUTCOME_PASS);
  bench_teardown(&b);
}

static void missing_dumps_and_tensors_never_pass(void)
{
  setup();
  made_drop(&b.run, "tensors", 0, 1, -1);
  CHECK(bench_judge(&b, "gradients") == OUTCOME_INVALID);
  bench_teardown(&b);
  setup();
  made_drop(&b.other[4], "tensors", 0, 0, -1);
  CHECK(bench_judge(&b, "gradients") == OUTCOME_INVALID);
  bench_teardown(&b);
  setup();
  b.companions[0] = NULL;
  CHECK(bench_judge(&b, "gradients") == OUTCOME_INVALID);
  CHECK_TEXT_HAS(b.verdict.sentence, "truth");
  bench_teardown(&b);
  setup();
  made_drop(&b.run, "step", 1, 1, -1); /* a rank that stopped early */
  CHECK(bench_judge(&b, "gradients") == OUTCOME_INVALID);
  bench_teardown(&b);
}

static void noise_above_the_ceiling_decides_nothing_and_beyond_it_still_fails(void)
{
  setup();
  made_bend(&b.other[1], "gradients", 0, "wpe", 1.001, 0.0);
  CHECK(bench_judge(&b, "gradients") == OUTCOME_INVALID);
  CHECK_TEXT_HAS(b.verdict.sentence, "wpe");
  made_bend(&b.run, "gradients", 0, "wpe", 2.0, 0.0);
  CHECK(bench_judge(&b, "gradients") == OUTCOME_FAIL);
  bench_teardown(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_clean_run_passes_and_shows_each_parameter),
    TEST(the_smallest_planted_error_it_promises_is_caught_in_every_parameter),
    TEST(a_halved_parameter_tells_its_ratio),
    TEST(the_key_bias_is_judged_by_size_and_the_unused_must_stay_zero),
    TEST(not_a_number_fails_even_if_the_truth_has_one),
    TEST(missing_dumps_and_tensors_never_pass),
    TEST(noise_above_the_ceiling_decides_nothing_and_beyond_it_still_fails),
  };
  return test_main("gradients", tests, sizeof tests / sizeof *tests);
}
