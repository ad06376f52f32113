/* train_offload_test.c - the whole trainer with state in the host's memory: equal in bits to the one that keeps it on the device. */
#include "train/train_fixture.h"

/* Three micro-batches a rank or more, two steps; masks, a clip that bites, buckets below the size of a matrix. */
static void twins(const char *name, const char *settings)
{
  static const char *const lines[] = {"layers: 2", "hidden: 24", "dropout: 0.1", "unused: true", "clip: 0.1", "dump: all", "bucket: 900"};
  char text[1024], label[64];
  for (int on = 0; on < 2; on++) {
    fixture_settings(text, sizeof text, settings, lines, sizeof lines / sizeof *lines);
    strcat(text, on ? "offload: optimizer\n" : "");
    snprintf(label, sizeof label, "%s-%s", name, on ? "host" : "device");
    fixture_run(label, text);
  }
}

/* What both dumped, and the hashes of what each rank holds. */
static void check_equal(const char *name, int ranks, bool moments)
{
  char host[64], device[64];
  snprintf(host, sizeof host, "%s-host", name);
  snprintf(device, sizeof device, "%s-device", name);
  CHECK(fixture_same_bits(host, device));
  CHECK(!moments || fixture_same_file(host, device, "moments1.step2.safetensors"));
  CHECK(!moments || fixture_same_file(host, device, "moments2.step2.safetensors"));
  json_t *x = fixture_records(host), *y = fixture_records(device);
  for (int rank = 0; rank < ranks; rank++) {
    int i = 0;
    for (const json_t *a, *b; (a = fixture_find(x, "replica", rank, 1, i)) != NULL; i++) {
      b = fixture_find(y, "replica", rank, 1, i);
      CHECK(b != NULL && strcmp(record_get_text(a, "got.hash"), record_get_text(b, "got.hash")) == 0);
    }
    CHECK(i >= 3);
    /* The host has what the device had of it before; nothing is allocated in a step. */
    const double batches = fixture_real(y, "memory", rank, -1, "got.host_bytes"); /* of both */
    const double there = fixture_real(x, "memory", rank, -1, "got.host_bytes") - batches, before = fixture_real(y, "memory", rank, -1, "got.optimizer_bytes");
    const bool apart = fixture_nccl(); /* of the host's own memory the most there ever was, with copies for what is dumped */
    CHECK(batches > 0 && there > 0 && (apart || there <= before) && there > before - 4096);
    CHECK(fixture_real(x, "memory", rank, -1, "got.optimizer_bytes") < before);
    CHECK(fixture_real(x, "memory", rank, -1, "got.allocations_first") == fixture_real(x, "memory", rank, -1, "got.allocations_last"));
  }
  json_decref(x);
  json_decref(y);
}

static void one_rank_learns_the_same(void)
{
  twins("one", "");
  twins("bf16", "precision: bf16\n");
  twins("lazy", "precision: bf16\ndevice: lazy\npoison_end: true\n");
  twins("sgd", "precision: bf16\noptimizer: sgd\n");
  twins("emulated", "replicas: 2\nzero: 2\nprecision: float64\n");
  if (!CHECK(TRAIN(1, "one-host", "one-device", "bf16-host", "bf16-device", "lazy-host", "lazy-device", "sgd-host", "sgd-device",
                   "emulated-host", "emulated-device") == 0)) {
    fprintf(stderr, "%s\n", fixture_output());
    return;
  }
  check_equal("one", 1, true);
  check_equal("bf16", 1, true);
  check_equal("lazy", 1, true);
  check_equal("sgd", 1, false);
  check_equal("emulated", 1, true);
}

static void two_ranks_learn_the_same(void)
{
  twins("shared", "dp: 2\nzero: 1\nprecision: bf16\nreduce: ordered\n");
  twins("sliced", "dp: 2\nzero: 3\nreduce: ordered\ndelay: copies\ndelay_ms: 0.5\n");
  twins("stages", "pp: 2\nprecision: bf16\n");
  twins("again", "dp: 2\nzero: 2\ndevice: lazy\nreduce: ordered\n");
  if (!CHECK(TRAIN(2, "shared-host", "shared-device", "sliced-host", "sliced-device", "stages-host", "stages-device", "again-host",
                   "again-device") == 0)) {
    fprintf(stderr, "%s\n", fixture_output());
    return;
  }
  check_equal("shared", 2, true);
  check_equal("sliced", 2, true);
  check_equal("stages", 2, true);
  check_equal("again", 2, true);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(one_rank_learns_the_same),
    TEST(two_ranks_learn_the_same),
  };
  return fixture_main("train_offload", tests, sizeof tests / sizeof *tests);
}
