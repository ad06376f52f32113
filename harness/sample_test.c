/* sample_test.c - numbers of a timed run, from records made by hand. */
#include "harness/sample.h"
#include "suites/checks/peak.h"
#include "testing/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Two ranks, four steps (one warm-up): rank 1 takes 20 ms a step, rank 0 10 ms; 120 tokens a step. */
static json_t *records(void)
{
  json_t *all = json_array();
  for (int rank = 0; rank < 2; rank++) {
    json_array_append_new(all, json_pack("{s:s,s:i,s:s,s:i,s:[i]}", "kind", "rank", "rank", rank, "got.host", "h", "got.threads", 1,
                                         "got.cores", rank));
    for (int step = 0; step < 4; step++) {
      const double ms = (rank ? 20.0 : 10.0) + (step == 0 ? 1000.0 : 0.0), busy = rank ? 16.0 : 8.0;
      json_array_append_new(all, json_pack("{s:s,s:i,s:i,s:f,s:i}", "kind", "step", "rank", rank, "step", step, "got.loss", 4.5,
                                           "got.valid_tokens", 120));
      json_array_append_new(all, json_pack("{s:s,s:i,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "kind", "time", "rank", rank, "step", step,
                                           "got.step_ms", ms, "got.forward_ms", busy / 2, "got.backward_ms", busy / 2, "got.optimizer_ms",
                                           0.0, "got.other_ms", 0.0, "got.exposed_ms", ms / 4, "got.matmul_flops", 1e9));
    }
    json_array_append_new(all, json_pack("{s:s,s:i,s:i}", "kind", "memory", "rank", rank, "got.os_peak_bytes", 1000 + rank));
    json_array_append_new(all, json_pack("{s:s,s:i,s:i,s:s,s:s}", "kind", "replica", "rank", rank, "step", 3, "got.what", "weights",
                                         "got.hash", "00000000deadbeef"));
  }
  return all;
}

static struct sample take(json_t *all)
{
  struct sample s;
  struct run_data d = {.records = all};
  d.config.dp = 2;
  d.config.tp = d.config.pp = 1;
  d.config.steps = 4;
  d.config.threads = 1;
  sample_take(&d, &s);
  json_decref(all);
  return s;
}

/* Takes out the first record of that kind with that value under key. */
static json_t *without(json_t *all, const char *kind, const char *key, int value)
{
  size_t i;
  json_t *r;
  json_array_foreach(all, i, r)
  {
    if (strcmp(json_string_value(json_object_get(r, "kind")), kind) != 0 || json_integer_value(json_object_get(r, key)) != value) continue;
    json_array_remove(all, i);
    break;
  }
  return all;
}

static void a_step_takes_as_long_as_its_slowest_rank(void)
{
  const struct sample s = take(records());
  CHECK(s.ok && s.why[0] == '\0');
  CHECK_NEAR(s.step_ms, 20, 0);
  CHECK_NEAR(s.tokens_per_s, 3 * 120 / 0.060, 1e-9); /* the first step is warm-up */
  CHECK_NEAR(s.balance, 12.0 / 16.0, 1e-12);
  CHECK_NEAR(s.exposed, 0.25, 1e-12);
  CHECK_NEAR(s.busy, 12.0 / 20.0, 1e-12);
  CHECK_NEAR(s.busy_a_token_s, 0.024 / 120, 1e-12);
  CHECK_NEAR(s.flops_per_s, 3 * 1e9 / 0.060, 1); /* per rank */
  CHECK_NEAR(s.peak_bytes, 1001, 0);
  CHECK_NEAR(s.first_loss, 4.5, 0);
}

static void what_a_rank_did_not_say_is_missed(void)
{
  CHECK(!take(without(records(), "time", "step", 2)).ok);
  const struct sample s = take(without(records(), "replica", "rank", 1));
  CHECK(!s.ok && s.wrong);
  CHECK_TEXT_HAS(s.why, "hash of its weights");
  CHECK(!take(json_array()).ok);
}

/* The first `weights` hash of that rank, named as of a group. */
static void name_hash(json_t *all, int rank, const char *of, const char *hash)
{
  size_t i;
  json_t *r;
  json_array_foreach(all, i, r)
  {
    if (strcmp(json_string_value(json_object_get(r, "kind")), "replica") != 0 || json_integer_value(json_object_get(r, "rank")) != rank) continue;
    json_object_set_new(r, "got.group", json_string("dp"));
    json_object_set_new(r, "got.of", json_string(of));
    json_object_set_new(r, "got.hash", json_string(hash));
  }
}

static void only_hashes_of_the_same_things_must_be_equal(void)
{
  json_t *all = records();
  name_hash(all, 0, "pp0 tp0", "aa");
  name_hash(all, 1, "pp0 tp1", "bb");
  CHECK(take(all).ok);
  all = records();
  name_hash(all, 0, "pp0 tp0", "aa");
  name_hash(all, 1, "pp0 tp0", "bb");
  const struct sample s = take(all);
  CHECK(!s.ok && s.wrong);
}

static void replicas_that_differ_are_a_fault_of_training(void)
{
  json_t *all = records();
  json_object_set_new(json_array_get(all, json_array_size(all) - 1), "got.hash", json_string("00000000deadbeee"));
  const struct sample s = take(all);
  CHECK(!s.ok && s.wrong);
  CHECK_TEXT_HAS(s.why, "replicas differ");
}

static void ranks_that_disagree_about_the_loss_are_seen(void)
{
  json_t *all = records();
  json_object_set_new(json_array_get(all, 1), "got.loss", json_real(4.6));
  CHECK(take(all).wrong);
  all = records();
  json_object_set_new(json_array_get(all, 3), "got.loss", json_string("nan"));
  const struct sample s = take(all);
  CHECK(s.wrong);
  CHECK_TEXT_HAS(s.why, "not finite");
}

static void ranks_on_one_core_have_no_speed(void)
{
  json_t *all = records();
  json_object_set_new(json_array_get(all, 0), "got.cores", json_pack("[ii]", 0, 1));
  const struct sample s = take(all);
  CHECK(!s.ok && !s.wrong);
  CHECK_TEXT_HAS(s.why, "one core");
  all = records(); /* the same number on another host is another core */
  json_object_set_new(json_array_get(all, 0), "got.cores", json_pack("[i]", 1));
  json_object_set_new(json_array_get(all, 0), "got.host", json_string("g"));
  CHECK(take(all).ok);
  all = records();
  json_object_set_new(json_array_get(all, 0), "got.threads", json_integer(2));
  CHECK(!take(all).ok);
  CHECK(!take(without(records(), "rank", "rank", 1)).ok);
}

static void the_rate_is_the_best_size_s_median(void)
{
  json_t *all = json_array();
  CHECK(isnan(sample_rate(all)));
  json_array_append_new(all, json_pack("{s:s,s:f,s:[fff]}", "kind", "measure", "got.flops", 2e9, "got.seconds", 1.0, 0.02, 0.01));
  json_array_append_new(all, json_pack("{s:s,s:f,s:[fff]}", "kind", "measure", "got.flops", 16e9, "got.seconds", 0.1, 0.16, 0.1));
  CHECK_NEAR(sample_rate(all), 16e10, 1);
  json_decref(all);
}

static struct sample take_on(const char *gpu, double hidden_scale)
{
  struct sample s;
  struct run_data d = {.records = records()};
  config_default(&d.config);
  d.config.dp = 2;
  d.config.steps = 4;
  d.config.hidden = (int64_t)(48 * hidden_scale);
  d.config.heads = 12;
  CHECK_OK(config_finish(&d.config));
  json_array_append_new((json_t *)d.records, json_pack("{s:s,s:i,s:s}", "kind", "run", "rank", 0, "env.gpu", gpu));
  sample_take(&d, &s);
  if (isfinite(s.mfu)) CHECK_NEAR(s.mfu, peak_flops(&d.config, 360, false) / 0.060 / (2 * 67e12), 1e-12);
  json_decref((json_t *)d.records);
  return s;
}

static void mfu_is_of_the_devices_own_peak(void)
{
  struct sample s = take_on("NVIDIA H200, driver 580", 1);
  CHECK(s.ok && s.mfu > 0 && s.mfu < 1e-3);
  s = take_on("NVIDIA H2000, driver 580", 1);
  CHECK(s.ok && isnan(s.mfu));
  CHECK(isnan(take(records()).mfu)); /* on no GPU at all */
  s = take_on("NVIDIA H200, driver 580", 1000);
  CHECK(!s.ok && !s.wrong);
  CHECK_TEXT_HAS(s.why, "MFU above 1");
}

static void longer_runs_warm_up_longer(void) { CHECK(sample_warm_up(3) == 1 && sample_warm_up(5) == 1 && sample_warm_up(6) == 2); }

int main(void)
{
  static const struct test tests[] = {
    TEST(a_step_takes_as_long_as_its_slowest_rank),
    TEST(what_a_rank_did_not_say_is_missed),
    TEST(only_hashes_of_the_same_things_must_be_equal),
    TEST(replicas_that_differ_are_a_fault_of_training),
    TEST(ranks_that_disagree_about_the_loss_are_seen),
    TEST(ranks_on_one_core_have_no_speed),
    TEST(the_rate_is_the_best_size_s_median),
    TEST(mfu_is_of_the_devices_own_peak),
    TEST(longer_runs_warm_up_longer),
  };
  return test_main("sample", tests, sizeof tests / sizeof *tests);
}
