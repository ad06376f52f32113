/* pipeline_np4_test.c - every schedule over 4 ranks. */
#include "parallel/pipeline_cases.h"

static void every_schedule_gives_the_sums_of_one_rank(void)
{
  for (int kind = 0; kind < SCHEDULES; kind++)
    for (int device = DEV_CPU; device < mirror_kinds(); device++)
      for (int m = 1; m <= 8; m += m < 4 ? 1 : 4) {
        const bool chunked = kind == SCHEDULE_INTERLEAVED;
        if (chunked && m % 4 != 0) continue;
        const struct setting set = {(enum dev_kind)device, (uint64_t)m, (enum schedule_kind)kind, 4, m, chunked ? 2 : 1, true, false};
        check_runs(&set);
      }
}

static void chunks_may_be_many_and_odd(void)
{
  for (int device = DEV_CPU; device < mirror_kinds(); device++) {
    const struct setting three = {(enum dev_kind)device, 5, SCHEDULE_INTERLEAVED, 4, 8, 3, true, false};
    check_runs(&three);
    const struct setting alone = {(enum dev_kind)device, 6, SCHEDULE_FORWARD, 4, 6, 2, true, false};
    check_runs(&alone);
  }
}

static void three_of_four_ranks_are_refused(void)
{
  struct play p;
  struct schedule *three = NULL;
  struct pipeline *none = NULL;
  const struct setting set = {DEV_CPU, 1, SCHEDULE_1F1B, 4, 4, 1, true, false};
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

/* In `pass` such a meeting would hold back the gradient that the stage before needs to come to it. */
static void stages_can_meet_after_each_backward(void)
{
  for (int device = DEV_CPU; device < mirror_kinds(); device++)
    for (int kind = SCHEDULE_GPIPE; kind <= SCHEDULE_1F1B; kind++) {
      const struct setting set = {(enum dev_kind)device, 5, (enum schedule_kind)kind, 4, 6, 1, true, true};
      check_runs(&set);
    }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(stages_can_meet_after_each_backward),
    TEST(every_schedule_gives_the_sums_of_one_rank),
    TEST(chunks_may_be_many_and_odd),
    TEST(three_of_four_ranks_are_refused),
  };
  return run_all("pipeline over 4 ranks", tests, sizeof tests / sizeof *tests);
}
