/* host_nccl_np3_test.c - the stand-in of NCCL on 3 ranks, each on a device of its own. */
#include "testing/check.h"

#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3, COUNT = 5 };

#define CHECK_CUDA(call) CHECK((call) == cudaSuccess)
#define CHECK_NCCL(call) CHECK((call) == ncclSuccess)

static int rank;
static cudaStream_t stream, other;

static ncclResult_t connect_on(int device, ncclComm_t *out)
{
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  if (rank == 0) CHECK_NCCL(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  CHECK_CUDA(cudaSetDevice(device));
  const ncclResult_t result = ncclCommInitRank(out, N, id, rank);
  CHECK_CUDA(cudaSetDevice(rank));
  return result;
}

static ncclComm_t connect(void)
{
  ncclComm_t comm = NULL;
  CHECK_NCCL(connect_on(rank, &comm));
  return comm;
}

static void *device_memory(const void *from, size_t bytes)
{
  void *at = NULL;
  CHECK_CUDA(cudaMalloc(&at, bytes));
  if (from) CHECK_CUDA(cudaMemcpyAsync(at, from, bytes, cudaMemcpyHostToDevice, stream));
  return at;
}

static void fetch(void *to, const void *from, size_t bytes)
{
  CHECK_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
}

/* --- collectives ------------------------------------------------------------ */

#define SUMS_OF(T, type, value, expected)                                                            \
  do {                                                                                               \
    T mine[COUNT], got[COUNT];                                                                       \
    for (int i = 0; i < COUNT; i++) mine[i] = (T)(value);                                            \
    T *at = device_memory(mine, sizeof mine);                                                        \
    CHECK_NCCL(ncclAllReduce(at, at, COUNT, type, ncclSum, comm, stream));                           \
    fetch(got, at, sizeof got);                                                                      \
    for (int i = 0; i < COUNT; i++) CHECK(got[i] == (T)(expected));                                  \
    CHECK_CUDA(cudaFree(at));                                                                        \
  } while (0)

static void all_reduce_adds_every_type(void)
{
  ncclComm_t comm = connect();
  SUMS_OF(double, ncclFloat64, rank + 0.25 * i, 3 + 0.75 * i);
  SUMS_OF(float, ncclFloat32, rank + 0.25 * i, 3 + 0.75 * i);
  SUMS_OF(int32_t, ncclInt32, rank - i, 3 - 3 * i);
  SUMS_OF(int64_t, ncclInt64, ((int64_t)rank << 40) - i, ((int64_t)3 << 40) - 3 * i);
  /* bf16: 256 + 1 + 1, and 1 is half a place at 256: to even, in any order of the three. */
  const uint16_t terms[N] = {0x4380, 0x3f80, 0x3f80};
  uint16_t got[1], *at = device_memory(&terms[rank], 2);
  CHECK_NCCL(ncclAllReduce(at, at, 1, ncclBfloat16, ncclSum, comm, stream));
  fetch(got, at, 2);
  CHECK(got[0] == 0x4380 || got[0] == 0x4381); /* (256 + 1) + 1 or 256 + (1 + 1) */
  CHECK_CUDA(cudaFree(at));
  CHECK_NCCL(ncclCommDestroy(comm));
}

static void all_reduce_takes_the_largest(void)
{
  ncclComm_t comm = connect();
  const float mine[2] = {(float)rank, -(float)rank};
  float got[2], *at = device_memory(mine, sizeof mine);
  CHECK_NCCL(ncclAllReduce(at, at, 2, ncclFloat32, ncclMax, comm, stream));
  fetch(got, at, sizeof got);
  CHECK(got[0] == N - 1 && got[1] == 0);
  CHECK_CUDA(cudaFree(at));
  const uint16_t signs[N] = {0xbf80, 0xc000, 0xc040}; /* -1 -2 -3: their bits have the other order */
  uint16_t most, *b = device_memory(&signs[rank], 2);
  CHECK_NCCL(ncclAllReduce(b, b, 1, ncclBfloat16, ncclMax, comm, stream));
  fetch(&most, b, 2);
  CHECK(most == 0xbf80);
  CHECK_CUDA(cudaFree(b));
  CHECK_NCCL(ncclCommDestroy(comm));
}

static void parts_are_gathered_and_scattered_in_place(void)
{
  ncclComm_t comm = connect();
  float all[N * COUNT], got[N * COUNT];
  for (int i = 0; i < N * COUNT; i++) all[i] = (float)(i * (rank + 1));
  float *at = device_memory(all, sizeof all);
  CHECK_NCCL(ncclReduceScatter(at, at + rank * COUNT, COUNT, ncclFloat32, ncclSum, comm, stream));
  CHECK_NCCL(ncclAllGather(at + rank * COUNT, at, COUNT, ncclFloat32, comm, stream));
  fetch(got, at, sizeof got);
  for (int i = 0; i < N * COUNT; i++) CHECK(got[i] == (float)(6 * i));
  CHECK_CUDA(cudaFree(at));
  CHECK_NCCL(ncclCommDestroy(comm));
}

static void the_root_is_who_is_heard(void)
{
  ncclComm_t comm = connect();
  uint8_t mine[COUNT], got[COUNT];
  memset(mine, 10 + rank, sizeof mine);
  uint8_t *from = device_memory(mine, sizeof mine), *to = device_memory(NULL, sizeof mine);
  CHECK_NCCL(ncclBroadcast(from, to, COUNT, ncclUint8, 1, comm, stream));
  fetch(got, to, sizeof got);
  for (int i = 0; i < COUNT; i++) CHECK(got[i] == 11);
  CHECK_CUDA(cudaFree(from));
  CHECK_CUDA(cudaFree(to));
  CHECK_NCCL(ncclCommDestroy(comm));
}

/* --- messages ------------------------------------------------------------------ */

static void a_group_goes_round_a_ring(void)
{
  ncclComm_t comm = connect();
  const int mine = 100 + rank;
  int got = -1, *from = device_memory(&mine, sizeof mine), *to = device_memory(NULL, sizeof got);
  CHECK_NCCL(ncclGroupStart());
  CHECK_NCCL(ncclSend(from, 1, ncclInt32, (rank + 1) % N, comm, stream));
  CHECK_NCCL(ncclRecv(to, 1, ncclInt32, (rank + N - 1) % N, comm, stream));
  CHECK_NCCL(ncclGroupEnd());
  fetch(&got, to, sizeof got);
  CHECK(got == 100 + (rank + N - 1) % N);
  CHECK_CUDA(cudaFree(from));
  CHECK_CUDA(cudaFree(to));
  CHECK_NCCL(ncclCommDestroy(comm));
}

/* Ranks wait for different streams first: calls of one communicator keep their order all the same. */
static void order_of_calls_holds_across_streams(void)
{
  ncclComm_t comm = connect();
  const float mine[2] = {1, 2};
  float *a = device_memory(mine, 4), *b = device_memory(mine + 1, 4), got[2] = {0, 0};
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_NCCL(ncclAllReduce(a, a, 1, ncclFloat32, ncclSum, comm, stream));
  CHECK_NCCL(ncclAllReduce(b, b, 1, ncclFloat32, ncclSum, comm, other));
  CHECK_CUDA(cudaStreamSynchronize(rank == 0 ? other : stream));
  CHECK_CUDA(cudaDeviceSynchronize());
  fetch(&got[0], a, 4);
  fetch(&got[1], b, 4);
  CHECK(got[0] == 3 && got[1] == 6);
  CHECK_CUDA(cudaFree(a));
  CHECK_CUDA(cudaFree(b));
  CHECK_NCCL(ncclCommDestroy(comm));
}

/* Rank 0 waits on one communicator for ranks that wait on the other: both go on. */
static void streams_go_on_while_one_waits_for_a_peer(void)
{
  ncclComm_t one = connect(), two = connect();
  const float mine = 1;
  float *a = device_memory(&mine, 4), *b = device_memory(&mine, 4);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_NCCL(ncclAllReduce(a, a, 1, ncclFloat32, ncclSum, one, stream));
  CHECK_NCCL(ncclAllReduce(b, b, 1, ncclFloat32, ncclSum, two, other));
  CHECK_CUDA(cudaStreamSynchronize(rank == 0 ? stream : other));
  CHECK_CUDA(cudaStreamSynchronize(rank == 0 ? other : stream));
  CHECK_CUDA(cudaFree(a));
  CHECK_CUDA(cudaFree(b));
  CHECK_NCCL(ncclCommDestroy(one));
  CHECK_NCCL(ncclCommDestroy(two));
}

/* --- what goes wrong ---------------------------------------------------------------- */

static void a_broken_communicator_hangs_until_it_is_aborted(void)
{
  ncclComm_t comm = connect();
  ncclResult_t said = ncclSuccess;
  float *at = device_memory(NULL, 4);
  cuda_host_nccl_break(comm, ncclRemoteError);
  CHECK_NCCL(ncclAllReduce(at, at, 1, ncclFloat32, ncclSum, comm, stream));
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK_NCCL(ncclCommGetAsyncError(comm, &said));
  CHECK(said == ncclRemoteError);
  CHECK_NCCL(ncclCommAbort(comm));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(ncclAllReduce(at, at, 1, ncclFloat32, ncclSum, comm, stream) == ncclInvalidArgument);
  CHECK_CUDA(cudaFree(at));
}

static void two_ranks_on_one_device_are_refused(void)
{
  ncclComm_t comm = NULL;
  CHECK(connect_on(rank == 2 ? 1 : rank, &comm) == ncclInvalidUsage);
}

static void other_versions_are_refused(void)
{
  ncclComm_t comm = NULL;
  if (rank == 1) setenv("CUDA_HOST_NCCL_VERSION", "21903", 1);
  CHECK(connect_on(rank, &comm) == ncclInvalidUsage);
  unsetenv("CUDA_HOST_NCCL_VERSION");
}

static void overlap_other_than_in_place_is_refused(void)
{
  ncclComm_t comm = connect();
  float *at = device_memory(NULL, 64);
  CHECK(ncclAllReduce(at, at + 1, 4, ncclFloat32, ncclSum, comm, stream) == ncclInvalidArgument);
  CHECK(ncclAllGather(at + (rank + 1) % N, at, 1, ncclFloat32, comm, stream) == ncclInvalidArgument);
  CHECK_NCCL(ncclGroupStart());
  CHECK(ncclSend(at, 1, ncclFloat32, N, comm, stream) == ncclInvalidArgument); /* no such peer */
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK_CUDA(cudaFree(at));
  CHECK_NCCL(ncclCommDestroy(comm));
}

int main(void)
{
  static const struct test tests[] = {
    TEST(all_reduce_adds_every_type),
    TEST(all_reduce_takes_the_largest),
    TEST(parts_are_gathered_and_scattered_in_place),
    TEST(the_root_is_who_is_heard),
    TEST(a_group_goes_round_a_ring),
    TEST(order_of_calls_holds_across_streams),
    TEST(streams_go_on_while_one_waits_for_a_peer),
    TEST(a_broken_communicator_hangs_until_it_is_aborted),
    TEST(two_ranks_on_one_device_are_refused),
    TEST(other_versions_are_refused),
    TEST(overlap_other_than_in_place_is_refused),
  };
  int provided;
  setenv("CUDA_HOST_DEVICES", "3", 1);
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (cudaSetDevice(rank) || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) ||
      cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking))
    return 1;
  const int status = test_main("host_nccl", tests, sizeof tests / sizeof *tests);
  MPI_Finalize();
  return status;
}
