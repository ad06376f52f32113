/* link.h - one MPI communicator: the only place that calls MPI and knows its codes.
 *
 * Everything is non-blocking: a call starts, link_test says when it is done.  One
 * collective, or one set of messages, is in flight on a link at a time, and one thread
 * uses it at a time.  Counts are elements and fit an int: who calls cuts into pieces.
 * Fails: ERR_COMM with MPI's own text.
 */
#ifndef COMM_LINK_H
#define COMM_LINK_H

#include "base/tensor.h"
#include "comm/comm.h"

enum { LINK_MESSAGES = 64 }; /* in flight at once */
enum { LINK_PIECE = 1 << 30 }; /* elements of one call, all ranks' parts together */

struct link;

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
void link_destroy(struct link *l);
int link_rank(const struct link *l);
int link_size(const struct link *l);

enum err link_test(struct link *l, bool *done);
/* link_test until done: yields first, then sleeps longer and longer, up to 1 ms. */
enum err link_wait(struct link *l);

enum err link_allreduce(struct link *l, void *at, int64_t count, enum dtype type, enum comm_op op); /* in place */
/* send: n parts of `count`. */
enum err link_reduce_scatter(struct link *l, const void *send, void *recv, int64_t count, enum dtype type, enum comm_op op);
/* send NULL: this rank's part already stands in recv. */
enum err link_allgather(struct link *l, const void *send, void *recv, int64_t count, enum dtype type);
enum err link_broadcast(struct link *l, void *at, int64_t count, enum dtype type, int root);
enum err link_gather(struct link *l, const void *send, void *recv, int64_t count, enum dtype type, int root);
enum err link_barrier(struct link *l);

/* How `total` elements are shared out: n consecutive shares as equal as can be, the first
 * total % n of them one longer.  link_share gives rank i's. */
void link_share(int64_t total, int n, int i, int64_t *first, int64_t *count);
/* Every rank gets from each rank that rank's share, side by side in recv, in rank order. */
enum err link_exchange_shares(struct link *l, const void *send, int64_t total, void *recv, enum dtype type);
/* recv [total] collects the shares; send is this rank's. */
enum err link_gather_shares(struct link *l, const void *send, void *recv, int64_t total, enum dtype type);
/* As exchange, with equal parts of `count` elements that begin `stride` apart in send. */
enum err link_exchange_parts(struct link *l, const void *send, int64_t count, int64_t stride, void *recv, enum dtype type);

/* Messages: any number of these, then link_test. */
enum err link_send(struct link *l, const void *at, int64_t count, enum dtype type, int to, bool synchronous);
enum err link_recv(struct link *l, void *at, int64_t count, enum dtype type, int from);

#endif
