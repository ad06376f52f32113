/* train_policies_test.c - the loss of an epoch is the same under every policy; bad data ends every rank alike. */
#include "train/train_fixture.h"

#include <math.h>

enum { KINDS = 6 };

/* float64, no update: the sum over one epoch is the corpus's.  Of terms of 2 or 3 nats each its rounding is below 1e-13 of it. */
static void an_epoch_has_the_same_loss_under_every_policy(void)
{
  static const char *const kinds[KINDS] = {"policy: chunked", "policy: bucketed\ntail: reshape", "policy: balanced\ncost_c: 0.1",
                                           "policy: packed\npacking: shortest-pack-first",
                                           "policy: packed\npacking: best-fit\npack_limit: 4", "policy: packed\npacking: first-fit"};
  static const char *const names[KINDS] = {"chunked", "bucketed", "balanced", "shortest", "best", "first"};
  for (int i = 0; i < KINDS; i++) {
    char settings[320];
    snprintf(settings, sizeof settings,
             "%s\n%sprecision: float64\nlr: 0\nweight_decay: 0\noptimizer: sgd\ndocuments: 60\nlengths: lognormal\nsteps: 6",
             kinds[i], strstr(kinds[i], "tail") ? "" : "tail: pad\n");
    fixture_run(names[i], settings);
  }
  if (!CHECK(TRAIN(1, "chunked", "bucketed", "balanced", "shortest", "best", "first") == 0)) {
    fputs(fixture_output(), stderr);
    return;
  }
  double want = 0, tokens = 0, steps_of[KINDS];
  for (int i = 0; i < KINDS; i++) {
    json_t *r = fixture_records(names[i]);
    const double sequences = fixture_real(r, "data", 0, -1, "got.sequences");
    double sum = 0, valid = 0;
    steps_of[i] = ceil(sequences / 12);
    CHECK(steps_of[i] > 1 && steps_of[i] <= 6);
    for (int64_t step = 0; step < (int64_t)steps_of[i]; step++) {
      sum += fixture_real(r, "step", 0, step, "got.loss_sum");
      valid += fixture_real(r, "step", 0, step, "got.valid_tokens");
    }
    if (i == 0) want = sum, tokens = valid;
    CHECK(valid == tokens);
    CHECK_NEAR(sum, want, 1e-12 * want);
    CHECK(fixture_real(r, "data", 0, -1, "got.longer") > 0);
    json_decref(r);
  }
  CHECK(steps_of[4] < steps_of[0]); /* packed into fewer sequences */
}

/* float64: passes that leave out what is beyond the longest sequence of their micro-batch give the losses and norms of passes
 * that compute it, under every cut; sums over fewer rows are other sums, to 1e-12. */
static void narrow_passes_learn_the_same(void)
{
  static const char *const cuts[] = {"", "recompute: full", "tp: 2\nsequence_parallel: true", "pp: 2\nschedule: zb-h1", "pp: 2\nschedule: gpipe\nrecompute: selective",
                                     "dp: 2\nzero: 3\ndevice: lazy\npoison_end: true"};
  enum { CUTS = sizeof cuts / sizeof *cuts };
  char names[CUTS][2][16];
  for (int i = 0; i < CUTS; i++)
    for (int narrow = 0; narrow < 2; narrow++) {
      char settings[320];
      snprintf(names[i][narrow], sizeof names[i][narrow], "%s%d", narrow ? "narrow" : "wide", i);
      snprintf(settings, sizeof settings,
               "precision: float64\nsteps: 3\npositions: 64\ndropout: 0.1\nlengths: lognormal\npolicy: bucketed\ndocuments: 60\nevaluate_each: 2\nnarrow: %s\n%s",
               narrow ? "true" : "false", cuts[i]);
      fixture_run(names[i][narrow], settings);
    }
  if (!CHECK(TRAIN(1, names[0][0], names[0][1], names[1][0], names[1][1]) == 0)) {
    fputs(fixture_output(), stderr);
    return;
  }
  if (!CHECK(TRAIN(2, names[2][0], names[2][1], names[3][0], names[3][1], names[4][0], names[4][1], names[5][0], names[5][1]) == 0)) {
    fputs(fixture_output(), stderr);
    return;
  }
  for (int i = 0; i < CUTS; i++) {
    json_t *wide = fixture_records(names[i][0]), *narrow = fixture_records(names[i][1]);
    double least = INFINITY;
    for (int64_t step = 0; step < 3; step++) {
      const double loss = fixture_real(wide, "step", 0, step, "got.loss_sum"), norm = fixture_real(wide, "step", 0, step, "got.norm");
      CHECK(fixture_real(narrow, "step", 0, step, "got.valid_tokens") == fixture_real(wide, "step", 0, step, "got.valid_tokens"));
      CHECK_NEAR(fixture_real(narrow, "step", 0, step, "got.loss_sum"), loss, 1e-12 * loss);
      CHECK_NEAR(fixture_real(narrow, "step", 0, step, "got.norm"), norm, 1e-12 * norm);
      least = fmin(least, fixture_real(narrow, "batch", 0, step, "got.width"));
    }
    CHECK_NEAR(fixture_real(narrow, "eval", 0, 2, "got.loss"), fixture_real(wide, "eval", 0, 2, "got.loss"), 1e-11);
    CHECK(least < 64); /* some were cut */
    json_decref(wide);
    json_decref(narrow);
  }
}

/* Two of four ranks have no token in any step; they take part in all of it, and what they hold stays equal. */
static void ranks_without_tokens_take_part(void)
{
  fixture_run("starved", "dp: 4\ndocuments: 5\ndocuments_each: 1\nmicro_batch: 1\ntail: pad\nlengths: fixed\nsteps: 2\nevaluate_each: 1");
  fixture_run("alone", "documents: 5\ndocuments_each: 1\nmicro_batch: 1\ntail: pad\nlengths: fixed\nsteps: 2\nevaluate_each: 1");
  if (!CHECK(TRAIN(4, "starved") == 0) || !CHECK(TRAIN(1, "alone") == 0)) {
    fputs(fixture_output(), stderr);
    return;
  }
  json_t *four = fixture_records("starved"), *one = fixture_records("alone");
  for (int64_t step = 0; step < 2; step++) {
    const double loss = fixture_real(one, "step", 0, step, "got.loss");
    for (int rank = 0; rank < 4; rank++) CHECK_NEAR(fixture_real(four, "step", rank, step, "got.loss"), loss, 1e-5 * loss);
    CHECK(fixture_real(four, "batch", 3, step, "got.tokens") == 0);
  }
  json_decref(four);
  json_decref(one);
}

/* A token beyond the vocabulary is read by one rank of two, in some step; the job ends with status 2 all the same. */
static void bad_data_ends_every_rank(void)
{
  char path[256], settings[512];
  unsigned char lines[200];
  memset(lines, 'x', sizeof lines);
  snprintf(path, sizeof path, "%s/broken.jsonl", fixture_dir);
  FILE *f = fopen(path, "w");
  if (!CHECK(f != NULL)) return;
  for (int i = 0; i < 3; i++) fprintf(f, "{\"text\": \"%.*s\"}\n", 150, (const char *)lines);
  fputs("{\"text\": \"cut", f);
  fclose(f);
  snprintf(settings, sizeof settings, "dp: 2\nvocab: 256\ncorpus: %s", path);
  fixture_run("broken", settings);
  CHECK(TRAIN(2, "broken") == 2);
  CHECK_TEXT_HAS(fixture_output(), "broken.jsonl:4: a string that does not end; valid: {\"text\": \"...\"} in each line");

  struct { int32_t header[256]; uint16_t tokens[200]; } file = {{20240520, 1, 200}, {0}};
  snprintf(path, sizeof path, "%s/tokens.bin", fixture_dir);
  for (int i = 0; i < 200; i++) file.tokens[i] = (uint16_t)(i % 131);
  f = fopen(path, "w");
  if (!CHECK(f != NULL)) return;
  CHECK(fwrite(&file, 1, 1024 + 400, f) == 1024 + 400);
  fclose(f);
  snprintf(settings, sizeof settings, "dp: 2\npolicy: chunked\ntail: drop\ncorpus: %s", path);
  fixture_run("small", settings); /* nine sequences */
  CHECK(TRAIN(2, "small") == 2);
  CHECK_TEXT_HAS(fixture_output(), "global_batch: 12 sequences, but the corpus makes 9 in an epoch");
}

/* Megatron-LM's data is checked when a token is read: by the rank that reads it. */
static void a_token_beyond_the_vocabulary_ends_the_job(void)
{
  char path[256], settings[512];
  const int64_t version = 1, one = 1, two = 2, zero = 0;
  const int32_t length = 700;
  uint16_t tokens[700];
  for (int i = 0; i < 700; i++) tokens[i] = (uint16_t)(i == 555 ? 131 : i % 131);
  snprintf(path, sizeof path, "%s/x.idx", fixture_dir);
  FILE *f = fopen(path, "w");
  if (!CHECK(f != NULL)) return;
  fwrite("MMIDIDX\0", 1, 9, f);
  fwrite(&version, 8, 1, f);
  fputc(8, f);
  fwrite(&one, 8, 1, f);
  fwrite(&two, 8, 1, f);
  fwrite(&length, 4, 1, f);
  fwrite(&zero, 8, 1, f);
  fwrite(&zero, 8, 1, f);
  fwrite(&one, 8, 1, f);
  fclose(f);
  snprintf(path, sizeof path, "%s/x.bin", fixture_dir);
  f = fopen(path, "w");
  if (!CHECK(f != NULL)) return;
  fwrite(tokens, 1, sizeof tokens, f);
  fclose(f);
  snprintf(settings, sizeof settings, "dp: 2\npolicy: chunked\nsteps: 3\ncorpus: %s/x", fixture_dir);
  fixture_run("beyond", settings);
  CHECK(TRAIN(2, "beyond") == 2);
  CHECK_TEXT_HAS(fixture_output(), "vocab: 131; token 555 of document 0 of corpus");
}

/* A document cut short after the corpus was opened: read ahead by a thread, told by the step that needed it. */
static void a_file_that_changes_ends_the_step_that_needed_it(void)
{
  char settings[320], command[256];
  snprintf(command, sizeof command, "mkdir %s/texts && for i in 1 2 3 4; do head -c 300 /dev/zero | tr '\\0' x > %s/texts/$i; done", fixture_dir, fixture_dir);
  if (!CHECK(system(command) == 0)) return;
  /* in the order of the corpus three steps of four sequences; the last reads the fourth document, which is short by then */
  snprintf(settings, sizeof settings, "model: tiny256\nlayers: 1\npolicy: chunked\nshuffle: false\nsequence: 100\nglobal_batch: 4\nsteps: 3\n"
           "read_ahead: 1\nread_delay_ms: 1500\ncorpus: %s/texts", fixture_dir);
  fixture_run("changed", settings);
  const pid_t job = fixture_start(1, (const char *const[]){"changed", NULL});
  snprintf(command, sizeof command, "grep -q '\"microbatch\"' %s/changed/rank0.jsonl 2>/dev/null", fixture_dir); /* of the first step, of 1.5 s */
  for (int tries = 0; tries < 1000 && system(command) != 0; tries++) usleep(10000);
  snprintf(command, sizeof command, "printf x > %s/texts/4", fixture_dir);
  CHECK(system(command) == 0);
  CHECK(fixture_wait(job) != 0);
  CHECK_TEXT_HAS(fixture_output(), "texts/4: 300 bytes when listed, now 1");
  json_t *r = fixture_records("changed");
  CHECK(fixture_find(r, "step", 0, 1, 0) != NULL && fixture_find(r, "step", 0, 2, 0) == NULL);
  json_decref(r);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(an_epoch_has_the_same_loss_under_every_policy),
    TEST(narrow_passes_learn_the_same),
    TEST(ranks_without_tokens_take_part),
    TEST(bad_data_ends_every_rank),
    TEST(a_file_that_changes_ends_the_step_that_needed_it),
    TEST(a_token_beyond_the_vocabulary_ends_the_job),
  };
  return fixture_main("train_policies", tests, sizeof tests / sizeof *tests);
}
