/* host_nccl.cpp - NCCL's calls as work on streams, exchanged by MPI.
 *
 * MPI never sees device memory: it may touch its buffers whenever any thread is inside of it.  So
 * what a call sends is copied out when the stream gets there, and what it receives is copied in when
 * all of its group has arrived.  It is called by its PMPI names: who counts the program's own calls of
 * MPI does not see what stands in for NCCL.
 */
#include "host_nccl.h"

#include <climits>

namespace {

enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECEIVE };

struct call {
  enum kind kind;
  const char *send;
  char *receive;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer; /* or root */
  std::vector<char> out, in;
};

struct batch { /* calls that go on together */
  std::shared_ptr<ncclComm> comm;
  std::vector<call> calls;
  std::vector<MPI_Request> requests;
};

struct given { /* inside ncclGroupStart() */
  ncclComm_t comm;
  cudaStream_t stream;
  call what;
};
thread_local int depth;
thread_local ncclResult_t group_error;
thread_local std::vector<given> group;

/* MPI may still touch the buffers of what was given up. */
std::vector<std::shared_ptr<batch>> &given_up = *new std::vector<std::shared_ptr<batch>>;

size_t bytes_of(ncclDataType_t type)
{
  switch (type) {
  case ncclInt8:
  case ncclUint8: return 1;
  case ncclBfloat16:
  case ncclFloat16: return 2;
  case ncclInt32:
  case ncclFloat32: return 4;
  case ncclInt64:
  case ncclFloat64: return 8;
  }
  return 0;
}

MPI_Datatype mpi_type(ncclDataType_t type)
{
  switch (type) {
  case ncclInt8: return MPI_INT8_T;
  case ncclUint8: return MPI_UINT8_T;
  case ncclBfloat16:
  case ncclFloat16: return MPI_UINT16_T;
  case ncclInt32: return MPI_INT32_T;
  case ncclInt64: return MPI_INT64_T;
  case ncclFloat32: return MPI_FLOAT;
  case ncclFloat64: return MPI_DOUBLE;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_op(const ncclComm *c, ncclDataType_t type, ncclRedOp_t op)
{
  if (type == ncclBfloat16) return op == ncclSum ? c->bf16_sum : c->bf16_max;
  if (type == ncclFloat16) return op == ncclSum ? c->half_sum : c->half_max;
  return op == ncclSum ? MPI_SUM : MPI_MAX;
}

/* Elements that a call reads and writes, as multiples of its count. */
size_t reads(const call &c, const ncclComm *comm)
{
  switch (c.kind) {
  case REDUCE_SCATTER: return c.count * (size_t)comm->n;
  case BROADCAST: return comm->rank == c.peer ? c.count : 0;
  case RECEIVE: return 0;
  default: return c.count;
  }
}
size_t writes(const call &c, const ncclComm *comm)
{
  return c.kind == SEND ? 0 : c.kind == ALL_GATHER ? c.count * (size_t)comm->n : c.count;
}

int start_call(const ncclComm *comm, call &c, MPI_Request *request)
{
  const int n = (int)c.count;
  const MPI_Datatype type = mpi_type(c.type);
  char *const out = c.out.data(), *const in = c.in.data();
  switch (c.kind) {
  case ALL_REDUCE: return PMPI_Iallreduce(out, in, n, type, mpi_op(comm, c.type, c.op), comm->mpi, request);
  case REDUCE_SCATTER: return PMPI_Ireduce_scatter_block(out, in, n, type, mpi_op(comm, c.type, c.op), comm->mpi, request);
  case ALL_GATHER: return PMPI_Iallgather(out, n, type, in, n, type, comm->mpi, request);
  case BROADCAST:
    if (comm->rank == c.peer) memcpy(in, out, c.out.size());
    return PMPI_Ibcast(in, n, type, c.peer, comm->mpi, request);
  case SEND: return PMPI_Issend(out, n, type, c.peer, 0, comm->mpi, request);
  case RECEIVE: return PMPI_Irecv(in, n, type, c.peer, 0, comm->mpi, request);
  }
  return MPI_ERR_OTHER;
}

bool there(const void *at, size_t bytes) { return bytes == 0 || host_memory_holds(at, bytes) || host_memory_pinned(at, bytes); }

void meets(const std::shared_ptr<batch> &b, int code)
{
  char text[MPI_MAX_ERROR_STRING + 64];
  int length;
  PMPI_Error_string(code, text, &length);
  fprintf(stderr, "cuda_host: NCCL, rank %d of %d: MPI says: %.*s\n", b->comm->rank, b->comm->n, length, text);
  b->comm->error = ncclRemoteError;
}

cudaError_t start(const std::shared_ptr<batch> &b)
{
  const ncclComm *comm = b->comm.get();
  if (comm->aborted) return cudaSuccess;
  for (call &c : b->calls) {
    const size_t size = bytes_of(c.type), read = reads(c, comm) * size, write = writes(c, comm) * size;
    if (!there(c.send, read) || !there(c.receive, write)) {
      host_fail(cudaErrorIllegalAddress, "NCCL: a buffer is not in one block of device memory");
      return cudaErrorIllegalAddress;
    }
    c.out.assign(c.send, c.send + read);
    c.in.resize(write);
  }
  for (call &c : b->calls) {
    b->requests.push_back(MPI_REQUEST_NULL);
    const int code = start_call(comm, c, &b->requests.back());
    if (code != MPI_SUCCESS) meets(b, code);
  }
  return cudaSuccess;
}

cudaError_t test(const std::shared_ptr<batch> &b, bool *done)
{
  if (b->comm->aborted) {
    given_up.push_back(b);
    *done = true;
    return cudaSuccess;
  }
  if (b->comm->error != ncclSuccess) return cudaSuccess;
  int flag = 0;
  const int code = PMPI_Testall((int)b->requests.size(), b->requests.data(), &flag, MPI_STATUSES_IGNORE);
  if (code != MPI_SUCCESS) {
    meets(b, code);
    return cudaSuccess;
  }
  if (!flag) return cudaSuccess;
  for (call &c : b->calls)
    if (!c.in.empty()) memcpy(c.receive, c.in.data(), c.in.size());
  *done = true;
  return cudaSuccess;
}

/* With the lock held. */
ncclResult_t submit(const std::shared_ptr<batch> &b, cudaStream_t handle)
{
  auto stream = host_stream_of(handle);
  if (host_state_get().sticky != cudaSuccess) return ncclUnhandledCudaError;
  if (stream == NULL || stream->device != b->comm->device) return host_nccl_say(ncclInvalidArgument, "the stream is not of the communicator's device");
  if (b->comm->last.stream != NULL) host_stream_wait(stream, b->comm->last);
  host_work work;
  work.name = "NCCL";
  work.start = [b] { return start(b); };
  work.test = [b](bool *done) { return test(b, done); };
  host_stream_push(stream, std::move(work));
  b->comm->last = host_stream_tail(stream);
  return ncclSuccess;
}

bool overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes) { return a < b + b_bytes && b < a + a_bytes; }

ncclResult_t check(const std::shared_ptr<ncclComm> &comm, const call &c)
{
  if (comm == NULL) return host_nccl_say(ncclInvalidArgument, "no such communicator");
  if (comm->aborted) return host_nccl_say(ncclInvalidUsage, "the communicator was aborted");
  const size_t size = bytes_of(c.type), read = reads(c, comm.get()) * size, write = writes(c, comm.get()) * size;
  if (size == 0 || c.count > INT_MAX) return host_nccl_say(ncclInvalidArgument, "a type or a count that it does not have");
  if (c.peer < 0 || c.peer >= comm->n) return host_nccl_say(ncclInvalidArgument, "no such peer");
  if ((read > 0 && c.send == NULL) || (write > 0 && c.receive == NULL)) return host_nccl_say(ncclInvalidArgument, "a buffer is NULL");
  /* In place is the one overlap that a collective allows: each rank's own part in its place. */
  const size_t part = (size_t)comm->rank * c.count * size;
  const char *const in_place = c.kind == ALL_GATHER ? c.receive + part : c.kind == REDUCE_SCATTER ? c.receive - part : c.receive;
  if (read > 0 && write > 0 && overlap(c.send, read, c.receive, write) && c.send != in_place)
    return host_nccl_say(ncclInvalidArgument, "the buffers overlap, and not in the way that in place means");
  return ncclSuccess;
}

/* One call: goes on alone, or is kept until the group ends. */
ncclResult_t give(ncclComm_t handle, cudaStream_t stream, call c)
{
  host_entry entry;
  auto comm = host_nccl_find(handle);
  const ncclResult_t result = check(comm, c);
  if (depth > 0) {
    if (result != ncclSuccess) group_error = result;
    else group.push_back(given{handle, stream, std::move(c)});
    return result;
  }
  if (result != ncclSuccess) return result;
  auto b = std::make_shared<batch>();
  b->comm = comm;
  b->calls.push_back(std::move(c));
  return submit(b, stream);
}

} // namespace

/* --- calls ------------------------------------------------------------------------------ */

ncclResult_t ncclGroupStart(void)
{
  if (depth++ == 0) group_error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
  if (depth == 0) return host_nccl_say(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--depth > 0) return ncclSuccess;
  std::vector<given> calls;
  calls.swap(group);
  if (group_error != ncclSuccess) return group_error;
  host_entry entry;
  while (!calls.empty()) { /* a batch for each communicator, in the order they were named */
    auto b = std::make_shared<batch>();
    b->comm = host_nccl_find(calls[0].comm);
    const cudaStream_t stream = calls[0].stream;
    std::vector<given> others;
    for (given &g : calls) {
      if (g.comm != b->comm.get()) others.push_back(std::move(g));
      else if (g.stream != stream) return host_nccl_say(ncclInvalidUsage, "one group, one communicator, two streams");
      else b->calls.push_back(std::move(g.what));
    }
    const ncclResult_t result = submit(b, stream);
    if (result != ncclSuccess) return result;
    calls.swap(others);
  }
  return ncclSuccess;
}

static call make(enum kind kind, const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int peer)
{
  return call{kind, static_cast<const char *>(send), static_cast<char *>(receive), count, type, op, peer, {}, {}};
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
  return give(comm, stream, make(ALL_REDUCE, send, receive, count, type, op, 0));
}
ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
  return give(comm, stream, make(REDUCE_SCATTER, send, receive, count, type, op, 0));
}
ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
  return give(comm, stream, make(ALL_GATHER, send, receive, count, type, ncclSum, 0));
}
ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
  return give(comm, stream, make(BROADCAST, send, receive, count, type, ncclSum, root));
}
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
  return give(comm, stream, make(SEND, send, NULL, count, type, ncclSum, peer));
}
ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
  return give(comm, stream, make(RECEIVE, NULL, receive, count, type, ncclSum, peer));
}
