/* host_nccl.cpp - NCCL's calls as work on streams, exchanged by MPI.
 *
 * MPI never sees device memory: it may touch its buffers whenever any thread is inside of it.  So
 * what a call sends is copied out when the stream gets there, and what it receives is copied in when
 * all of its group has arrived.  It is called by its PMPI names: who counts the program's own calls of
 * MPI does not see what stands in for NCCL.
 */
#include "host_internal.h"

#include "nccl.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <climits>
#include <cstdlib>
#include <string>
#include <unistd.h>

struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  MPI_Op bf16_sum = MPI_OP_NULL, bf16_max = MPI_OP_NULL;
  int n, rank, device;
  ncclResult_t error = ncclSuccess; /* from the network: what is queued hangs */
  bool aborted = false;
  std::string algo, proto; /* as the environment asked for */
  host_point last{}; /* its calls run in the order they were made, on whatever streams */
};

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

struct known {
  std::vector<std::shared_ptr<ncclComm>> comms;
  std::vector<std::shared_ptr<batch>> given_up; /* MPI may still touch their buffers */
};
known &all(void)
{
  static known &k = *new known;
  return k;
}

size_t bytes_of(ncclDataType_t type)
{
  switch (type) {
  case ncclInt8:
  case ncclUint8: return 1;
  case ncclBfloat16: return 2;
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
  case ncclBfloat16: return MPI_UINT16_T;
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
  return op == ncclSum ? MPI_SUM : MPI_MAX;
}

float widen(uint16_t bits) { return cuda_host_bits<float>((uint32_t)bits << 16); }
uint16_t narrow(float x) /* to nearest even */
{
  const uint32_t u = cuda_host_bits<uint32_t>(x);
  return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fff : (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
void add_bf16(void *from, void *to, int *n, MPI_Datatype *)
{
  const uint16_t *a = static_cast<const uint16_t *>(from);
  uint16_t *b = static_cast<uint16_t *>(to);
  for (int i = 0; i < *n; i++) b[i] = narrow(widen(a[i]) + widen(b[i]));
}
void most_bf16(void *from, void *to, int *n, MPI_Datatype *)
{
  const uint16_t *a = static_cast<const uint16_t *>(from);
  uint16_t *b = static_cast<uint16_t *>(to);
  for (int i = 0; i < *n; i++)
    if (widen(a[i]) > widen(b[i])) b[i] = a[i];
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
    all().given_up.push_back(b);
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

ncclResult_t say(ncclResult_t result, const char *why)
{
  fprintf(stderr, "cuda_host: NCCL: %s\n", why);
  return result;
}

std::shared_ptr<ncclComm> comm_of(ncclComm_t handle)
{
  for (const auto &c : all().comms)
    if (c.get() == handle) return c;
  return NULL;
}

/* With the lock held. */
ncclResult_t submit(const std::shared_ptr<batch> &b, cudaStream_t handle)
{
  auto stream = host_stream_of(handle);
  if (host_state_get().sticky != cudaSuccess) return ncclUnhandledCudaError;
  if (stream == NULL || stream->device != b->comm->device) return say(ncclInvalidArgument, "the stream is not of the communicator's device");
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
  if (comm == NULL) return say(ncclInvalidArgument, "no such communicator");
  if (comm->aborted) return say(ncclInvalidUsage, "the communicator was aborted");
  const size_t size = bytes_of(c.type), read = reads(c, comm.get()) * size, write = writes(c, comm.get()) * size;
  if (size == 0 || c.count > INT_MAX) return say(ncclInvalidArgument, "a type or a count that it does not have");
  if (c.peer < 0 || c.peer >= comm->n) return say(ncclInvalidArgument, "no such peer");
  if ((read > 0 && c.send == NULL) || (write > 0 && c.receive == NULL)) return say(ncclInvalidArgument, "a buffer is NULL");
  /* In place is the one overlap that a collective allows: each rank's own part in its place. */
  const size_t part = (size_t)comm->rank * c.count * size;
  const char *const in_place = c.kind == ALL_GATHER ? c.receive + part : c.kind == REDUCE_SCATTER ? c.receive - part : c.receive;
  if (read > 0 && write > 0 && overlap(c.send, read, c.receive, write) && c.send != in_place)
    return say(ncclInvalidArgument, "the buffers overlap, and not in the way that in place means");
  return ncclSuccess;
}

/* One call: goes on alone, or is kept until the group ends. */
ncclResult_t give(ncclComm_t handle, cudaStream_t stream, call c)
{
  host_entry entry;
  auto comm = comm_of(handle);
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
  if (depth == 0) return say(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--depth > 0) return ncclSuccess;
  std::vector<given> calls;
  calls.swap(group);
  if (group_error != ncclSuccess) return group_error;
  host_entry entry;
  while (!calls.empty()) { /* a batch for each communicator, in the order they were named */
    auto b = std::make_shared<batch>();
    b->comm = comm_of(calls[0].comm);
    const cudaStream_t stream = calls[0].stream;
    std::vector<given> others;
    for (given &g : calls) {
      if (g.comm != b->comm.get()) others.push_back(std::move(g));
      else if (g.stream != stream) return say(ncclInvalidUsage, "one group, one communicator, two streams");
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

/* --- communicators ------------------------------------------------------------------------ */

ncclResult_t ncclGetVersion(int *version)
{
  const char *text = getenv("CUDA_HOST_NCCL_VERSION");
  *version = text ? atoi(text) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
  switch (result) {
  case ncclSuccess: return "no error";
  case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
  case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
  case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
  case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
  case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
  case ncclRemoteError: return "remote process exited or there was a network error";
  case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}

struct unique {
  char mark[8];
  int maker, serial; /* rank in MPI_COMM_WORLD that made it, and which of its ids it is */
};

static bool mpi_is_up(void)
{
  int begun = 0, ended = 0;
  PMPI_Initialized(&begun);
  PMPI_Finalized(&ended);
  return begun && !ended;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
  host_entry entry;
  static int made;
  if (id == NULL) return ncclInvalidArgument;
  if (!mpi_is_up()) return say(ncclSystemError, "the host build needs MPI to be initialised");
  unique u = {"hostid", 0, ++made};
  PMPI_Comm_rank(MPI_COMM_WORLD, &u.maker);
  memset(id, 0, sizeof *id);
  memcpy(id, &u, sizeof u);
  return ncclSuccess;
}

/* What ranks tell rank 0, and what it answers. */
struct hello {
  int rank, world_rank, version;
  char uuid[16];
};
struct answer {
  int result;
  int world_rank[64];
};

static void wait_for(MPI_Request *request)
{
  for (int done = 0; !done;) {
    PMPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (!done) {
      host_progress();
      usleep(50);
    }
  }
}

static answer judge(const std::vector<hello> &all_hellos)
{
  answer a = {};
  const hello &first = all_hellos[0];
  for (size_t i = 0; i < all_hellos.size(); i++) {
    const hello &h = all_hellos[i];
    a.world_rank[h.rank] = h.world_rank;
    if (h.version != first.version) a.result = say(ncclInvalidUsage, "ranks have different versions of NCCL");
    for (size_t j = 0; j < i; j++)
      if (memcmp(h.uuid, all_hellos[j].uuid, sizeof h.uuid) == 0) a.result = say(ncclInvalidUsage, "two ranks are on one device");
  }
  return a;
}

static ncclResult_t meet(int n, int rank, const unique &u, answer *a)
{
  const int tag = 20000 + u.serial % 10000;
  hello mine = {rank, 0, 0, {}};
  struct cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, host_device_now()) != cudaSuccess) return ncclUnhandledCudaError;
  memcpy(mine.uuid, p.uuid.bytes, sizeof mine.uuid);
  PMPI_Comm_rank(MPI_COMM_WORLD, &mine.world_rank);
  ncclGetVersion(&mine.version);
  if ((rank == 0) != (mine.world_rank == u.maker)) return say(ncclInvalidArgument, "the id was not made by rank 0");
  MPI_Request request;
  if (rank != 0) {
    PMPI_Isend(&mine, sizeof mine, MPI_BYTE, u.maker, tag, MPI_COMM_WORLD, &request);
    wait_for(&request);
    PMPI_Irecv(a, sizeof *a, MPI_BYTE, u.maker, tag, MPI_COMM_WORLD, &request);
    wait_for(&request);
    return (ncclResult_t)a->result;
  }
  std::vector<hello> hellos(1, mine);
  while ((int)hellos.size() < n) {
    hello h;
    PMPI_Irecv(&h, sizeof h, MPI_BYTE, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &request);
    wait_for(&request);
    hellos.push_back(h);
  }
  *a = judge(hellos);
  for (size_t i = 1; i < hellos.size(); i++) {
    PMPI_Isend(a, sizeof *a, MPI_BYTE, hellos[i].world_rank, tag, MPI_COMM_WORLD, &request);
    wait_for(&request);
  }
  return (ncclResult_t)a->result;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int n, ncclUniqueId id, int rank)
{
  unique u;
  memcpy(&u, &id, sizeof u);
  *out = NULL;
  if (n < 1 || n > 64 || rank < 0 || rank >= n || strcmp(u.mark, "hostid") != 0) return ncclInvalidArgument;
  if (!mpi_is_up()) return say(ncclSystemError, "the host build needs MPI to be initialised");
  answer a;
  const ncclResult_t result = meet(n, rank, u, &a);
  if (result != ncclSuccess) return result;

  /* All n are here by now, so this blocks none of them for long. */
  auto comm = std::make_shared<ncclComm>();
  comm->n = n;
  comm->rank = rank;
  comm->device = host_device_now();
  if (getenv("NCCL_ALGO")) comm->algo = getenv("NCCL_ALGO");
  if (getenv("NCCL_PROTO")) comm->proto = getenv("NCCL_PROTO");
  MPI_Group world, members;
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  PMPI_Group_incl(world, n, a.world_rank, &members);
  const int code = PMPI_Comm_create_group(MPI_COMM_WORLD, members, 30000 + u.serial % 2000, &comm->mpi);
  PMPI_Group_free(&members);
  PMPI_Group_free(&world);
  if (code != MPI_SUCCESS) return ncclSystemError;
  PMPI_Comm_set_errhandler(comm->mpi, MPI_ERRORS_RETURN);
  PMPI_Op_create(add_bf16, 1, &comm->bf16_sum);
  PMPI_Op_create(most_bf16, 1, &comm->bf16_max);
  host_entry entry;
  all().comms.push_back(comm);
  *out = comm.get();
  return ncclSuccess;
}

static void forget(const std::shared_ptr<ncclComm> &comm)
{
  auto &comms = all().comms;
  for (size_t i = 0; i < comms.size(); i++)
    if (comms[i] == comm) {
      comms.erase(comms.begin() + (long)i);
      return;
    }
}

ncclResult_t ncclCommDestroy(ncclComm_t handle)
{
  host_entry entry;
  auto comm = comm_of(handle);
  if (comm == NULL) return ncclInvalidArgument;
  if (comm->last.stream != NULL) host_run(entry, {comm->last}, true);
  forget(comm);
  entry.lock.unlock();
  if (mpi_is_up()) {
    PMPI_Op_free(&comm->bf16_sum);
    PMPI_Op_free(&comm->bf16_max);
    PMPI_Comm_free(&comm->mpi);
  }
  entry.lock.lock();
  return ncclSuccess;
}

/* MPI cannot take collectives back: its communicator and the buffers stay. */
ncclResult_t ncclCommAbort(ncclComm_t handle)
{
  host_entry entry;
  auto comm = comm_of(handle);
  if (comm == NULL) return ncclInvalidArgument;
  comm->aborted = true;
  forget(comm);
  host_state_get().changed.notify_all();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *error)
{
  host_entry entry;
  auto comm = comm_of(handle);
  if (comm == NULL || error == NULL) return ncclInvalidArgument;
  *error = host_state_get().sticky != cudaSuccess ? ncclUnhandledCudaError : comm->error;
  return ncclSuccess;
}

const char *cuda_host_nccl_chosen(ncclComm_t handle, const char *variable)
{
  host_entry entry;
  auto comm = comm_of(handle);
  if (comm == NULL) return "no such communicator";
  return strcmp(variable, "NCCL_ALGO") == 0 ? comm->algo.c_str() : comm->proto.c_str();
}

void cuda_host_nccl_break(ncclComm_t handle, ncclResult_t error)
{
  host_entry entry;
  auto comm = comm_of(handle);
  if (comm != NULL) comm->error = error;
}
