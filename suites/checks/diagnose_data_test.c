/* diagnose_data_test.c - evidence bent as faults of data bend it is named by its cause. */
#include "whole_test.h"

static struct whole w;

/* Two steps of six micro-batches; an epoch is six sequences, so that step 1 is the second. */
static void setup(void)
{
  struct run_config c = made_config(2);
  c.documents_each = 2;
  whole_setup(&w, &c);
  w.checks[w.n++] = "batch";
  for (int i = 0; i < w.b.n; i++) json_object_set_new(made_record(&w.b.other[i], "data", 0, -1, -1), "got.sequences", json_integer(6));
}

/* Micro-batch m of step 1 has the contents that made_run gives to number n of all. */
static void content(int64_t m, int64_t n)
{
  made_set(&w.b.run, "batch", -1, 1, m, "got.hash", json_sprintf("%016llx", (unsigned long long)(977 * n + 5)));
}

static void an_epoch_in_the_order_of_the_one_before(void)
{
  setup();
  for (int64_t m = 0; m < 6; m++) content(m, m);
  CHECK(whole_named(&w, FAULT_DATA_SAME_ORDER_EVERY_EPOCH));
  content(3, 100); /* this one came from nowhere */
  CHECK(strcmp(whole_diagnose(&w), fault_rows[FAULT_DATA_SAME_ORDER_EVERY_EPOCH].name) != 0);
  whole_teardown(&w);
}

static void an_epoch_that_begins_with_the_last_of_the_one_before(void)
{
  setup();
  for (int64_t m = 0; m < 6; m++) content(m, 6 + m - 1);
  CHECK(whole_named(&w, FAULT_DATA_POSITION_OFF_BY_SHARD));
  whole_teardown(&w);
}

/* A policy that deals by cost: a step's rows stand in any order. */
static void dealt_batches_are_known_by_their_steps(void)
{
  setup();
  w.b.run.data.config.policy = POLICY_BALANCED;
  for (int64_t m = 0; m < 6; m++) content(m, (5 * m + 2) % 6);
  CHECK(whole_named(&w, FAULT_DATA_SAME_ORDER_EVERY_EPOCH));
  for (int64_t m = 0; m < 6; m++) content(m, 5 + (5 * m + 1) % 6);
  CHECK(whole_named(&w, FAULT_DATA_POSITION_OFF_BY_SHARD));
  content(2, 100);
  CHECK(strcmp(whole_diagnose(&w), "") == 0);
  for (int64_t m = 0; m < 6; m++) content(m, 6 + (m + 1) % 6); /* dealt otherwise, and nothing else */
  CHECK(strcmp(whole_diagnose(&w), "") == 0);
  whole_teardown(&w);
}

/* Batches of one epoch: the last of each has empty places at its end. */
static void empty_places_at_the_end_of_an_epoch_are_none(void)
{
  setup();
  for (int64_t m = 4; m < 6; m++) {
    made_set(&w.b.run, "batch", -1, 0, m, "got.tokens", json_integer(0));
    for (int i = 0; i < w.b.n; i++) made_set(&w.b.other[i], "batch", -1, 0, m, "got.tokens", json_integer(0));
  }
  content(0, 3);
  for (int64_t m = 1; m < 6; m++) content(m, 6 + m - 1);
  CHECK(whole_named(&w, FAULT_DATA_POSITION_OFF_BY_SHARD));
  whole_teardown(&w);
}

static void contents_alone_differ_where_documents_share_a_sequence(void)
{
  setup();
  made_set(&w.b.run, "batch", -1, 0, 2, "got.hash", json_string("feed"));
  CHECK(whole_named(&w, FAULT_DATA_PACKED_POSITIONS));
  made_set(&w.b.run, "batch", -1, 0, 2, "got.tokens", json_integer(1));
  CHECK(strcmp(whole_diagnose(&w), fault_rows[FAULT_DATA_PACKED_POSITIONS].name) != 0);
  whole_teardown(&w);
}

/* What all ranks trained on sums up to the serial run's, also in steps without records. */
static void the_sum_over_replicas_is_the_serial_runs(void)
{
  setup();
  json_t *truth = made_record(&w.b.other[0], "data", 0, -1, -1), *mine[2];
  json_object_set_new(truth, "got.sequences", json_integer(6));
  for (int i = 0; i < w.b.n; i++) made_set(&w.b.other[i], "data", 0, -1, -1, "got.hash", json_string("0000000000000004"));
  for (int rank = 0; rank < 2; rank++) {
    mine[rank] = made_record(&w.b.run, "data", rank, -1, -1);
    json_object_set_new(mine[rank], "got.hash", json_string(rank ? "ffffffffffffffff" : "0000000000000005"));
  }
  CHECK(strcmp(whole_diagnose(&w), "") == 0);
  CHECK(w.list[w.n - 1].outcome == OUTCOME_PASS);
  json_object_set_new(mine[1], "got.hash", json_string("fffffffffffffffe"));
  whole_diagnose(&w);
  CHECK(w.list[w.n - 1].outcome == OUTCOME_FAIL);
  CHECK_TEXT_HAS(w.list[w.n - 1].sentence, "0000000000000003");
  whole_teardown(&w);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(an_epoch_in_the_order_of_the_one_before),
    TEST(an_epoch_that_begins_with_the_last_of_the_one_before),
    TEST(dealt_batches_are_known_by_their_steps),
    TEST(empty_places_at_the_end_of_an_epoch_are_none),
    TEST(contents_alone_differ_where_documents_share_a_sequence),
    TEST(the_sum_over_replicas_is_the_serial_runs),
  };
  return test_main("diagnose_data", tests, sizeof tests / sizeof *tests);
}
