/* update_test.c - O6: factor, learning rate and weights recomputed from what the run showed. */
#include "fabricate_test.h"

static struct bench b;
static void setup(int64_t optimizer, const char *frozen)
{
  struct run_config c = made_config(2);
  c.optimizer = optimizer;
  c.steps = 3;
  snprintf(c.frozen, sizeof c.frozen, "%s", frozen);
  bench_setup(&b, "update", &c);
}

static void clean_runs_of_both_rules_pass(void)
{
  setup(OPTIMIZER_ADAMW, "");
  CHECK(bench_judge(&b, "update") == OUTCOME_PASS);
  bench_teardown(&b);
  setup(OPTIMIZER_SGD, "wpe");
  CHECK(bench_judge(&b, "update") == OUTCOME_PASS);
  bench_teardown(&b);
}

static void the_learning_rate_has_a_closed_form(void)
{
  struct run_config c = made_config(1); /* warm-up 2, cosine to update 10 */
  CHECK_NEAR(schedule_lr(&c, 1), 0.5e-3, 1e-18);
  CHECK_NEAR(schedule_lr(&c, 2), 1e-3, 1e-18);
  CHECK_NEAR(schedule_lr(&c, 6), 0.5e-3, 1e-18);
  CHECK(schedule_lr(&c, 10) == 0.0 && schedule_lr(&c, 11) == 0.0);
  c.lr_min = 1e-4;
  CHECK(schedule_lr(&c, 50) == 1e-4);
  c.lr_schedule = LR_CONSTANT;
  c.lr_warmup = 0;
  CHECK(schedule_lr(&c, 1) == 1e-3);
}

static void the_clip_factor_has_a_closed_form(void)
{
  struct run_config c = made_config(1); /* clip 0.5 */
  CHECK_NEAR(schedule_clip(&c, 2.0), 0.25, 1e-6);
  CHECK(schedule_clip(&c, 0.4) == 1.0);
  c.clip = 0.0;
  CHECK(schedule_clip(&c, 1e9) == 1.0);
}

static void one_adamw_step_by_hand(void)
{
  struct run_config c = made_config(1);
  struct schedule_element e = {2.0, 0.0, 0.0};
  schedule_update(&c, 1, 0.01, true, -3.0, &e); /* first step: lr * sign(g), after decay 0.01 * 0.1 * 2 */
  CHECK_NEAR(e.weight, 2.0 - 0.002 + 0.01, 1e-9);
  CHECK_NEAR(e.m, -0.3, 1e-15);
  CHECK_NEAR(e.v, 0.05 * 9.0, 1e-15);
  c.optimizer = OPTIMIZER_SGD;
  e.weight = 2.0;
  schedule_update(&c, 1, 0.01, false, -3.0, &e);
  CHECK_NEAR(e.weight, 2.03, 1e-15);
}

static void a_wrong_factor_fails(void)
{
  setup(OPTIMIZER_ADAMW, "");
  made_set(&b.run, "step", 1, 1, -1, "got.clip_factor", json_real(1.5));
  CHECK(bench_judge(&b, "update") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "clip factor at step 1");
  made_set(&b.run, "step", 1, 1, -1, "got.clip_factor", json_string("nan"));
  CHECK(bench_judge(&b, "update") == OUTCOME_FAIL);
  bench_teardown(&b);
  setup(OPTIMIZER_ADAMW, "");
  made_set(&b.run, "step", 0, 0, -1, "got.norm", json_real(0.1)); /* below the clip: exactly 1 is due */
  made_set(&b.run, "step", 0, 0, -1, "got.clip_factor", json_real(1.0 - 1e-15));
  CHECK(bench_judge(&b, "update") == OUTCOME_FAIL);
  bench_teardown(&b);
}

static void a_rate_of_another_update_fails(void)
{
  setup(OPTIMIZER_ADAMW, "");
  made_set(&b.run, "step", 1, 2, -1, "got.lr", json_real(schedule_lr(&b.run.data.config, 6)));
  CHECK(bench_judge(&b, "update") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "learning rate");
  bench_teardown(&b);
}

static void a_weight_moved_by_more_than_rounding_fails_and_is_named(void)
{
  setup(OPTIMIZER_ADAMW, "");
  made_bend(&b.run, "weights", 3, "mlp.c_fc.weight", 1.0, 1e-6);
  CHECK(bench_judge(&b, "update") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "mlp.c_fc.weight");
  CHECK_TEXT_HAS(b.verdict.worst, "step 2");
  bench_teardown(&b);
}

static void decay_of_a_bias_and_a_missing_bias_correction_fail(void)
{
  setup(OPTIMIZER_ADAMW, "");
  made_set(&b.run, "parameter", 0, -1, -1, "got.decay", json_false()); /* wte told as free of decay, but it decays */
  CHECK(bench_judge(&b, "update") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "wte");
  bench_teardown(&b);
  setup(OPTIMIZER_ADAMW, "");
  b.run.data.config.beta2 = 0.999;
  CHECK(bench_judge(&b, "update") == OUTCOME_FAIL);
  bench_teardown(&b);
}

static void a_frozen_weight_that_moves_fails(void)
{
  setup(OPTIMIZER_ADAMW, "ln_f");
  CHECK(bench_judge(&b, "update") == OUTCOME_PASS);
  made_bend(&b.run, "weights", 2, "ln_f.bias", 1.0 + 1e-6, 0.0);
  CHECK(bench_judge(&b, "update") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "ln_f.bias");
  bench_teardown(&b);
}

static void missing_dumps_never_pass(void)
{
  setup(OPTIMIZER_ADAMW, "");
  made_drop(&b.run, "tensors", 0, 3, -1); /* the weights at the end */
  CHECK(bench_judge(&b, "update") == OUTCOME_INVALID);
  bench_teardown(&b);
  setup(OPTIMIZER_ADAMW, "");
  made_drop(&b.run, "step", 0, 2, -1);
  CHECK(bench_judge(&b, "update") == OUTCOME_INVALID);
  bench_teardown(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(clean_runs_of_both_rules_pass),
    TEST(the_learning_rate_has_a_closed_form),
    TEST(the_clip_factor_has_a_closed_form),
    TEST(one_adamw_step_by_hand),
    TEST(a_wrong_factor_fails),
    TEST(a_rate_of_another_update_fails),
    TEST(a_weight_moved_by_more_than_rounding_fails_and_is_named),
    TEST(decay_of_a_bias_and_a_missing_bias_correction_fail),
    TEST(a_frozen_weight_that_moves_fails),
    TEST(missing_dumps_never_pass),
  };
  return test_main("update", tests, sizeof tests / sizeof *tests);
}
