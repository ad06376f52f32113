/* pipeline_np4_test.c - every schedule over 4 ranks. */
#include "parallel/pipeline_cases.h"

static void every_schedule_gives_the_sums_of_one_rank(void)
{
  for (int kind = 0; kind < SCHEDULES; kind++)
    for (int device = DEV_CPU; device < mirror_kinds(); device++)
      for (int m = 1; m <= 8; m += m < 4 ? 1 : 4) {
        const bool chunked = kind == SCHEDULE_INTERLEAVED;
        if (chunked && m % 4 != 0) continue;
        const struct setting set = {(enum dev_kind)device, (uint64_t)m, (enum schedule_kind)kind, 4, m, chunked ? 2 : 1, true, false, false};
        check_runs(&set);
      }
}

/* Receivers post late and sends wait for them, so a list that could lock would. */
static void transfers_waited_for_at_once_give_the_same_sums(void)
{
  for (int kind = 0; kind < SCHEDULES; kind++)
    for (int device = DEV_CPU; device < mirror_kinds(); device++)
      for (int m = 1; m <= 8; m = m < 4 ? m + 3 : 2 * m) {
        const bool chunked = kind == SCHEDULE_INTERLEAVED;
        if (chunked && m % 4 != 0) continue;
        const struct setting set = {(enum dev_kind)device, (uint64_t)m, (enum schedule_kind)kind, 4, m, chunked ? 2 : 1, true, false, true};
        check_runs(&set);
      }
}

/* Before each pass the compute stream has waited for every transfer that stands earlier. */
static void without_overlap_no_pass_runs_beside_a_transfer(void)
{
  for (int kind = 0; kind < SCHEDULES; kind++) {
    const struct setting set = {DEV_CPU, 1, (enum schedule_kind)kind, 4, 4, kind == SCHEDULE_INTERLEAVED ? 2 : 1, true, false, true};
    struct play p;
    int last[SCHEDULE_STREAMS] = {-1, -1, -1}, seen[SCHEDULE_STREAMS] = {-1, -1, -1}, passes = 0;
    open_play(&p, &set);
    for (int i = 0; i < p.pipeline->n_steps; i++) {
      const struct pipeline_step *step = &p.pipeline->steps[i];
      if (step->kind == PIPELINE_WAIT && step->stream == SCHEDULE_COMPUTE && step->event < p.s->n[p.stage])
        seen[schedule_stream_of(p.s->list[p.stage][step->event].pass)] = step->event;
      if (step->kind != PIPELINE_ACTION) continue;
      for (int k = SCHEDULE_OUTPUTS; k < SCHEDULE_STREAMS && step->stream == SCHEDULE_COMPUTE; k++) CHECK(seen[k] == last[k]);
      passes += step->stream == SCHEDULE_COMPUTE;
      last[step->stream] = step->action;
    }
    CHECK(passes > 0);
    close_play(&p);
  }
}

static void chunks_may_be_many_and_odd(void)
{
  for (int device = DEV_CPU; device < mirror_kinds(); device++) {
    const struct setting three = {(enum dev_kind)device, 5, SCHEDULE_INTERLEAVED, 4, 8, 3, true, false, false};
    check_runs(&three);
    const struct setting alone = {(enum dev_kind)device, 6, SCHEDULE_FORWARD, 4, 6, 2, true, false, false};
    check_runs(&alone);
  }
}

static void three_of_four_ranks_are_refused(void)
{
  struct play p;
  struct schedule *three = NULL;
  struct pipeline *none = NULL;
  const struct setting set = {DEV_CPU, 1, SCHEDULE_1F1B, 4, 4, 1, true, false, false};
  open_play(&p, &set);
  CHECK_OK(schedule_create(SCHEDULE_1F1B, 3, 4, 1, &three));
  CHECK_ERR(pipeline_create(three, comm_rank(world) % 3, true, p.compute, p.comms[0], p.comms[1], &none), ERR_ARG);
  CHECK_ERR(pipeline_create(p.s, (p.stage + 1) % 4, true, p.compute, p.comms[0], p.comms[1], &none), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "in comm 'outputs'");
  CHECK_ERR(pipeline_create(p.s, p.stage, true, p.compute, p.comms[0], p.comms[0], &none), ERR_ARG);
  CHECK_ERR(pipeline_create(p.s, p.stage, true, p.streams[1], p.comms[0], p.comms[1], &none), ERR_ARG);
  CHECK_ERR(pipeline_create(p.s, p.stage, true, p.compute, NULL, p.comms[1], &none), ERR_ARG);
  CHECK_ERR(pipeline_create(p.s, 4, true, p.compute, p.comms[0], p.comms[1], &none), ERR_ARG);
  CHECK(none == NULL);
  schedule_destroy(three);
  close_play(&p);
}

/* In `pass` such a meeting would hold back the gradient that the stage before needs to come to it. */
static void stages_can_meet_after_each_backward(void)
{
  for (int device = DEV_CPU; device < mirror_kinds(); device++)
    for (int kind = SCHEDULE_GPIPE; kind <= SCHEDULE_1F1B; kind++) {
      const struct setting set = {(enum dev_kind)device, 5, (enum schedule_kind)kind, 4, 6, 1, true, true, false};
      check_runs(&set);
    }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(stages_can_meet_after_each_backward),
    TEST(every_schedule_gives_the_sums_of_one_rank),
    TEST(transfers_waited_for_at_once_give_the_same_sums),
    TEST(without_overlap_no_pass_runs_beside_a_transfer),
    TEST(chunks_may_be_many_and_odd),
    TEST(three_of_four_ranks_are_refused),
  };
  return run_all("pipeline over 4 ranks", tests, sizeof tests / sizeof *tests);
}
