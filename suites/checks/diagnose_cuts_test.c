/* diagnose_cuts_test.c - evidence bent as faults of tensor and pipeline cuts bend it is named by its cause. */
#include "whole_test.h"

#include "base/schedule.h"

static struct whole w;

static struct run_config cut(int64_t dp, int64_t tp, int64_t pp)
{
  struct run_config c = made_config(dp);
  c.layers = 2;
  c.tp = tp;
  c.pp = pp;
  return c;
}

/* With the check of collectives, whose lists are as planned. */
static void setup(const struct run_config *c)
{
  whole_setup(&w, c);
  for (int64_t step = 0; step < c->steps; step++)
    for (int rank = 0; rank < config_ranks(c); rank++) made_calls(&w.b.run, rank, step);
  if (c->dp == 1 && c->pp == 1) w.n--; /* overlap_off: there is nothing to overlap */
  w.checks[w.n++] = "trace";
  w.checks[w.n++] = "batch";
}
static void teardown(void) { whole_teardown(&w); }

/* Losses of all micro-batches of a step, and what is reported of them, times `factor`. */
static void bend_losses(int64_t step, double factor)
{
  double sum = 0.0, tokens = 0.0;
  for (int64_t m = 0; m < 6; m++) {
    made_set(&w.b.run, "microbatch", -1, step, m, "got.loss_sum", json_real(factor * made_loss(step, m, 20)));
    sum += factor * made_loss(step, m, 20);
    tokens += made_tokens(step, m);
  }
  for (int rank = 0; rank < config_ranks(&w.b.run.data.config); rank++) {
    made_set(&w.b.run, "step", rank, step, -1, "got.loss_sum", json_real(sum));
    made_set(&w.b.run, "step", rank, step, -1, "got.loss", json_real(sum / tokens));
  }
}

static void bend_evaluation(double factor)
{
  for (int rank = 0; rank < config_ranks(&w.b.run.data.config); rank++) {
    made_set(&w.b.run, "eval", rank, 1, -1, "got.loss", json_real(4.0 * factor));
    made_set(&w.b.run, "eval", rank, 1, -1, "got.train_loss", json_real(4.0 * factor));
    made_set(&w.b.run, "eval", rank, 1, -1, "got.loss_sum", json_real(40.0 * factor));
  }
}

/* A rank's hash of the gradients in that group is another. */
static void bend_hash(int rank, const char *group)
{
  for (size_t i = 0; i < json_array_size(w.b.run.records); i++) {
    json_t *r = json_array_get(w.b.run.records, i);
    if (evidence_is(r, "replica") && evidence_rank(r) == rank && strcmp(evidence_text(r, "got.group"), group) == 0 &&
        strcmp(evidence_text(r, "got.what"), "gradients") == 0)
      json_object_set_new(r, "got.hash", json_string("feed"));
  }
}

static void clean_runs_have_no_diagnosis(void)
{
  const struct run_config list[] = {cut(1, 2, 1), cut(1, 1, 2), cut(2, 2, 2)};
  for (int k = 0; k < 3; k++) {
    setup(&list[k]);
    CHECK(strcmp(whole_diagnose(&w), "") == 0);
    for (int i = 0; i < w.n; i++)
      if (!CHECK(w.list[i].outcome == OUTCOME_PASS || w.list[i].outcome == OUTCOME_SKIPPED))
        fprintf(stderr, "%s: %s\n", w.checks[i], w.list[i].sentence);
    teardown();
  }
}

/* All but the head's own weight are off; the losses are right. */
static void a_missing_sum_is_told_from_a_lost_one_by_the_list_of_calls(void)
{
  struct run_config c = cut(1, 2, 1);
  for (int missing = 0; missing < 2; missing++) {
    setup(&c);
    made_bend(&w.b.run, "gradients", 0, "transformer", 0.5, 0.003);
    bend_losses(1, 1.01); /* the update went wrong */
    for (int rank = 0; missing && rank < 2; rank++) {
      json_t *calls = json_object_get(made_at(&w.b.run, "trace", rank, 0, -1), "got.calls");
      for (size_t i = json_array_size(calls); i-- > 0;)
        if (strstr(json_string_value(json_array_get(calls, i)), " tp ")) {
          json_array_remove(calls, i);
          break;
        }
    }
    CHECK(whole_named(&w,
                      missing ? FAULT_TP_MISSING_BWD_ALLREDUCE_AT_BOUNDARY : FAULT_TP_NONCONTIGUOUS_INPLACE_ALLREDUCE));
    teardown();
  }
}

/* Of the dp group's calls one is in bf16, with the bytes of that. */
static void a_reduction_in_bf16_that_nobody_asked_for(void)
{
  struct run_config c = cut(2, 1, 1);
  setup(&c);
  for (int rank = 0; rank < 2; rank++) {
    json_t *calls = json_object_get(made_at(&w.b.run, "trace", rank, 0, -1), "got.calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
      char text[128], *type;
      snprintf(text, sizeof text, "%s", json_string_value(json_array_get(calls, i)));
      if ((type = strstr(text, " dp transfer float32 ")) == NULL) continue;
      memmove(type + 13, "bfloat16 0 0 -1", 16);
      json_array_set_new(calls, i, json_string(text));
    }
  }
  CHECK(whole_named(&w, FAULT_Z_REDUCE_DTYPE_SILENTLY_LOW));
  teardown();
}

static void one_norm_on_shards_is_a_sum_that_was_not_made(void)
{
  struct run_config c = cut(1, 2, 1);
  c.sequence_parallel = true;
  setup(&c);
  made_bend(&w.b.run, "gradients", 0, "ln_f", 0.6, 0.002);
  CHECK(whole_named(&w, FAULT_TP_SP_NORM_GRAD_NOT_REDUCED));
  teardown();
  setup(&c); /* two norms are not one */
  made_bend(&w.b.run, "gradients", 0, "ln_", 0.6, 0.002);
  CHECK(strcmp(whole_diagnose(&w), "tp-sp-norm-grad-not-reduced") != 0);
  teardown();
}

/* One micro-batch that is off says nothing of all passes. */
static void one_wrong_loss_is_no_fault_of_every_pass(void)
{
  struct run_config list[] = {cut(1, 2, 1), cut(1, 1, 2), cut(1, 1, 2)};
  list[2].dropout = 0.1;
  for (int k = 0; k < 3; k++) {
    setup(&list[k]);
    made_set(&w.b.run, "microbatch", -1, 0, 2, "got.loss_sum", json_real(1.5 * made_loss(0, 2, 20)));
    const char *said = whole_diagnose(&w);
    static const enum fault every[] = {FAULT_TP_ROW_BIAS_ADDED_PER_RANK, FAULT_PP_META_SHAPES_OR_POSITIONS, FAULT_PP_LAYER_NUMBER_LOCAL};
    for (int f = 0; f < 3; f++) CHECK(strcmp(said, fault_rows[every[f]].name) != 0);
    bool seen = false;
    for (int i = 0; i < w.n; i++) seen = seen || (strcmp(w.checks[i], "loss") == 0 && w.list[i].outcome == OUTCOME_FAIL);
    CHECK(seen);
    teardown();
  }
}

static void wrong_losses_before_any_update_tell_which_cut(void)
{
  struct run_config tensor = cut(1, 2, 1);
  struct run_config pipeline = cut(1, 1, 2);
  setup(&tensor);
  bend_losses(0, 1.1);
  CHECK(whole_named(&w, FAULT_TP_ROW_BIAS_ADDED_PER_RANK));
  teardown();
  tensor.dropout = 0.1;
  setup(&tensor);
  bend_losses(0, 1.1);
  bend_evaluation(1.1);
  CHECK(whole_named(&w, FAULT_TP_ROW_BIAS_ADDED_PER_RANK));
  bend_evaluation(1.001); /* where there are no masks all is well: no bias */
  CHECK(strcmp(whole_diagnose(&w), "tp-row-bias-added-per-rank") != 0);
  teardown();
  setup(&pipeline);
  bend_losses(0, 1.1);
  CHECK(whole_named(&w, FAULT_PP_META_SHAPES_OR_POSITIONS));
  teardown();
  pipeline.dropout = 0.1;
  setup(&pipeline);
  bend_losses(0, 1.01);
  bend_evaluation(1.001);
  CHECK(whole_named(&w, FAULT_PP_LAYER_NUMBER_LOCAL));
  bend_evaluation(1.01);
  CHECK(whole_named(&w, FAULT_PP_META_SHAPES_OR_POSITIONS));
  teardown();
}

static void the_tied_matrix_alone_tells_whether_stages_or_uses(void)
{
  struct run_config c = cut(1, 1, 2);
  setup(&c);
  made_bend(&w.b.run, "gradients", 0, "wte", 0.5, 0.001);
  bend_hash(1, "tied");
  CHECK(whole_named(&w, FAULT_PP_TIED_EMBEDDING_NOT_SUMMED));
  teardown();
}

static void late_gradients_that_differ_between_replicas(void)
{
  struct run_config c = cut(2, 1, 2);
  c.schedule = SCHEDULE_ZB_H1;
  setup(&c);
  made_bend(&w.b.run, "gradients", 0, ".attn.", 0.5, 0.002);
  made_bend(&w.b.run, "gradients", 0, ".mlp.", 0.5, 0.002);
  bend_hash(1, "dp");
  CHECK(whole_named(&w, FAULT_PP_ZB_BYPASSES_HOOKS));
  teardown();
  setup(&c); /* the embedding's too: something else */
  made_bend(&w.b.run, "gradients", 0, "transformer", 0.5, 0.002);
  bend_hash(1, "dp");
  CHECK(strcmp(whole_diagnose(&w), "pp-zb-bypasses-hooks") != 0);
  teardown();
}

static void a_norm_that_is_not_its_gradients(void)
{
  const struct run_config c = cut(1, 2, 1);
  setup(&c);
  for (int rank = 0; rank < 2; rank++)
    made_set(&w.b.run, "step", rank, 0, -1, "got.norm",
             json_real(1.1 * made_get(&w.b.run, "step", rank, 0, -1, "got.norm")));
  made_bend(&w.b.run, "gradients", 1, "transformer", 0.9, 0.002); /* and what the clip factor made of the next step */
  CHECK(whole_named(&w, FAULT_CLIP_TP_DUPLICATE_UNDER_OR_OVER_COUNT));
  teardown();
}

static void a_loss_that_is_no_number_first_came_from_another_stage(void)
{
  const struct run_config c = cut(1, 1, 2);
  setup(&c);
  made_set(&w.b.run, "microbatch", -1, 0, 2, "got.loss_sum", json_string("nan"));
  made_bend(&w.b.run, "gradients", 0, "transformer", NAN, 0.0);
  CHECK(whole_named(&w, FAULT_PP_SEND_BUFFER_FREED_EARLY));
  teardown();
}

static void stages_that_wait_for_each_others_messages(void)
{
  const struct run_config c = cut(1, 1, 2);
  setup(&c);
  w.n = 1;
  snprintf(w.b.run.data.end, sizeof w.b.run.data.end, "timeout");
  snprintf(w.b.run.data.text, sizeof w.b.run.data.text,
           "no progress for 5.0 s: all 2 ranks wait in sums #1 allreduce, step 0");
  CHECK(strcmp(whole_diagnose(&w), "pp-interleaved-p2p-deadlock") != 0);
  snprintf(w.b.run.data.text, sizeof w.b.run.data.text,
           "no progress for 5.0 s: all 2 ranks wait in outputs #3 send, step 0");
  CHECK(whole_named(&w, FAULT_PP_INTERLEAVED_P2P_DEADLOCK));
  static const char *const others[] = {
    "no progress for 5.0 s: rank 1 is stopped (SIGSTOP) at sums #6 in step 37; rank 0 waits in outputs #3 send, step 37",
    "no progress for 5.0 s: rank 1 is gone; rank 0 waits in outputs #3 send, step 0",
    "no progress for 5.0 s: rank 1 has finished; rank 0 waits in gradients #3 recv, step 1",
    "no progress for 5.0 s: rank 1 is behind at outputs #2 in step 0; rank 0 waits in outputs #3 recv, step 0"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) { /* they wait for that rank, not for each other */
    snprintf(w.b.run.data.text, sizeof w.b.run.data.text, "%s", others[i]);
    CHECK(!whole_named(&w, FAULT_PP_INTERLEAVED_P2P_DEADLOCK));
  }
  teardown();
}

static void ranks_of_one_replica_that_read_different_data(void)
{
  const struct run_config c = cut(1, 2, 1);
  setup(&c);
  made_set(&w.b.run, "batch", 1, 0, 0, "got.hash", json_string("feed"));
  CHECK(whole_named(&w, FAULT_DATA_SAMPLER_IGNORES_MODEL_PARALLEL));
  teardown();
}

int main(void)
{
  static const struct test tests[] = {
    TEST(clean_runs_have_no_diagnosis),
    TEST(a_missing_sum_is_told_from_a_lost_one_by_the_list_of_calls),
    TEST(a_reduction_in_bf16_that_nobody_asked_for),
    TEST(one_norm_on_shards_is_a_sum_that_was_not_made),
    TEST(one_wrong_loss_is_no_fault_of_every_pass),
    TEST(wrong_losses_before_any_update_tell_which_cut),
    TEST(the_tied_matrix_alone_tells_whether_stages_or_uses),
    TEST(late_gradients_that_differ_between_replicas),
    TEST(a_norm_that_is_not_its_gradients),
    TEST(a_loss_that_is_no_number_first_came_from_another_stage),
    TEST(stages_that_wait_for_each_others_messages),
    TEST(ranks_of_one_replica_that_read_different_data),
  };
  return test_main("diagnose_cuts", tests, sizeof tests / sizeof *tests);
}
