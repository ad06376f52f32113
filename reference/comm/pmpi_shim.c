/* pmpi_shim.c - stands before the MPI library and counts what passes.
 *
 * Defines MPI's own entry points in this program; each counts and calls the PMPI name.
 */
#include "comm/pmpi_shim.h"

#include "base/err.h"

#include <mpi.h>
#include <stdatomic.h>

#define CALLS(X)                                                                                                      \
  X(MPI_Iallreduce) X(MPI_Ireduce_scatter_block) X(MPI_Iallgather) X(MPI_Iallgatherv) X(MPI_Ialltoall)                 \
  X(MPI_Ialltoallv) X(MPI_Ibcast) X(MPI_Ireduce) X(MPI_Ibarrier) X(MPI_Isend) X(MPI_Issend) X(MPI_Irecv)               \
  X(MPI_Allreduce) X(MPI_Reduce_scatter_block) X(MPI_Allgather) X(MPI_Alltoall) X(MPI_Bcast) X(MPI_Reduce)             \
  X(MPI_Barrier) X(MPI_Send) X(MPI_Ssend) X(MPI_Recv)

enum call {
#define ROW(name) CALL_##name,
  CALLS(ROW)
#undef ROW
  CALL_COUNT
};

static const char *const names[CALL_COUNT] = {
#define ROW(name) #name,
  CALLS(ROW)
#undef ROW
};

/* Of the process, as MPI itself is. */
static _Atomic int64_t calls[CALL_COUNT], bytes[CALL_COUNT];
enum { IGNORED_MAX = 16 };
static _Atomic int ignored[IGNORED_MAX], n_ignored;

void pmpi_ignore(int handle)
{
  const int i = atomic_fetch_add(&n_ignored, 1);
  BUG_IF(i >= IGNORED_MAX);
  atomic_store(&ignored[i], handle);
}

int pmpi_counts(struct pmpi_count *out, int max)
{
  int n = 0;
  for (int i = 0; i < CALL_COUNT && n < max; i++)
    if (atomic_load(&calls[i]) > 0) out[n++] = (struct pmpi_count){names[i], atomic_load(&calls[i]), atomic_load(&bytes[i])};
  return n;
}

void pmpi_restart(void)
{
  for (int i = 0; i < CALL_COUNT; i++) {
    atomic_store(&calls[i], 0);
    atomic_store(&bytes[i], 0);
  }
}

static int64_t size_of(int64_t count, MPI_Datatype type)
{
  int size = 0;
  if (count > 0) PMPI_Type_size(type, &size);
  return count * size;
}

static int ranks_of(MPI_Comm comm)
{
  int n = 0;
  PMPI_Comm_size(comm, &n);
  return n;
}

static int64_t sum(const int *counts, int n)
{
  int64_t s = 0;
  for (int i = 0; i < n; i++) s += counts[i];
  return s;
}

static void count(enum call call, MPI_Comm comm, int64_t payload)
{
  const int handle = (int)PMPI_Comm_c2f(comm), n = atomic_load(&n_ignored);
  for (int i = 0; i < n; i++)
    if (atomic_load(&ignored[i]) == handle) return;
  atomic_fetch_add(&calls[call], 1);
  atomic_fetch_add(&bytes[call], payload);
}

/* FORWARD(name, formal parameters, payload in bytes, arguments) */
#define FORWARD(name, formal, payload, actual) \
  int name formal                              \
  {                                            \
    count(CALL_##name, comm, (payload));       \
    return P##name actual;                     \
  }

FORWARD(MPI_Iallreduce, (const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request),
        size_of(n, type), (send, recv, n, type, op, comm, request))
FORWARD(MPI_Allreduce, (const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm), size_of(n, type),
        (send, recv, n, type, op, comm))
FORWARD(MPI_Ireduce_scatter_block,
        (const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request),
        size_of((int64_t)n * ranks_of(comm), type), (send, recv, n, type, op, comm, request))
FORWARD(MPI_Reduce_scatter_block, (const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
        size_of((int64_t)n * ranks_of(comm), type), (send, recv, n, type, op, comm))
FORWARD(MPI_Ireduce,
        (const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, MPI_Request *request),
        size_of(n, type), (send, recv, n, type, op, root, comm, request))
FORWARD(MPI_Reduce, (const void *send, void *recv, int n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm), size_of(n, type),
        (send, recv, n, type, op, root, comm))

/* In place the sender's count and type mean nothing: the receiver's are those of its part. */
FORWARD(MPI_Iallgather,
        (const void *send, int n, MPI_Datatype type, void *recv, int rn, MPI_Datatype rtype, MPI_Comm comm, MPI_Request *request),
        send == MPI_IN_PLACE ? size_of(rn, rtype) : size_of(n, type), (send, n, type, recv, rn, rtype, comm, request))
FORWARD(MPI_Allgather, (const void *send, int n, MPI_Datatype type, void *recv, int rn, MPI_Datatype rtype, MPI_Comm comm),
        send == MPI_IN_PLACE ? size_of(rn, rtype) : size_of(n, type), (send, n, type, recv, rn, rtype, comm))
FORWARD(MPI_Iallgatherv,
        (const void *send, int n, MPI_Datatype type, void *recv, const int *rn, const int *at, MPI_Datatype rtype, MPI_Comm comm,
         MPI_Request *request),
        size_of(n, type), (send, n, type, recv, rn, at, rtype, comm, request))
FORWARD(MPI_Ialltoall,
        (const void *send, int n, MPI_Datatype type, void *recv, int rn, MPI_Datatype rtype, MPI_Comm comm, MPI_Request *request),
        size_of((int64_t)n * ranks_of(comm), type), (send, n, type, recv, rn, rtype, comm, request))
FORWARD(MPI_Alltoall, (const void *send, int n, MPI_Datatype type, void *recv, int rn, MPI_Datatype rtype, MPI_Comm comm),
        size_of((int64_t)n * ranks_of(comm), type), (send, n, type, recv, rn, rtype, comm))
FORWARD(MPI_Ialltoallv,
        (const void *send, const int *n, const int *at, MPI_Datatype type, void *recv, const int *rn, const int *rat,
         MPI_Datatype rtype, MPI_Comm comm, MPI_Request *request),
        size_of(sum(n, ranks_of(comm)), type), (send, n, at, type, recv, rn, rat, rtype, comm, request))

FORWARD(MPI_Ibcast, (void *at, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request), size_of(n, type),
        (at, n, type, root, comm, request))
FORWARD(MPI_Bcast, (void *at, int n, MPI_Datatype type, int root, MPI_Comm comm), size_of(n, type), (at, n, type, root, comm))
FORWARD(MPI_Ibarrier, (MPI_Comm comm, MPI_Request *request), 0, (comm, request))
FORWARD(MPI_Barrier, (MPI_Comm comm), 0, (comm))

FORWARD(MPI_Isend, (const void *at, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request),
        size_of(n, type), (at, n, type, to, tag, comm, request))
FORWARD(MPI_Issend, (const void *at, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request),
        size_of(n, type), (at, n, type, to, tag, comm, request))
FORWARD(MPI_Irecv, (void *at, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request), size_of(n, type),
        (at, n, type, from, tag, comm, request))
FORWARD(MPI_Send, (const void *at, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm), size_of(n, type),
        (at, n, type, to, tag, comm))
FORWARD(MPI_Ssend, (const void *at, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm), size_of(n, type),
        (at, n, type, to, tag, comm))
FORWARD(MPI_Recv, (void *at, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status), size_of(n, type),
        (at, n, type, from, tag, comm, status))
