/* speed_test.c - rates from hand-made records, shares of the peak, and every reason to show none. */
#include "fabricate_test.h"
#include "peak.h"
#include "speed.h"

/* gpt2-124m on one device: 8 sequences of 1024 a step, padded vocabulary. */
static struct run_data begin(struct made *m, const char *gpu, double step_ms)
{
  *m = (struct made){.records = json_array()};
  struct run_config *c = &m->data.config;
  config_default(c);
  CHECK_OK(config_set(c, "model", "gpt2-124m"));
  CHECK_OK(config_set(c, "precision", "bf16"));
  CHECK_OK(config_set(c, "device", "cuda"));
  c->vocab = 50304;
  c->sequence = 1024;
  c->global_batch = c->micro_batch = 8;
  c->steps = 5;
  CHECK_OK(config_finish(c));
  m->data.records = m->records;
  json_object_set_new(made_record(m, "run", 0, -1, -1), "env.gpu", json_string(gpu));
  for (int64_t step = 0; step < 5; step++) {
    json_t *s = made_record(m, "step", 0, step, -1);
    json_object_set_new(s, "got.valid_tokens", json_integer(8000));
    json_object_set_new(s, "got.loss", json_real(11.0 - (double)step));
    json_object_set_new(made_record(m, "time", 0, step, -1), "got.step_ms", json_real(step == 0 ? 100 * step_ms : step_ms + (double)step));
  }
  json_t *g = made_record(m, "gpu", 0, -1, -1);
  json_object_set_new(g, "got.energy_mj", json_integer(2000000));
  json_object_set_new(g, "got.power_mw", json_integer(650000));
  json_object_set_new(g, "got.clock_mhz", json_integer(1755));
  json_object_set_new(made_record(m, "done", 0, -1, -1), "got.error", json_string(""));
  return m->data;
}

static const char h200[] = "NVIDIA H200, driver 580.65 (CUDA 13.0)";

static void rates_are_of_the_timed_steps(void)
{
  struct made m;
  struct speed s;
  const struct run_data run = begin(&m, h200, 100);
  speed_take(&run, 1, &s);
  CHECK(s.outcome == OUTCOME_PASS && s.why[0] == '\0');
  CHECK(strcmp(s.device, "NVIDIA H200") == 0);
  CHECK(s.steps == 4);
  CHECK_NEAR(s.step_ms, 102.5, 1e-9); /* of 101, 102, 103, 104 */
  CHECK_NEAR(s.tokens_per_s, 4 * 8000 / 0.410, 1e-6);
  CHECK_NEAR(s.mj_per_token, 2000000.0 / 40000, 1e-9);
  CHECK_NEAR(s.power_w, 650.0, 1e-9);
  CHECK_NEAR(s.clock_mhz, 1755.0, 1e-9);
  json_decref(m.records);
}

/* 6 FLOPs a weight of a product and token, 12 T C a layer for the whole square of attention. */
static void mfu_counts_no_padding(void)
{
  struct made m;
  struct speed s;
  const struct run_data run = begin(&m, h200, 100);
  const double weights = 12.0 * 12 * 768 * 768 + 768.0 * 50257, square = 12.0 * 12 * 1024 * 768;
  speed_take(&run, 1, &s);
  CHECK_NEAR(s.mfu_full, (6 * weights + square) * 32000 / 0.410 / 989.5e12, 1e-9);
  CHECK_NEAR(s.mfu_causal, (6 * weights + square / 2) * 32000 / 0.410 / 989.5e12, 1e-9);
  CHECK(s.hfu == s.mfu_causal);
  json_decref(m.records);
}

/* Again in backward: a third of attention's FLOPs; and of a block's weights all but the last projection's, once more. */
static void hfu_alone_counts_recompute(void)
{
  struct made m;
  struct speed s;
  struct run_data run = begin(&m, h200, 100);
  const double weights = 12.0 * 12 * 768 * 768 + 768.0 * 50257, square = 12.0 * 12 * 1024 * 768, rate = 32000 / 0.410 / 989.5e12;
  run.config.recompute = RECOMPUTE_SELECTIVE;
  speed_take(&run, 1, &s);
  CHECK_NEAR(s.mfu_causal, (6 * weights + square / 2) * rate, 1e-9);
  CHECK_NEAR(s.hfu - s.mfu_causal, square / 6 * rate, 1e-9);
  run.config.recompute = RECOMPUTE_FULL;
  speed_take(&run, 1, &s);
  CHECK_NEAR(s.mfu_causal, (6 * weights + square / 2) * rate, 1e-9);
  CHECK_NEAR(s.hfu - s.mfu_causal, (2 * 8.0 * 12 * 768 * 768 + square / 6) * rate, 1e-9);
  json_decref(m.records);
}

static void unknown_devices_have_no_mfu(void)
{
  struct made m;
  struct speed s;
  const struct run_data run = begin(&m, "NVIDIA H2000, driver 1", 100);
  speed_take(&run, 1, &s);
  CHECK(s.outcome == OUTCOME_PASS && isnan(s.mfu_full) && isnan(s.mfu_causal) && s.tokens_per_s > 0);
  CHECK(isnan(peak_dense("NVIDIA L4", PRECISION_F64)));
  CHECK(peak_dense("NVIDIA A100-SXM4-80GB, driver 535", PRECISION_TF32) == 156e12);
  CHECK(isnan(peak_dense("", PRECISION_F32)));
  json_decref(m.records);
}

static void refused(const struct run_data *run, int64_t warm, enum outcome outcome, const char *why)
{
  struct speed s;
  speed_take(run, warm, &s);
  CHECK(s.outcome == outcome);
  CHECK_TEXT_HAS(s.why, why);
  CHECK(isnan(s.tokens_per_s) || strstr(why, "MFU"));
}

static json_t *record(struct made *m, const char *kind, int64_t step) { return (json_t *)evidence_record(&m->data, kind, 0, step, -1); }

static void what_has_no_speed_says_why(void)
{
  struct made m;
  struct run_data run = begin(&m, "host build (not a GPU), driver 13.0", 100);
  refused(&run, 1, OUTCOME_INVALID, "not a GPU");
  json_decref(m.records);
  run = begin(&m, h200, 0.1);
  refused(&run, 1, OUTCOME_INVALID, "MFU of");
  json_decref(m.records);
  run = begin(&m, h200, 100);
  refused(&run, 5, OUTCOME_INVALID, "no step is left");
  json_object_set_new(record(&m, "step", 3), "got.loss", json_null());
  refused(&run, 1, OUTCOME_FAIL, "loss of step 3");
  json_object_del(record(&m, "time", 2), "got.step_ms");
  refused(&run, 1, OUTCOME_INVALID, "step 2");
  json_object_set_new(record(&m, "done", -1), "got.error", json_string("the card was held back by heat"));
  refused(&run, 1, OUTCOME_INVALID, "held back by heat");
  run.config.device = DEVICE_CPU;
  json_object_set_new(record(&m, "done", -1), "got.error", json_string(""));
  refused(&run, 1, OUTCOME_INVALID, "not on device cuda");
  json_decref(m.records);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(rates_are_of_the_timed_steps),
    TEST(mfu_counts_no_padding),
    TEST(hfu_alone_counts_recompute),
    TEST(unknown_devices_have_no_mfu),
    TEST(what_has_no_speed_says_why),
  };
  return test_main("speed", tests, sizeof tests / sizeof *tests);
}
