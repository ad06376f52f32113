/* link_alone.c - link.h in a build without MPI: a world of one, groups of one.
 *
 * Stands for link_mpi.c.  A call is a copy, done before it returns.  Messages, which can only be to
 * oneself, are matched in the order of their posting once all of a set are posted.
 */
#include "comm/comm_state.h"
#include "comm/link_host.h"

#include <stdlib.h>
#include <string.h>

struct posted {
  char *at;
  size_t bytes;
};
struct alone_link {
  struct link base;
  struct posted sends[LINK_MESSAGES], recvs[LINK_MESSAGES];
  int n_sends, n_recvs;
};

static struct alone_link *own(struct link *l) { return (struct alone_link *)l; }

/* --- life --------------------------------------------------------------- */

enum err link_init(void) { return ERR_OK; }
void link_finalize(void) {}
void link_abort(int status) { _Exit(status); }
const char *link_library(void) { return "a build without MPI"; }

static const struct link_calls calls;

static enum err make(struct link **out)
{
  struct alone_link *l = calloc(1, sizeof *l);
  if (l == NULL) FAIL(ERR_MEMORY, "group of one: %zu bytes", sizeof *l);
  l->base = (struct link){.calls = &calls, .rank = 0, .size = 1};
  *out = &l->base;
  return ERR_OK;
}

enum err link_world(struct link **out)
{
  TRY(make(out));
  return ERR_OK;
}

enum err link_node(const struct link *world, struct link **out)
{
  (void)world;
  TRY(make(out));
  return ERR_OK;
}

enum err link_create(const struct link *world, const int *ranks, int n, struct link **out)
{
  (void)world, (void)ranks;
  BUG_IF(n != 1); /* no group is larger than its world */
  TRY(make(out));
  return ERR_OK;
}

static void destroy(struct link *l) { free(own(l)); }

/* --- messages -------------------------------------------------------------- */

static enum err send(struct link *link, const void *at, int64_t count, enum dtype type, int to, bool synchronous)
{
  struct alone_link *l = own(link);
  (void)to, (void)synchronous;
  BUG_IF(l->n_sends == LINK_MESSAGES);
  l->sends[l->n_sends++] = (struct posted){(char *)at, (size_t)count * dtype_bytes(type)};
  return ERR_OK;
}

static enum err recv(struct link *link, void *at, int64_t count, enum dtype type, int from, bool synchronous)
{
  struct alone_link *l = own(link);
  (void)from, (void)synchronous;
  BUG_IF(l->n_recvs == LINK_MESSAGES);
  l->recvs[l->n_recvs++] = (struct posted){at, (size_t)count * dtype_bytes(type)};
  return ERR_OK;
}

static enum err test(struct link *link, bool *done)
{
  struct alone_link *l = own(link);
  const int sends = l->n_sends, recvs = l->n_recvs;
  l->n_sends = l->n_recvs = 0;
  *done = true;
  if (sends != recvs) FAIL(ERR_COMM, "%d sends and %d receives of one group are to oneself: the rest would wait for ever", sends, recvs);
  for (int i = 0; i < sends; i++) {
    if (l->sends[i].bytes > l->recvs[i].bytes)
      FAIL(ERR_COMM, "message %d to oneself has %zu bytes, its receive room for %zu", i, l->sends[i].bytes, l->recvs[i].bytes);
    memmove(l->recvs[i].at, l->sends[i].at, l->sends[i].bytes);
  }
  return ERR_OK;
}

/* --- collectives: the values of one rank are the result ------------------------- */

static enum err put(void *to, const void *from, int64_t count, enum dtype type)
{
  if (from != NULL && count > 0) memmove(to, from, (size_t)count * dtype_bytes(type));
  return ERR_OK;
}

static enum err allreduce(struct link *l, void *at, int64_t count, enum dtype type, enum comm_op op)
{
  (void)l, (void)at, (void)count, (void)type, (void)op;
  return ERR_OK;
}
static enum err reduce_scatter(struct link *l, const void *send, void *recv, int64_t count, enum dtype type, enum comm_op op)
{
  (void)l, (void)op;
  return put(recv, send, count, type);
}
static enum err allgather(struct link *l, const void *send, void *recv, int64_t count, enum dtype type)
{
  (void)l;
  return put(recv, send, count, type);
}
static enum err broadcast(struct link *l, void *at, int64_t count, enum dtype type, int root)
{
  (void)l, (void)at, (void)count, (void)type, (void)root;
  return ERR_OK;
}
static enum err barrier(struct link *l)
{
  (void)l;
  return ERR_OK;
}
static enum err exchange_shares(struct link *l, const void *send, int64_t total, void *recv, enum dtype type)
{
  (void)l;
  return put(recv, send, total, type);
}
static enum err gather_shares(struct link *l, const void *send, void *recv, int64_t total, enum dtype type)
{
  (void)l;
  return put(recv, send, total, type);
}
static enum err exchange_parts(struct link *l, const void *send, int64_t count, int64_t stride, void *recv, enum dtype type)
{
  (void)l, (void)stride;
  return put(recv, send, count, type);
}

enum err link_gather(struct link *l, const void *send, void *recv, int64_t count, enum dtype type, int root)
{
  (void)l, (void)root;
  return put(recv, send, count, type);
}

static const struct link_calls calls = {
  .destroy = destroy, .test = test, .started = link_host_started, .done = link_host_done, .allreduce = allreduce,
  .reduce_scatter = reduce_scatter, .allgather = allgather, .broadcast = broadcast, .barrier = barrier,
  .exchange_shares = exchange_shares, .gather_shares = gather_shares, .exchange_parts = exchange_parts,
  .send = send, .recv = recv, .pack = link_host_pack, .unpack = link_host_unpack, .reduce = link_host_reduce,
  .copy = link_host_copy, .flip = link_host_flip,
};
