/* comm.h - groups of ranks and collectives as operations on streams.
 *
 * A struct comm is one (group, stream) pair with a communicator of its own.  All
 * its calls only queue work on that stream and return; they start when the stream
 * gets there and never block it inside MPI (non-blocking start, then test with
 * back-off).  All ranks of the group make the same calls in the same order.
 * Counts are equal on all ranks and 64-bit.  Data is contiguous or strided views;
 * a strided one is packed by the collective.  A group of one is a copy.
 *
 * On a CUDA device a comm is NCCL's communicator, its calls issued to the stream, or `staged`: data
 * goes to pinned memory of the host and by MPI from there.  Order, counts and trace are the same.
 *
 * Every collective is written to the world's trace when it is queued; a PMPI shim
 * that does not know this file counts calls and bytes.
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "base/slot.h"
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
enum err comm_nccl(char *out, size_t bytes); /* "2.28.9"; ERR_UNAVAILABLE: why there is none */
/* How many GPUs this host has, at which addresses, and how many pairs reach each other directly. */
enum err comm_topology(char *out, size_t bytes);
/* All ranks: may those of the whole job exchange by NCCL?  Fails as comm_create, on all alike. */
enum err comm_check_nccl(struct comm_world *w, struct dev *d);

enum comm_reduce {
  COMM_FAST,   /* the library's own reduction: what is timed                     */
  COMM_ORDERED /* adds in rank order: equal bits on every rank, any bucket size  */
};

/* Between CUDA devices; others do not look at it. */
enum comm_transport {
  COMM_NCCL,  /* one device a rank                                    */
  COMM_STAGED /* through the host: correctness only, never a speed    */
};

#define COMM_HOLD "hold" /* name of the piece that hold_ms is on a CUDA device, right behind its collective */

struct comm_config {
  const char *name;  /* literal: "dp", "world"; stands in trace and messages     */
  enum comm_reduce reduce;
  bool synchronous;  /* sends complete only once their receiver has posted: shows deadlocks */
  double delay_ms;   /* planted: every collective of this comm starts this late  */
  double hold_ms;    /* planted: every reduction ends this late here, once all have arrived; others go on */
  bool silent;       /* nothing travels: a collective does this rank's own part of the copying and is done; not for messages */
  bool aligned;      /* a barrier before each collective: what it takes then is the transfer's alone */
  int64_t piece;     /* most elements of one MPI call; 0: as many as its int counts allow */
  enum comm_transport transport;
  const char *nccl_algo, *nccl_proto; /* read in comm_create only, as NCCL_ALGO and NCCL_PROTO; NULL: as they are set */
};

/* Collective over `ranks` (world ranks, ascending, n of them, this one among them).
 * Groups are created in the same order on every rank.  Owner of *out: the caller.
 * Scratch is taken now (DEV_COMMUNICATION): two blocks of max(max_bytes, 16 n) rounded up
 * to 256, none for a group of one.  What cannot go straight from the caller's memory
 * (strided views, rank-ordered sums) goes through it in as many pieces as it takes; the
 * pieces change no bit of an ordered sum.  A staged comm's two blocks, and room for what passes
 * through, are the host's.  Fails for NCCL, on all its ranks alike: ERR_INVALID when two of them are on one
 * device or have other versions, ERR_UNAVAILABLE without it. */
enum err comm_create(struct comm_world *w, struct dev_stream *s, const int *ranks, int n, size_t max_bytes,
                     const struct comm_config *config, struct comm **out);
void comm_destroy(struct comm *c); /* all its ranks; NULL is allowed */
int comm_group_rank(const struct comm *c);
int comm_group_size(const struct comm *c);
struct dev_stream *comm_stream(const struct comm *c);
void comm_delay(struct comm *c, double ms); /* planted: as config.delay_ms, for what is queued next */

enum comm_op { COMM_SUM, COMM_MAX };

/* Types: f64, f32, bf16, f16, i32, i64 are reduced; every type is moved.  Rank-ordered sums of bf16 and f16 are added in
 * float32 and rounded once, the library's are rounded at each addition.  COMM_MAX: a NaN wins in
 * rank-ordered mode only.  Nothing is sent for 0 elements, on any rank. */

/* t on every rank becomes the reduction of all.  In place. */
enum err comm_allreduce(struct comm *c, const struct tensor *t, enum comm_op op);
/* all [rows * n, cols] in rank order; mine [rows, cols] becomes the reduction of part
 * `group rank` of all.  mine may be that part of all itself. */
enum err comm_reduce_scatter(struct comm *c, const struct tensor *mine, const struct tensor *all, enum comm_op op);
/* all's part i becomes rank i's mine.  mine may be that part of all itself. */
enum err comm_allgather(struct comm *c, const struct tensor *all, const struct tensor *mine);
enum err comm_broadcast(struct comm *c, const struct tensor *t, int root);
/* Between start and finish, sends and receives are posted together, 12 at most; strided
 * ones share one block of scratch (ERR_ARG if they do not fit).  Alone, one to oneself would
 * wait for ever: ERR_ARG. */
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
 * by round trips.  0 and 0 on the host of rank 0.  All ranks. */
enum err comm_clock_offset(struct comm_world *w, double *offset_ms, double *error_ms);

/* --- trace -------------------------------------------------------------- */

struct comm_call {
  const char *op, *group, *stream; /* literals: "allreduce", ...          */
  enum dtype type;
  int64_t count;   /* elements of the whole buffer of this rank          */
  int64_t bytes;   /* sent by this rank to others on a ring, rounded down: see comm_ring_bytes; 0 where it is silent */
  int64_t step;
  int microbatch;
  int sequence;    /* of this call in its comm, from 1                   */
  int ranks, rank; /* size of the group, this rank in it                 */
  bool ordered, synchronous;
  bool nccl;       /* went by NCCL: nothing of MPI                        */
  bool silent;     /* nothing travelled                                   */
  int64_t piece;   /* elements (of a rank's part) that one round of MPI calls moves */
};
void comm_trace_at(struct comm_world *w, int64_t step, int microbatch); /* tags what is queued next */
/* Calls queued since comm_trace_restart(), oldest first; owned by w. */
const struct comm_call *comm_trace(const struct comm_world *w, int64_t *n);
void comm_trace_restart(struct comm_world *w);

/* What one rank sends on a ring, of a buffer of `bytes` on n ranks: allreduce 2 (n-1)/n
 * bytes, reduce_scatter and allgather (n-1)/n bytes (all n parts), send bytes, recv and
 * barrier 0; broadcast bytes (each rank passes all of it on; the last in the ring, which
 * sends nothing, is counted like the others). */
int64_t comm_ring_bytes(const char *op, int64_t bytes, int n);

/* The MPI calls that a traced call stands for, as the PMPI shim counts them; nothing in a
 * group of one (but for send and recv), for 0 elements, by NCCL or where the comm is silent.  P is the number of pieces.
 *   allreduce       fast     P MPI_Iallreduce: the buffer
 *                   ordered  P MPI_Ialltoallv: the buffer; P MPI_Iallgatherv: this rank's shares
 *   reduce_scatter  fast     P MPI_Ireduce_scatter_block: all n parts
 *                   ordered  P MPI_Ialltoallv: all n parts
 *   allgather       P MPI_Iallgather: this rank's part      broadcast  P MPI_Ibcast: the buffer
 *   send            P MPI_Isend or MPI_Issend: the buffer   recv  P MPI_Irecv: the buffer
 *   barrier         1 MPI_Ibarrier: 0
 * So in bytes, whatever the pieces: MPI_Iallreduce (fast) or MPI_Ialltoallv (ordered) has the
 * sum of count * element over the traced allreduces.  Pure.  Returns the rows written (<= 2). */
struct pmpi_count;
int comm_expect(const struct comm_call *call, struct pmpi_count *out); /* out[2] */

/* The call each comm is in or was last in, as text: "dp #12 allreduce (step 3), started".
 * Safe from another thread: what a watchdog prints. */
void comm_last_call(const struct comm_world *w, char *out, size_t bytes);
/* From now on the first SLOT_COMMS comms of w, in order of creation, also write into `slot`
 * what they queue, start and finish.  NULL: no longer.  The slot outlives the comms. */
void comm_watch(struct comm_world *w, struct slot *slot);

#endif
