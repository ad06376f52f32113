/* train_refuse_test.c - bad input and bad places end early, with the reason and the right status. */
#include "train/train_fixture.h"

static void refuses(int ranks, const char *settings, int status, const char *words)
{
  fixture_run("refused", settings);
  CHECK(TRAIN(ranks, "refused") == status);
  CHECK_TEXT_HAS(fixture_output(), words);
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s/refused", fixture_dir);
  CHECK(system(command) == 0);
}

static void what_a_run_file_says_is_checked_before_any_work(void)
{
  refuses(1, "stepz: 3", 2, "stepz");
  refuses(1, "corpus: /nowhere/at/all\nvocab: 256", 2, "corpus: '/nowhere/at/all'");
  refuses(1, "corpus: /etc", 2, "vocab: 131");
  refuses(1, "precision: tf32", 2, "precision: tf32 is a mode of GPUs, but device is cpu; valid: float64, float32, bf16");
  refuses(1, "dp: 2", 2, "dp * tp * pp = 2 ranks, the job has 1");
  refuses(1, "fault: ln-ga-mean-of-mean", 2, "ln-ga-mean-of-means");
  refuses(2, "dp: 1", 2, "dp * tp * pp = 1 ranks, the job has 2");
}

static void check_needs_no_ranks(void)
{
  fixture_run("four", "dp: 3\nglobal_batch: 12\nmicro_batch: 2");
  CHECK(TRAIN(1, "--check", "four") == 0);
  CHECK_TEXT_HAS(fixture_output(), "four.yaml: ok, 3 ranks");
  fixture_run("bad", "global_batch: 7\nmicro_batch: 2");
  CHECK(TRAIN(1, "--check", "four", "bad") == 2);
  CHECK_TEXT_HAS(fixture_output(), "bad.yaml: global_batch: 7"); /* of two files, which */
  fixture_run("name", "frozen: nothing");
  CHECK(TRAIN(1, "--check", "name") == 2);
  CHECK_TEXT_HAS(fixture_output(), "name.yaml: frozen: 'nothing' is part of no parameter's name");
  CHECK(TRAIN(1, "--check") == 2);
  CHECK(TRAIN(1, "--set=steps", "four") == 2);
  CHECK_TEXT_HAS(fixture_output(), "key=value");
}

static void settings_go_over_the_file(void)
{
  fixture_run("over", "steps: 9");
  if (!CHECK(TRAIN(1, "--set=steps=1", "--set=dump=gradients", "over") == 0)) return;
  json_t *r = fixture_records("over");
  CHECK(fixture_real(r, "run", 0, -1, "set.steps") == 1.0);
  CHECK(fixture_find(r, "step", 0, 0, 0) != NULL && fixture_find(r, "step", 0, 1, 0) == NULL);
  json_decref(r);
}

static void records_are_never_overwritten(void)
{
  fixture_run("once", "steps: 1");
  CHECK(TRAIN(1, "once") == 0);
  CHECK(TRAIN(1, "once") == 2);
  CHECK_TEXT_HAS(fixture_output(), "already holds records of a run");
}

/* Category and owner that failed, rank, bytes wanted, bytes held, and who holds most. */
static void memory_that_is_not_there_is_named_whole(void)
{
  refuses(1, "model: gpt3-175b\nlayers: 96\nsequence: 64\nread_ahead: 0", 3,
          "rank 0: parameters 'weights': no memory for 698417037312 bytes beside the 12336 held (host: ");
}

/* The second of three runs cannot be trained; it says so and the third goes on. */
static void one_refused_run_leaves_the_others(void)
{
  fixture_run("before", "dp: 2\nsteps: 1");
  fixture_run("between", "dp: 2\nsteps: 1\nweights: /nowhere.safetensors");
  fixture_run("after", "dp: 2\nsteps: 1");
  CHECK(TRAIN(2, "before", "between", "after") == 3); /* ERR_IO */
  CHECK_TEXT_HAS(fixture_output(), "/nowhere.safetensors");
  json_t *r = fixture_records("between");
  for (int rank = 0; rank < 2; rank++) {
    const json_t *done = fixture_find(r, "done", rank, -1, 0);
    CHECK(done != NULL && strcmp(record_get_text(done, "got.error_kind"), "io") == 0);
    CHECK(done != NULL && strstr(record_get_text(done, "got.error"), "/nowhere.safetensors") != NULL);
  }
  json_decref(r);
  r = fixture_records("after");
  CHECK(fixture_find(r, "step", 1, 0, 0) != NULL);
  json_decref(r);
}

static void a_place_that_cannot_be_written_is_named(void)
{
  fixture_run("nowhere", "steps: 1");
  CHECK(TRAIN(1, "--set=out=/proc/no/such", "nowhere") == 3);
  CHECK_TEXT_HAS(fixture_output(), "out: /proc/no");
}

int main(void)
{
  static const struct test tests[] = {
    TEST(what_a_run_file_says_is_checked_before_any_work),
    TEST(check_needs_no_ranks),
    TEST(settings_go_over_the_file),
    TEST(records_are_never_overwritten),
    TEST(memory_that_is_not_there_is_named_whole),
    TEST(one_refused_run_leaves_the_others),
    TEST(a_place_that_cannot_be_written_is_named),
  };
  return fixture_main("train_refuse", tests, sizeof tests / sizeof *tests);
}
