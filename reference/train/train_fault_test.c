/* train_fault_test.c - each fault planted in the trainer changes what it is said to change, and
 * only that; without it the numbers are right. */
#include "train/train_fixture.h"

#include <math.h>
#include <signal.h>

static const char *const common = "dump: gradients\nprecision: float64\nevaluate_each: 2\nclip: 0\n";

/* Runs once clean and once with `fault`; false when either failed. */
static bool both(int ranks, const char *fault, json_t **clean, json_t **faulty)
{
  char settings[512];
  snprintf(settings, sizeof settings, "%sdp: %d", common, ranks);
  fixture_run("clean", settings);
  snprintf(settings, sizeof settings, "%sdp: %d\nfault: %s\nfault_rank: %d", common, ranks, fault, ranks - 1);
  fixture_run(fault, settings);
  if (!CHECK(TRAIN(ranks, "clean", fault) == 0)) return false;
  *clean = fixture_records("clean");
  *faulty = fixture_records(fault);
  return true;
}

static void forget(const char *fault, json_t *clean, json_t *faulty)
{
  char command[256];
  json_decref(clean);
  json_decref(faulty);
  snprintf(command, sizeof command, "rm -rf %s/clean %s/%s", fixture_dir, fixture_dir, fault);
  CHECK(system(command) == 0);
}

static void mean_of_means_divides_by_each_micro_batch(void)
{
  json_t *clean, *faulty;
  if (!both(1, "ln-ga-mean-of-means", &clean, &faulty)) return;
  double mean = 0.0;
  for (int i = 0; i < 6; i++) {
    const json_t *m = fixture_find(clean, "microbatch", 0, 0, i);
    mean += record_get_real(m, "got.loss_sum", 0.0) / record_get_real(m, "got.valid_tokens", 1.0) / 6.0;
  }
  CHECK_NEAR(fixture_real(faulty, "step", 0, 0, "got.loss"), mean, 1e-13 * mean);
  CHECK(fabs(fixture_real(clean, "step", 0, 0, "got.loss") - mean) > 1e-4 * mean);
  CHECK(fixture_real(clean, "step", 0, 0, "got.loss_sum") == fixture_real(faulty, "step", 0, 0, "got.loss_sum"));
  CHECK(!fixture_same_file("clean", "ln-ga-mean-of-means", "gradients.step0.safetensors"));
  forget("ln-ga-mean-of-means", clean, faulty);
}

static void strength_is_how_much_of_it(void)
{
  json_t *clean, *faulty;
  char settings[512];
  if (!both(1, "ln-ga-mean-of-means", &clean, &faulty)) return;
  snprintf(settings, sizeof settings, "%sfault: ln-ga-mean-of-means\nfault_strength: 0.25", common);
  fixture_run("quarter", settings);
  if (CHECK(TRAIN(1, "quarter") == 0)) {
    json_t *quarter = fixture_records("quarter");
    const double right = fixture_real(clean, "step", 0, 0, "got.loss"), wrong = fixture_real(faulty, "step", 0, 0, "got.loss");
    CHECK_NEAR(fixture_real(quarter, "step", 0, 0, "got.loss"), 0.75 * right + 0.25 * wrong, 1e-13 * right);
    json_decref(quarter);
  }
  forget("ln-ga-mean-of-means", clean, faulty);
}

static void rank_imbalance_divides_by_this_ranks_tokens(void)
{
  json_t *clean, *faulty;
  if (!both(2, "ln-rank-token-imbalance", &clean, &faulty)) return;
  double mean = 0.0;
  for (int rank = 0; rank < 2; rank++) {
    double sum = 0.0, valid = 0.0;
    for (int i = 0; i < 3; i++) {
      const json_t *m = fixture_find(clean, "microbatch", rank, 0, i);
      sum += record_get_real(m, "got.loss_sum", 0.0);
      valid += record_get_real(m, "got.valid_tokens", 0.0);
    }
    mean += sum / valid / 2.0;
  }
  CHECK_NEAR(fixture_real(faulty, "step", 0, 0, "got.loss"), mean, 1e-13 * mean);
  CHECK(fabs(fixture_real(clean, "step", 0, 0, "got.loss") - mean) > 1e-5 * mean);
  CHECK(!fixture_same_file("clean", "ln-rank-token-imbalance", "gradients.step0.safetensors"));
  forget("ln-rank-token-imbalance", clean, faulty);
}

static void rescaled_evaluation_leaves_training_alone(void)
{
  json_t *clean, *faulty;
  if (!both(1, "ln-val-loss-rescaled", &clean, &faulty)) return;
  const double loss = fixture_real(clean, "eval", 0, 2, "got.loss");
  CHECK_NEAR(fixture_real(faulty, "eval", 0, 2, "got.loss"), loss / 6.0, 1e-13 * loss);
  CHECK(fixture_real(faulty, "eval", 0, 2, "got.train_loss") == fixture_real(clean, "eval", 0, 2, "got.train_loss"));
  CHECK(fixture_same_bits("clean", "ln-val-loss-rescaled"));
  forget("ln-val-loss-rescaled", clean, faulty);
}

static void local_loss_is_one_ranks(void)
{
  json_t *clean, *faulty;
  if (!both(2, "ln-logged-loss-local-only", &clean, &faulty)) return;
  for (int rank = 0; rank < 2; rank++) {
    double sum = 0.0, valid = 0.0;
    for (int i = 0; i < 3; i++) {
      const json_t *m = fixture_find(clean, "microbatch", rank, 1, i);
      sum += record_get_real(m, "got.loss_sum", 0.0);
      valid += record_get_real(m, "got.valid_tokens", 0.0);
    }
    CHECK_NEAR(fixture_real(faulty, "step", rank, 1, "got.loss"), sum / valid, 1e-12);
  }
  CHECK(fixture_same_bits("clean", "ln-logged-loss-local-only"));
  forget("ln-logged-loss-local-only", clean, faulty);
}

static void stale_gradients_show_at_the_second_step(void)
{
  json_t *clean, *faulty;
  if (!both(1, "gr-stale-grad-after-write", &clean, &faulty)) return;
  CHECK(fixture_same_file("clean", "gr-stale-grad-after-write", "gradients.step0.safetensors"));
  CHECK(!fixture_same_file("clean", "gr-stale-grad-after-write", "gradients.step1.safetensors"));
  forget("gr-stale-grad-after-write", clean, faulty);
}

static int place_of(const json_t *trace, const char *group, bool last)
{
  const json_t *calls = json_object_get(trace, "got.calls");
  int place = -1;
  for (size_t i = 0; i < json_array_size(calls); i++)
    if (strstr(json_string_value(json_array_get(calls, i)), group) && (last || place < 0)) place = (int)i;
  return place;
}

/* Nothing waits inside MPI, so both orders end, with equal numbers; the list tells. */
static void swapped_communicators_show_in_the_order_of_calls(void)
{
  json_t *clean, *faulty;
  if (!both(2, "hg-concurrent-communicators", &clean, &faulty)) return;
  for (int rank = 0; rank < 2; rank++)
    for (int step = 0; step < 2; step++) {
      const json_t *right = fixture_find(clean, "trace", rank, step, 0), *wrong = fixture_find(faulty, "trace", rank, step, 0);
      CHECK(place_of(right, " dp ", false) >= 0 && place_of(right, " sums ", true) > place_of(right, " dp ", true));
      CHECK((place_of(wrong, " sums ", true) < place_of(wrong, " dp ", false)) == (rank == 1));
    }
  CHECK(fixture_same_bits("clean", "hg-concurrent-communicators"));
  forget("hg-concurrent-communicators", clean, faulty);
}

/* A slow loader of 1.5 s against a step of some milliseconds. */
static void left_out_loader_time_makes_the_step_shorter_than_its_parts(void)
{
  static const char *const parts[] = {"got.data_ms", "got.forward_ms", "got.backward_ms", "got.optimizer_ms", "got.other_ms", "got.exposed_ms"};
  fixture_run("loader", "steps: 1\nslow_data_ms: 1500");
  fixture_run("shorter", "steps: 1\nslow_data_ms: 1500\nfault: pf-metrics-wrong");
  if (!CHECK(TRAIN(1, "loader", "shorter") == 0)) return;
  double sum[2] = {0.0, 0.0}, step[2];
  for (int i = 0; i < 2; i++) {
    json_t *r = fixture_records(i ? "shorter" : "loader");
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) sum[i] += fixture_real(r, "time", 0, 0, parts[k]);
    step[i] = fixture_real(r, "time", 0, 0, "got.step_ms");
    CHECK(fixture_real(r, "time", 0, 0, "got.data_ms") >= 1500.0);
    json_decref(r);
  }
  CHECK(sum[0] <= step[0]);
  CHECK(sum[1] > step[1]);
}

/* --- a rank that waits for one that has gone ------------------------------------------------ */

static bool has(const char *path)
{
  char full[256];
  snprintf(full, sizeof full, "%s/%s", fixture_dir, path);
  return access(full, F_OK) == 0;
}

static bool file_says(const char *path, const char *words)
{
  char command[512];
  snprintf(command, sizeof command, "grep -q '%s' %s/%s", words, fixture_dir, path);
  return system(command) == 0;
}

/* Rank 1 ends its steps early and waits at the end of the run; rank 0 in a collective.  Told to
 * end, they say where they are.  A launcher may kill a rank as soon as it sees another go (MPICH's
 * does), so only one is sure to have the time, and its own exit status says nothing of ours. */
static void uneven_steps_hang_and_say_where(void)
{
  fixture_run("uneven", "dp: 2\nfault: hg-uneven-steps\nfault_rank: 1");
  const pid_t job = fixture_start(2, (const char *const[]){"uneven", NULL});
  for (int tries = 0; tries < 300 && !(has("uneven/rank1.jsonl") && file_says("uneven/rank1.jsonl", "\"memory\"")); tries++) usleep(100000);
  usleep(300000); /* rank 0 gets into its collective; if it has not, the check below still holds */
  kill(job, SIGTERM);
  fixture_wait(job);
  const bool first = file_says("uneven/rank0.jsonl", "\"done\".*ended by signal"), second = file_says("uneven/rank1.jsonl", "\"done\".*ended by signal");
  CHECK(!file_says("uneven/rank1.jsonl", "\"step\",\"case\":\"uneven\",\"rank\":1,\"step\":1"));
  CHECK(first || second);
  CHECK(!first || file_says("uneven/rank0.jsonl", "allreduce"));
}

int main(void)
{
  static const struct test tests[] = {
    TEST(mean_of_means_divides_by_each_micro_batch),
    TEST(strength_is_how_much_of_it),
    TEST(rank_imbalance_divides_by_this_ranks_tokens),
    TEST(rescaled_evaluation_leaves_training_alone),
    TEST(local_loss_is_one_ranks),
    TEST(stale_gradients_show_at_the_second_step),
    TEST(swapped_communicators_show_in_the_order_of_calls),
    TEST(left_out_loader_time_makes_the_step_shorter_than_its_parts),
    TEST(uneven_steps_hang_and_say_where),
  };
  return fixture_main("train_fault", tests, sizeof tests / sizeof *tests);
}
