/* ends_test.c - O14 and finiteness; O16's self-test. */
#include "fabricate_test.h"

static struct bench b;
static void setup(const char *check)
{
  const struct run_config c = made_config(2);
  bench_setup(&b, check, &c);
}

static void clean_runs_pass(void)
{
  setup("ends");
  CHECK(bench_judge(&b, "ends") == OUTCOME_PASS);
  CHECK(bench_judge(&b, "finite") == OUTCOME_PASS);
  bench_teardown(&b);
}

static void a_hang_and_a_crash_fail_with_the_watchers_words(void)
{
  setup("ends");
  snprintf(b.run.data.end, sizeof b.run.data.end, "timeout");
  snprintf(b.run.data.text, sizeof b.run.data.text, "rank 0 is in dp #12 allreduce (step 1)");
  CHECK(bench_judge(&b, "ends") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "dp #12 allreduce");
  snprintf(b.run.data.end, sizeof b.run.data.end, "killed");
  b.run.data.status = 9;
  CHECK(bench_judge(&b, "ends") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "killed by signal 9: rank 0");
  snprintf(b.run.data.end, sizeof b.run.data.end, "interrupted");
  CHECK(bench_judge(&b, "ends") == OUTCOME_INVALID);
  bench_teardown(&b);
}

static void an_error_is_the_runs_fault_or_the_machines(void)
{
  setup("ends");
  made_set(&b.run, "done", 1, -1, -1, "got.error_kind", json_string("numeric"));
  made_set(&b.run, "done", 1, -1, -1, "got.error", json_string("loss is not finite"));
  CHECK(bench_judge(&b, "ends") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "rank 1");
  made_set(&b.run, "done", 1, -1, -1, "got.error_kind", json_string("memory"));
  CHECK(bench_judge(&b, "ends") == OUTCOME_INVALID);
  bench_teardown(&b);
}

static void a_card_that_is_too_small_is_told_what_would_fit(void)
{
  struct predicted p;
  setup("ends");
  made_set(&b.run, "done", 1, -1, -1, "got.error_kind", json_string("memory"));
  made_set(&b.run, "done", 1, -1, -1, "got.error", json_string("no memory for 7 bytes"));
  CHECK(bench_judge(&b, "ends") == OUTCOME_INVALID);
  CHECK(strstr(b.verdict.sentence, "would fit") == NULL); /* of the host's memory nothing is known */
  predict(&b.run.data.config, &p);
  made_record(&b.run, "run", 0, -1, -1);
  made_set(&b.run, "run", 0, -1, -1, "env.gpu_memory_bytes", json_integer((json_int_t)(p.total_bytes / 0.95) - 200));
  CHECK(bench_judge(&b, "ends") == OUTCOME_INVALID);
  CHECK_TEXT_HAS(b.verdict.sentence, "(memory; on such a card would fit: tp: 2, not 1; on 4 ranks): no memory for 7 bytes");
  made_set(&b.run, "run", 0, -1, -1, "env.gpu_memory_bytes", json_integer(1));
  CHECK(bench_judge(&b, "ends") == OUTCOME_INVALID);
  CHECK_TEXT_HAS(b.verdict.sentence, "(memory): no memory for 7 bytes");
  bench_teardown(&b);
}

static void records_missing_or_twice_fail(void)
{
  setup("ends");
  made_drop(&b.run, "step", 1, 1, -1);
  CHECK(bench_judge(&b, "ends") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "rank 1 told of step 1 0 times");
  bench_teardown(&b);
  setup("ends");
  json_array_append(b.run.records, made_at(&b.run, "step", 0, 0, -1));
  CHECK(bench_judge(&b, "ends") == OUTCOME_FAIL);
  bench_teardown(&b);
  setup("ends");
  made_drop(&b.run, "done", 1, -1, -1);
  CHECK(bench_judge(&b, "ends") == OUTCOME_FAIL);
  bench_teardown(&b);
}

static void each_kind_of_value_that_is_not_finite_names_its_observable(void)
{
  static const struct {
    const char *kind, *key, *observable;
  } bent[] = {{"step", "got.loss", "O3"}, {"eval", "got.train_loss", "O3"}, {"step", "got.norm", "O5"}, {"step", "got.clip_factor", "O6"}};
  for (int i = 0; i < 4; i++) {
    setup("finite");
    made_set(&b.run, bent[i].kind, 1, 1, -1, bent[i].key, json_string(i % 2 ? "inf" : "nan"));
    CHECK(bench_judge(&b, "finite") == OUTCOME_FAIL);
    CHECK_TEXT_HAS(b.verdict.observable, bent[i].observable);
    bench_teardown(&b);
  }
  setup("finite");
  made_bend(&b.run, "gradients", 1, "ln_2.bias", INFINITY, 0.0);
  CHECK(bench_judge(&b, "finite") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.observable, "O4");
  CHECK_TEXT_HAS(b.verdict.worst, "ln_2.bias");
  bench_teardown(&b);
  setup("finite");
  made_bend(&b.run, "weights", 2, "ln_2.bias", NAN, 0.0);
  CHECK(bench_judge(&b, "finite") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.observable, "O6");
  bench_teardown(&b);
}

static void the_self_test_counts_wrong_elements_on_every_rank(void)
{
  setup("collectives");
  CHECK(bench_judge(&b, "collectives") == OUTCOME_INVALID); /* nobody tested anything */
  for (int rank = 0; rank < 2; rank++) {
    json_t *r = made_record(&b.run, "measure", rank, -1, -1);
    json_object_set_new(r, "got.what", json_string("allreduce"));
    json_object_set_new(r, "got.size", json_integer(4096));
    json_object_set_new(r, "got.wrong", json_integer(0));
  }
  CHECK(bench_judge(&b, "collectives") == OUTCOME_PASS);
  made_set(&b.run, "measure", 1, -1, -1, "got.wrong", json_integer(3));
  CHECK(bench_judge(&b, "collectives") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "3 wrong elements on rank 1");
  made_drop(&b.run, "measure", 1, -1, -1);
  CHECK(bench_judge(&b, "collectives") == OUTCOME_INVALID);
  bench_teardown(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(clean_runs_pass),
    TEST(a_hang_and_a_crash_fail_with_the_watchers_words),
    TEST(an_error_is_the_runs_fault_or_the_machines),
    TEST(a_card_that_is_too_small_is_told_what_would_fit),
    TEST(records_missing_or_twice_fail),
    TEST(each_kind_of_value_that_is_not_finite_names_its_observable),
    TEST(the_self_test_counts_wrong_elements_on_every_rank),
  };
  return test_main("ends", tests, sizeof tests / sizeof *tests);
}
