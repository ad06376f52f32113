/* host_nccl_comm.cpp - communicators of NCCL's stand-in: ids, how ranks meet, how they part. */
#include "host_nccl.h"

#include "cuda_fp16.h"

#include <cstdlib>
#include <unistd.h>

static std::vector<std::shared_ptr<ncclComm>> &comms = *new std::vector<std::shared_ptr<ncclComm>>;

std::shared_ptr<ncclComm> host_nccl_find(ncclComm_t handle)
{
  for (const auto &c : comms)
    if (c.get() == handle) return c;
  return NULL;
}

ncclResult_t host_nccl_say(ncclResult_t result, const char *why)
{
  fprintf(stderr, "cuda_host: NCCL: %s\n", why);
  return result;
}

/* --- sums of bf16 and half ------------------------------------------------------------------- */

static float widen(uint16_t bits) { return cuda_host_bits<float>((uint32_t)bits << 16); }
static uint16_t narrow(float x) /* to nearest even */
{
  const uint32_t u = cuda_host_bits<uint32_t>(x);
  return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fff : (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
static void add_bf16(void *from, void *to, int *n, MPI_Datatype *)
{
  const uint16_t *a = static_cast<const uint16_t *>(from);
  uint16_t *b = static_cast<uint16_t *>(to);
  for (int i = 0; i < *n; i++) b[i] = narrow(widen(a[i]) + widen(b[i]));
}
static void most_bf16(void *from, void *to, int *n, MPI_Datatype *)
{
  const uint16_t *a = static_cast<const uint16_t *>(from);
  uint16_t *b = static_cast<uint16_t *>(to);
  for (int i = 0; i < *n; i++)
    if (widen(a[i]) > widen(b[i])) b[i] = a[i];
}
static void add_half(void *from, void *to, int *n, MPI_Datatype *)
{
  const __half *a = static_cast<const __half *>(from);
  __half *b = static_cast<__half *>(to);
  for (int i = 0; i < *n; i++) b[i] = __half((float)a[i] + (float)b[i]);
}
static void most_half(void *from, void *to, int *n, MPI_Datatype *)
{
  const __half *a = static_cast<const __half *>(from);
  __half *b = static_cast<__half *>(to);
  for (int i = 0; i < *n; i++)
    if ((float)a[i] > (float)b[i]) b[i] = a[i];
}

/* --- versions and ids ---------------------------------------------------------------------- */

static bool mpi_is_up(void)
{
  int begun = 0, ended = 0;
  PMPI_Initialized(&begun);
  PMPI_Finalized(&ended);
  return begun && !ended;
}

ncclResult_t ncclGetVersion(int *version)
{
  const char *text = getenv("CUDA_HOST_NCCL_VERSION"), *of = text ? strchr(text, '@') : NULL;
  int rank = 0;
  if (of && mpi_is_up()) PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  *version = text && (of == NULL || atoi(of + 1) == rank) ? atoi(text) : NCCL_VERSION_CODE;
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

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
  host_entry entry;
  static int made;
  if (id == NULL) return ncclInvalidArgument;
  if (!mpi_is_up()) return host_nccl_say(ncclSystemError, "the host build needs MPI to be initialised");
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
    if (h.version != first.version) a.result = host_nccl_say(ncclInvalidUsage, "ranks have different versions of NCCL");
    for (size_t j = 0; j < i; j++)
      if (memcmp(h.uuid, all_hellos[j].uuid, sizeof h.uuid) == 0) a.result = host_nccl_say(ncclInvalidUsage, "two ranks are on one device");
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
  if ((rank == 0) != (mine.world_rank == u.maker)) return host_nccl_say(ncclInvalidArgument, "the id was not made by rank 0");
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
  if (!mpi_is_up()) return host_nccl_say(ncclSystemError, "the host build needs MPI to be initialised");
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
  PMPI_Op_create(add_half, 1, &comm->half_sum);
  PMPI_Op_create(most_half, 1, &comm->half_max);
  host_entry entry;
  comms.push_back(comm);
  *out = comm.get();
  return ncclSuccess;
}

static void forget(const std::shared_ptr<ncclComm> &comm)
{
  for (size_t i = 0; i < comms.size(); i++)
    if (comms[i] == comm) {
      comms.erase(comms.begin() + (long)i);
      return;
    }
}

ncclResult_t ncclCommDestroy(ncclComm_t handle)
{
  host_entry entry;
  auto comm = host_nccl_find(handle);
  if (comm == NULL) return ncclInvalidArgument;
  if (comm->last.stream != NULL) host_run(entry, {comm->last}, true);
  forget(comm);
  entry.lock.unlock();
  if (mpi_is_up()) {
    PMPI_Op_free(&comm->bf16_sum);
    PMPI_Op_free(&comm->bf16_max);
    PMPI_Op_free(&comm->half_sum);
    PMPI_Op_free(&comm->half_max);
    PMPI_Comm_free(&comm->mpi);
  }
  entry.lock.lock();
  return ncclSuccess;
}

/* MPI cannot take collectives back: its communicator and the buffers stay. */
ncclResult_t ncclCommAbort(ncclComm_t handle)
{
  host_entry entry;
  auto comm = host_nccl_find(handle);
  if (comm == NULL) return ncclInvalidArgument;
  comm->aborted = true;
  forget(comm);
  host_state_get().changed.notify_all();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *error)
{
  host_entry entry;
  auto comm = host_nccl_find(handle);
  if (comm == NULL || error == NULL) return ncclInvalidArgument;
  *error = host_state_get().sticky != cudaSuccess ? ncclUnhandledCudaError : comm->error;
  return ncclSuccess;
}

const char *cuda_host_nccl_chosen(ncclComm_t handle, const char *variable)
{
  host_entry entry;
  auto comm = host_nccl_find(handle);
  if (comm == NULL) return "no such communicator";
  return strcmp(variable, "NCCL_ALGO") == 0 ? comm->algo.c_str() : comm->proto.c_str();
}

void cuda_host_nccl_break(ncclComm_t handle, ncclResult_t error)
{
  host_entry entry;
  auto comm = host_nccl_find(handle);
  if (comm != NULL) comm->error = error;
}
