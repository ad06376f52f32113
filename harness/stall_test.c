/* stall_test.c - sentences about who is behind, from slots alone. */
#include "harness/stall.h"
#include "testing/check.h"

#include <stdio.h>
#include <string.h>

/* A rank in `step` that has started `started` and finished `done` collectives of a group. */
static struct stall_rank rank_at(int rank, char state, int64_t step, const char *group, int64_t started, int64_t done)
{
  struct stall_rank r = {.rank = rank, .pid = 100 + rank, .step = step, .state = state};
  snprintf(r.comms[0].name, SLOT_NAME, "%s", group);
  snprintf(r.comms[0].op, SLOT_NAME, "allreduce");
  r.comms[0].started = started;
  r.comms[0].done = done;
  r.comms[0].step = step;
  return r;
}

static const char *said(const struct stall_rank *r, int n)
{
  static char text[1024];
  stall_sentence(r, n, text, sizeof text);
  return text;
}

static void a_stopped_rank_is_named_and_the_others_wait(void)
{
  const struct stall_rank r[] = {rank_at(0, 'S', 3, "dp", 12, 11), rank_at(1, 'T', 3, "dp", 11, 11), rank_at(2, 'R', 3, "dp", 12, 11)};
  const char *text = said(r, 3);
  CHECK_TEXT_HAS(text, "rank 1 is stopped (SIGSTOP) at dp #11 in step 3");
  CHECK_TEXT_HAS(text, "the others wait in dp #12 allreduce, step 3");
}

static void a_rank_that_is_late_is_behind(void)
{
  const struct stall_rank r[] = {rank_at(0, 'S', 2, "dp", 9, 9), rank_at(1, 'S', 3, "dp", 12, 11)};
  CHECK_TEXT_HAS(said(r, 2), "rank 0 is behind at dp #9 in step 2; rank 1 waits in dp #12 allreduce, step 3");
}

static void a_rank_that_is_gone_or_done_is_told_apart(void)
{
  struct stall_rank r[] = {rank_at(0, '-', 1, "dp", 4, 4), rank_at(1, 'S', 3, "dp", 12, 11)};
  CHECK_TEXT_HAS(said(r, 2), "rank 0 is gone");
  snprintf(r[0].phase, SLOT_NAME, "done");
  CHECK_TEXT_HAS(said(r, 2), "rank 0 has finished");
}

static void different_groups_are_both_named(void)
{
  const struct stall_rank r[] = {rank_at(0, 'S', 1, "dp", 5, 4), rank_at(1, 'S', 1, "sums", 3, 2)};
  CHECK_TEXT_HAS(said(r, 2), "dp #5");
  CHECK_TEXT_HAS(said(r, 2), "sums #3");
}

static void all_in_one_collective_is_said_so(void)
{
  const struct stall_rank r[] = {rank_at(0, 'S', 1, "dp", 5, 4), rank_at(1, 'S', 1, "dp", 5, 4)};
  CHECK_TEXT_HAS(said(r, 2), "all 2 ranks wait in dp #5 allreduce");
}

static void without_slots_nothing_is_claimed(void)
{
  struct stall_rank *list;
  CHECK(said(NULL, 0)[0] == '\0');
  CHECK(stall_read("/nonexistent", &list) == 0 && list == NULL);
  CHECK(stall_beats("/nonexistent") == 0);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_stopped_rank_is_named_and_the_others_wait), TEST(a_rank_that_is_late_is_behind),
    TEST(a_rank_that_is_gone_or_done_is_told_apart),   TEST(different_groups_are_both_named),
    TEST(all_in_one_collective_is_said_so),            TEST(without_slots_nothing_is_claimed),
  };
  return test_main("stall", tests, sizeof tests / sizeof *tests);
}
