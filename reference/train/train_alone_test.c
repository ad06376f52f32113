/* train_alone_test.c - a trainer that was built without MPI: one rank as ever, more are refused. */
#include "train/train_fixture.h"

static void one_rank_trains_as_with_mpi(void)
{
  fixture_run("alone", "steps: 2\ndump: gradients");
  if (!CHECK(TRAIN(1, "alone") == 0)) return;
  json_t *r = fixture_records("alone");
  CHECK(fixture_real(r, "run", 0, -1, "got.ranks") == 1.0);
  CHECK(fixture_real(r, "step", 0, 0, "got.loss") > fixture_real(r, "step", 0, 1, "got.loss"));
  CHECK(fixture_find(r, "trace", 0, 1, 0) != NULL);
  CHECK(fixture_find(r, "shim", 0, -1, 0) == NULL);
  const json_t *done = fixture_find(r, "done", 0, -1, 0);
  CHECK(done != NULL && strcmp(record_get_text(done, "got.error"), "") == 0);
  json_decref(r);
}

/* Contiguous and strided, of every type. */
static void collectives_of_one_are_right(void)
{
  fixture_run("collectives", "task: comm\nsize: 4096\nrepeats: 1");
  if (!CHECK(TRAIN(1, "collectives") == 0)) return;
  json_t *r = fixture_records("collectives");
  for (int i = 0; i < 7; i++) {
    const json_t *m = fixture_find(r, "measure", 0, -1, i);
    CHECK(m != NULL && record_get_int(m, "got.wrong", -1) == 0);
  }
  json_decref(r);
}

static void more_ranks_are_refused(void)
{
  fixture_run("two", "dp: 2");
  CHECK(TRAIN(1, "two") == 2);
  CHECK_TEXT_HAS(fixture_output(), "dp * tp * pp = 2 ranks, the job has 1 (a build without MPI)");
}

/* Started by an mpirun all the same, two of them would train the same model side by side. */
static void a_launcher_of_several_is_noticed(void)
{
  fixture_run("launched", "steps: 1");
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  CHECK(TRAIN(1, "launched") == 3);
  unsetenv("OMPI_COMM_WORLD_SIZE");
  CHECK_TEXT_HAS(fixture_output(), "a build without MPI sees each of them as a world of one");
}

int main(void)
{
  static const struct test tests[] = {
    TEST(one_rank_trains_as_with_mpi),
    TEST(collectives_of_one_are_right),
    TEST(more_ranks_are_refused),
    TEST(a_launcher_of_several_is_noticed),
  };
  return fixture_main("train_alone", tests, sizeof tests / sizeof *tests);
}
