/* loss_test.c - O3 passes clean runs and sees each kind of wrong loss. */
#include "fabricate_test.h"

static struct bench b;
static void setup(void)
{
  const struct run_config c = made_config(2);
  bench_setup(&b, "loss", &c);
}

static void a_clean_run_passes_and_shows_each_step(void)
{
  setup();
  CHECK(bench_judge(&b, "loss") == OUTCOME_PASS);
  CHECK(b.verdict.value <= b.verdict.bound);
  CHECK(b.verdict.smallest >= b.verdict.bound && b.verdict.smallest < 1e-5);
  CHECK(json_array_size(b.verdict.details) == 4); /* two steps, two evaluations */
  bench_teardown(&b);
}

static void a_micro_batch_off_by_1e_5_fails_and_is_named(void)
{
  setup();
  made_set(&b.run, "microbatch", -1, 1, 4, "got.loss_sum", json_real(made_loss(1, 4, 0) * (1.0 + 1e-5)));
  CHECK(bench_judge(&b, "loss") == OUTCOME_FAIL);
  bench_teardown(&b);
  setup(); /* the same with the sums in agreement: only the truth can tell */
  const double more = made_loss(1, 4, 20) * 1e-5;
  made_set(&b.run, "microbatch", -1, 1, 4, "got.loss_sum", json_real(made_loss(1, 4, 20) + more));
  for (int rank = 0; rank < 2; rank++) {
    const double sum = made_get(&b.run, "step", rank, 1, -1, "got.loss_sum") + more;
    made_set(&b.run, "step", rank, 1, -1, "got.loss_sum", json_real(sum));
    made_set(&b.run, "step", rank, 1, -1, "got.loss", json_real(sum / made_get(&b.run, "step", rank, 1, -1, "got.valid_tokens")));
  }
  CHECK(bench_judge(&b, "loss") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "micro-batch 4 at step 1");
  bench_teardown(&b);
}

static void a_reported_loss_that_the_sums_do_not_give_fails_on_any_rank(void)
{
  setup();
  made_set(&b.run, "step", 1, 0, -1, "got.loss", json_real(made_get(&b.run, "step", 1, 0, -1, "got.loss") * (1.0 + 1e-9)));
  CHECK(bench_judge(&b, "loss") == OUTCOME_FAIL); /* far below the distance to the truth that is allowed */
  CHECK_TEXT_HAS(b.verdict.worst, "rank 1");
  bench_teardown(&b);
}

static void a_wrong_count_fails(void)
{
  setup();
  made_set(&b.run, "microbatch", -1, 0, 2, "got.valid_tokens", json_integer((json_int_t)made_tokens(0, 2) + 1));
  CHECK(bench_judge(&b, "loss") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "valid tokens");
  bench_teardown(&b);
}

static void an_evaluation_scaled_on_one_rank_fails(void)
{
  setup();
  made_set(&b.run, "eval", 1, 2, -1, "got.loss", json_real(2.0));
  CHECK(bench_judge(&b, "loss") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "evaluation");
  bench_teardown(&b);
}

static void not_a_number_never_agrees_with_itself(void)
{
  setup();
  for (int i = -1; i < b.n; i++) made_set(i < 0 ? &b.run : &b.other[i], "step", 0, 1, -1, "got.loss", json_string("nan"));
  CHECK(bench_judge(&b, "loss") != OUTCOME_PASS);
  bench_teardown(&b);
}

static void missing_records_never_pass(void)
{
  static const char *const kinds[] = {"microbatch", "step", "eval"};
  for (int k = 0; k < 3; k++) {
    setup();
    made_drop(&b.run, kinds[k], 1, k == 2 ? 2 : 1, -1);
    CHECK(bench_judge(&b, "loss") == OUTCOME_INVALID);
    bench_teardown(&b);
    setup();
    made_drop(&b.other[3], kinds[k], 0, k == 2 ? 2 : 1, -1); /* a noise run's */
    CHECK(bench_judge(&b, "loss") == OUTCOME_INVALID);
    bench_teardown(&b);
  }
  setup();
  b.companions[5] = NULL;
  CHECK(bench_judge(&b, "loss") == OUTCOME_INVALID);
  CHECK_TEXT_HAS(b.verdict.sentence, "noise4");
  bench_teardown(&b);
}

static void a_micro_batch_told_twice_decides_nothing(void)
{
  setup();
  json_array_append(b.run.records, made_at(&b.run, "microbatch", -1, 0, 2));
  CHECK(bench_judge(&b, "loss") == OUTCOME_INVALID);
  CHECK_TEXT_HAS(b.verdict.sentence, "told 2 times");
  bench_teardown(&b);
}

static void noise_above_the_ceiling_decides_nothing(void)
{
  setup();
  for (int rank = 0; rank < 1; rank++)
    made_set(&b.other[2], "step", rank, 1, -1, "got.loss", json_real(made_get(&b.other[2], "step", rank, 1, -1, "got.loss") * 1.001));
  CHECK(bench_judge(&b, "loss") == OUTCOME_INVALID);
  CHECK_TEXT_HAS(b.verdict.sentence, "ceiling");
  bench_teardown(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_clean_run_passes_and_shows_each_step),
    TEST(a_micro_batch_off_by_1e_5_fails_and_is_named),
    TEST(a_reported_loss_that_the_sums_do_not_give_fails_on_any_rank),
    TEST(a_wrong_count_fails),
    TEST(an_evaluation_scaled_on_one_rank_fails),
    TEST(not_a_number_never_agrees_with_itself),
    TEST(missing_records_never_pass),
    TEST(a_micro_batch_told_twice_decides_nothing),
    TEST(noise_above_the_ceiling_decides_nothing),
  };
  return test_main("loss", tests, sizeof tests / sizeof *tests);
}
