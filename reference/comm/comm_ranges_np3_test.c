/* comm_ranges_np3_test.c - what collectives declare to touch: who forgets a wait is told, who needs
 * none is left alone. */
#include "comm/comm_fixture.h"

enum { N_OPS = 7 };
static const char *const op_names[N_OPS] = {"allreduce", "reduce_scatter", "allgather", "broadcast", "send", "recv", "exchange"};

/* Queues collective k: over `all`, over its parts `mine`, or `all` to and fro. */
static void queue(struct comm *c, int k, const struct tensor *all, const struct tensor *mine)
{
  const int rank = comm_rank(world);
  if (k == 0) CHECK_OK(comm_allreduce(c, all, COMM_SUM));
  if (k == 1) CHECK_OK(comm_reduce_scatter(c, mine, all, COMM_SUM));
  if (k == 2) CHECK_OK(comm_allgather(c, all, mine));
  if (k == 3) CHECK_OK(comm_broadcast(c, all, 0));
  if (k == 4 && rank == 0) CHECK_OK(comm_send(c, all, 1));
  if (k == 4 && rank == 1) CHECK_OK(comm_recv(c, all, 0));
  if (k == 5 && rank == 1) CHECK_OK(comm_send(c, all, 0));
  if (k == 5 && rank == 0) CHECK_OK(comm_recv(c, all, 1));
  if (k < 6) return;
  CHECK_OK(comm_group_start(c));
  CHECK_OK(comm_send(c, all, (rank + 1) % 3));
  CHECK_OK(comm_recv(c, mine, (rank + 2) % 3));
  CHECK_OK(comm_group_finish(c));
}

/* What collective k does here to `all` and to `mine`: 'r', 'w' or nothing. */
static char touches(int k, bool all)
{
  const int rank = comm_rank(world);
  if (k == 0) return all ? 'w' : 0;
  if (k == 1) return all ? 'r' : 'w';
  if (k == 2) return all ? 'w' : 'r';
  if (k == 3) return all ? (rank == 0 ? 'r' : 'w') : 0;
  if (k == 4) return all && rank < 2 ? (rank == 0 ? 'r' : 'w') : 0;
  if (k == 5) return all && rank < 2 ? (rank == 1 ? 'r' : 'w') : 0;
  return all ? 'r' : 'w';
}

/* The compute stream reads or writes a buffer that nothing orders with the collective. */
static void unordered(int k, bool all, bool writes)
{
  struct bench b;
  bench_open(&b, DEV_LAZY, (uint64_t)k);
  const struct comm_config config = {.name = "test"};
  struct comm *c = comm_of(&b, 0, &config);
  const int64_t rows = k == 6 ? 1 : 3;
  const struct tensor whole = matrix(&b, DTYPE_F32, rows, 8, false), part = matrix(&b, DTYPE_F32, 1, 8, false);
  const struct tensor *touched = all ? &whole : &part;
  float host[24];
  queue(c, k, &whole, &part);
  if (writes) CHECK_OK(dev_begin(b.compute, touched->at, 32));
  else CHECK_OK(dev_copy_out(b.compute, host, touched->at, 32));
  const char does = touches(k, all);
  const bool races = does == 'w' || (does == 'r' && writes);
  const enum err e = dev_sync(b.d);
  if (!CHECK(e == (races ? ERR_DEVICE : ERR_OK)))
    fprintf(stderr, "%s, %s %s: %s\n", op_names[k], all ? "all" : "mine", writes ? "written" : "read", err_text());
  mirror_free(b.d, part.at);
  mirror_free(b.d, whole.at);
  comm_destroy(c);
  bench_close(&b);
}

static void what_each_collective_touches_is_declared(void)
{
  for (int k = 0; k < N_OPS; k++)
    for (int way = 0; way < 4; way++) unordered(k, (way & 1) != 0, (way & 2) != 0);
}

static void scratch_is_declared_too(void)
{
  struct bench b;
  bench_open(&b, DEV_LAZY, 2);
  const struct comm_config config = {.name = "test", .reduce = COMM_ORDERED};
  struct comm *c = comm_of(&b, 0, &config);
  struct tensor t = matrix(&b, DTYPE_F32, 1, 8, false);
  fill(&t, 0, 0);
  CHECK_OK(comm_allreduce(c, &t, COMM_SUM));
  CHECK_OK(dev_begin(b.compute, c->b, 4));
  CHECK_ERR(mirror_sync(b.d), ERR_DEVICE);
  CHECK_TEXT_HAS(dev_findings(b.d), "allreduce");
  mirror_free(b.d, t.at);
  comm_destroy(c);
  bench_close(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(what_each_collective_touches_is_declared),
    TEST(scratch_is_declared_too),
  };
  return run_all("comm_ranges", tests, sizeof tests / sizeof *tests);
}
