/* bare_np3_test.c - bare sums are sums, in the order given, and say how long they took. */
#include "comm/bare.h"
#include "base/clock.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>

static struct comm_world *world;

static void sums_under_way_are_done_after_the_wait(void)
{
  enum { N = 300, EACH = 17 };
  struct bare *b = NULL;
  static float at[N][EACH];
  const int n = comm_size(world), me = comm_rank(world);
  if (!CHECK_OK(bare_create(world, &b))) return;
  for (int round = 0; round < 2; round++) {
    struct bare_times times = {-1, -1};
    for (int i = 0; i < N; i++)
      for (int k = 0; k < EACH; k++) at[i][k] = (float)(i + k + me);
    for (int i = 0; i < N; i++) CHECK_OK(bare_sum(b, at[i], EACH, DTYPE_F32, round == 1));
    CHECK_OK(bare_wait(b, &times));
    CHECK(times.ms > 0 && times.processor_ms > 0 && times.processor_ms <= times.ms);
    for (int i = 0; i < N; i++)
      for (int k = 0; k < EACH; k++) CHECK(at[i][k] == (float)(n * (i + k) + n * (n - 1) / 2));
  }
  bare_destroy(b);
}

/* Rank 0 comes late: whoever is aligned begins with it, so the wait for it is no time of a sum. */
static void an_aligned_sum_does_not_count_the_wait_for_others(void)
{
  struct bare *b = NULL;
  double at = 1;
  struct bare_times aligned = {-1, -1}, late = {-1, -1};
  if (!CHECK_OK(bare_create(world, &b))) return;
  for (int way = 0; way < 2; way++) {
    CHECK_OK(bare_meet(b));
    if (comm_rank(world) == 0) clock_sleep_ms(200);
    CHECK_OK(bare_sum(b, &at, 1, DTYPE_F64, way == 1));
    CHECK_OK(bare_wait(b, way == 1 ? &aligned : &late));
  }
  CHECK(at == comm_size(world) * comm_size(world));
  if (comm_rank(world) != 0) CHECK(late.ms > 100);
  if (comm_rank(world) != 0) CHECK(aligned.ms < late.ms);
  if (comm_rank(world) != 0) CHECK(late.processor_ms < late.ms / 2); /* naps are not work */
  bare_destroy(b);
}

static void what_does_not_fit_is_refused(void)
{
  struct bare *b = NULL;
  double at = 0;
  struct bare_times times;
  if (!CHECK_OK(bare_create(world, &b))) return;
  CHECK_ERR(bare_sum(b, &at, -1, DTYPE_F64, false), ERR_ARG);
  CHECK_ERR(bare_sum(b, &at, (int64_t)1 << 40, DTYPE_F64, false), ERR_ARG);
  CHECK_OK(bare_wait(b, &times));
  CHECK(times.ms == 0 && times.processor_ms == 0);
  bare_destroy(b);
  bare_destroy(NULL);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(sums_under_way_are_done_after_the_wait),
    TEST(an_aligned_sum_does_not_count_the_wait_for_others),
    TEST(what_does_not_fit_is_refused),
  };
  if (comm_world_open(&world) != ERR_OK) {
    fprintf(stderr, "%s\n", err_text());
    return 1;
  }
  const int status = test_main("bare sums", tests, sizeof tests / sizeof *tests);
  comm_world_close(world);
  return status;
}
