/* bits_test.c - O8: a rerun, overlap off and the serial twin are equal in every bit, or it is said where not. */
#include "fabricate_test.h"

static const char *const checks[] = {"rerun", "overlap_off", "undelayed", "twin"};
enum { CHECKS = sizeof checks / sizeof *checks };
static struct bench b;
static void setup(const char *check)
{
  struct run_config c = made_config(2);
  c.reduce = REDUCE_ORDERED;
  c.delay = DELAY_ALL;
  bench_setup(&b, check, &c);
}

static void equal_runs_pass(void)
{
  for (int i = 0; i < CHECKS; i++) {
    setup(checks[i]);
    CHECK(b.n == 1);
    CHECK(bench_judge(&b, checks[i]) == OUTCOME_PASS);
    bench_teardown(&b);
  }
}

static void one_bit_in_a_dump_fails_and_names_the_parameter(void)
{
  for (int i = 0; i < CHECKS; i++) {
    setup(checks[i]);
    made_bend(&b.run, "gradients", 1, "c_attn.weight", 1.0 + 1.2e-7, 0.0);
    CHECK(bench_judge(&b, checks[i]) == OUTCOME_FAIL);
    CHECK_TEXT_HAS(b.verdict.worst, "c_attn.weight");
    bench_teardown(&b);
  }
}

static void the_last_bit_of_a_number_fails(void)
{
  for (int i = 0; i < CHECKS; i++) {
    setup(checks[i]);
    made_set(&b.run, "step", 0, 1, -1, "got.norm", json_real(nextafter(made_get(&b.run, "step", 0, 1, -1, "got.norm"), 9.0)));
    CHECK(bench_judge(&b, checks[i]) == OUTCOME_FAIL);
    CHECK_TEXT_HAS(b.verdict.worst, "norm");
    bench_teardown(&b);
  }
}

static void a_hash_of_another_rank_fails_where_the_layout_is_the_same(void)
{
  setup("rerun");
  made_set(&b.run, "replica", 1, 0, -1, "got.hash", json_string("feed"));
  CHECK(bench_judge(&b, "rerun") == OUTCOME_FAIL);
  bench_teardown(&b);
}

static void not_a_number_is_equal_to_nothing(void)
{
  setup("rerun");
  made_set(&b.run, "microbatch", -1, 0, 1, "got.loss_sum", json_string("nan"));
  made_set(&b.other[0], "microbatch", -1, 0, 1, "got.loss_sum", json_string("nan"));
  CHECK(bench_judge(&b, "rerun") == OUTCOME_FAIL);
  bench_teardown(&b);
}

static void what_does_not_apply_is_skipped_and_what_is_missing_is_not(void)
{
  struct run_config c = made_config(2); /* the library's own sums */
  bench_setup(&b, "twin", &c);
  CHECK(bench_judge(&b, "twin") == OUTCOME_SKIPPED);
  bench_teardown(&b);
  c.overlap = false;
  bench_setup(&b, "overlap_off", &c);
  CHECK(bench_judge(&b, "overlap_off") == OUTCOME_SKIPPED);
  bench_teardown(&b);
  setup("twin");
  b.companions[0] = NULL;
  CHECK(bench_judge(&b, "twin") == OUTCOME_INVALID);
  bench_teardown(&b);
  setup("twin");
  made_drop(&b.other[0], "tensors", 0, 1, -1);
  CHECK(bench_judge(&b, "twin") == OUTCOME_INVALID);
  bench_teardown(&b);
}

static void a_rerun_that_dies_where_the_run_did_not_is_a_failure(void)
{
  setup("rerun");
  snprintf(b.other[0].data.end, sizeof b.other[0].data.end, "killed");
  CHECK(bench_judge(&b, "rerun") == OUTCOME_FAIL);
  bench_teardown(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(equal_runs_pass),
    TEST(one_bit_in_a_dump_fails_and_names_the_parameter),
    TEST(the_last_bit_of_a_number_fails),
    TEST(a_hash_of_another_rank_fails_where_the_layout_is_the_same),
    TEST(not_a_number_is_equal_to_nothing),
    TEST(what_does_not_apply_is_skipped_and_what_is_missing_is_not),
    TEST(a_rerun_that_dies_where_the_run_did_not_is_a_failure),
  };
  return test_main("bits", tests, sizeof tests / sizeof *tests);
}
