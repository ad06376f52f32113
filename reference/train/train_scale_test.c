/* train_scale_test.c - fp16 with its loss scale: ranks and emulated replicas, steps that are skipped, who overflowed. */
#include "train/train_fixture.h"

static bool flag(const json_t *records, int rank, int64_t step)
{
  const json_t *r = fixture_find(records, "step", rank, step, 0);
  return CHECK(r != NULL) && json_is_true(json_object_get(r, "got.skipped"));
}

/* Rank 1 of two overflows in step 1; one step before it is taken. */
static void ranks_in_fp16_equal_emulated_replicas_in_bits(void)
{
  static const char *const variants[] = {"", "\nreduce_each: microbatch\nbucket: 3000", "\noptimizer: sgd\nreduce_type: bf16"};
  for (int i = 0; i < 3; i++) {
    char ranks[16], serial[16], settings[320];
    const char *scaled = "precision: fp16\nloss_scale: 1024\nscale_interval: 2\ninf_step: 1\ninf_rank: 1\ndump: gradients\ndropout: 0.1";
    snprintf(ranks, sizeof ranks, "ranks%d", i);
    snprintf(serial, sizeof serial, "serial%d", i);
    snprintf(settings, sizeof settings, "%s\ndp: 2\nreduce: ordered%s", scaled, variants[i]);
    fixture_run(ranks, settings);
    snprintf(settings, sizeof settings, "%s\nreplicas: 2%s", scaled, variants[i]);
    fixture_run(serial, settings);
    if (!CHECK(TRAIN(2, ranks) == 0) || !CHECK(TRAIN(1, serial) == 0)) return;
    CHECK(fixture_same_bits(ranks, serial));
    json_t *a = fixture_records(ranks), *b = fixture_records(serial);
    for (int rank = 0; rank < 2; rank++) {
      CHECK(!flag(a, rank, 0) && flag(a, rank, 1));
      CHECK(fixture_real(a, "step", rank, 1, "got.overflow_rank") == 1 && fixture_real(a, "step", rank, 0, "got.overflow_rank") == -1);
      CHECK(fixture_real(a, "step", rank, 1, "got.update") == 2);
    }
    CHECK(flag(b, 0, 1) && fixture_real(b, "step", 0, 1, "got.overflow_rank") == 1);
    json_decref(a);
    json_decref(b);
  }
}

/* A stage and a tensor rank of it, deep in the job; neither weights nor moments change, at any rank. */
static void a_skipped_step_changes_no_bit_and_its_rank_is_named(void)
{
  fixture_run("deep", "precision: fp16\nloss_scale: 64\ninf_step: 1\ninf_rank: 3\ndump: all\ntp: 2\npp: 2\nglobal_batch: 8");
  if (!CHECK(TRAIN(4, "deep") == 0)) return;
  char command[512];
  snprintf(command, sizeof command, "cd %s/deep && cmp -s weights.step1.safetensors weights.step2.safetensors && "
           "cmp -s moments1.step1.safetensors moments1.step2.safetensors && cmp -s moments2.step1.safetensors moments2.step2.safetensors && "
           "! cmp -s weights.step0.safetensors weights.step1.safetensors", fixture_dir);
  CHECK(system(command) == 0);
  json_t *r = fixture_records("deep");
  for (int rank = 0; rank < 4; rank++) CHECK(flag(r, rank, 1) && fixture_real(r, "step", rank, 1, "got.overflow_rank") == 3);
  json_decref(r);
}

/* 2^24 is too much for this model: halved until gradients fit, then steps are taken, the first of them as update 1. */
static void a_scale_that_is_too_large_is_halved_until_gradients_fit(void)
{
  fixture_run("large", "precision: fp16\nloss_scale: 16777216\nscale_interval: 3\nsteps: 16\nlr_warmup: 4");
  if (!CHECK(TRAIN(1, "large") == 0)) return;
  json_t *r = fixture_records("large");
  double scale = 16777216, taken = 0, good = 0;
  for (int64_t step = 0; step < 16; step++) {
    const bool skipped = flag(r, 0, step);
    CHECK(fixture_real(r, "step", 0, step, "got.scale") == scale);
    CHECK(fixture_real(r, "step", 0, step, "got.update") == taken + 1);
    CHECK(fixture_real(r, "step", 0, step, "got.overflow_rank") == (skipped ? 0 : -1));
    CHECK(step > 0 || skipped);
    good = skipped ? 0 : good + 1;
    scale *= skipped ? 0.5 : good == 3 ? 2 : 1;
    good = good == 3 ? 0 : good;
    taken += !skipped;
  }
  CHECK(taken >= 3);
  json_decref(r);
}

/* Multiplying by a power of two and dividing by it loses nothing where there is range enough. */
static void float64_is_scaled_without_changing_a_bit(void)
{
  fixture_run("plain", "precision: float64\ndump: all");
  fixture_run("scaled", "precision: float64\ndump: all\nloss_scale: 65536\nscale_interval: 1");
  if (!CHECK(TRAIN(1, "plain", "scaled") == 0)) return;
  CHECK(fixture_same_bits("plain", "scaled"));
  json_t *r = fixture_records("scaled"), *p = fixture_records("plain");
  CHECK(fixture_real(r, "step", 0, 1, "got.scale") == 131072);
  CHECK(json_object_get(fixture_find(p, "step", 0, 0, 0), "got.scale") == NULL);
  json_decref(r);
  json_decref(p);
}

static void lazy_sees_every_access_of_the_scale_ordered(void)
{
  if (getenv("SHARDMARK_TEST_DEVICE")) return;
  for (int seed = 1; seed <= 2; seed++) {
    char name[16], settings[256];
    snprintf(name, sizeof name, "lazy%d", seed);
    snprintf(settings, sizeof settings, "device: lazy\nlazy_seed: %d\npoison_end: true\nprecision: fp16\nloss_scale: 1024\ninf_step: 0\n"
             "inf_rank: 1\ndp: 2\nreduce: ordered\nbucket: 3000%s", seed, seed == 2 ? "\nzero: 1" : "");
    fixture_run(name, settings);
    if (!CHECK(TRAIN(2, name) == 0)) return;
    json_t *r = fixture_records(name);
    CHECK(fixture_find(r, "finding", -1, -1, 0) == NULL);
    CHECK(flag(r, 0, 0) && !flag(r, 1, 1));
    json_decref(r);
  }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(ranks_in_fp16_equal_emulated_replicas_in_bits),
    TEST(a_skipped_step_changes_no_bit_and_its_rank_is_named),
    TEST(a_scale_that_is_too_large_is_halved_until_gradients_fit),
    TEST(float64_is_scaled_without_changing_a_bit),
    TEST(lazy_sees_every_access_of_the_scale_ordered),
  };
  return fixture_main("train_scale", tests, sizeof tests / sizeof *tests);
}
