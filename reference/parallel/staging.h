/* staging.h - gradients of units in slots, reduced bucket by bucket into this rank's shard of their sum.
 *
 * ddp.h's gradients where replicas share them (zero 2 and 3, reduce_each microbatch):
 *
 *   compute   ──begin B1──begin B0──begin ...     a begin takes a slot, waits until its last reduction is through
 *                       \  /\      /               with it, and makes it zero
 *   transfer  ───────────r1──+──r0──+──           reduce-scatter of a bucket, then this rank's part of it is added to
 *                                                 the shard (of the step's first micro-batch: copied)
 *
 * Slots: one for each end; for blocks two, and one more for each that is used twice (run->reused), whose backward
 * begins long before it ends.  A slot's life ends with poison, if the device was opened so.
 */
#ifndef PARALLEL_STAGING_H
#define PARALLEL_STAGING_H
#include "comm/comm.h"
#include "params/params.h"

struct staging;

struct staging_config {
  const struct run_config *run;
  const struct flat *flat; /* of this place, cut by unit */
  struct comm *comm;       /* the shard group, on the transfer stream */
  struct comm *replicas;   /* on the same stream: those that have this rank's shard; NULL: this one alone */
  struct dev_stream *compute;
  enum dtype reduced;      /* in which gradients are added over ranks */
  void *shard;             /* of run_state_type: where the sums end   */
};

/* All ranks of the group.  Owner of *out: the caller.  Takes slots now (DEV_GRADIENTS).  Fails: ERR_ARG,
 * ERR_MEMORY. */
enum err staging_create(const struct staging_config *c, struct staging **out);
void staging_destroy(struct staging *s); /* NULL is allowed */

/* The first call for a unit in a micro-batch gives it a slot; later ones nothing. */
enum err staging_begin(struct staging *s, int unit);
void *staging_at(const struct staging *s, int unit); /* begun: its first element */
/* Bucket b is complete on compute; one of a unit that was not begun is zero.  All ranks, each bucket once a micro-batch, in
 * their order.  With run->overlap off compute waits for it. */
enum err staging_reduce(struct staging *s, int b);
/* All buckets of micro-batch i of n of the step are queued.  After the last the shards are added over `replicas`, bucket by
 * bucket, and compute waits for them. */
enum err staging_finish(struct staging *s, int64_t i, int64_t n);

#endif
