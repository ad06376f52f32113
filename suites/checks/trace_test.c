/* trace_test.c - O11 and O16: lists of collectives against each other, the plan and the shim. */
#include "fabricate_test.h"
#include "predict.h"

static struct bench b;

/* What a right run of the bench's config queues in a step: a count, the buckets, the losses. */
static void queue(struct made *m, int rank, int64_t step)
{
  const struct run_config *c = &m->data.config;
  int64_t counts[64];
  const int64_t n = predict_buckets(c, counts, 64), each = evidence_microbatches(c) / c->dp;
  const int last = (int)(rank * each + each - 1);
  json_t *calls = json_array();
  json_array_append_new(calls, json_sprintf("%d allreduce sums scalar float64 1 %d -1", (int)step + 1, (int)(8 * 2 * (c->dp - 1) / c->dp)));
  for (int64_t i = 0; i < n; i++)
    json_array_append_new(calls, json_sprintf("%d allreduce dp transfer float32 %d %d %d", (int)(step * n + i) + 1, (int)counts[i],
                                              (int)(counts[i] * 4 * 2 * (c->dp - 1) / c->dp), last));
  json_object_set_new(made_record(m, "trace", rank, step, -1), "got.calls", calls);
}

static void count(struct made *m, int rank, int64_t step, const char *call, long long calls, long long bytes)
{
  json_t *r = made_record(m, "shim", rank, step, -1);
  json_object_set_new(r, "got.call", json_string(call));
  json_object_set_new(r, "got.calls", json_integer(calls));
  json_object_set_new(r, "got.bytes", json_integer(bytes));
}

static void setup(const char *check)
{
  const struct run_config c = made_config(2);
  bench_setup(&b, check, &c);
  int64_t counts[64];
  const int64_t n = predict_buckets(&c, counts, 64);
  long long bytes = 0;
  for (int64_t i = 0; i < n; i++) bytes += 4 * counts[i];
  for (int64_t step = 0; step < 2; step++)
    for (int rank = 0; rank < 2; rank++) {
      queue(&b.run, rank, step);
      count(&b.run, rank, step, "MPI_Iallreduce", n, bytes);
      count(&b.run, rank, step, "MPI_Ialltoallv", 1, 8);
      count(&b.run, rank, step, "MPI_Iallgatherv", 1, 4);
    }
}

static json_t *calls_of(int rank, int64_t step) { return json_object_get(made_at(&b.run, "trace", rank, step, -1), "got.calls"); }

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
  bench_teardown(&b);
  setup("trace"); /* and one more */
  for (int rank = 0; rank < 2; rank++) json_array_append(calls_of(rank, 0), json_array_get(calls_of(rank, 0), 1));
  CHECK(bench_judge(&b, "trace") == OUTCOME_FAIL);
  bench_teardown(&b);
}

static void wrong_type_count_or_bytes_fail(void)
{
  int64_t counts[64];
  for (int w = 0; w < 2; w++) {
    setup("trace");
    predict_buckets(&b.run.data.config, counts, 64);
    for (int rank = 0; rank < 2; rank++) {
      char text[128];
      if (w == 0) snprintf(text, sizeof text, "1 allreduce dp transfer float64 %lld %lld %d", (long long)counts[0], (long long)counts[0] * 4, 3 * rank + 2);
      else snprintf(text, sizeof text, "1 allreduce dp transfer float32 %lld 12 %d", (long long)counts[0], 3 * rank + 2);
      json_array_set_new(calls_of(rank, 0), 1, json_string(text));
    }
    CHECK(bench_judge(&b, "trace") == OUTCOME_FAIL);
    CHECK_TEXT_HAS(b.verdict.sentence, "gradient reduction 0 of step 0");
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
    TEST(another_order_on_one_rank_fails),
    TEST(a_call_less_on_all_ranks_is_against_the_plan),
    TEST(wrong_type_count_or_bytes_fail),
    TEST(bytes_that_mpi_saw_and_the_trace_did_not_fail),
    TEST(missing_lists_never_pass),
  };
  return test_main("trace", tests, sizeof tests / sizeof *tests);
}
