/* train_zero_test.c - the whole trainer with state that replicas share: equal in bits to one rank that emulates them. */
#include "train/train_fixture.h"

/* A tied matrix, a parameter that nothing touches, masks, a clip that bites, buckets below the size of a matrix. */
static void shared(const char *name, const char *settings)
{
  static const char *const lines[] = {"layers: 3",  "hidden: 24",       "dropout: 0.1", "unused: true",   "global_batch: 12",
                                      "clip: 0.1",  "evaluate_each: 1", "dump: all",    "reduce: ordered", "zero: 1",
                                      "bucket: 900"};
  char text[1024];
  fixture_settings(text, sizeof text, settings, lines, sizeof lines / sizeof *lines);
  fixture_run(name, text);
}

/* What both say of losses and norms, and all that they dumped. */
static void check_equal(const char *run, const char *other, int ranks)
{
  static const char *const keys[][2] = {{"step", "got.loss"}, {"step", "got.norm"}, {"step", "got.clip_factor"}, {"eval", "got.loss"}};
  json_t *x = fixture_records(run), *y = fixture_records(other);
  for (int rank = 0; rank < ranks; rank++)
    for (int i = 0; i < 4; i++) {
      const int64_t step = strcmp(keys[i][0], "eval") == 0 ? 2 : 1;
      CHECK(fixture_real(x, keys[i][0], rank, step, keys[i][1]) == fixture_real(y, keys[i][0], 0, step, keys[i][1]));
    }
  json_decref(x);
  json_decref(y);
  CHECK(fixture_same_bits(run, other));
  CHECK(fixture_same_file(run, other, "moments1.step2.safetensors"));
  if (!CHECK(fixture_same_file(run, other, "moments2.step2.safetensors"))) fprintf(stderr, "%s, %s\n", run, other);
}

static void two_that_share_equal_one_that_emulates_them(void)
{
  shared("one", "replicas: 2\n");
  shared("one-each", "replicas: 2\nreduce_each: microbatch\n");
  shared("one-bf16", "replicas: 2\nprecision: bf16\n");
  shared("one-sgd", "replicas: 2\noptimizer: sgd\ndump: gradients\n");
  shared("two", "dp: 2\n");
  shared("two-at-once", "dp: 2\noverlap: false\noverlap_gather: false\n");
  shared("two-lazy", "dp: 2\ndevice: lazy\npoison_end: true\n");
  shared("two-each", "dp: 2\nreduce_each: microbatch\n");
  shared("two-bf16", "dp: 2\nprecision: bf16\n");
  shared("two-bf16-lazy", "dp: 2\nprecision: bf16\ndevice: lazy\nlazy_seed: 5\n");
  shared("two-sgd", "dp: 2\noptimizer: sgd\ndump: gradients\n");
  if (!CHECK(TRAIN(1, "one", "one-each", "one-bf16", "one-sgd") == 0)) return;
  if (!CHECK(TRAIN(2, "two", "two-at-once", "two-lazy", "two-each", "two-bf16", "two-bf16-lazy", "two-sgd") == 0)) return;
  check_equal("two", "one", 2);
  check_equal("two-at-once", "one", 2);
  check_equal("two-lazy", "one", 2);
  check_equal("two-each", "one-each", 2);
  check_equal("two-bf16", "one-bf16", 2);
  check_equal("two-bf16-lazy", "one-bf16", 2);
  CHECK(fixture_same_bits("two-sgd", "one-sgd"));
}

/* Groups of two share; and stages, whose replicas share. */
static void groups_and_stages_equal_one_that_emulates_them(void)
{
  shared("four", "micro_batch: 1\nreplicas: 4\nshard: 2\n");
  shared("four-each", "micro_batch: 1\nreplicas: 4\nshard: 2\nreduce_each: microbatch\nprecision: bf16\n");
  shared("pair", "replicas: 2\n");
  shared("hybrid", "micro_batch: 1\ndp: 4\nshard: 2\n");
  shared("hybrid-each", "micro_batch: 1\ndp: 4\nshard: 2\nreduce_each: microbatch\nprecision: bf16\n");
  shared("staged", "dp: 2\npp: 2\nmesh_order: pp-dp-tp\n");
  shared("staged-lazy", "dp: 2\npp: 2\nschedule: zb-h1\ndevice: lazy\n");
  if (!CHECK(TRAIN(1, "four", "four-each", "pair") == 0)) return;
  if (!CHECK(TRAIN(4, "hybrid", "hybrid-each", "staged", "staged-lazy") == 0)) return;
  check_equal("hybrid", "four", 4);
  check_equal("hybrid-each", "four-each", 4);
  check_equal("staged", "pair", 4);
  check_equal("staged-lazy", "pair", 4);
}

/* The update is element by element: without a limit on the norm, who keeps what changes nothing. */
static void sharing_changes_no_bit_of_an_update(void)
{
  shared("plain", "dp: 2\ntp: 2\nzero: 0\nclip: 0\n");
  shared("cut", "dp: 2\ntp: 2\nclip: 0\n");
  if (!CHECK(TRAIN(4, "plain", "cut") == 0)) return;
  CHECK(fixture_same_bits("cut", "plain"));
  CHECK(fixture_same_file("cut", "plain", "moments2.step2.safetensors"));
}

static void shared_state_takes_its_share_of_memory_and_nothing_in_a_step(void)
{
  shared("whole", "dp: 2\nzero: 0\nsteps: 4\n");
  shared("half", "dp: 2\nsteps: 4\ntrace_time: true\n");
  if (!CHECK(TRAIN(2, "whole", "half") == 0)) return;
  json_t *x = fixture_records("whole"), *y = fixture_records("half");
  for (int rank = 0; rank < 2; rank++) {
    const double first = fixture_real(y, "memory", rank, -1, "got.allocations_first");
    CHECK(first > 0.0 && first == fixture_real(y, "memory", rank, -1, "got.allocations_last"));
    const double all = fixture_real(x, "memory", rank, -1, "got.optimizer_bytes"), part = fixture_real(y, "memory", rank, -1, "got.optimizer_bytes");
    CHECK(part > 0.45 * all && part < 0.75 * all); /* rows are padded to twice as much */
  }
  json_decref(x);
  json_decref(y);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(two_that_share_equal_one_that_emulates_them),
    TEST(groups_and_stages_equal_one_that_emulates_them),
    TEST(sharing_changes_no_bit_of_an_update),
    TEST(shared_state_takes_its_share_of_memory_and_nothing_in_a_step),
  };
  return fixture_main("train_zero", tests, sizeof tests / sizeof *tests);
}
