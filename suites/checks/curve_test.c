/* curve_test.c - O3 over a long run, O13's whole and parts, O15's first divergence. */
#include "fabricate_test.h"

static struct bench b;

/* A long run: losses only. */
static void curve(struct made *m, const struct run_config *c, double noise)
{
  memset(m, 0, sizeof *m);
  m->data.config = *c;
  m->data.records = m->records = json_array();
  snprintf(m->data.end, sizeof m->data.end, "exited");
  for (int64_t step = 0; step < c->steps; step++)
    for (int rank = 0; rank < (int)c->dp; rank++) {
      const double loss = 5.4 - 3.0 * (double)step / (double)c->steps;
      json_object_set_new(made_record(m, "step", rank, step, -1), "got.loss", json_real(loss * (1.0 + noise * (double)step / (double)c->steps)));
    }
}

static void setup(double noise)
{
  struct run_config c = made_config(2);
  c.steps = 40;
  c.vocab = 256;
  memset(&b, 0, sizeof b);
  curve(&b.run, &c, noise);
  b.n = judge_find("curve")->companions(&c, b.wanted, JUDGE_COMPANIONS_MAX);
  for (int i = 0; i < b.n; i++) {
    curve(&b.other[i], &b.wanted[i].config, i * 1e-5); /* serial: none; the draws: 1e-5 .. 3e-5 */
    b.companions[i] = &b.other[i].data;
  }
}
static void teardown(void)
{
  json_decref(b.verdict.details);
  json_decref(b.run.records);
  for (int i = 0; i < b.n; i++) json_decref(b.other[i].records);
}

static void a_curve_within_what_orders_show_passes_and_is_drawn(void)
{
  setup(1e-4);
  CHECK(b.n == 4);
  CHECK(bench_judge(&b, "curve") == OUTCOME_PASS);
  CHECK(json_array_size(b.verdict.details) == 40);
  CHECK(bench_judge(&b, "learns") == OUTCOME_PASS);
  teardown();
}

static void a_curve_beyond_it_fails(void)
{
  setup(2e-4); /* more than 4 x 3e-5 */
  CHECK(bench_judge(&b, "curve") == OUTCOME_FAIL);
  teardown();
  setup(0.0);
  made_set(&b.run, "step", 0, 0, -1, "got.loss", json_real(5.4 * (1.0 + 1e-6))); /* no noise yet: the floor counts */
  CHECK(bench_judge(&b, "curve") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "step 0");
  made_set(&b.run, "step", 0, 0, -1, "got.loss", json_string("nan"));
  CHECK(bench_judge(&b, "curve") == OUTCOME_FAIL);
  teardown();
}

static void a_curve_with_a_gap_or_without_its_companions_never_passes(void)
{
  setup(0.0);
  made_drop(&b.other[2], "step", 0, 7, -1);
  CHECK(bench_judge(&b, "curve") != OUTCOME_PASS);
  b.companions[2] = NULL;
  CHECK(bench_judge(&b, "curve") == OUTCOME_INVALID);
  teardown();
  setup(0.0);
  made_drop(&b.run, "step", 1, 39, -1);
  CHECK(bench_judge(&b, "curve") == OUTCOME_INVALID);
  CHECK(bench_judge(&b, "learns") == OUTCOME_INVALID);
  teardown();
}

static void what_does_not_start_at_knowing_nothing_or_does_not_fall_has_not_learned(void)
{
  setup(0.0);
  for (int step = 35; step < 40; step++) made_set(&b.run, "step", 0, step, -1, "got.loss", json_real(3.01));
  CHECK(bench_judge(&b, "learns") == OUTCOME_FAIL);
  teardown();
  setup(0.0);
  made_set(&b.run, "step", 0, 0, -1, "got.loss", json_real(3.2));
  CHECK(bench_judge(&b, "learns") == OUTCOME_FAIL);
  teardown();
}

/* --- time --------------------------------------------------------------------------------- */

static void timed(struct made *m)
{
  static const char *const parts[] = {"got.data_ms", "got.forward_ms", "got.backward_ms", "got.optimizer_ms", "got.other_ms", "got.exposed_ms"};
  for (int rank = 0; rank < 2; rank++) {
    for (int step = 0; step < 2; step++) {
      json_t *r = made_record(m, "time", rank, step, -1);
      for (int k = 0; k < 6; k++) json_object_set_new(r, parts[k], json_real(10.0));
      json_object_set_new(r, "got.step_ms", json_real(65.0));
    }
    made_set(m, "done", rank, -1, -1, "got.seconds", json_real(0.2));
  }
}

static void a_step_holds_its_parts_and_the_run_its_steps(void)
{
  const struct run_config c = made_config(2);
  bench_setup(&b, "clock", &c);
  CHECK(bench_judge(&b, "clock") == OUTCOME_INVALID);
  timed(&b.run);
  CHECK(bench_judge(&b, "clock") == OUTCOME_PASS);
  made_set(&b.run, "time", 1, 1, -1, "got.data_ms", json_real(20.0)); /* parts: 70 of 65 */
  CHECK(bench_judge(&b, "clock") == OUTCOME_FAIL);
  CHECK_TEXT_HAS(b.verdict.worst, "parts of step 1 on rank 1");
  made_set(&b.run, "time", 1, 1, -1, "got.data_ms", json_real(10.0));
  made_set(&b.run, "done", 0, -1, -1, "got.seconds", json_real(0.12)); /* two steps of 65 ms */
  CHECK(bench_judge(&b, "clock") == OUTCOME_FAIL);
  made_set(&b.run, "done", 0, -1, -1, "got.seconds", json_null());
  CHECK(bench_judge(&b, "clock") != OUTCOME_PASS);
  bench_teardown(&b);
}

/* --- first divergence ------------------------------------------------------------------------ */

enum { BLOCK_TOKENS = 4, BLOCK_CHANNELS = 3 };

/* Outputs and gradients of one block.  From `bend` on, one element is off. */
static void blocks(struct made *m, int bend)
{
  static const char *const names[] = {"embedding", "h.0", "ln_f", "losses", "ln_f.gradient", "h.0.gradient", "embedding.gradient"};
  static double values[7][BLOCK_TOKENS * BLOCK_CHANNELS];
  struct safetensor list[7];
  char path[CONFIG_PATH + 64];
  for (int i = 0; i < 7; i++) {
    for (int k = 0; k < BLOCK_TOKENS * BLOCK_CHANNELS; k++) values[i][k] = made_value(i, k, 0, 1.0);
    if (bend >= 0 && i >= bend) values[i][7] *= 1.5; /* token 2, channel 1 */
    list[i] = (struct safetensor){names[i], tensor_at(values[i], DTYPE_F64, BLOCK_TOKENS, BLOCK_CHANNELS), 2};
  }
  snprintf(path, sizeof path, "%s/blocks.step0.safetensors", m->dir);
  CHECK_OK(safetensors_write(path, list, 7, NULL));
  json_t *r = made_record(m, "tensors", 0, 0, -1);
  json_object_set_new(r, "got.what", json_string("blocks"));
  json_object_set_new(r, "got.file", json_string("blocks.step0.safetensors"));
}

static void the_first_place_that_leaves_the_truth_is_named(void)
{
  static const char *const places[] = {"embedding, forward", "h.0, forward", "ln_f, forward", "losses, forward",
                                       "ln_f.gradient, backward", "h.0.gradient, backward", "embedding.gradient, backward"};
  const struct run_config c = made_config(2);
  for (int bend = -1; bend < 7; bend++) {
    bench_setup(&b, "divergence", &c);
    CHECK(b.n == 1 && b.wanted[0].config.global_batch == 6 && b.wanted[0].config.dp == 1 && b.wanted[0].config.steps == 1);
    blocks(&b.run, bend);
    blocks(&b.other[0], -1);
    CHECK(bench_judge(&b, "divergence") == (bend < 0 ? OUTCOME_PASS : OUTCOME_FAIL));
    if (bend >= 0) {
      CHECK_TEXT_HAS(b.verdict.worst, places[bend]);
      CHECK_TEXT_HAS(b.verdict.sentence, "token 2, channel 1");
    }
    made_drop(&b.other[0], "tensors", 0, 0, -1);
    CHECK(bench_judge(&b, "divergence") == OUTCOME_INVALID);
    bench_teardown(&b);
  }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_curve_within_what_orders_show_passes_and_is_drawn),
    TEST(a_curve_beyond_it_fails),
    TEST(a_curve_with_a_gap_or_without_its_companions_never_passes),
    TEST(what_does_not_start_at_knowing_nothing_or_does_not_fall_has_not_learned),
    TEST(a_step_holds_its_parts_and_the_run_its_steps),
    TEST(the_first_place_that_leaves_the_truth_is_named),
  };
  return test_main("curve", tests, sizeof tests / sizeof *tests);
}
