/* comm.h - groups of ranks and collectives as operations on streams.
 *
 * A struct comm is one (group, stream) pair with a communicator of its own.  All
 * its calls only queue work on that stream and return; they start when the stream
 * gets there and never block it inside MPI (non-blocking start, then test with
 * back-off).  All ranks of the group make the same calls in the same order.
 * Counts are equal on all ranks and 64-bit.  Data is contiguous or strided views;
 * a strided one is packed by the collective.  A group of one is a copy.
 *
 * Every collective is written to the world's trace when it is queued; a PMPI shim
 * that does not know this file counts calls and bytes.
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "device/dev.h"

struct comm_world;
struct comm;

/* All processes of the job.  Call once, first (MPI_Init_thread, MULTIPLE).  Without
 * an MPI launcher it is a world of one.  Keeps malloc from returning memory.
 * Fails: ERR_COMM; ERR_INVALID if a launcher started n processes that MPI sees as
 * n worlds of one (a mismatched mpirun), from the launcher's own environment. */
enum err comm_world_open(struct comm_world **out);
void comm_world_close(struct comm_world *w); /* all ranks; MPI_Finalize; NULL is allowed */
void comm_world_abort(struct comm_world *w, int status); /* ends the job, any one rank */
int comm_rank(const struct comm_world *w);
int comm_size(const struct comm_world *w);
int comm_node_rank(const struct comm_world *w); /* among the ranks of this host */
int comm_node_size(const struct comm_world *w);
const char *comm_library(void); /* "Open MPI 4.1.4", "MPICH 4.0.2" */

enum comm_reduce {
  COMM_FAST,   /* the library's own reduction: what is timed                     */
  COMM_ORDERED /* adds in rank order: equal bits on every rank, any bucket size  */
};

struct comm_config {
  const char *name;  /* literal: "dp", "world"; stands in trace and messages     */
  enum comm_reduce reduce;
  bool synchronous;  /* sends complete only when received: shows deadlocks       */
  double delay_ms;   /* planted: every collective of this comm starts this late  */
};

/* Collective over `ranks` (world ranks, ascending, n of them, this one among them).
 * Groups are created in the same order on every rank.  Owner of *out: the caller.
 * Scratch for the largest collective, max_bytes, is taken now (DEV_COMMUNICATION). */
enum err comm_create(struct comm_world *w, struct dev_stream *s, const int *ranks, int n, size_t max_bytes,
                     const struct comm_config *config, struct comm **out);
void comm_destroy(struct comm *c); /* all its ranks; NULL is allowed */
int comm_group_rank(const struct comm *c);
int comm_group_size(const struct comm *c);
struct dev_stream *comm_stream(const struct comm *c);

enum comm_op { COMM_SUM, COMM_MAX };

/* t on every rank becomes the reduction of all.  In place. */
enum err comm_allreduce(struct comm *c, const struct tensor *t, enum comm_op op);
/* all [rows * n, cols] in rank order; mine [rows, cols] becomes the reduction of part
 * `group rank` of all.  mine may be that part of all itself. */
enum err comm_reduce_scatter(struct comm *c, const struct tensor *mine, const struct tensor *all, enum comm_op op);
/* all's part i becomes rank i's mine.  mine may be that part of all itself. */
enum err comm_allgather(struct comm *c, const struct tensor *all, const struct tensor *mine);
enum err comm_broadcast(struct comm *c, const struct tensor *t, int root);
/* Between start and finish, sends and receives are posted together. */
enum err comm_group_start(struct comm *c);
enum err comm_group_finish(struct comm *c);
enum err comm_send(struct comm *c, const struct tensor *t, int to);
enum err comm_recv(struct comm *c, const struct tensor *t, int from);
enum err comm_barrier(struct comm *c); /* on the stream */

/* Host calls: the calling thread waits, sleeping; nothing of the streams is ordered
 * by them.  All ranks of the world.  agree: every rank gets the worst code, and the
 * text of the lowest rank that had it. */
enum err comm_agree(struct comm_world *w, enum err mine);
enum err comm_host_barrier(struct comm_world *w);
enum err comm_host_gather(struct comm_world *w, const void *mine, size_t bytes, void *all); /* all: rank 0 only */
enum err comm_host_bcast(struct comm_world *w, void *at, size_t bytes, int root);
/* Offset of rank 0's clock_ms() to ours (theirs = ours + offset) and its error bound,
 * by round trips.  0 and 0 on one host. */
enum err comm_clock_offset(struct comm_world *w, double *offset_ms, double *error_ms);

/* --- trace -------------------------------------------------------------- */

struct comm_call {
  const char *op, *group, *stream; /* literals: "allreduce", ...          */
  enum dtype type;
  int64_t count;   /* elements of the whole buffer of this rank          */
  int64_t bytes;   /* sent by this rank to others on a ring (docs/FACTS): the formula's count */
  int64_t step;
  int microbatch;
  int sequence;    /* of this call in its comm                           */
};
void comm_trace_at(struct comm_world *w, int64_t step, int microbatch); /* tags what is queued next */
/* Calls queued since comm_trace_restart(), oldest first; owned by w. */
const struct comm_call *comm_trace(const struct comm_world *w, int64_t *n);
void comm_trace_restart(struct comm_world *w);
/* The call each comm is in or was last in, as text: "dp #12 allreduce (step 3), started".
 * Safe from another thread: what a watchdog prints. */
void comm_last_call(const struct comm_world *w, char *out, size_t bytes);

#endif
