/* pipeline_np4_test.c - every schedule over 4 ranks. */
#include "parallel/pipeline_cases.h"

static void every_schedule_gives_the_sums_of_one_rank(void)
{
  for (int kind = 0; kind < SCHEDULES; kind++)
    for (int device = DEV_CPU; device <= DEV_LAZY; device++)
      for (int m = 1; m <= 8; m += m < 4 ? 1 : 4) {
        const bool chunked = kind == SCHEDULE_INTERLEAVED;
        if (chunked && m % 4 != 0) continue;
        const struct setting set = {(enum dev_kind)device, (uint64_t)m, (enum schedule_kind)kind, 4, m, chunked ? 2 : 1, true};
        check_runs(&set);
      }
}

static void chunks_may_be_many_and_odd(void)
{
  for (int device = DEV_CPU; device <= DEV_LAZY; device++) {
    const struct setting three = {(enum dev_kind)device, 5, SCHEDULE_INTERLEAVED, 4, 8, 3, true};
    check_runs(&three);
    const struct setting alone = {(enum dev_kind)device, 6, SCHEDULE_FORWARD, 4, 6, 2, true};
    check_runs(&alone);
  }
}

static void three_of_four_ranks_are_refused(void)
{
  struct play p;
  struct schedule *three = NULL;
  struct pipeline *none = NULL;
  const struct setting set = {DEV_CPU, 1, SCHEDULE_1F1B, 4, 4, 1, true};
  open_play(&p, &set);
  CHECK_OK(schedule_create(SCHEDULE_1F1B, 3, 4, 1, &three));
  CHECK_ERR(pipeline_create(three, comm_rank(world) % 3, p.compute, p.comms[0], p.comms[1], &none), ERR_ARG);
  CHECK_ERR(pipeline_create(p.s, (p.stage + 1) % 4, p.compute, p.comms[0], p.comms[1], &none), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "in comm 'outputs'");
  CHECK_ERR(pipeline_create(p.s, p.stage, p.compute, p.comms[0], p.comms[0], &none), ERR_ARG);
  CHECK_ERR(pipeline_create(p.s, p.stage, p.streams[1], p.comms[0], p.comms[1], &none), ERR_ARG);
  CHECK_ERR(pipeline_create(p.s, p.stage, p.compute, NULL, p.comms[1], &none), ERR_ARG);
  CHECK_ERR(pipeline_create(p.s, 4, p.compute, p.comms[0], p.comms[1], &none), ERR_ARG);
  CHECK(none == NULL);
  schedule_destroy(three);
  close_play(&p);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(every_schedule_gives_the_sums_of_one_rank),
    TEST(chunks_may_be_many_and_odd),
    TEST(three_of_four_ranks_are_refused),
  };
  return run_all("pipeline over 4 ranks", tests, sizeof tests / sizeof *tests);
}
