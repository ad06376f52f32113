/* train_cuts_test.c - the whole trainer cut by stages, by tensors and by replicas: equal in bits where sums keep their
 * order, equal to rounding of float64 where they do not. */
#include "train/train_fixture.h"

#include "base/safetensors.h"

#include <math.h>

/* A tied matrix, a parameter that nothing touches, masks, a clip that bites; what settings say goes before. */
static void cut(const char *name, const char *settings)
{
  static const char *const lines[] = {"layers: 5", "hidden: 24",       "dropout: 0.1",   "unused: true",
                                      "clip: 0.1", "evaluate_each: 1", "dump: gradients"};
  char text[1024];
  fixture_settings(text, sizeof text, settings, lines, sizeof lines / sizeof *lines);
  fixture_run(name, text);
}

/* What two runs of any layouts say on every rank: the loss of a step and of the evaluation after it, the norm. */
static bool same_numbers(const char *a, const char *b, int ranks)
{
  static const char *const keys[][2] = {{"step", "got.loss"}, {"step", "got.norm"}, {"eval", "got.loss"}};
  json_t *x = fixture_records(a), *y = fixture_records(b);
  bool same = true;
  for (int rank = 0; rank < ranks; rank++)
    for (int i = 0; i < 3; i++) {
      const int64_t step = strcmp(keys[i][0], "eval") == 0 ? 2 : 1;
      same = fixture_real(x, keys[i][0], rank, step, keys[i][1]) == fixture_real(y, keys[i][0], 0, step, keys[i][1]) && same;
    }
  json_decref(x);
  json_decref(y);
  return same;
}

/* The largest distance of a file's tensors from those of the other run, each relative to its own size, but not to less
 * than 1 % of what is usual in the file: some are zero but for rounding. */
static double distance(const char *run, const char *truth, const char *file)
{
  struct safetensors *a = NULL, *b = NULL;
  char path[256];
  double all = 0.0, count = 0.0, worst = INFINITY;
  snprintf(path, sizeof path, "%s/%s/%s", fixture_dir, run, file);
  if (!CHECK_OK(safetensors_open(path, &a))) return INFINITY;
  snprintf(path, sizeof path, "%s/%s/%s", fixture_dir, truth, file);
  if (!CHECK_OK(safetensors_open(path, &b)) || !CHECK(safetensors_count(a) == safetensors_count(b))) goto close;
  worst = 0.0;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < safetensors_count(b); i++) {
      const struct safetensor *want = safetensors_get(b, i), *got = safetensors_find(a, want->name);
      double off = 0.0, size = 0.0;
      const int64_t n = tensor_count(&want->data);
      if (!CHECK(got != NULL && tensor_count(&got->data) == n)) goto close;
      if (!CHECK(got->data.type == DTYPE_F64 && want->data.type == DTYPE_F64)) goto close;
      for (int64_t k = 0; k < n; k++) {
        const double x = ((const double *)got->data.at)[k], y = ((const double *)want->data.at)[k];
        off += (x - y) * (x - y);
        size += y * y;
      }
      if (pass == 0) all += size, count += (double)n;
      else if (off > 0.0) worst = fmax(worst, sqrt(off / fmax(size, 1e-4 * all / count * (double)n)));
      if (isnan(off)) worst = INFINITY;
    }
close:
  safetensors_close(b);
  safetensors_close(a);
  return worst;
}

/* --- equal in bits ------------------------------------------------------------------------------------------------ */

static void stages_under_any_schedule_equal_one_rank_in_bits(void)
{
  cut("one", "");
  cut("gpipe", "pp: 2\nschedule: gpipe\n");
  cut("1f1b", "pp: 2\nstages: \"2,3\"\n");
  cut("interleaved", "pp: 2\nschedule: interleaved\nchunks: 2\n");
  cut("zbh1", "pp: 2\nschedule: zb-h1\nsynchronous: true\n");
  if (!CHECK(TRAIN(1, "one") == 0) || !CHECK(TRAIN(2, "gpipe", "1f1b", "interleaved", "zbh1") == 0)) return;
  static const char *const cuts[] = {"gpipe", "1f1b", "interleaved", "zbh1"};
  for (int i = 0; i < 4; i++) {
    CHECK(fixture_same_bits(cuts[i], "one"));
    CHECK(same_numbers(cuts[i], "one", 2));
  }
}

/* The tied matrix stands on two stages, each of which is reduced over its replicas, once a step or after each backward. */
static void stages_of_replicas_equal_one_rank_with_two_accumulators_in_bits(void)
{
  cut("two", "replicas: 2\n");
  cut("two-each", "replicas: 2\nreduce_each: microbatch\n");
  cut("grid", "dp: 2\npp: 2\nreduce: ordered\nschedule: zb-h1\nbucket: 3000\n");
  cut("grid-each", "dp: 2\npp: 2\nreduce: ordered\nreduce_each: microbatch\nmesh_order: pp-dp-tp\n");
  if (!CHECK(TRAIN(1, "two", "two-each") == 0) || !CHECK(TRAIN(4, "grid", "grid-each") == 0)) return;
  CHECK(fixture_same_bits("grid", "two") && same_numbers("grid", "two", 4));
  CHECK(fixture_same_bits("grid-each", "two-each") && same_numbers("grid-each", "two-each", 4));
}

/* Also what ThreadSanitizer looks at: all streams of a rank at work. */
static void stages_of_tensor_ranks_equal_tensor_ranks_alone_in_bits(void)
{
  cut("tensor", "tp: 2\nreduce: ordered\n");
  cut("shards", "tp: 2\nreduce: ordered\nsequence_parallel: true\n");
  cut("t-gpipe", "tp: 2\npp: 2\nreduce: ordered\nschedule: gpipe\n");
  cut("t-1f1b", "tp: 2\npp: 2\nreduce: ordered\n");
  cut("t-interleaved", "tp: 2\npp: 2\nreduce: ordered\nschedule: interleaved\nchunks: 2\n");
  cut("t-zbh1", "tp: 2\npp: 2\nreduce: ordered\nschedule: zb-h1\nmesh_order: pp-tp-dp\n");
  cut("s-1f1b", "tp: 2\npp: 2\nreduce: ordered\nsequence_parallel: true\n");
  cut("s-zbh1", "tp: 2\npp: 2\nreduce: ordered\nsequence_parallel: true\nschedule: zb-h1\n");
  if (!CHECK(TRAIN(2, "tensor", "shards") == 0)) return;
  if (!CHECK(TRAIN(4, "t-gpipe", "t-1f1b", "t-interleaved", "t-zbh1", "s-1f1b", "s-zbh1") == 0)) return;
  static const char *const cuts[] = {"t-gpipe", "t-1f1b", "t-interleaved", "t-zbh1", "s-1f1b", "s-zbh1"};
  for (int i = 0; i < 6; i++) {
    const char *without = cuts[i][0] == 's' ? "shards" : "tensor";
    CHECK(fixture_same_bits(cuts[i], without));
    CHECK(same_numbers(cuts[i], without, 4));
  }
}

/* --- equal to rounding -------------------------------------------------------------------------------------------- */

static void near(const char *run, const char *truth, int ranks)
{
  json_t *a = fixture_records(run), *b = fixture_records(truth);
  for (int64_t step = 0; step < 2; step++) {
    const double loss = fixture_real(b, "step", 0, step, "got.loss"), norm = fixture_real(b, "step", 0, step, "got.norm");
    for (int rank = 0; rank < ranks; rank++) {
      CHECK_NEAR(fixture_real(a, "step", rank, step, "got.loss"), loss, 1e-13 * loss);
      CHECK_NEAR(fixture_real(a, "step", rank, step, "got.norm"), norm, 1e-12 * norm);
    }
  }
  CHECK_NEAR(distance(run, truth, "gradients.step0.safetensors"), 0.0, 1e-12);
  CHECK_NEAR(distance(run, truth, "gradients.step1.safetensors"), 0.0, 1e-11); /* after an update of AdamW */
  json_decref(a);
  json_decref(b);
}

static void tensor_ranks_equal_one_rank_to_rounding(void)
{
  cut("exact", "layers: 2\nprecision: float64\n");
  cut("exact-each", "layers: 2\nprecision: float64\nreplicas: 2\nreduce_each: microbatch\n");
  cut("halves", "layers: 2\nprecision: float64\ntp: 2\n");
  cut("shards64", "layers: 2\nprecision: float64\ntp: 2\nsequence_parallel: true\n");
  cut("thirds", "layers: 2\nprecision: float64\ntp: 3\nsequence_parallel: true\n"); /* 131 tokens in three */
  cut("eight", "layers: 2\nprecision: float64\ndp: 2\ntp: 2\npp: 2\nreduce_each: microbatch\nsequence_parallel: true\n");
  if (!CHECK(TRAIN(1, "exact", "exact-each") == 0) || !CHECK(TRAIN(2, "halves", "shards64") == 0)) return;
  if (!CHECK(TRAIN(3, "thirds") == 0) || !CHECK(TRAIN(8, "eight") == 0)) return;
  near("halves", "exact", 2);
  near("shards64", "exact", 2);
  near("thirds", "exact", 3);
  near("eight", "exact-each", 8);
}

/* Block outputs and gradients come from the stage that has them, shards put together. */
static void blocks_are_whole_whatever_the_layout(void)
{
  cut("whole", "precision: float64\ndump: all\n");
  cut("staged", "precision: float64\ndump: all\npp: 2\nschedule: interleaved\nchunks: 2\n");
  cut("sharded", "precision: float64\ndump: all\ntp: 2\npp: 2\nsequence_parallel: true\n");
  if (!CHECK(TRAIN(1, "whole") == 0) || !CHECK(TRAIN(2, "staged") == 0) || !CHECK(TRAIN(4, "sharded") == 0)) return;
  CHECK(fixture_same_file("staged", "whole", "blocks.step0.safetensors"));
  CHECK(fixture_same_file("staged", "whole", "blocks.step1.safetensors"));
  CHECK(fixture_same_file("staged", "whole", "moments1.step2.safetensors"));
  CHECK(fixture_same_file("staged", "whole", "moments2.step2.safetensors"));
  CHECK_NEAR(distance("sharded", "whole", "blocks.step0.safetensors"), 0.0, 1e-12);
  CHECK_NEAR(distance("sharded", "whole", "moments2.step1.safetensors"), 0.0, 1e-12);
}

/* --- what comes from files ---------------------------------------------------------------------------------------- */

static void weights_of_a_file_are_cut_and_put_together_again(void)
{
  char settings[256];
  cut("source", "");
  if (!CHECK(TRAIN(1, "source") == 0)) return;
  static const char *const layouts[] = {"tp: 2\npp: 2\nsequence_parallel: true\n",
                                        "tp: 2\npp: 2\nschedule: interleaved\nchunks: 2\ntied: false\n"};
  for (int i = 0; i < 2; i++) {
    snprintf(settings, sizeof settings, "weights: %s/source/weights.step2.safetensors\nsteps: 1\n%s", fixture_dir, layouts[i]);
    cut(i ? "read-untied" : "read", settings);
  }
  CHECK(TRAIN(4, "read") == 0);
  CHECK(!fixture_same_file("read", "source", "weights.step0.safetensors")); /* what its seed would have given */
  char command[512];
  snprintf(command, sizeof command, "cmp -s %s/read/weights.step0.safetensors %s/source/weights.step2.safetensors", fixture_dir,
           fixture_dir);
  CHECK(system(command) == 0);
  CHECK(TRAIN(4, "read-untied") != 0); /* the file has no head of its own */
  CHECK_TEXT_HAS(fixture_output(), "lm_head");
}

static void batches_of_a_file_reach_every_stage(void)
{
  static const char *const layouts[] = {"", "pp: 2\nschedule: zb-h1\n", "tp: 3\npp: 2\n"};
  static const char *const names[] = {"file1", "file2", "file6"};
  char settings[512];
  for (int i = 0; i < 3; i++) {
    snprintf(settings, sizeof settings,
             "layers: 2\nheads: 3\nhidden: 12\npositions: 16\nvocab: 29\nsequence: 14\nprecision: float64\nglobal_batch: 6\n"
             "micro_batch: 2\ndump: gradients\nbatch_file: %s/reference/train/oracle/batches.safetensors\n%s",
             SHARDMARK_SOURCE, layouts[i]);
    fixture_run(names[i], settings);
  }
  if (!CHECK(TRAIN(1, "file1") == 0) || !CHECK(TRAIN(2, "file2") == 0) || !CHECK(TRAIN(6, "file6") == 0)) return;
  CHECK(fixture_same_bits("file2", "file1"));
  near("file6", "file1", 6);
}

/* Written in the order of their numbers, whatever order they were taken in. */
static void batches_that_a_run_wrote_give_its_bits_again(void)
{
  char settings[512];
  fixture_run("rows", "dump: gradients\ndump_batches: true\ndocuments_each: 1\norder_seed: 3\nseed: 5\n");
  fixture_run("rows-cut", "dump_batches: true\ndocuments_each: 1\nseed: 5\ntp: 2\npp: 2\n");
  fixture_run("rows-off", "dump: gradients\ndocuments_each: 1\nseed: 5\n");
  if (!CHECK(TRAIN(1, "rows") == 0) || !CHECK(TRAIN(4, "rows-cut") == 0) || !CHECK(TRAIN(1, "rows-off") == 0)) return;
  CHECK(fixture_same_file("rows-cut", "rows", "batches.safetensors"));
  CHECK(!fixture_same_file("rows", "rows-off", "batches.safetensors")); /* that one has none */
  CHECK(!fixture_same_bits("rows", "rows-off"));                        /* the order is seen in the last bits */
  snprintf(settings, sizeof settings, "dump: gradients\norder_seed: 3\nseed: 5\ncorpus: nowhere\nbatch_file: %s/rows/batches.safetensors\n", fixture_dir);
  fixture_run("rows-again", settings);
  if (!CHECK(TRAIN(1, "rows-again") == 0)) return;
  CHECK(fixture_same_bits("rows-again", "rows"));
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static void a_cut_step_allocates_nothing_after_the_first(void)
{
  cut("long-tp", "steps: 4\ntp: 2\ntrace_time: true\n");
  cut("long-sp", "steps: 4\ntp: 2\nsequence_parallel: true\n");
  cut("long-pp", "steps: 4\npp: 2\ntrace_time: true\n");
  cut("long-zb", "steps: 4\npp: 2\nschedule: zb-h1\n");
  if (!CHECK(TRAIN(2, "long-tp", "long-sp", "long-pp", "long-zb") == 0)) return;
  static const char *const runs[] = {"long-tp", "long-sp", "long-pp", "long-zb"};
  for (int i = 0; i < 4; i++) {
    json_t *r = fixture_records(runs[i]);
    for (int rank = 0; rank < 2; rank++) {
      const double first = fixture_real(r, "memory", rank, -1, "got.allocations_first");
      CHECK(first > 0.0 && first == fixture_real(r, "memory", rank, -1, "got.allocations_last"));
    }
    json_decref(r);
  }
}

/* Passes last as long as was asked, everything else is real: transfers, reductions, updates, records. */
static void sleeping_stages_keep_their_schedule(void)
{
  cut("asleep", "pp: 4\nlayers: 4\nschedule: zb-h1\ntrace_time: true\nclip: 0\nevaluate_each: 0\ncompute: sleep\n"
                "sleep_forward_ms: 4\nsleep_input_ms: 3\nsleep_weight_ms: 2\nsleep_head_ms: 5\n");
  if (!CHECK(TRAIN(4, "asleep") == 0)) return;
  json_t *r = fixture_records("asleep");
  for (int rank = 0; rank < 4; rank++) {
    const json_t *a = fixture_find(r, "action", rank, 1, 0);
    const json_t *passes = json_object_get(a, "got.passes");
    const json_t *start = json_object_get(a, "got.start_ms"), *end = json_object_get(a, "got.end_ms");
    int slept = 0;
    for (size_t i = 0; i < json_array_size(passes); i++) {
      const char *pass = json_string_value(json_array_get(passes, i));
      double least = pass[0] == 'F' ? 4.0 : pass[0] == 'I' ? 3.0 : 2.0;
      if (strcspn(pass, " ") != 1) continue; /* a transfer */
      if (rank == 3) least += 5.0;
      slept++;
      CHECK(json_number_value(json_array_get(end, i)) - json_number_value(json_array_get(start, i)) >= least);
    }
    CHECK(slept == 3 * 6);
    CHECK(fixture_find(r, "done", rank, -1, 0) != NULL);
  }
  json_decref(r);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(stages_under_any_schedule_equal_one_rank_in_bits),
    TEST(stages_of_replicas_equal_one_rank_with_two_accumulators_in_bits),
    TEST(stages_of_tensor_ranks_equal_tensor_ranks_alone_in_bits),
    TEST(tensor_ranks_equal_one_rank_to_rounding),
    TEST(blocks_are_whole_whatever_the_layout),
    TEST(weights_of_a_file_are_cut_and_put_together_again),
    TEST(batches_of_a_file_reach_every_stage),
    TEST(batches_that_a_run_wrote_give_its_bits_again),
    TEST(a_cut_step_allocates_nothing_after_the_first),
    TEST(sleeping_stages_keep_their_schedule),
  };
  return fixture_main("train_cuts", tests, sizeof tests / sizeof *tests);
}
