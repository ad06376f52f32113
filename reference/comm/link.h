/* link.h - one communicator of one group, whatever carries it: the seam of this room.
 *
 * A link is a table of calls.  MPI (link_mpi.c) works on memory of the host: a call starts,
 * link_test says when it is done, nothing blocks.  NCCL (link_cuda.c) works on memory of the
 * device: a call goes on the stream whose work is being issued, and is then done as far as the
 * host is concerned.  What collectives are made of beside calls (packing, sums in rank order)
 * stands in the table too, since it works on the same memory.
 *
 * One collective, or one set of messages, is in flight on a link at a time, and one thread
 * uses it at a time.  Counts are elements and fit an int: who calls cuts into pieces.
 * Fails: ERR_COMM with the library's own text.
 */
#ifndef COMM_LINK_H
#define COMM_LINK_H

#include "base/tensor.h"
#include "comm/comm.h"

struct dev_cuda;

enum { LINK_MESSAGES = 64 }; /* in flight at once */
enum { LINK_PIECE = 1 << 30 }; /* elements of one call, all ranks' parts together */

struct link;

/* What is being done, for those who watch: calls `sequence` .. of a comm. */
struct link_mark {
  struct comm *comm;
  const char *op; /* literal */
  int64_t sequence, step;
};

struct link_calls {
  void (*destroy)(struct link *l);
  enum err (*test)(struct link *l, bool *done);
  /* A call reached the head of its stream, or is done there. */
  enum err (*started)(struct link *l, const struct link_mark *mark);
  enum err (*done)(struct link *l, const struct link_mark *mark);

  enum err (*allreduce)(struct link *l, void *at, int64_t count, enum dtype type, enum comm_op op);
  enum err (*reduce_scatter)(struct link *l, const void *send, void *recv, int64_t count, enum dtype type, enum comm_op op);
  enum err (*allgather)(struct link *l, const void *send, void *recv, int64_t count, enum dtype type);
  enum err (*broadcast)(struct link *l, void *at, int64_t count, enum dtype type, int root);
  enum err (*barrier)(struct link *l);
  enum err (*exchange_shares)(struct link *l, const void *send, int64_t total, void *recv, enum dtype type);
  enum err (*gather_shares)(struct link *l, const void *send, void *recv, int64_t total, enum dtype type);
  enum err (*exchange_parts)(struct link *l, const void *send, int64_t count, int64_t stride, void *recv, enum dtype type);
  enum err (*send)(struct link *l, const void *at, int64_t count, enum dtype type, int to, bool synchronous);
  enum err (*recv)(struct link *l, void *at, int64_t count, enum dtype type, int from, bool synchronous);

  enum err (*pack)(struct link *l, const struct tensor *t, int64_t first, int64_t count, void *at);
  enum err (*unpack)(struct link *l, const struct tensor *t, int64_t first, int64_t count, const void *at);
  enum err (*reduce)(struct link *l, void *parts, int n, int64_t count, enum dtype type, enum comm_op op);
  enum err (*copy)(struct link *l, const struct tensor *to, const struct tensor *from);
  enum err (*flip)(struct link *l, void *byte, unsigned char bits);
};

struct link {
  const struct link_calls *calls;
  int rank, size;
  bool issued;               /* its calls go on a stream at once                */
  const struct dev_cuda *at; /* whose work is being issued; NULL on the host    */
};

/* --- MPI ------------------------------------------------------------------- */

/* Start and end of MPI in this process. */
enum err link_init(void);
void link_finalize(void);
void link_abort(int status);
const char *link_library(void);

/* A copy of the world for host calls, not counted by the shim. */
enum err link_world(struct link **out);
/* Ranks of `world` on this host, in order. */
enum err link_node(const struct link *world, struct link **out);
/* Collective over the n world ranks listed. */
enum err link_create(const struct link *world, const int *ranks, int n, struct link **out);
/* MPI only: everyone's `count` elements to the root. */
enum err link_gather(struct link *l, const void *send, void *recv, int64_t count, enum dtype type, int root);
/* link_test until done: yields first, then sleeps longer and longer, up to 1 ms. */
enum err link_wait(struct link *l);

/* --- the calls of any link --------------------------------------------------- */

static inline void link_destroy(struct link *l)
{
  if (l) l->calls->destroy(l);
}
static inline int link_rank(const struct link *l) { return l->rank; }
static inline int link_size(const struct link *l) { return l->size; }
static inline enum err link_test(struct link *l, bool *done) { return l->calls->test(l, done); }
static inline enum err link_started(struct link *l, const struct link_mark *m) { return l->calls->started(l, m); }
static inline enum err link_done(struct link *l, const struct link_mark *m) { return l->calls->done(l, m); }

/* In place. */
static inline enum err link_allreduce(struct link *l, void *at, int64_t count, enum dtype type, enum comm_op op)
{
  return l->calls->allreduce(l, at, count, type, op);
}
/* send: n parts of `count`. */
static inline enum err link_reduce_scatter(struct link *l, const void *send, void *recv, int64_t count, enum dtype type,
                                           enum comm_op op)
{
  return l->calls->reduce_scatter(l, send, recv, count, type, op);
}
/* send NULL: this rank's part already stands in recv. */
static inline enum err link_allgather(struct link *l, const void *send, void *recv, int64_t count, enum dtype type)
{
  return l->calls->allgather(l, send, recv, count, type);
}
static inline enum err link_broadcast(struct link *l, void *at, int64_t count, enum dtype type, int root)
{
  return l->calls->broadcast(l, at, count, type, root);
}
static inline enum err link_barrier(struct link *l) { return l->calls->barrier(l); }

/* How `total` elements are shared out: n consecutive shares as equal as can be, the first
 * total % n of them one longer.  link_share gives rank i's. */
static inline void link_share(int64_t total, int n, int i, int64_t *first, int64_t *count)
{
  const int64_t each = total / n, longer = total % n;
  *count = each + (i < longer);
  *first = each * i + (i < longer ? i : longer);
}
/* Every rank gets from each rank that rank's share, side by side in recv, in rank order. */
static inline enum err link_exchange_shares(struct link *l, const void *send, int64_t total, void *recv, enum dtype type)
{
  return l->calls->exchange_shares(l, send, total, recv, type);
}
/* recv [total] collects the shares; send is this rank's. */
static inline enum err link_gather_shares(struct link *l, const void *send, void *recv, int64_t total, enum dtype type)
{
  return l->calls->gather_shares(l, send, recv, total, type);
}
/* As exchange, with equal parts of `count` elements that begin `stride` apart in send. */
static inline enum err link_exchange_parts(struct link *l, const void *send, int64_t count, int64_t stride, void *recv,
                                           enum dtype type)
{
  return l->calls->exchange_parts(l, send, count, stride, recv, type);
}

/* Messages: any number of these, then link_test.  A synchronous send is done only when its
 * receiver has posted; both ends say so. */
static inline enum err link_send(struct link *l, const void *at, int64_t count, enum dtype type, int to, bool synchronous)
{
  return l->calls->send(l, at, count, type, to, synchronous);
}
static inline enum err link_recv(struct link *l, void *at, int64_t count, enum dtype type, int from, bool synchronous)
{
  return l->calls->recv(l, at, count, type, from, synchronous);
}

/* As the functions of view.h, on the memory that this link works on. */
static inline enum err link_pack(struct link *l, const struct tensor *t, int64_t first, int64_t count, void *at)
{
  return l->calls->pack(l, t, first, count, at);
}
static inline enum err link_unpack(struct link *l, const struct tensor *t, int64_t first, int64_t count, const void *at)
{
  return l->calls->unpack(l, t, first, count, at);
}
static inline enum err link_reduce(struct link *l, void *parts, int n, int64_t count, enum dtype type, enum comm_op op)
{
  return l->calls->reduce(l, parts, n, count, type, op);
}
/* Views of one shape; they may be the same. */
static inline enum err link_copy(struct link *l, const struct tensor *to, const struct tensor *from)
{
  return l->calls->copy(l, to, from);
}
/* Planted: these bits of one byte. */
static inline enum err link_flip(struct link *l, void *byte, unsigned char bits) { return l->calls->flip(l, byte, bits); }

#endif
