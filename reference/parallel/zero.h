/* zero.h - where the weights that products read stand, and from when on they may be read.
 *
 * The parameters of a rank come in units (struct flat_unit): what stands before the blocks, each block, what
 * stands after them.  Around each use of a unit in a pass the model says
 *
 *   zero_need(z, unit, pass)   the compute stream waits until the weights are there
 *   zero_weights(z, unit)      where the unit's first element is, until
 *   zero_done(z, unit)         the use is queued
 *
 * Stage 0 of run->zero has all weights in one flat buffer.  So have 1 and 2, where each rank of the shard group
 * updates its own part of every bucket; after an update the buckets are all-gathered in place, on a stream of
 * their own, and a need waits for its unit's.
 *
 * Stage 3 has a shard of the weights, and slots that units are gathered into before they are used:
 *
 *   gather   ─g0─g1───g2───g3──      g2 goes into the slot of 0: it waits until compute is through with it;
 *              \  \   /\   /         prefetch + 1 slots for blocks, taken in turn, one for each end
 *   compute  ───u0─u1────u2────
 *
 * Units are gathered in the order in which they will be needed, which zero_plan() says beforehand and which is the
 * same on all ranks of the group, at most `prefetch` ahead of the one in use.  What a unit's life in a slot ends
 * with is poison, if the device was opened so.
 */
#ifndef PARALLEL_ZERO_H
#define PARALLEL_ZERO_H
#include "comm/comm.h"
#include "params/params.h"

struct zero;

struct zero_config {
  const struct run_config *run;
  const struct param_table *table;
  const struct flat *flat; /* of this place */
  struct dev_stream *compute;
  void *weights;       /* of run_work_type: the flat buffer; stage 3 with a group: this rank's shard of it */
  struct comm *gather; /* the shard group, on a stream of its own; NULL: nothing is sharded here */
};

enum zero_pass { ZERO_FORWARD, ZERO_BACKWARD };

/* A unit's stay in a slot: it is needed, and done with, this often in a pass. */
struct zero_life {
  int unit;
  enum zero_pass pass;
  int uses;
};

/* All ranks of the group.  Owner of *out: the caller.  Stage 3 takes the slots of both ends now (DEV_PARAMETERS).
 * Fails: ERR_ARG, ERR_MEMORY. */
enum err zero_create(const struct zero_config *c, struct zero **out);
/* Once, when all else that a step needs is there: stage 3 takes the slots of blocks, so that what is left of memory says how
 * many there may be.  Fails: ERR_MEMORY naming the largest prefetch that has room. */
enum err zero_room(struct zero *z);
void zero_destroy(struct zero *z); /* waits for what it queued; NULL is allowed */

/* What will be needed until the next plan, in order; `lives` outlives that.  The compute stream must be past the
 * last update; every life of the plan before must be over.  Fails: ERR_ARG. */
enum err zero_plan(struct zero *z, const struct zero_life *lives, int n);
/* Fails: ERR_ARG where the plan has another unit next. */
enum err zero_need(struct zero *z, int unit, enum zero_pass pass);
void *zero_weights(const struct zero *z, int unit);
enum err zero_done(struct zero *z, int unit);

/* The update of the weights is queued on compute.  Stages 1 and 2 queue the gathers; with overlap_gather off the
 * compute stream waits for all of them now, else each need for its own. */
enum err zero_updated(struct zero *z);
/* The compute stream waits for all gathers of the last update: before anything but a need reads or writes weights. */
enum err zero_settle(struct zero *z);

#endif
