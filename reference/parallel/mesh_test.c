/* mesh_test.c - ranks and their places. */
#include "parallel/mesh.h"

#include "testing/check.h"

#include <stdlib.h>

static struct run_config layout(int pp, int dp, int tp)
{
  struct run_config c = {.pp = pp, .dp = dp, .tp = tp};
  return c;
}

static void tp_varies_fastest_then_dp_then_pp(void)
{
  const struct run_config c = layout(2, 3, 4);
  for (int rank = 0; rank < 24; rank++) {
    struct mesh m;
    CHECK_OK(mesh_create(&c, rank, 24, &m));
    CHECK(m.pp == 2 && m.dp == 3 && m.tp == 4);
    CHECK(m.tp_rank == rank % 4 && m.dp_rank == rank / 4 % 3 && m.pp_rank == rank / 12);
    CHECK(mesh_rank(&m, m.pp_rank, m.dp_rank, m.tp_rank) == rank);
  }
}

static void dp_groups_cut_the_world_into_equal_parts(void)
{
  const struct run_config c = layout(2, 3, 4);
  int seen[24] = {0};
  for (int rank = 0; rank < 24; rank++) {
    struct mesh m;
    int ranks[3];
    CHECK_OK(mesh_create(&c, rank, 24, &m));
    CHECK(mesh_dp_group(&m, ranks) == 3);
    CHECK(ranks[m.dp_rank] == rank && ranks[1] == ranks[0] + 4 && ranks[2] == ranks[1] + 4);
    for (int i = 0; i < 3; i++) seen[ranks[i]]++;
  }
  for (int rank = 0; rank < 24; rank++) CHECK(seen[rank] == 3);
}

static void a_job_of_another_size_is_refused(void)
{
  struct run_config c = layout(1, 2, 1);
  struct mesh m;
  CHECK_ERR(mesh_create(&c, 0, 3, &m), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "dp: 2");
  CHECK_TEXT_HAS(err_text(), "the job has 3");
  CHECK_ERR(mesh_create(&c, 2, 2, &m), ERR_ARG);
  CHECK_ERR(mesh_create(&c, -1, 2, &m), ERR_ARG);
  c = layout(-1, -2, 1);
  CHECK_ERR(mesh_create(&c, 0, 2, &m), ERR_CONFIG);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(tp_varies_fastest_then_dp_then_pp),
    TEST(dp_groups_cut_the_world_into_equal_parts),
    TEST(a_job_of_another_size_is_refused),
  };
  return test_main("mesh", tests, sizeof tests / sizeof *tests);
}
