/* pmpi_shim_np3_test.c - every entry point of the shim counts its calls and its payload. */
#include "comm/comm_fixture.h"

#include <mpi.h>

static int32_t out[64], in[64];

static void saw(const char *call, int64_t calls, int64_t bytes)
{
  struct pmpi_count rows[32];
  const int n = pmpi_counts(rows, 32);
  bool found = n == 1 && strcmp(rows[0].call, call) == 0 && rows[0].calls == calls && rows[0].bytes == bytes;
  if (!CHECK(found)) fprintf(stderr, "%s: %d rows, %s %d calls %lld bytes\n", call, n, n ? rows[0].call : "", n ? (int)rows[0].calls : 0, n ? (long long)rows[0].bytes : 0);
  pmpi_restart();
}

/* A non-blocking call, completed; the request is the shim's last argument. */
#define COMPLETE(call, ...)                                                    \
  do {                                                                         \
    MPI_Request request;                                                       \
    CHECK(call(__VA_ARGS__, &request) == MPI_SUCCESS);                         \
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);               \
  } while (0)

#define W MPI_COMM_WORLD
#define I MPI_INT32_T

static void collectives_are_counted(void)
{
  const int counts[] = {1, 2, 3}, at[] = {0, 1, 3}, own = comm_rank(world) + 1, owns[] = {own, own, own}, own_at[] = {0, own, 2 * own};
  pmpi_restart();
  COMPLETE(MPI_Iallreduce, out, in, 7, I, MPI_SUM, W);
  saw("MPI_Iallreduce", 1, 28);
  CHECK(MPI_Allreduce(out, in, 7, I, MPI_SUM, W) == 0);
  saw("MPI_Allreduce", 1, 28);
  COMPLETE(MPI_Ireduce_scatter_block, out, in, 5, I, MPI_SUM, W);
  saw("MPI_Ireduce_scatter_block", 1, 60);
  CHECK(MPI_Reduce_scatter_block(out, in, 5, I, MPI_SUM, W) == 0);
  saw("MPI_Reduce_scatter_block", 1, 60);
  COMPLETE(MPI_Ireduce, out, in, 5, I, MPI_SUM, 0, W);
  saw("MPI_Ireduce", 1, 20);
  CHECK(MPI_Reduce(out, in, 5, I, MPI_SUM, 0, W) == 0);
  saw("MPI_Reduce", 1, 20);
  COMPLETE(MPI_Iallgather, out, 4, I, in, 4, I, W);
  saw("MPI_Iallgather", 1, 16);
  COMPLETE(MPI_Iallgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 4, I, W);
  saw("MPI_Iallgather", 1, 16);
  CHECK(MPI_Allgather(out, 4, I, in, 4, I, W) == 0);
  saw("MPI_Allgather", 1, 16);
  CHECK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 4, I, W) == 0);
  saw("MPI_Allgather", 1, 16);
  COMPLETE(MPI_Iallgatherv, out, own, I, in, counts, at, I, W);
  saw("MPI_Iallgatherv", 1, 4 * own);
  COMPLETE(MPI_Ialltoall, out, 2, I, in, 2, I, W);
  saw("MPI_Ialltoall", 1, 24);
  CHECK(MPI_Alltoall(out, 2, I, in, 2, I, W) == 0);
  saw("MPI_Alltoall", 1, 24);
  COMPLETE(MPI_Ialltoallv, out, counts, at, I, in, owns, own_at, I, W);
  saw("MPI_Ialltoallv", 1, 24);
  COMPLETE(MPI_Ibcast, in, 9, I, 1, W);
  saw("MPI_Ibcast", 1, 36);
  CHECK(MPI_Bcast(in, 9, I, 1, W) == 0);
  saw("MPI_Bcast", 1, 36);
  COMPLETE(MPI_Ibarrier, W);
  saw("MPI_Ibarrier", 1, 0);
  CHECK(MPI_Barrier(W) == 0);
  saw("MPI_Barrier", 1, 0);
}

/* To nobody, so that sizes beyond 32 bits need no memory. */
static void messages_are_counted_in_64_bits(void)
{
  const int n = 1 << 30;
  const int64_t bytes = (int64_t)n * 8;
  pmpi_restart();
  COMPLETE(MPI_Isend, out, n, MPI_DOUBLE, MPI_PROC_NULL, 0, W);
  saw("MPI_Isend", 1, bytes);
  COMPLETE(MPI_Issend, out, n, MPI_DOUBLE, MPI_PROC_NULL, 0, W);
  saw("MPI_Issend", 1, bytes);
  COMPLETE(MPI_Irecv, in, n, MPI_DOUBLE, MPI_PROC_NULL, 0, W);
  saw("MPI_Irecv", 1, bytes);
  CHECK(MPI_Send(out, n, MPI_DOUBLE, MPI_PROC_NULL, 0, W) == 0);
  saw("MPI_Send", 1, bytes);
  CHECK(MPI_Ssend(out, n, MPI_DOUBLE, MPI_PROC_NULL, 0, W) == 0);
  saw("MPI_Ssend", 1, bytes);
  CHECK(MPI_Recv(in, n, MPI_DOUBLE, MPI_PROC_NULL, 0, W, MPI_STATUS_IGNORE) == 0);
  saw("MPI_Recv", 1, bytes);
  for (int i = 0; i < 3; i++) CHECK(MPI_Send(out, n, MPI_DOUBLE, MPI_PROC_NULL, 0, W) == 0);
  saw("MPI_Send", 3, 3 * bytes);
}

static void communicators_left_out_are_not_counted(void)
{
  MPI_Comm other;
  struct pmpi_count row;
  CHECK(MPI_Comm_dup(W, &other) == 0);
  pmpi_restart();
  CHECK(MPI_Barrier(other) == 0);
  saw("MPI_Barrier", 1, 0);
  pmpi_ignore((int)MPI_Comm_c2f(other));
  CHECK(MPI_Barrier(other) == 0);
  CHECK(pmpi_counts(&row, 1) == 0);
  CHECK(MPI_Barrier(W) == 0);
  CHECK(MPI_Send(out, 1, I, MPI_PROC_NULL, 0, W) == 0);
  CHECK(pmpi_counts(&row, 0) == 0 && pmpi_counts(&row, 1) == 1);
  CHECK(MPI_Comm_free(&other) == 0);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(collectives_are_counted),
    TEST(messages_are_counted_in_64_bits),
    TEST(communicators_left_out_are_not_counted),
  };
  return run_all("pmpi_shim", tests, sizeof tests / sizeof *tests);
}
