/* link_mpi.c - the MPI behind link.h: handles, types, non-blocking starts, errors into text.  The
 * only place that calls MPI and knows its codes. */
#include "comm/comm_state.h"
#include "comm/link_host.h"

#include "base/f16.h"
#include "comm/pmpi_shim.h"

#include <mpi.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct mpi_link {
  struct link base;
  MPI_Comm comm;
  MPI_Request requests[LINK_MESSAGES];
  MPI_Status statuses[LINK_MESSAGES];
  int in_flight;
  MPI_Op of_bf16[2], of_f16[2]; /* by enum comm_op */
  int *counts, *at, *own_counts, *own_at; /* of the v-forms; they must live as long as the call */
};

static struct mpi_link *own(struct link *l) { return (struct mpi_link *)l; }
static MPI_Comm comm_of(const struct link *l) { return ((const struct mpi_link *)l)->comm; }

static enum err failed(int code, const char *call)
{
  char said[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, said, &length);
  FAIL(ERR_COMM, "%s: %s", call, said);
}
#define MPI_TRY(call)                                        \
  do {                                                       \
    const int code_ = (call);                                \
    if (code_ != MPI_SUCCESS) return failed(code_, #call);   \
  } while (0)

static MPI_Datatype mpi_type(enum dtype type)
{
  switch (type) {
  case DTYPE_F64: return MPI_DOUBLE;
  case DTYPE_F32: return MPI_FLOAT;
  case DTYPE_BF16:
  case DTYPE_F16: return MPI_UINT16_T;
  case DTYPE_I32: return MPI_INT32_T;
  case DTYPE_U8: return MPI_UINT8_T;
  case DTYPE_I64: return MPI_INT64_T;
  case DTYPE_COUNT: break;
  }
  BUG_IF(true);
  return MPI_DATATYPE_NULL;
}

/* What MPI does not know: reductions of the narrow types, which it moves as 16-bit words. */
#define REDUCTIONS(name)                                                                        \
  static void sum_##name(void *in, void *inout, int *count, MPI_Datatype *type)                 \
  {                                                                                             \
    const uint16_t *x = in;                                                                     \
    uint16_t *y = inout;                                                                        \
    (void)type;                                                                                 \
    for (int i = 0; i < *count; i++) y[i] = name##_round(name##_widen(x[i]) + name##_widen(y[i])); \
  }                                                                                             \
  static void max_##name(void *in, void *inout, int *count, MPI_Datatype *type)                 \
  {                                                                                             \
    const uint16_t *x = in;                                                                     \
    uint16_t *y = inout;                                                                        \
    (void)type;                                                                                 \
    for (int i = 0; i < *count; i++)                                                            \
      if (name##_widen(x[i]) > name##_widen(y[i])) y[i] = x[i];                                 \
  }
REDUCTIONS(bf16)
REDUCTIONS(f16)

static MPI_Op mpi_op(const struct mpi_link *l, enum dtype type, enum comm_op op)
{
  if (type == DTYPE_BF16) return l->of_bf16[op];
  if (type == DTYPE_F16) return l->of_f16[op];
  return op == COMM_SUM ? MPI_SUM : MPI_MAX;
}

static int as_int(int64_t count)
{
  BUG_IF(count < 0 || count > INT32_MAX);
  return (int)count;
}

/* --- life --------------------------------------------------------------- */

enum err link_init(void)
{
  int provided = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  if (code != MPI_SUCCESS) FAIL(ERR_COMM, "MPI_Init_thread gave code %d", code);
  MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    FAIL(ERR_COMM, "this MPI gives thread level %d, MPI_THREAD_MULTIPLE (%d) is needed", provided, MPI_THREAD_MULTIPLE);
  }
  return ERR_OK;
}

void link_finalize(void) { MPI_Finalize(); }
void link_abort(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

const char *link_library(void)
{
#if defined OMPI_MAJOR_VERSION
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
  return "Open MPI " TEXT(OMPI_MAJOR_VERSION) "." TEXT(OMPI_MINOR_VERSION) "." TEXT(OMPI_RELEASE_VERSION);
#elif defined MPICH_VERSION
  return "MPICH " MPICH_VERSION;
#else
  return "MPI (unknown library)";
#endif
}

static const struct link_calls calls;

/* Takes over `comm`, also on failure. */
static enum err wrap(MPI_Comm comm, struct link **out)
{
  struct mpi_link *l = calloc(1, sizeof *l);
  int size = 0;
  if (l != NULL) {
    MPI_Comm_size(comm, &size);
    l->counts = calloc((size_t)size, 4 * sizeof *l->counts);
  }
  if (l == NULL || l->counts == NULL) {
    free(l);
    MPI_Comm_free(&comm);
    FAIL(ERR_MEMORY, "communicator of %d ranks: %zu bytes", size, sizeof *l + (size_t)size * 4 * sizeof(int));
  }
  l->comm = comm;
  l->base.calls = &calls;
  l->base.size = size;
  MPI_Comm_rank(comm, &l->base.rank);
  l->at = l->counts + size;
  l->own_counts = l->at + size;
  l->own_at = l->own_counts + size;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Op_create(sum_bf16, 1, &l->of_bf16[COMM_SUM]);
  MPI_Op_create(max_bf16, 1, &l->of_bf16[COMM_MAX]);
  MPI_Op_create(sum_f16, 1, &l->of_f16[COMM_SUM]);
  MPI_Op_create(max_f16, 1, &l->of_f16[COMM_MAX]);
  *out = &l->base;
  return ERR_OK;
}

enum err link_world(struct link **out)
{
  MPI_Comm comm;
  MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  TRY(wrap(comm, out));
  pmpi_ignore((int)MPI_Comm_c2f(comm));
  return ERR_OK;
}

enum err link_node(const struct link *world, struct link **out)
{
  MPI_Comm comm;
  MPI_TRY(MPI_Comm_split_type(comm_of(world), MPI_COMM_TYPE_SHARED, link_rank(world), MPI_INFO_NULL, &comm));
  TRY(wrap(comm, out));
  pmpi_ignore((int)MPI_Comm_c2f(comm));
  return ERR_OK;
}

enum err link_create(const struct link *world, const int *ranks, int n, struct link **out)
{
  MPI_Group all, some;
  MPI_Comm comm;
  MPI_TRY(MPI_Comm_group(comm_of(world), &all));
  MPI_TRY(MPI_Group_incl(all, n, ranks, &some));
  const int code = MPI_Comm_create_group(comm_of(world), some, 0, &comm);
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  if (code != MPI_SUCCESS) return failed(code, "MPI_Comm_create_group");
  TRY(wrap(comm, out));
  return ERR_OK;
}

static void destroy(struct link *link)
{
  struct mpi_link *l = own(link);
  for (int op = 0; op < 2; op++) MPI_Op_free(&l->of_bf16[op]), MPI_Op_free(&l->of_f16[op]);
  MPI_Comm_free(&l->comm);
  free(l->counts);
  free(l);
}

/* --- progress ------------------------------------------------------------ */

static enum err test(struct link *link, bool *done)
{
  struct mpi_link *l = own(link);
  int flag = 0, code = MPI_Testall(l->in_flight, l->requests, &flag, l->statuses);
  for (int i = 0; i < l->in_flight && code == MPI_ERR_IN_STATUS; i++)
    if (l->statuses[i].MPI_ERROR != MPI_SUCCESS && l->statuses[i].MPI_ERROR != MPI_ERR_PENDING) code = l->statuses[i].MPI_ERROR;
  if (code != MPI_SUCCESS) return failed(code, "MPI_Testall");
  *done = flag != 0;
  if (*done) l->in_flight = 0;
  return ERR_OK;
}

static MPI_Request *next_request(struct mpi_link *l)
{
  BUG_IF(l->in_flight == LINK_MESSAGES);
  return &l->requests[l->in_flight++];
}

/* A start that failed leaves nothing to test. */
#define START(l, call)                                        \
  do {                                                        \
    MPI_Request *request = next_request(l);                   \
    const int code_ = (call);                                 \
    if (code_ != MPI_SUCCESS) {                               \
      (l)->in_flight--;                                       \
      return failed(code_, #call);                            \
    }                                                         \
  } while (0)

/* --- collectives ---------------------------------------------------------- */

static enum err allreduce(struct link *link, void *at, int64_t count, enum dtype type, enum comm_op op)
{
  struct mpi_link *l = own(link);
  START(l, MPI_Iallreduce(MPI_IN_PLACE, at, as_int(count), mpi_type(type), mpi_op(l, type, op), l->comm, request));
  return ERR_OK;
}

static enum err reduce_scatter(struct link *link, const void *send, void *recv, int64_t count, enum dtype type, enum comm_op op)
{
  struct mpi_link *l = own(link);
  START(l, MPI_Ireduce_scatter_block(send, recv, as_int(count), mpi_type(type), mpi_op(l, type, op), l->comm, request));
  return ERR_OK;
}

static enum err allgather(struct link *link, const void *send, void *recv, int64_t count, enum dtype type)
{
  struct mpi_link *l = own(link);
  const void *from = send ? send : MPI_IN_PLACE;
  START(l, MPI_Iallgather(from, as_int(count), mpi_type(type), recv, as_int(count), mpi_type(type), l->comm, request));
  return ERR_OK;
}

static enum err broadcast(struct link *link, void *at, int64_t count, enum dtype type, int root)
{
  struct mpi_link *l = own(link);
  START(l, MPI_Ibcast(at, as_int(count), mpi_type(type), root, l->comm, request));
  return ERR_OK;
}

enum err link_gather(struct link *link, const void *send, void *recv, int64_t count, enum dtype type, int root)
{
  struct mpi_link *l = own(link);
  START(l, MPI_Igather(send, as_int(count), mpi_type(type), recv, as_int(count), mpi_type(type), root, l->comm, request));
  return ERR_OK;
}

static enum err barrier(struct link *link)
{
  struct mpi_link *l = own(link);
  START(l, MPI_Ibarrier(l->comm, request));
  return ERR_OK;
}

static void set_shares(struct mpi_link *l, int64_t total)
{
  int64_t own_first, own;
  link_share(total, l->base.size, l->base.rank, &own_first, &own);
  for (int i = 0; i < l->base.size; i++) {
    int64_t first, count;
    link_share(total, l->base.size, i, &first, &count);
    l->counts[i] = as_int(count);
    l->at[i] = as_int(first);
    l->own_counts[i] = as_int(own);
    l->own_at[i] = as_int(own * i);
  }
}

static enum err exchange_shares(struct link *link, const void *send, int64_t total, void *recv, enum dtype type)
{
  struct mpi_link *l = own(link);
  set_shares(l, total);
  START(l, MPI_Ialltoallv(send, l->counts, l->at, mpi_type(type), recv, l->own_counts, l->own_at, mpi_type(type), l->comm,
                          request));
  return ERR_OK;
}

static enum err gather_shares(struct link *link, const void *send, void *recv, int64_t total, enum dtype type)
{
  struct mpi_link *l = own(link);
  set_shares(l, total);
  START(l, MPI_Iallgatherv(send, l->counts[l->base.rank], mpi_type(type), recv, l->counts, l->at, mpi_type(type), l->comm,
                           request));
  return ERR_OK;
}

static enum err exchange_parts(struct link *link, const void *send, int64_t count, int64_t stride, void *recv, enum dtype type)
{
  struct mpi_link *l = own(link);
  for (int i = 0; i < l->base.size; i++) {
    l->counts[i] = l->own_counts[i] = as_int(count);
    l->at[i] = as_int(stride * i);
    l->own_at[i] = as_int(count * i);
  }
  START(l, MPI_Ialltoallv(send, l->counts, l->at, mpi_type(type), recv, l->own_counts, l->own_at, mpi_type(type), l->comm,
                          request));
  return ERR_OK;
}

/* --- messages -------------------------------------------------------------- */

static enum err send(struct link *link, const void *at, int64_t count, enum dtype type, int to, bool synchronous)
{
  struct mpi_link *l = own(link);
  if (synchronous)
    START(l, MPI_Issend(at, as_int(count), mpi_type(type), to, 0, l->comm, request));
  else
    START(l, MPI_Isend(at, as_int(count), mpi_type(type), to, 0, l->comm, request));
  return ERR_OK;
}

static enum err recv(struct link *link, void *at, int64_t count, enum dtype type, int from, bool synchronous)
{
  struct mpi_link *l = own(link);
  (void)synchronous; /* the send that waits is MPI's own */
  START(l, MPI_Irecv(at, as_int(count), mpi_type(type), from, 0, l->comm, request));
  return ERR_OK;
}

static const struct link_calls calls = {
  .destroy = destroy, .test = test, .started = link_host_started, .done = link_host_done, .allreduce = allreduce,
  .reduce_scatter = reduce_scatter, .allgather = allgather, .broadcast = broadcast, .barrier = barrier,
  .exchange_shares = exchange_shares, .gather_shares = gather_shares, .exchange_parts = exchange_parts,
  .send = send, .recv = recv, .pack = link_host_pack, .unpack = link_host_unpack, .reduce = link_host_reduce,
  .copy = link_host_copy, .flip = link_host_flip,
};
