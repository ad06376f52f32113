/* train_test.c - training end to end: what is learned, what may not change it, what is written. */
#include "train/train_fixture.h"

#include <math.h>

static void the_loss_falls(void)
{
  fixture_run("falls", "steps: 60\nlr: 0.003\nrecords_each: 59\nevaluate_each: 30\ndropout: 0.1");
  if (!CHECK(TRAIN(1, "falls") == 0)) return;
  json_t *r = fixture_records("falls");
  const double first = fixture_real(r, "step", 0, 0, "got.loss"), last = fixture_real(r, "step", 0, 59, "got.loss");
  CHECK_NEAR(first, log(131.0), 0.15); /* small weights know nothing of 131 tokens */
  CHECK(last < first - 0.5);
  CHECK(fixture_real(r, "eval", 0, 60, "got.loss") < fixture_real(r, "eval", 0, 30, "got.loss"));
  CHECK(fixture_find(r, "step", 0, 30, 0) == NULL); /* records_each */
  json_decref(r);
}

static void order_of_run_files_changes_no_bit(void)
{
  /* the first of a job is the one whose state the second would inherit */
  static const char *const settings[] = {"dump: gradients\nfault: gr-stale-grad-after-write", "dump: gradients\ndropout: 0.2\nseed: 9"};
  for (int i = 0; i < 2; i++) {
    char name[16];
    for (int twice = 0; twice < 2; twice++) {
      snprintf(name, sizeof name, "order%c%d", "ab"[i], twice);
      fixture_run(name, settings[i]);
    }
  }
  if (!CHECK(TRAIN(1, "ordera0", "orderb0") == 0) || !CHECK(TRAIN(1, "orderb1", "ordera1") == 0)) return;
  CHECK(fixture_same_bits("ordera0", "ordera1"));
  CHECK(fixture_same_bits("orderb0", "orderb1"));
}

static void order_of_micro_batches_changes_rounding_only(void)
{
  fixture_run("straight", "dump: gradients\nprecision: float64");
  fixture_run("permuted", "dump: gradients\nprecision: float64\norder_seed: 3");
  if (!CHECK(TRAIN(1, "straight", "permuted") == 0)) return;
  json_t *a = fixture_records("straight"), *b = fixture_records("permuted");
  const double loss = fixture_real(a, "step", 0, 1, "got.loss"), norm = fixture_real(a, "step", 0, 1, "got.norm");
  CHECK_NEAR(fixture_real(b, "step", 0, 1, "got.loss"), loss, 1e-13 * loss);
  CHECK_NEAR(fixture_real(b, "step", 0, 1, "got.norm"), norm, 1e-12 * norm);
  CHECK(!fixture_same_file("straight", "permuted", "gradients.step0.safetensors"));
  json_decref(a);
  json_decref(b);
}

static void weights_written_are_weights_read(void)
{
  char settings[256];
  fixture_run("whole", "dump: all\nsteps: 2");
  if (!CHECK(TRAIN(1, "whole") == 0)) return;
  snprintf(settings, sizeof settings, "dump: all\nsteps: 1\nseed: 1\nweights: %s/whole/weights.step0.safetensors", fixture_dir);
  fixture_run("again", settings);
  if (!CHECK(TRAIN(1, "again") == 0)) return;
  CHECK(fixture_same_file("whole", "again", "weights.step0.safetensors"));
  CHECK(fixture_same_file("whole", "again", "gradients.step0.safetensors"));
  CHECK(fixture_same_file("whole", "again", "moments2.step1.safetensors"));
  CHECK(fixture_same_file("whole", "again", "blocks.step0.safetensors"));
}

static json_t *header_of(const char *name, const char *file)
{
  char path[512];
  uint64_t n = 0;
  snprintf(path, sizeof path, "%s/%s/%s", fixture_dir, name, file);
  FILE *f = fopen(path, "r");
  char *text = f && fread(&n, sizeof n, 1, f) == 1 && n < 1 << 20 ? calloc(1, (size_t)n + 1) : NULL;
  json_t *header = text && fread(text, 1, (size_t)n, f) == n ? json_loads(text, 0, NULL) : NULL;
  free(text);
  if (f) fclose(f);
  return header;
}

static bool all_of_type(const char *name, const char *file, const char *type)
{
  json_t *header = header_of(name, file), *one;
  const char *key;
  bool same = json_object_size(header) > 0;
  json_object_foreach(header, key, one)
    if (strcmp(key, "__metadata__") != 0) same = same && strcmp(record_get_text(one, "dtype"), type) == 0;
  json_decref(header);
  return same;
}

/* What a bf16 run shows as weights are those that updates are added to: the same as a float32 run starts from, and
 * moving by less than bf16 could hold. */
static void bf16_keeps_its_weights_in_float32(void)
{
  fixture_run("half", "precision: bf16\ndump: all\nlr: 0.00001\nweight_decay: 0");
  fixture_run("single", "precision: float32\ndump: all\nlr: 0.00001\nweight_decay: 0");
  if (!CHECK(TRAIN(1, "half", "single") == 0)) return;
  CHECK(fixture_same_file("half", "single", "weights.step0.safetensors"));
  CHECK(!fixture_same_file("half", "single", "gradients.step0.safetensors"));
  static const char *const state[] = {"weights.step2.safetensors", "gradients.step1.safetensors", "moments1.step1.safetensors",
                                      "moments2.step1.safetensors"};
  for (int i = 0; i < 4; i++) CHECK(all_of_type("half", state[i], "F32"));
  CHECK(!fixture_same_file("half", "single", "weights.step2.safetensors"));
  json_t *r = fixture_records("half"), *s = fixture_records("single");
  CHECK_NEAR(fixture_real(r, "step", 0, 1, "got.loss"), fixture_real(s, "step", 0, 1, "got.loss"), 0.01);
  CHECK(fixture_real(r, "step", 0, 1, "got.loss") != fixture_real(s, "step", 0, 1, "got.loss"));
  const json_t *a = fixture_find(r, "parameter", 0, -1, 3), *b = fixture_find(s, "parameter", 0, -1, 3);
  CHECK(a && b && strcmp(record_get_text(a, "got.hash"), record_get_text(b, "got.hash")) == 0);
  json_decref(r);
  json_decref(s);
}

static void products_are_timed_in_every_precision(void)
{
  static const char *const names[][2] = {{"float64", "dgemm"}, {"float32", "sgemm"}, {"bf16", "bgemm"}, {"fp16\nloss_scale: 1", "hgemm"}};
  for (int i = 0; i < 4; i++) {
    char settings[96];
    snprintf(settings, sizeof settings, "task: gemm\nsize: 16\nrepeats: 2\nprecision: %s", names[i][0]);
    fixture_run(names[i][1], settings);
    if (!CHECK(TRAIN(1, names[i][1]) == 0)) return;
    json_t *r = fixture_records(names[i][1]);
    const json_t *m = fixture_find(r, "measure", 0, -1, 2);
    if (CHECK(m != NULL)) {
      CHECK(strcmp(record_get_text(m, "got.what"), names[i][1]) == 0 && record_get_int(m, "got.size", 0) == 64);
      CHECK(record_get_int(m, "got.bytes", 0) == 3 * 64 * 64 * (i < 3 ? 8 >> i : 2));
    }
    json_decref(r);
  }
}

/* --- records ------------------------------------------------------------------------------ */

static void counts_and_sums_agree_over_ranks(void)
{
  fixture_run("counts", "dp: 2\ndump: gradients\nevaluate_each: 2\ntrace_time: true");
  if (!CHECK(TRAIN(2, "counts") == 0)) return;
  json_t *r = fixture_records("counts");
  double sum = 0.0;
  int64_t valid = 0, consumed = 0;
  for (int i = 0; i < 6; i++) {
    const json_t *m = fixture_find(r, "microbatch", -1, 1, i), *b = fixture_find(r, "batch", -1, 1, i);
    if (!CHECK(m != NULL && b != NULL)) break;
    sum += record_get_real(m, "got.loss_sum", 0.0);
    valid += record_get_int(m, "got.valid_tokens", 0);
    consumed += record_get_int(b, "got.valid_tokens", 0);
    CHECK(record_get_int(b, "microbatch", -1) / 3 == record_get_int(b, "rank", -1)); /* consecutive ones a rank */
  }
  CHECK(valid == consumed);
  for (int rank = 0; rank < 2; rank++) {
    CHECK(fixture_real(r, "step", rank, 1, "got.valid_tokens") == (double)valid);
    CHECK_NEAR(fixture_real(r, "step", rank, 1, "got.loss_sum"), sum, 1e-12 * sum);
    CHECK_NEAR(fixture_real(r, "step", rank, 1, "got.loss"), sum / (double)valid, 1e-14 * sum);
    CHECK(fixture_real(r, "eval", rank, 2, "got.loss") > 0.0);
    CHECK(fixture_real(r, "memory", rank, -1, "got.allocations_first") == fixture_real(r, "memory", rank, -1, "got.allocations_last"));
    const json_t *time = fixture_find(r, "time", rank, 1, 0), *trace = fixture_find(r, "trace", rank, 1, 0);
    const size_t calls = json_array_size(json_object_get(trace, "got.calls"));
    CHECK(calls >= 3);
    CHECK(json_array_size(json_object_get(time, "got.calls_ready_ms")) == calls);
    CHECK(json_array_size(json_object_get(time, "got.calls_end_ms")) == calls);
    CHECK((fixture_find(r, "shim", rank, 1, 0) != NULL) != fixture_nccl());
    const json_t *a = fixture_find(r, "replica", rank, 1, 0), *b = fixture_find(r, "replica", 1 - rank, 1, 0);
    CHECK(a && b && strcmp(record_get_text(a, "got.hash"), record_get_text(b, "got.hash")) == 0);
    CHECK(fixture_find(r, "done", rank, -1, 0) != NULL);
  }
  CHECK(fixture_find(r, "run", -1, -1, 1) == NULL);
  CHECK(fixture_find(r, "parameter", 0, -1, 0) != NULL);
  json_decref(r);
}

static void evaluation_equals_the_training_path(void)
{
  fixture_run("eval", "evaluate_each: 1\nevaluate_batches: 2\ndropout: 0.3");
  if (!CHECK(TRAIN(1, "eval") == 0)) return;
  json_t *r = fixture_records("eval");
  const double loss = fixture_real(r, "eval", 0, 1, "got.loss");
  CHECK_NEAR(fixture_real(r, "eval", 0, 1, "got.train_loss"), loss, 1e-13 * loss);
  CHECK_NEAR(fixture_real(r, "eval", 0, 1, "got.loss_sum") / fixture_real(r, "eval", 0, 1, "got.valid_tokens"), loss, 1e-13 * loss);
  json_decref(r);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(the_loss_falls),
    TEST(order_of_run_files_changes_no_bit),
    TEST(order_of_micro_batches_changes_rounding_only),
    TEST(weights_written_are_weights_read),
    TEST(bf16_keeps_its_weights_in_float32),
    TEST(products_are_timed_in_every_precision),
    TEST(counts_and_sums_agree_over_ranks),
    TEST(evaluation_equals_the_training_path),
  };
  return fixture_main("train", tests, sizeof tests / sizeof *tests);
}
