/* initial_test.c - O1 and O2: parameters at the start, and the data of each step; O7: replicas. */
#include "fabricate_test.h"

static struct bench b;
static void setup(const char *check)
{
  const struct run_config c = made_config(2);
  bench_setup(&b, check, &c);
}

static void clean_runs_pass(void)
{
  static const char *const checks[] = {"initial", "batch", "samples", "replicas"};
  for (int i = 0; i < 4; i++) {
    setup(checks[i]);
    CHECK(bench_judge(&b, checks[i]) == OUTCOME_PASS);
    bench_teardown(&b);
  }
}

static void rows_are_gpt2s(void)
{
  struct run_config c;
  struct shape s;
  config_default(&c);
  CHECK_OK(config_set(&c, "model", "gpt2-124m"));
  CHECK_OK(config_finish(&c));
  CHECK(shapes_count(&c) == 148);
  CHECK(shapes_elements(&c) == 124439808.0); /* vocabulary 50,257, 1,024 positions, tied */
  CHECK(shapes_at(&c, 147, &s) && strcmp(s.name, "transformer.ln_f.bias") == 0);
  CHECK(!shapes_at(&c, 148, &s));
  c.tied = false;
  c.reused = 2;
  CHECK(shapes_count(&c) == 149 - 24);
  CHECK(shapes_at(&c, 124, &s) && strcmp(s.name, "lm_head.weight") == 0 && s.rows == 50257);
}

static void another_start_a_missing_or_an_extra_parameter_fails(void)
{
  setup("initial");
  made_set(&b.run, "parameter", 0, -1, -1, "got.hash", json_string("feed"));
  CHECK(bench_judge(&b, "initial") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "wte");
  bench_teardown(&b);
  setup("initial");
  made_set(&b.run, "parameter", 0, -1, -1, "got.cols", json_integer(7));
  CHECK(bench_judge(&b, "initial") == OUTCOME_FAIL);
  bench_teardown(&b);
  setup("initial");
  made_set(&b.run, "parameter", 0, -1, -1, "got.name", json_string("transformer.wtf.weight"));
  CHECK(bench_judge(&b, "initial") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "transformer.wte.weight");
  bench_teardown(&b);
  setup("initial");
  json_object_set_new(made_record(&b.run, "parameter", 0, -1, -1), "got.name",
                      json_string("transformer.h.1.ln_1.bias"));
  CHECK(bench_judge(&b, "initial") == OUTCOME_FAIL);
  bench_teardown(&b);
  setup("initial"); /* a hash that is absent on both sides is no agreement */
  for (int i = -1; i < b.n; i++)
    made_set(i < 0 ? &b.run : &b.other[i], "parameter", 0, -1, -1, "got.hash", json_null());
  CHECK(bench_judge(&b, "initial") == OUTCOME_FAIL);
  bench_teardown(&b);
}

static void facts_that_the_architecture_does_not_have_fail(void)
{
  static const char *const facts[] = {"got.decay", "got.frozen", "got.zero_gradient"};
  for (int i = 0; i < 3; i++) {
    setup("initial");
    json_t *first = made_at(&b.run, "parameter", 0, -1, -1); /* wte: decays, is not frozen, has a gradient */
    json_object_set_new(first, facts[i], json_boolean(i != 0));
    CHECK(bench_judge(&b, "initial") == OUTCOME_FAIL);
    CHECK_TEXT_HAS(b.verdict.sentence, facts[i] + 4);
    bench_teardown(&b);
  }
  struct run_config c = made_config(1);
  struct shape s;
  c.layers = 2;
  c.reused = 1;
  snprintf(c.frozen, sizeof c.frozen, "h.1.ln_1");
  CHECK(shapes_at(&c, 2, &s) && strcmp(s.name, "transformer.h.0.ln_1.weight") == 0 &&
        s.frozen); /* shared with the frozen one */
}

static void wrong_data_fails(void)
{
  static const struct {
    const char *key, *word;
  } bent[] = {
      {"got.samples", "samples"}, {"got.tokens", "tokens"}, {"got.valid_tokens", "valid_tokens"}, {"got.hash", "hash"}};
  for (int i = 0; i < 8; i++) {
    const char *check = i < 4 ? "batch" : "samples";
    setup(check);
    made_set(&b.run, "batch", -1, 1, 3, bent[i % 4].key, json_pack("[i]", 99));
    CHECK(bench_judge(&b, check) == OUTCOME_FAIL);
    CHECK_TEXT_HAS(b.verdict.sentence, bent[i % 4].word);
    CHECK_TEXT_HAS(b.verdict.worst, "micro-batch 3 of step 1");
    bench_teardown(&b);
  }
}

/* A model of next to nothing that computes nothing, on the same batches. */
static void the_plan_is_cheap_and_of_the_same_batches(void)
{
  struct companion plan;
  struct run_config c = made_config(2), want;
  c.policy = POLICY_PACKED;
  c.micro_batch = 3;
  CHECK(companions_plan(&c, &plan, 1) == 1);
  want = plan.config;
  CHECK(want.hidden == 2 && want.layers == 1 && want.compute == COMPUTE_SLEEP && want.dp == 1 && !want.unused);
  CHECK(want.policy == c.policy && want.sequence == c.sequence && want.vocab == c.vocab && want.global_batch == c.global_batch &&
        want.micro_batch == c.micro_batch && want.steps == c.steps && want.seed == c.seed);
  snprintf(want.name, sizeof want.name, "plan");
  CHECK_OK(config_finish(&want)); /* a run that the trainer takes */
}

static void a_micro_batch_twice_never_or_on_another_rank_fails(void)
{
  setup("batch");
  json_array_append(b.run.records, made_at(&b.run, "batch", -1, 1, 3));
  CHECK(bench_judge(&b, "batch") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "2 times");
  bench_teardown(&b);
  setup("batch");
  made_drop(&b.run, "batch", -1, 1, 3);
  CHECK(bench_judge(&b, "batch") == OUTCOME_FAIL);
  bench_teardown(&b);
  setup("batch");
  made_set(&b.run, "batch", -1, 0, 0, "rank", json_integer(1));
  CHECK(bench_judge(&b, "batch") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.sentence, "belongs to replica 0");
  bench_teardown(&b);
  setup("batch");
  made_drop(&b.other[0], "batch", -1, 0, 0);
  CHECK(bench_judge(&b, "batch") == OUTCOME_INVALID);
  bench_teardown(&b);
}

static void replicas_that_differ_are_named(void)
{
  setup("replicas");
  made_set(&b.run, "replica", 1, 1, -1, "got.hash", json_string("feed")); /* the first of step 1: weights */
  CHECK(bench_judge(&b, "replicas") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "weights in group dp at step 1");
  bench_teardown(&b);
  setup("replicas");
  made_drop(&b.run, "replica", 1, 1, -1); /* a rank that says nothing */
  CHECK(bench_judge(&b, "replicas") == OUTCOME_INVALID);
  bench_teardown(&b);
  setup("replicas");
  made_drop(&b.run, "replica", -1, 1, -1);
  CHECK(bench_judge(&b, "replicas") == OUTCOME_INVALID);
  bench_teardown(&b);
}

/* Two replicas of two stages of two tensor ranks. */
static struct run_config all_ways(void)
{
  struct run_config c = made_config(2);
  c.layers = 2;
  c.tp = c.pp = 2;
  return c;
}

/* The rank's hash in that group is another. */
static void bend_hash(int rank, const char *group, const char *what)
{
  for (size_t i = 0; i < json_array_size(b.run.records); i++) {
    json_t *r = json_array_get(b.run.records, i);
    if (evidence_is(r, "replica") && evidence_rank(r) == rank && evidence_step(r) == 1 &&
        strcmp(evidence_text(r, "got.group"), group) == 0 && strcmp(evidence_text(r, "got.what"), what) == 0)
      json_object_set_new(r, "got.hash", json_string("feed"));
  }
}

static void every_kind_of_group_is_compared(void)
{
  static const char *const kinds[] = {"dp", "tp", "tied", "world"};
  const struct run_config c = all_ways();
  bench_setup(&b, "replicas", &c);
  CHECK(bench_judge(&b, "replicas") == OUTCOME_PASS);
  bench_teardown(&b);
  for (int i = 0; i < 4; i++) {
    bench_setup(&b, "replicas", &c);
    bend_hash(6, kinds[i], i == 3 ? "scalars" : "gradients");
    CHECK(bench_judge(&b, "replicas") == OUTCOME_FAIL);
    CHECK_TEXT_HAS(b.verdict.worst, kinds[i]);
    bench_teardown(&b);
  }
  for (int i = 0; i < 3; i++) { /* a kind that no rank tells of */
    bench_setup(&b, "replicas", &c);
    for (size_t k = json_array_size(b.run.records); k-- > 0;)
      if (strcmp(evidence_text(json_array_get(b.run.records, k), "got.group"), kinds[i]) == 0)
        json_array_remove(b.run.records, k);
    CHECK(bench_judge(&b, "replicas") == OUTCOME_INVALID);
    bench_teardown(&b);
  }
}

static void all_ranks_of_a_replica_consume_its_batches(void)
{
  const struct run_config c = all_ways();
  for (int i = 0; i < 3; i++) {
    bench_setup(&b, "batch", &c);
    if (i == 1)
      made_set(&b.run, "batch", 5, 1, 0, "got.hash", json_string("feed")); /* a tensor rank reads something else */
    if (i == 2) made_drop(&b.run, "batch", 4, 0, 1);
    CHECK(bench_judge(&b, "batch") == (i == 0 ? OUTCOME_PASS : OUTCOME_FAIL));
    CHECK_TEXT_HAS(b.verdict.sentence, i == 0 ? "6 micro-batches" : i == 1 ? "on rank 5 differs" : "0 times by rank 4");
    bench_teardown(&b);
  }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(clean_runs_pass),
    TEST(rows_are_gpt2s),
    TEST(another_start_a_missing_or_an_extra_parameter_fails),
    TEST(facts_that_the_architecture_does_not_have_fail),
    TEST(wrong_data_fails),
    TEST(the_plan_is_cheap_and_of_the_same_batches),
    TEST(a_micro_batch_twice_never_or_on_another_rank_fails),
    TEST(replicas_that_differ_are_named),
    TEST(every_kind_of_group_is_compared),
    TEST(all_ranks_of_a_replica_consume_its_batches),
  };
  return test_main("initial", tests, sizeof tests / sizeof *tests);
}
