/* train_units_test.c - the whole trainer with gradients and weights that replicas share unit by unit (zero 2 and 3): equal
 * in bits to one rank that emulates them, whatever is gathered ahead, overlapped, reused, frozen or cut besides. */
#include "train/train_fixture.h"

/* A tied matrix, a parameter that nothing touches, masks, a clip that bites, buckets below the size of a matrix. */
static void run(const char *name, const char *settings)
{
  static const char *const lines[] = {"layers: 3", "hidden: 24", "dropout: 0.1", "unused: true", "clip: 0.1", "evaluate_each: 1",
                                      "dump: gradients", "reduce: ordered", "bucket: 900", "poison_end: true"};
  char text[1024];
  fixture_settings(text, sizeof text, settings, lines, sizeof lines / sizeof *lines);
  fixture_run(name, text);
}

static void same(const char *a, const char *b)
{
  json_t *x = fixture_records(a), *y = fixture_records(b);
  if (!CHECK(fixture_same_bits(a, b))) fprintf(stderr, "%s and %s\n", a, b);
  CHECK(fixture_real(x, "step", 0, 1, "got.norm") == fixture_real(y, "step", 0, 1, "got.norm"));
  CHECK(fixture_real(x, "eval", 0, 2, "got.loss") == fixture_real(y, "eval", 0, 2, "got.loss"));
  json_decref(x);
  json_decref(y);
}

/* The device under test is asked whether it keeps the order, by the first test: the rest is the host's. */
static bool elsewhere(void) { return getenv("SHARDMARK_TEST_DEVICE") != NULL; }

static void two_that_share_equal_one_that_emulates_them(void)
{
  run("one2", "replicas: 2\nzero: 2");
  run("one3", "replicas: 2\nzero: 3");
  run("one-step", "replicas: 2\nzero: 3\nreduce_each: step");
  run("one-bf16", "replicas: 2\nzero: 3\nprecision: bf16\nreduce_type: bf16");
  run("two2", "dp: 2\nzero: 2");
  run("two2-at-once", "dp: 2\nzero: 2\noverlap: false\noverlap_gather: false");
  run("two2-again", "dp: 2\nzero: 2\nrecompute: full");
  run("two3", "dp: 2\nzero: 3");
  run("two3-none-ahead", "dp: 2\nzero: 3\nprefetch: 0\noverlap: false");
  run("two3-step", "dp: 2\nzero: 3\nreduce_each: step");
  run("two-bf16", "dp: 2\nzero: 3\nprecision: bf16\nreduce_type: bf16");
  if (!CHECK(TRAIN(1, "one2", "one3", "one-step", "one-bf16") == 0)) return;
  if (!CHECK(TRAIN(2, "two2", "two2-at-once", "two2-again", "two3", "two3-none-ahead", "two3-step", "two-bf16") == 0)) return;
  same("two2", "one2");
  same("two2-at-once", "one2");
  same("two2-again", "one2");
  same("two3", "one3");
  same("two3-none-ahead", "one3");
  same("two3-step", "one-step");
  same("two-bf16", "one-bf16");
}

/* Sizes that three does not divide; blocks used twice; a frozen matrix of two uses. */
static void three_with_reused_and_frozen_parameters_do_too(void)
{
  if (elsewhere()) return;
  run("odd2", "replicas: 3\nzero: 2\nreused: 1\nfrozen: wte\nbucket: 100");
  run("odd3", "replicas: 3\nzero: 3\nreused: 1\nfrozen: c_fc\ntied: false\nbucket: 0");
  run("three2", "dp: 3\nzero: 2\nreused: 1\nfrozen: wte\nbucket: 100");
  run("three3", "dp: 3\nzero: 3\nprefetch: 2\nreused: 1\nfrozen: c_fc\ntied: false\nbucket: 0");
  if (!CHECK(TRAIN(1, "odd2", "odd3") == 0) || !CHECK(TRAIN(3, "three2", "three3") == 0)) return;
  same("three2", "odd2");
  same("three3", "odd3");
}

static void groups_and_stages_do_too(void)
{
  if (elsewhere()) return;
  run("deep", "replicas: 2\nzero: 3\nlayers: 4\nglobal_batch: 16");
  run("deep2", "replicas: 2\nzero: 2\nlayers: 4\nglobal_batch: 16\ntied: false");
  run("deep-step", "replicas: 2\nzero: 3\nlayers: 4\nglobal_batch: 16\nreduce_each: step");
  run("one-hybrid", "replicas: 4\nshard: 2\nzero: 3\nmicro_batch: 1\nprecision: bf16");
  run("stages", "dp: 2\npp: 2\nzero: 3\nlayers: 4\nglobal_batch: 16");
  run("stages2", "dp: 2\npp: 2\nzero: 2\nlayers: 4\nglobal_batch: 16\ntied: false\nschedule: gpipe");
  run("chunks", "dp: 2\npp: 2\nzero: 3\nlayers: 4\nglobal_batch: 16\nreduce_each: step\nschedule: interleaved\nchunks: 2");
  run("split", "dp: 2\npp: 2\nzero: 3\nlayers: 4\nglobal_batch: 16\nreduce_each: step\nschedule: zb-h1\nprefetch: 2");
  run("hybrid", "dp: 4\nshard: 2\nzero: 3\nmicro_batch: 1\nprecision: bf16");
  if (!CHECK(TRAIN(1, "deep", "deep2", "deep-step", "one-hybrid") == 0)) return;
  if (!CHECK(TRAIN(4, "stages", "stages2", "chunks", "split", "hybrid") == 0)) return;
  same("stages", "deep");
  same("stages2", "deep2");
  same("chunks", "deep-step");
  same("split", "deep-step");
  same("hybrid", "one-hybrid");
}

/* Where the library adds, only what is the same calls is the same bits. */
static void what_is_gathered_ahead_changes_no_bit_of_the_librarys_sums(void)
{
  if (elsewhere()) return;
  run("fast", "dp: 2\ntp: 2\nsequence_parallel: true\nzero: 3\nreduce: fast\nunused: false");
  run("fast-none", "dp: 2\ntp: 2\nsequence_parallel: true\nzero: 3\nreduce: fast\nunused: false\nprefetch: 0\noverlap: false");
  run("fast-all", "dp: 2\ntp: 2\nsequence_parallel: true\nzero: 3\nreduce: fast\nunused: false\nprefetch: 3");
  if (!CHECK(TRAIN(4, "fast", "fast-none", "fast-all") == 0)) return;
  same("fast", "fast-none");
  same("fast", "fast-all");
}

/* All dimensions with all that overlaps, and gathers and reductions as late as events allow. */
static void lazy_sees_every_access_ordered(void)
{
  if (elsewhere()) return;
  run("all", "dp: 2\ntp: 2\npp: 2\nzero: 3\nlayers: 4\nglobal_batch: 8");
  run("lazy1", "dp: 2\ntp: 2\npp: 2\nzero: 3\nlayers: 4\nglobal_batch: 8\ndevice: lazy\nlazy_seed: 1\nprefetch: 2");
  if (!CHECK(TRAIN(8, "all", "lazy1") == 0)) return;
  same("lazy1", "all");
  run("lazy2", "dp: 2\nzero: 2\ndevice: lazy\nlazy_seed: 2");
  run("lazy3", "dp: 2\nzero: 3\nreused: 1\ndevice: lazy\nlazy_seed: 3\nprecision: bf16\nprefetch: 0");
  run("cpu2", "dp: 2\nzero: 2");
  run("cpu3", "dp: 2\nzero: 3\nreused: 1\nprecision: bf16");
  if (!CHECK(TRAIN(2, "lazy2", "lazy3", "cpu2", "cpu3") == 0)) return;
  same("lazy2", "cpu2");
  same("lazy3", "cpu3");
}

static double bytes_of(json_t *records, const char *key) { return fixture_real(records, "memory", 0, -1, key); }

static void what_is_shared_takes_less_memory_and_nothing_is_taken_in_a_step(void)
{
  static const char *const names[] = {"zero1", "zero2", "zero3"};
  double gradients[3], parameters[3];
  if (elsewhere()) return;
  for (int i = 0; i < 3; i++) {
    char text[128];
    snprintf(text, sizeof text, "dp: 4\nmicro_batch: 1\nlayers: 12\nzero: %d\nhidden: 48\ntied: false\ndump: none", i + 1);
    run(names[i], text);
  }
  if (!CHECK(TRAIN(4, "zero1", "zero2", "zero3") == 0)) return;
  for (int i = 0; i < 3; i++) {
    json_t *r = fixture_records(names[i]);
    gradients[i] = bytes_of(r, "got.gradients_bytes");
    parameters[i] = bytes_of(r, "got.parameters_bytes");
    CHECK(bytes_of(r, "got.allocations_first") == bytes_of(r, "got.allocations_last"));
    json_decref(r);
  }
  /* a quarter of twelve blocks and the two that are on their way */
  CHECK(gradients[1] < 0.5 * gradients[0] && gradients[2] == gradients[1]);
  CHECK(parameters[1] == parameters[0] && parameters[2] < 0.5 * parameters[1]);
}

/* Without transfers over replicas numbers are wrong, but they are numbers; asleep, all is exchanged and nothing computed. */
static void silent_and_sleeping_steps_go_the_same_way(void)
{
  if (elsewhere()) return;
  run("silent", "dp: 2\nzero: 3\ncommunicate: false\npoison_end: false\ndump: none\ntrace_time: true");
  run("asleep", "dp: 2\nzero: 3\ncompute: sleep\nsleep_forward_ms: 1\nsleep_input_ms: 1\nsleep_weight_ms: 1\ndump: none\nevaluate_each: 0");
  run("awake", "dp: 2\nzero: 3\ndump: none");
  if (!CHECK(TRAIN(2, "silent", "asleep", "awake") == 0)) return;
  json_t *silent = fixture_records("silent"), *asleep = fixture_records("asleep"), *awake = fixture_records("awake");
  const double loss = fixture_real(silent, "step", 0, 1, "got.loss");
  CHECK(loss > 0.0 && loss < 1e3);
  const json_t *a = json_object_get(fixture_find(asleep, "trace", 0, 1, 0), "got.calls"),
               *b = json_object_get(fixture_find(awake, "trace", 0, 1, 0), "got.calls");
  CHECK(json_array_size(a) > 0 && json_array_size(a) == json_array_size(b));
  json_decref(silent);
  json_decref(asleep);
  json_decref(awake);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(two_that_share_equal_one_that_emulates_them),
    TEST(three_with_reused_and_frozen_parameters_do_too),
    TEST(groups_and_stages_do_too),
    TEST(what_is_gathered_ahead_changes_no_bit_of_the_librarys_sums),
    TEST(lazy_sees_every_access_ordered),
    TEST(what_is_shared_takes_less_memory_and_nothing_is_taken_in_a_step),
    TEST(silent_and_sleeping_steps_go_the_same_way),
  };
  return fixture_main("train_units", tests, sizeof tests / sizeof *tests);
}
