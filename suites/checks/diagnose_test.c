/* diagnose_test.c - evidence bent as each fault bends it is named by its cause; nothing is named without a failure. */
#include "whole_test.h"

static struct whole w;

static void loss_becomes(double (*of)(int rank, int64_t step))
{
  for (int rank = 0; rank < (int)w.b.run.data.config.dp; rank++)
    for (int64_t step = 0; step < 2; step++) made_set(&w.b.run, "step", rank, step, -1, "got.loss", json_real(of(rank, step)));
}

static double local(int64_t step, int rank, int ranks)
{
  double sum = 0.0, tokens = 0.0;
  for (int64_t m = rank * 6 / ranks; m < (rank + 1) * 6 / ranks; m++) {
    sum += made_loss(step, m, 20);
    tokens += made_tokens(step, m);
  }
  return sum / tokens;
}
static double mean_of_means(int rank, int64_t step)
{
  double mean = 0.0;
  for (int64_t m = 0; m < 6; m++) mean += made_loss(step, m, 20) / made_tokens(step, m) / 6.0;
  return mean + 0.0 * rank;
}
static double mean_over_ranks(int rank, int64_t step) { return (local(step, 0, 2) + local(step, 1, 2)) / 2.0 + 0.0 * rank; }
static double mean_over_ranks_later(int rank, int64_t step) { return step ? mean_over_ranks(rank, step) : local(step, 0, 1); } /* they count alike before */
static double own_rank(int rank, int64_t step) { return local(step, rank, 2); }

static void a_clean_run_has_no_diagnosis(void)
{
  const struct run_config c = made_config(2);
  whole_setup(&w, &c);
  CHECK(strcmp(whole_diagnose(&w), "") == 0);
  for (int i = 0; i < w.n; i++) {
    if (!CHECK(w.list[i].outcome == OUTCOME_PASS)) fprintf(stderr, "%s: %s\n", w.checks[i], w.list[i].sentence);
    CHECK(w.list[i].cause[0] == '\0');
  }
  whole_teardown(&w);
}

static void a_failure_like_none_is_not_named(void)
{
  const struct run_config c = made_config(2);
  whole_setup(&w, &c);
  made_bend(&w.b.run, "gradients", 0, "ln_2.bias", 3.0, 0.0);
  for (int i = w.b.n - 2; i < w.b.n; i++) made_bend(&w.b.other[i], "gradients", 0, "ln_2.bias", 3.0, 0.0); /* each time the same */
  CHECK(strcmp(whole_diagnose(&w), "") == 0);
  CHECK(w.diagnosis.sentence[0] == '\0');
  whole_teardown(&w);
}

static void losses_tell_who_divided_by_what(void)
{
  const struct run_config c = made_config(2);
  whole_setup(&w, &c);
  loss_becomes(mean_of_means);
  CHECK(whole_named(&w, FAULT_LN_GA_MEAN_OF_MEANS));
  whole_teardown(&w);
  whole_setup(&w, &c);
  loss_becomes(mean_over_ranks);
  CHECK(whole_named(&w, FAULT_LN_RANK_TOKEN_IMBALANCE));
  whole_teardown(&w);
  whole_setup(&w, &c);
  loss_becomes(mean_over_ranks_later);
  CHECK(whole_named(&w, FAULT_LN_RANK_TOKEN_IMBALANCE));
  whole_teardown(&w);
  whole_setup(&w, &c);
  loss_becomes(own_rank);
  CHECK(whole_named(&w, FAULT_LN_LOGGED_LOSS_LOCAL_ONLY));
  whole_teardown(&w);
  whole_setup(&w, &c);
  for (int rank = 0; rank < 2; rank++) made_set(&w.b.run, "eval", rank, 1, -1, "got.loss", json_real(4.0 / 3.0));
  CHECK(whole_named(&w, FAULT_LN_VAL_LOSS_RESCALED));
  whole_teardown(&w);
}

static void gradients_tell_which_parameters_and_from_when(void)
{
  struct run_config c = made_config(2);
  whole_setup(&w, &c);
  made_bend(&w.b.run, "gradients", 0, "mlp.c_fc.weight", 0.5, 0.0); /* 144 elements */
  w.b.run.data.config.bucket = 144;
  json_object_set_new(made_record(&w.b.run, "trace", 0, 0, -1), "got.calls", json_pack("[s]", "1 allreduce dp transfer float32 64 256 2"));
  CHECK(whole_named(&w, FAULT_GR_BUCKET_EXACT_FIT_SKIPPED));
  whole_teardown(&w);
  whole_setup(&w, &c); /* the tied matrix fills a bucket exactly: the number of reductions tells the two apart */
  made_bend(&w.b.run, "gradients", 0, "wte", 0.5, 0.0);
  json_t *calls = json_array();
  for (int i = 0; i < 40; i++) json_array_append_new(calls, json_string("1 allreduce dp transfer float32 64 256 2"));
  json_object_set_new(made_record(&w.b.run, "trace", 0, 0, -1), "got.calls", calls);
  CHECK(whole_named(&w, FAULT_GR_TIED_PARAM_ONE_SLOT));
  json_array_clear(calls);
  CHECK(whole_named(&w, FAULT_GR_BUCKET_EXACT_FIT_SKIPPED));
  whole_teardown(&w);
  c.bucket = 0;
  whole_setup(&w, &c);
  made_bend(&w.b.run, "gradients", 0, "wte", 0.5, 0.0);
  CHECK(whole_named(&w, FAULT_GR_TIED_PARAM_ONE_SLOT));
  whole_teardown(&w);
}

/* Step 1 = right + all of step 0: made by writing the sum into the dump. */
static void a_leftover_gradient_is_told_from_a_scaled_one(void)
{
  struct run_config c = made_config(1);
  c.steps = 2;
  for (int leftover = 0; leftover < 2; leftover++) {
    whole_setup(&w, &c);
    w.n = 4; /* without the checks of the update: the made weights belong to the right gradient */
    struct safetensors *f0, *f1;
    CHECK_OK(evidence_tensors(&w.b.run.data, "gradients", 0, &f0));
    CHECK_OK(evidence_tensors(&w.b.run.data, "gradients", 1, &f1));
    static float values[MADE_ROWS][MADE_ELEMENTS];
    struct safetensor list[MADE_ROWS];
    char path[CONFIG_PATH + 64];
    const int rows = safetensors_count(f1);
    for (int i = 0; i < rows; i++) {
      list[i] = *safetensors_get(f1, i);
      const float *x0 = safetensors_get(f0, i)->data.at, *x1 = list[i].data.at;
      for (int64_t k = 0; k < tensor_count(&list[i].data); k++) values[i][k] = leftover ? x1[k] + x0[k] : 1.5f * x1[k];
      list[i].data.at = values[i];
    }
    snprintf(path, sizeof path, "%s/gradients.step1.safetensors", w.b.run.dir);
    CHECK_OK(safetensors_write(path, list, rows, NULL));
    safetensors_close(f0);
    safetensors_close(f1);
    if (leftover) CHECK(whole_named(&w, FAULT_GR_STALE_GRAD_AFTER_WRITE));
    else CHECK(strcmp(whole_diagnose(&w), "") == 0);
    whole_teardown(&w);
  }
}

static void the_update_tells_factor_and_rate(void)
{
  const struct run_config c = made_config(2);
  whole_setup(&w, &c);
  for (int rank = 0; rank < 2; rank++) made_set(&w.b.run, "step", rank, 0, -1, "got.clip_factor", json_real(1.0)); /* the norm is above the clip */
  CHECK(made_get(&w.b.run, "step", 0, 0, -1, "got.norm") > c.clip);
  CHECK(whole_named(&w, FAULT_CLIP_MAX_FOR_MIN));
  whole_teardown(&w);
  whole_setup(&w, &c);
  for (int rank = 0; rank < 2; rank++)
    for (int64_t step = 0; step < 2; step++) made_set(&w.b.run, "step", rank, step, -1, "got.lr", json_real(schedule_lr(&c, 6 * (step + 1))));
  CHECK(whole_named(&w, FAULT_OPT_LR_STEPS_BY_WORLD));
  whole_teardown(&w);
}

static void what_is_not_a_number_first_tells_where_from(void)
{
  const struct run_config c = made_config(2);
  whole_setup(&w, &c);
  for (int rank = 0; rank < 2; rank++) made_set(&w.b.run, "step", rank, 0, -1, "got.clip_factor", json_string("nan"));
  CHECK(whole_named(&w, FAULT_CLIP_INF_HANDLING));
  whole_teardown(&w);
  whole_setup(&w, &c);
  made_bend(&w.b.run, "gradients", 0, "wte", NAN, 0.0);
  CHECK(whole_named(&w, FAULT_Z_UNINITIALISED_COMM_BUFFER));
  whole_teardown(&w);
}

static void what_differs_from_run_to_run_tells_whose_order(void)
{
  const struct run_config c = made_config(2);
  whole_setup(&w, &c);
  made_bend(&w.b.run, "gradients", 0, "wpe", 1.0 + 1.2e-7, 0.0);
  made_bend(&w.b.other[w.b.n - 1], "gradients", 0, "wpe", 1.0 + 1.2e-7, 0.0); /* overlap_off: the same */
  CHECK(whole_named(&w, FAULT_RNG_NONDETERMINISTIC_EMBEDDING_BWD));
  whole_teardown(&w);
  whole_setup(&w, &c); /* no rerun at hand: overlap off tells it as well */
  made_bend(&w.b.other[w.b.n - 1], "gradients", 0, "wte", 1.0 + 1.2e-7, 0.0);
  CHECK(whole_named(&w, FAULT_RNG_NONDETERMINISTIC_EMBEDDING_BWD));
  whole_teardown(&w);
  whole_setup(&w, &c);
  made_bend(&w.b.other[w.b.n - 1], "gradients", 1, "c_fc.weight", 0.7, 0.0);
  CHECK(whole_named(&w, FAULT_OV_BUFFER_OVERWRITTEN_WHILE_IN_FLIGHT));
  whole_teardown(&w);
}

/* Bits that only recompute changes: by masks where it makes any again, else by what it reads. */
static void recompute_that_changes_bits_tells_masks_from_places(void)
{
  static const struct {
    enum recompute level;
    double dropout;
    enum fault want;
  } cases[] = {{RECOMPUTE_FULL, 0.1, FAULT_RNG_RECOMPUTE_FRESH_MASK},
               {RECOMPUTE_FULL, 0.0, FAULT_MM_RECOMPUTE_BUFFER_ALIASED},
               {RECOMPUTE_SELECTIVE, 0.1, FAULT_MM_RECOMPUTE_BUFFER_ALIASED}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct run_config c = made_config(2);
    c.recompute = cases[i].level;
    c.dropout = cases[i].dropout;
    whole_setup(&w, &c);
    w.checks[w.n++] = "recompute_off";
    CHECK(judge_find("recompute_off")->companions(&c, w.b.wanted + w.b.n, 1) == 1);
    made_run(&w.b.other[w.b.n], &w.b.wanted[w.b.n].config, 20);
    w.b.companions[w.b.n] = &w.b.other[w.b.n].data;
    w.b.n++;
    CHECK(strcmp(whole_diagnose(&w), "") == 0);
    made_bend(&w.b.other[w.b.n - 1], "gradients", 0, "c_fc.weight", 0.7, 0.0);
    CHECK(whole_named(&w, cases[i].want));
    whole_teardown(&w);
  }
}

static void an_unordered_access_that_lazy_saw_is_told(void)
{
  const struct run_config c = made_config(2);
  whole_setup(&w, &c);
  w.n = 1;
  w.b.run.data.status = 1;
  CHECK(strcmp(whole_diagnose(&w), "") == 0);
  json_object_set_new(made_record(&w.b.run, "finding", 1, -1, -1), "got.text",
                      json_string("'op_adamw' on compute reads gradients, unordered with 'allreduce' on transfer, which writes it"));
  CHECK(whole_named(&w, FAULT_OV_BUFFER_OVERWRITTEN_WHILE_IN_FLIGHT));
  whole_teardown(&w);
}

static void a_hang_with_one_rank_through_is_uneven_steps(void)
{
  const struct run_config c = made_config(2);
  whole_setup(&w, &c);
  w.n = 2;
  snprintf(w.b.run.data.end, sizeof w.b.run.data.end, "timeout");
  for (int rank = 0; rank < 2; rank++) made_drop(&w.b.run, "step", rank, 1, -1);
  CHECK(strcmp(whole_diagnose(&w), "") == 0); /* all are stuck alike */
  made_record(&w.b.run, "memory", 0, -1, -1);
  CHECK(whole_named(&w, FAULT_HG_UNEVEN_STEPS));
  whole_teardown(&w);
}

static void self_tests_tell_what_was_moved_wrongly(void)
{
  static const struct {
    const char *what;
    enum fault fault;
  } rows[] = {{"allreduce", FAULT_CL_LL128_CORRUPTION}, {"allreduce.strided", FAULT_CL_NONCONTIGUOUS_TENSOR}, {"copy.far", FAULT_MM_INT32_INDEX_OVERFLOW}};
  const struct run_config c = made_config(1);
  for (int i = 0; i < 3; i++) {
    whole_setup(&w, &c);
    w.n = 1;
    w.checks[0] = "collectives";
    for (int k = 0; k < 3; k++) {
      json_t *r = made_record(&w.b.run, "measure", 0, -1, -1);
      json_object_set_new(r, "got.what", json_string(rows[k].what));
      json_object_set_new(r, "got.wrong", json_integer(k == i));
    }
    CHECK(whole_named(&w, rows[i].fault));
    whole_teardown(&w);
  }
}

/* One element of one parameter is another number: no scale, no missing sum looks like that. */
static void one_changed_element_in_training_is_told_from_a_missing_sum(void)
{
  const struct run_config c = made_config(2);
  whole_setup(&w, &c);
  struct safetensors *f;
  float values[MADE_ELEMENTS];
  char path[CONFIG_PATH + 64];
  struct safetensor list[MADE_ROWS];
  CHECK_OK(evidence_tensors(&w.b.run.data, "gradients", 0, &f));
  const int rows = safetensors_count(f);
  for (int i = 0; i < rows; i++) list[i] = *safetensors_get(f, i);
  memcpy(values, list[0].data.at, (size_t)tensor_count(&list[0].data) * sizeof(float));
  values[0] *= 1e30f; /* wte: alone it would look like the tied matrix */
  list[0].data.at = values;
  snprintf(path, sizeof path, "%s/gradients.step0.safetensors", w.b.run.dir);
  CHECK_OK(safetensors_write(path, list, rows, NULL));
  safetensors_close(f);
  CHECK(whole_named(&w, FAULT_CL_LL128_CORRUPTION));
  whole_teardown(&w);
}

/* The name of what was planted changes nothing. */
static void diagnosis_is_blind(void)
{
  struct run_config c = made_config(2);
  whole_setup(&w, &c);
  snprintf(w.b.run.data.config.fault, sizeof w.b.run.data.config.fault, "clip-max-for-min");
  json_object_set_new(made_record(&w.b.run, "run", 0, -1, -1), "set.fault", json_string("clip-max-for-min"));
  loss_becomes(mean_over_ranks);
  CHECK(whole_named(&w, FAULT_LN_RANK_TOKEN_IMBALANCE));
  whole_teardown(&w);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_clean_run_has_no_diagnosis),
    TEST(a_failure_like_none_is_not_named),
    TEST(losses_tell_who_divided_by_what),
    TEST(gradients_tell_which_parameters_and_from_when),
    TEST(a_leftover_gradient_is_told_from_a_scaled_one),
    TEST(the_update_tells_factor_and_rate),
    TEST(what_is_not_a_number_first_tells_where_from),
    TEST(what_differs_from_run_to_run_tells_whose_order),
    TEST(recompute_that_changes_bits_tells_masks_from_places),
    TEST(an_unordered_access_that_lazy_saw_is_told),
    TEST(a_hang_with_one_rank_through_is_uneven_steps),
    TEST(self_tests_tell_what_was_moved_wrongly),
    TEST(one_changed_element_in_training_is_told_from_a_missing_sum),
    TEST(diagnosis_is_blind),
  };
  return test_main("diagnose", tests, sizeof tests / sizeof *tests);
}
