/* trace_test.c - O11 and O16: lists of collectives against each other, the plan and the shim. */
#include "fabricate_test.h"
#include "predict.h"

static struct bench b;

static void count(struct made *m, int rank, int64_t step, const char *call, long long calls, long long bytes)
{
  json_t *r = made_record(m, "shim", rank, step, -1);
  json_object_set_new(r, "got.call", json_string(call));
  json_object_set_new(r, "got.calls", json_integer(calls));
  json_object_set_new(r, "got.bytes", json_integer(bytes));
}

static void setup_as(const struct run_config *c, const char *check)
{
  bench_setup(&b, check, c);
  for (int64_t step = 0; step < c->steps; step++)
    for (int rank = 0; rank < config_ranks(c); rank++) made_calls(&b.run, rank, step);
}
static void setup(const char *check)
{
  const struct run_config c = made_config(2);
  setup_as(&c, check);
}

/* Two replicas of two stages of two tensor ranks, sharing the sequence. */
static struct run_config all_ways(void)
{
  struct run_config c = made_config(2);
  c.layers = 2;
  c.tp = c.pp = 2;
  c.sequence_parallel = true;
  c.schedule = SCHEDULE_ZB_H1;
  c.unused = false;
  return c;
}

static json_t *calls_of(int rank, int64_t step)
{
  return json_object_get(made_at(&b.run, "trace", rank, step, -1), "got.calls");
}

static void clean_runs_pass(void)
{
  setup("trace");
  CHECK(bench_judge(&b, "trace") == OUTCOME_PASS);
  CHECK(bench_judge(&b, "shim") == OUTCOME_PASS);
  bench_teardown(&b);
  const struct run_config c = made_config(1);
  bench_setup(&b, "trace", &c);
  CHECK(bench_judge(&b, "trace") == OUTCOME_SKIPPED);
  CHECK(bench_judge(&b, "shim") == OUTCOME_SKIPPED);
  bench_teardown(&b);
}

static void clean_runs_of_all_dimensions_pass(void)
{
  const struct run_config c = all_ways();
  setup_as(&c, "trace");
  CHECK(bench_judge(&b, "trace") == OUTCOME_PASS);
  CHECK(bench_judge(&b, "shim") == OUTCOME_PASS);
  json_t *calls = calls_of(5, 1); /* one gather of one tensor rank */
  for (size_t i = 0; i < json_array_size(calls); i++)
    if (strstr(json_string_value(json_array_get(calls, i)), "allgather tp")) {
      json_array_remove(calls, i);
      break;
    }
  CHECK(bench_judge(&b, "trace") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "order of call");
  CHECK(bench_judge(&b, "shim") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "rank 5 at step 1");
  bench_teardown(&b);
}

/* Both ends of one transfer on every replica and tensor rank send half: no two lists of a stage differ. */
static void a_message_of_another_size_is_against_the_plan(void)
{
  const struct run_config c = all_ways();
  setup_as(&c, "trace");
  for (int rank = 0; rank < 8; rank++) {
    json_t *calls = calls_of(rank, 0);
    for (size_t i = 0; i < json_array_size(calls); i++) {
      char text[128];
      int sequence, m, n, bytes;
      const char *was = json_string_value(json_array_get(calls, i));
      if (sscanf(was, "%d send outputs outputs float32 %d %d %d", &sequence, &n, &bytes, &m) != 4) continue;
      snprintf(text, sizeof text, "%d send outputs outputs float32 %d %d %d", sequence, n / 2, bytes / 2, m);
      json_array_set_new(calls, i, json_string(text));
    }
  }
  CHECK(bench_judge(&b, "trace") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "plan of group outputs at step 0");
  bench_teardown(&b);
}

/* What passes hand on is as wide as their micro-batch says; a count of another width is against the plan. */
static void a_narrow_micro_batch_sends_as_many_positions_as_it_says(void)
{
  struct run_config c = all_ways();
  c.narrow = true;
  setup_as(&c, "trace");
  CHECK(bench_judge(&b, "trace") == OUTCOME_FAIL); /* nobody says how wide */
  for (size_t i = 0; i < json_array_size(b.run.records); i++) {
    json_t *r = json_array_get(b.run.records, i);
    if (evidence_is(r, "batch")) json_object_set_new(r, "got.width", json_integer(c.sequence));
  }
  CHECK(bench_judge(&b, "trace") == OUTCOME_PASS);
  made_set(&b.run, "batch", 3, 1, 4, "got.width", json_integer(c.sequence / 2));
  CHECK(bench_judge(&b, "trace") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "of rank 3 at step 1");
  bench_teardown(&b);
}

static void another_order_on_one_rank_fails(void)
{
  setup("trace");
  json_t *calls = calls_of(1, 1), *first = json_incref(json_array_get(calls, 0));
  json_array_remove(calls, 0);
  json_array_append_new(calls, first);
  CHECK(bench_judge(&b, "trace") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "order of call 0 of step 1");
  bench_teardown(&b);
}

static void a_call_less_on_all_ranks_is_against_the_plan(void)
{
  setup("trace");
  for (int rank = 0; rank < 2; rank++) json_array_remove(calls_of(rank, 0), 2);
  CHECK(bench_judge(&b, "trace") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "plan of group dp at step 0");
  bench_teardown(&b);
  setup("trace"); /* and one more */
  for (int rank = 0; rank < 2; rank++) {
    char text[128];
    int64_t counts[64];
    const struct layout at = {.dp = rank};
    const int n = (int)predict_buckets(&b.run.data.config, &at, counts, 64);
    snprintf(text, sizeof text, "%d allreduce dp transfer float32 64 256 %d", n + 1, 3 * rank + 2);
    json_array_append_new(calls_of(rank, 0), json_string(text));
  }
  CHECK(bench_judge(&b, "trace") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "behind");
  bench_teardown(&b);
  setup("trace"); /* in a group of its own */
  for (int rank = 0; rank < 2; rank++)
    json_array_append_new(calls_of(rank, 0), json_string("1 allreduce other transfer float32 64 256 -1"));
  CHECK(bench_judge(&b, "trace") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "no plan knows");
  bench_teardown(&b);
}

static void wrong_type_count_bytes_stream_or_place_fail(void)
{
  static const char *const wrong[] = {
      "1 allreduce dp transfer float64 %d %d %d",  "1 allreduce dp transfer float32 1%d %d %d",
      "1 allreduce dp transfer float32 %d 1%d %d", "1 allreduce dp compute float32 %d %d %d",
      "1 broadcast dp transfer float32 %d %d %d",  "3 allreduce dp transfer float32 %d %d %d"};
  for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
    setup("trace");
    int64_t counts[64];
    const struct layout at = {0};
    predict_buckets(&b.run.data.config, &at, counts, 64);
    for (int rank = 0; rank < 2; rank++) {
      char text[128];
      snprintf(text, sizeof text, wrong[w], (int)counts[0], (int)counts[0] * 4, -1);
      json_array_set_new(calls_of(rank, 0), 0, json_string(text));
    }
    CHECK(bench_judge(&b, "trace") == OUTCOME_FAIL);
    if (!CHECK(strstr(b.verdict.sentence, "in group dp of rank 0 at step 0") != NULL))
      fprintf(stderr, "%s\n", b.verdict.sentence);
    bench_teardown(&b);
  }
}

static void bytes_that_mpi_saw_and_the_trace_did_not_fail(void)
{
  setup("shim");
  made_set(&b.run, "shim", 1, 1, -1, "got.bytes", json_integer(8));
  CHECK(bench_judge(&b, "shim") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "rank 1 at step 1");
  bench_teardown(&b);
  setup("shim");
  count(&b.run, 0, 0, "MPI_Ibcast", 1, 4);
  CHECK(bench_judge(&b, "shim") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "broadcast");
  bench_teardown(&b);
  setup("shim");
  count(&b.run, 0, 0, "MPI_Alltoall", 1, 4);
  CHECK(bench_judge(&b, "shim") == OUTCOME_FAIL);
  bench_teardown(&b);
}

/* On GPUs NCCL carries all of it, unless it is staged. */
static void mpi_sees_nothing_of_nccl(void)
{
  struct run_config c = made_config(2);
  c.device = DEVICE_CUDA;
  setup_as(&c, "shim");
  CHECK(bench_judge(&b, "shim") == OUTCOME_FAIL); /* what MPI was handed */
  made_drop(&b.run, "shim", -1, -1, -1);
  CHECK(bench_judge(&b, "shim") == OUTCOME_PASS);
  CHECK_TEXT_HAS(b.verdict.sentence, "NCCL carries");
  count(&b.run, 1, 1, "MPI_Ibcast", 1, 4);
  CHECK(bench_judge(&b, "shim") == OUTCOME_FAIL);
  bench_teardown(&b);
  c.transport = TRANSPORT_STAGED;
  setup_as(&c, "shim");
  CHECK(bench_judge(&b, "shim") == OUTCOME_PASS);
  made_drop(&b.run, "shim", -1, -1, -1);
  CHECK(bench_judge(&b, "shim") == OUTCOME_FAIL);
  bench_teardown(&b);
}

static void missing_lists_never_pass(void)
{
  setup("trace");
  made_drop(&b.run, "trace", 1, 1, -1);
  CHECK(bench_judge(&b, "trace") == OUTCOME_INVALID);
  CHECK(bench_judge(&b, "shim") == OUTCOME_INVALID);
  bench_teardown(&b);
  setup("shim");
  made_drop(&b.run, "shim", -1, -1, -1);
  CHECK(bench_judge(&b, "shim") == OUTCOME_FAIL); /* the trace implies calls that nobody saw */
  bench_teardown(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(clean_runs_pass),
    TEST(clean_runs_of_all_dimensions_pass),
    TEST(a_message_of_another_size_is_against_the_plan),
    TEST(a_narrow_micro_batch_sends_as_many_positions_as_it_says),
    TEST(another_order_on_one_rank_fails),
    TEST(a_call_less_on_all_ranks_is_against_the_plan),
    TEST(wrong_type_count_bytes_stream_or_place_fail),
    TEST(bytes_that_mpi_saw_and_the_trace_did_not_fail),
    TEST(mpi_sees_nothing_of_nccl),
    TEST(missing_lists_never_pass),
  };
  return test_main("trace", tests, sizeof tests / sizeof *tests);
}
