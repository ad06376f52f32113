/* train_bits_test.c - two ranks give the bits of a serial run that adds as they do, and lazy
 * queues those of eager ones. */
#include "train/train_fixture.h"

static void ranks_equal_emulated_replicas_in_bits(void)
{
  static const char *const variants[] = {"", "reduce_each: microbatch", "precision: float64\nbucket: 3000", "overlap: false\ntied: false",
                                        "precision: bf16\nbucket: 3000"};
  for (int i = 0; i < 5; i++) {
    char ranks[16], serial[16], settings[256];
    snprintf(ranks, sizeof ranks, "ranks%d", i);
    snprintf(serial, sizeof serial, "serial%d", i);
    snprintf(settings, sizeof settings, "dump: gradients\ndropout: 0.1\nevaluate_each: 1\n%s\ndp: 2\nreduce: ordered", variants[i]);
    fixture_run(ranks, settings);
    snprintf(settings, sizeof settings, "dump: gradients\ndropout: 0.1\nevaluate_each: 1\n%s\nreplicas: 2", variants[i]);
    fixture_run(serial, settings);
    if (!CHECK(TRAIN(2, ranks) == 0) || !CHECK(TRAIN(1, serial) == 0)) return;
    CHECK(fixture_same_bits(ranks, serial));
    json_t *a = fixture_records(ranks), *b = fixture_records(serial);
    for (int rank = 0; rank < 2; rank++) {
      CHECK(fixture_real(a, "step", rank, 1, "got.loss") == fixture_real(b, "step", 0, 1, "got.loss"));
      CHECK(fixture_real(a, "eval", rank, 2, "got.loss") == fixture_real(b, "eval", 0, 2, "got.loss"));
    }
    json_decref(a);
    json_decref(b);
  }
}

/* Stages and tensor ranks send bf16; gradients of both uses of the tied matrix are float32. */
static void stages_in_bf16_equal_one_in_bits(void)
{
  static const char *const cuts[] = {"pp: 2", "pp: 2\nschedule: zb-h1", "pp: 2\ndp: 2\nreduce: ordered"};
  fixture_run("bf16", "precision: bf16\ndump: gradients\ndropout: 0.1\nglobal_batch: 8");
  fixture_run("bf16two", "precision: bf16\ndump: gradients\ndropout: 0.1\nglobal_batch: 8\nreplicas: 2");
  if (!CHECK(TRAIN(1, "bf16", "bf16two") == 0)) return;
  for (int i = 0; i < 3; i++) {
    char name[16], settings[256];
    snprintf(name, sizeof name, "bf16cut%d", i);
    snprintf(settings, sizeof settings, "precision: bf16\ndump: gradients\ndropout: 0.1\nglobal_batch: 8\n%s", cuts[i]);
    fixture_run(name, settings);
    if (!CHECK(TRAIN(i < 2 ? 2 : 4, name) == 0)) return;
    CHECK(fixture_same_bits(name, i < 2 ? "bf16" : "bf16two"));
  }
}

/* What backward makes again has the bits of what is kept; sums over emulated replicas too. */
static void recompute_changes_no_bit(void)
{
  static const char *const again[] = {"recompute: selective", "recompute: full", "recompute: full\npp: 2\nschedule: zb-h1",
                                      "recompute: selective\ndp: 2\nreduce: ordered", "recompute: full\nreplicas: 2"};
  fixture_run("kept", "dump: gradients\ndropout: 0.1\nglobal_batch: 8\nevaluate_each: 1");
  fixture_run("kepttwo", "dump: gradients\ndropout: 0.1\nglobal_batch: 8\nevaluate_each: 1\nreplicas: 2");
  if (!CHECK(TRAIN(1, "kept", "kepttwo") == 0)) return;
  for (int i = 0; i < 5; i++) {
    char name[16], settings[256];
    snprintf(name, sizeof name, "again%d", i);
    snprintf(settings, sizeof settings, "dump: gradients\ndropout: 0.1\nglobal_batch: 8\nevaluate_each: 1\n%s", again[i]);
    fixture_run(name, settings);
    if (!CHECK(TRAIN(i == 2 || i == 3 ? 2 : 1, name) == 0)) return;
    CHECK(fixture_same_bits(name, i < 3 ? "kept" : "kepttwo"));
  }
}

/* Whether a thread has read the batches before, however far and however late, with evaluation between and by policy. */
static void reading_ahead_changes_no_bit(void)
{
  static const char *const ways[] = {"policy: padded", "policy: bucketed\ntail: reshape\nreduce: ordered\ndp: 2", "policy: balanced\ntail: pad\npp: 2",
                                     "policy: packed\nreplicas: 2\norder_seed: 3", "policy: chunked\ntail: drop\ntp: 2\nevaluate_batches: 2"};
  static const char *const reads[] = {"read_ahead: 0", "read_ahead: 3\nread_jitter_ms: 20"};
  for (int i = 0; i < 5; i++) {
    char name[2][16], settings[320];
    for (int k = 0; k < 2; k++) {
      snprintf(name[k], sizeof name[k], "read%d%d", i, k);
      snprintf(settings, sizeof settings, "dump: gradients\ndropout: 0.1\nglobal_batch: 8\nlayers: 2\nevaluate_each: 1\ndocuments: 60\n%s\n%s", ways[i], reads[k]);
      fixture_run(name[k], settings);
    }
    const int ranks = i >= 1 && i != 3 ? 2 : 1;
    if (!CHECK(TRAIN(ranks, name[0], name[1]) == 0)) return;
    CHECK(fixture_same_bits(name[0], name[1]));
    json_t *a = fixture_records(name[0]), *b = fixture_records(name[1]);
    for (int rank = 0; rank < ranks; rank++) {
      CHECK(fixture_real(a, "eval", rank, 2, "got.loss") == fixture_real(b, "eval", rank, 2, "got.loss"));
      CHECK_TEXT_HAS(record_get_text(fixture_find(a, "data", rank, -1, 0), "got.hash"), record_get_text(fixture_find(b, "data", rank, -1, 0), "got.hash"));
    }
    json_decref(a);
    json_decref(b);
  }
}

static void lazy_sees_every_access_ordered(void)
{
  char name[16], settings[256];
  if (getenv("SHARDMARK_TEST_DEVICE")) return; /* lazy is itself, and equal in bits to cpu alone */
  for (int seed = 1; seed <= 4; seed++) {
    snprintf(name, sizeof name, "lazy%d", seed);
    snprintf(settings, sizeof settings,
             "device: lazy\nlazy_seed: %d\npoison_end: true\ndump: all\ndropout: 0.1\ndp: 2\nreduce: ordered\nbucket: 3000\nevaluate_each: 1%s",
             seed, seed == 4 ? "\nprecision: bf16" : "");
    fixture_run(name, settings);
    if (!CHECK(TRAIN(2, name) == 0)) return;
    json_t *r = fixture_records(name);
    CHECK(fixture_find(r, "finding", -1, -1, 0) == NULL);
    json_decref(r);
  }
  fixture_run("cpu", "dump: all\ndropout: 0.1\ndp: 2\nreduce: ordered\nbucket: 3000\nevaluate_each: 1");
  if (!CHECK(TRAIN(2, "cpu") == 0)) return;
  CHECK(fixture_same_bits("lazy1", "cpu"));
}

int main(void)
{
  static const struct test tests[] = {
    TEST(ranks_equal_emulated_replicas_in_bits),
    TEST(stages_in_bf16_equal_one_in_bits),
    TEST(recompute_changes_no_bit),
    TEST(reading_ahead_changes_no_bit),
    TEST(lazy_sees_every_access_ordered),
  };
  return fixture_main("train_bits", tests, sizeof tests / sizeof *tests);
}
