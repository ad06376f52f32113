/* mesh_test.c - ranks and their places, in every order. */
#include "parallel/mesh.h"

#include "testing/check.h"

#include <stdlib.h>
#include <string.h>

enum { P = 2, D = 3, T = 4, WORLD = P * D * T, ORDERS = 6 };

static struct run_config layout(int pp, int dp, int tp, int order)
{
  struct run_config c = {.pp = pp, .dp = dp, .tp = tp, .mesh_order = order};
  return c;
}

static void the_named_coordinate_varies_fastest(void)
{
  /* Strides of pp, dp, tp for 2 x 3 x 4 ranks, written out. */
  static const struct { const char *name; int pp, dp, tp; } want[ORDERS] = {
    {"tp-dp-pp", 12, 4, 1}, {"tp-pp-dp", 4, 8, 1}, {"dp-tp-pp", 12, 1, 3},
    {"dp-pp-tp", 3, 1, 6},  {"pp-tp-dp", 1, 8, 2}, {"pp-dp-tp", 1, 2, 6},
  };
  for (int order = 0; order < ORDERS; order++) {
    struct run_config c;
    config_default(&c);
    CHECK_OK(config_set(&c, "mesh_order", want[order].name));
    CHECK(c.mesh_order == order);
    c.pp = P;
    c.dp = D;
    c.tp = T;
    for (int rank = 0; rank < WORLD; rank++) {
      struct mesh m;
      CHECK_OK(mesh_create(&c, rank, WORLD, &m));
      CHECK(m.pp == P && m.dp == D && m.tp == T);
      CHECK(rank == m.pp_rank * want[order].pp + m.dp_rank * want[order].dp + m.tp_rank * want[order].tp);
      CHECK(m.pp_rank < P && m.dp_rank < D && m.tp_rank < T && m.pp_rank >= 0 && m.dp_rank >= 0 && m.tp_rank >= 0);
      CHECK(mesh_rank(&m, m.pp_rank, m.dp_rank, m.tp_rank) == rank);
    }
  }
}

/* Against the definition: every rank whose other coordinates are mine, and no other. */
static void groups_are_those_that_differ_along_the_axes_only(void)
{
  for (int order = 0; order < ORDERS; order++) {
    const struct run_config c = layout(P, D, T, order);
    for (unsigned axes = 0; axes < 8; axes++) {
      const int size = (axes & MESH_PP ? P : 1) * (axes & MESH_DP ? D : 1) * (axes & MESH_TP ? T : 1);
      int seen[WORLD] = {0};
      for (int rank = 0; rank < WORLD; rank++) {
        struct mesh m, other;
        int ranks[WORLD], mine = 0;
        CHECK_OK(mesh_create(&c, rank, WORLD, &m));
        CHECK(mesh_group(&m, axes, ranks) == size);
        for (int i = 0; i < size; i++) {
          CHECK(i == 0 || ranks[i] > ranks[i - 1]);
          CHECK_OK(mesh_create(&c, ranks[i], WORLD, &other));
          CHECK(axes & MESH_PP || other.pp_rank == m.pp_rank);
          CHECK(axes & MESH_DP || other.dp_rank == m.dp_rank);
          CHECK(axes & MESH_TP || other.tp_rank == m.tp_rank);
          if (axes == MESH_TP) CHECK(other.tp_rank == i);
          mine += ranks[i] == rank;
          seen[ranks[i]]++;
        }
        CHECK(mine == 1);
      }
      for (int rank = 0; rank < WORLD; rank++) CHECK(seen[rank] == size);
    }
  }
}

static void a_tensor_group_over_two_hosts_is_refused_unless_asked_for(void)
{
  struct run_config c = layout(2, 1, 2, MESH_ORDER_TP_DP_PP);
  const int filled[] = {7, 7, 3, 3}, dealt[] = {7, 3, 7, 3}, uneven[] = {7, 7, 7, 3};
  for (int rank = 0; rank < 4; rank++) {
    struct mesh m;
    c.mesh_order = MESH_ORDER_TP_DP_PP;
    c.tp_across_nodes = false;
    CHECK_OK(mesh_create(&c, rank, 4, &m));
    CHECK_OK(mesh_check_hosts(&m, &c, filled));
    CHECK_ERR(mesh_check_hosts(&m, &c, dealt), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), "tp: 2 puts ranks 0 and 1, of one tensor group, on different hosts; valid: ");
    CHECK_ERR(mesh_check_hosts(&m, &c, uneven), ERR_CONFIG); /* found on the ranks of the other group too */
    CHECK_TEXT_HAS(err_text(), "ranks 2 and 3");
    c.tp_across_nodes = true;
    CHECK_OK(mesh_check_hosts(&m, &c, dealt));
    c.tp_across_nodes = false;
    c.mesh_order = MESH_ORDER_PP_DP_TP;
    CHECK_OK(mesh_create(&c, rank, 4, &m));
    CHECK_OK(mesh_check_hosts(&m, &c, dealt));
    CHECK_ERR(mesh_check_hosts(&m, &c, filled), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), "ranks 0 and 2");
  }
}

static void a_job_of_another_size_is_refused(void)
{
  struct run_config c = layout(1, 2, 1, MESH_ORDER_TP_DP_PP);
  struct mesh m;
  CHECK_ERR(mesh_create(&c, 0, 3, &m), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "dp: 2");
  CHECK_TEXT_HAS(err_text(), "the job has 3");
  CHECK_ERR(mesh_create(&c, 2, 2, &m), ERR_ARG);
  CHECK_ERR(mesh_create(&c, -1, 2, &m), ERR_ARG);
  c = layout(-1, -2, 1, MESH_ORDER_TP_DP_PP);
  CHECK_ERR(mesh_create(&c, 0, 2, &m), ERR_CONFIG);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(the_named_coordinate_varies_fastest),
    TEST(groups_are_those_that_differ_along_the_axes_only),
    TEST(a_tensor_group_over_two_hosts_is_refused_unless_asked_for),
    TEST(a_job_of_another_size_is_refused),
  };
  return test_main("mesh", tests, sizeof tests / sizeof *tests);
}
