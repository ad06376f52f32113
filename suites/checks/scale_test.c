/* scale_test.c - a run that scales its losses and skips a step passes all checks; each thing that goes wrong with it is seen
 * and named. */
#include "whole_test.h"

static struct whole w;

/* Steps 0 to 4; rank 1 overflows in step 1; the scale doubles after two good steps. */
static struct run_config scaled(int64_t dp)
{
  struct run_config c = made_config(dp);
  c.precision = PRECISION_F16;
  c.loss_scale = 1024;
  c.scale_interval = 2;
  c.inf_step = 1;
  c.inf_rank = dp - 1;
  c.steps = 5;
  return c;
}
static void setup(const struct run_config *c)
{
  whole_setup(&w, c);
  if (c->dp == 1) w.n--; /* overlap_off */
  w.checks[w.n++] = "scale";
}

static struct verdict *verdict_of(const char *check)
{
  for (int i = 0; i < w.n; i++)
    if (strcmp(w.checks[i], check) == 0) return &w.list[i];
  BUG_IF(true);
  return NULL;
}

static void a_run_that_skips_a_step_passes_every_check(void)
{
  for (int64_t dp = 1; dp <= 2; dp++) {
    const struct run_config c = scaled(dp);
    setup(&c);
    CHECK(strcmp(whole_diagnose(&w), "") == 0);
    for (int i = 0; i < w.n; i++)
      if (!CHECK(w.list[i].outcome == OUTCOME_PASS)) fprintf(stderr, "%s: %s\n", w.checks[i], w.list[i].sentence);
    CHECK_TEXT_HAS(verdict_of("scale")->sentence, "5 steps scaled by the closed form, 1 of them skipped");
    whole_teardown(&w);
  }
}

static void what_scales_nothing_is_not_judged(void)
{
  const struct run_config c = made_config(2);
  setup(&c);
  whole_diagnose(&w);
  CHECK(verdict_of("scale")->outcome == OUTCOME_SKIPPED);
  whole_teardown(&w);
}

static void bend(int64_t rank, int64_t step, const char *key, json_t *value) { made_set(&w.b.run, "step", rank, step, -1, key, value); }

static void scale_fails(const char *worst)
{
  whole_diagnose(&w);
  CHECK(verdict_of("scale")->outcome == OUTCOME_FAIL);
  CHECK_TEXT_HAS(verdict_of("scale")->worst, worst);
  whole_teardown(&w);
}

static void the_scale_follows_its_closed_form(void)
{
  const struct run_config c = scaled(2);
  static const double scales[] = {1024, 1024, 512, 512, 1024};
  for (int64_t step = 0; step < 5; step++) {
    setup(&c);
    for (int rank = 0; rank < 2; rank++) CHECK(made_get(&w.b.run, "step", rank, step, -1, "got.scale") == scales[step]);
    bend(1, step, "got.scale", json_real(2 * scales[step]));
    scale_fails("scale at step");
  }
}

static void every_rank_decides_alike_and_names_the_one_that_overflowed(void)
{
  const struct run_config c = scaled(2);
  setup(&c);
  bend(1, 3, "got.skipped", json_true());
  CHECK(whole_named(&w, FAULT_PR_OVERFLOW_NOT_GLOBAL));
  scale_fails("decision to skip at step 3");
  setup(&c);
  bend(1, 1, "got.overflow_rank", json_integer(0));
  scale_fails("decision to skip at step 1");
  setup(&c); /* both name the wrong one */
  for (int rank = 0; rank < 2; rank++) bend(rank, 1, "got.overflow_rank", json_integer(0));
  scale_fails("rank that overflowed at step 1");
  setup(&c); /* a step is taken though someone is named */
  for (int rank = 0; rank < 2; rank++) bend(rank, 2, "got.overflow_rank", json_integer(1));
  scale_fails("rank that overflowed at step 2");
  setup(&c);
  for (int rank = 0; rank < 2; rank++) bend(rank, 1, "got.overflow_rank", json_integer(2));
  scale_fails("rank that overflowed at step 1");
  setup(&c);
  json_object_del(made_at(&w.b.run, "step", 1, 2, -1), "got.skipped");
  whole_diagnose(&w);
  CHECK(verdict_of("scale")->outcome == OUTCOME_INVALID);
  whole_teardown(&w);
}

static void a_skipped_step_that_changed_a_weight_is_seen(void)
{
  const struct run_config c = scaled(2);
  for (int64_t after = 2; after <= 3; after++) { /* step 1 is skipped, step 2 is not */
    setup(&c);
    made_bend(&w.b.run, "weights", after, "ln_f.bias", 1.0, 1e-9);
    whole_diagnose(&w);
    CHECK(verdict_of("update")->outcome == (after == 2 ? OUTCOME_FAIL : OUTCOME_PASS)); /* 1e-9 is within 4 ulp of the rest */
    if (after == 2) CHECK_TEXT_HAS(verdict_of("update")->worst, "which was skipped");
    whole_teardown(&w);
  }
}

static void a_step_that_the_truth_takes_may_not_be_skipped(void)
{
  struct run_config c = scaled(2);
  setup(&c);
  for (int i = 0; i < w.b.n; i++)
    for (int rank = 0; rank < evidence_ranks(&w.b.other[i].data); rank++)
      made_set(&w.b.other[i], "step", rank, 1, -1, "got.skipped", json_false());
  whole_diagnose(&w);
  CHECK(verdict_of("gradients")->outcome != OUTCOME_PASS && verdict_of("norm")->outcome != OUTCOME_PASS);
  whole_teardown(&w);
}

/* --- diagnosis ------------------------------------------------------------------------------- */

static void weights_that_never_change_were_never_to_be_taken(void)
{
  const struct run_config c = scaled(1);
  struct safetensors *f;
  setup(&c);
  CHECK_OK(evidence_tensors(&w.b.run.data, "weights", 0, &f));
  for (int64_t step = 1; step <= c.steps; step++) {
    char from[CONFIG_PATH + 64], to[CONFIG_PATH + 64], command[2 * CONFIG_PATH + 256];
    snprintf(from, sizeof from, "%s/weights.step0.safetensors", w.b.run.dir);
    snprintf(to, sizeof to, "%s/weights.step%lld.safetensors", w.b.run.dir, (long long)step);
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    CHECK(system(command) == 0);
  }
  safetensors_close(f);
  CHECK(whole_named(&w, FAULT_PR_OVERFLOW_RETURN_MISPLACED));
  whole_teardown(&w);
}

static void gradients_over_a_power_of_two_were_divided_by_a_scale(void)
{
  for (int k = 0; k < 3; k++) {
    struct run_config c = made_config(1);
    c.precision = PRECISION_BF16;
    setup(&c);
    w.n--; /* scale: nothing is scaled */
    for (int64_t step = 0; step < 2; step++) made_bend(&w.b.run, "gradients", step, k == 2 ? "ln_" : "", k == 1 ? 0.25 : 0x1p-16, 0.0);
    if (k == 0) CHECK(whole_named(&w, FAULT_PR_BF16_DIVIDED_BY_FP16_SCALE));
    else CHECK(strcmp(whole_diagnose(&w), "pr-bf16-divided-by-fp16-scale") != 0);
    whole_teardown(&w);
  }
}

static void a_norm_whose_square_is_a_half_was_added_in_half(void)
{
  struct run_config c = scaled(1);
  setup(&c);
  const double norm = made_get(&w.b.run, "step", 0, 0, -1, "got.norm"), ulp = exp2(floor(log2(norm * norm)) - 10);
  bend(0, 0, "got.norm", json_real(sqrt((floor(norm * norm / ulp) - 3) * ulp)));
  CHECK(whole_named(&w, FAULT_PR_GRAD_NORM_IN_FP16));
  bend(0, 0, "got.norm", json_real(norm * 1.01));
  CHECK(strcmp(whole_diagnose(&w), "pr-grad-norm-in-fp16") != 0);
  json_object_del(made_at(&w.b.run, "step", 0, 0, -1), "got.norm"); /* infinite */
  CHECK(whole_named(&w, FAULT_PR_GRAD_NORM_IN_FP16));
  whole_teardown(&w);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_run_that_skips_a_step_passes_every_check),
    TEST(what_scales_nothing_is_not_judged),
    TEST(the_scale_follows_its_closed_form),
    TEST(every_rank_decides_alike_and_names_the_one_that_overflowed),
    TEST(a_skipped_step_that_changed_a_weight_is_seen),
    TEST(a_step_that_the_truth_takes_may_not_be_skipped),
    TEST(weights_that_never_change_were_never_to_be_taken),
    TEST(gradients_over_a_power_of_two_were_divided_by_a_scale),
    TEST(a_norm_whose_square_is_a_half_was_added_in_half),
  };
  return test_main("scale", tests, sizeof tests / sizeof *tests);
}
