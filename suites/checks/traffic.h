/* traffic.h - the collectives and messages that each rank queues in a step, group by group, in order.
 *
 * A closed formula of the configuration and the schedule's lists.  N rows of a micro-batch, n those of a rank's shard
 * of the sequence, C channels, V' = V / tp rounded up; elements of the run's work type unless said, those of
 * gradients of weights (replicas, tied, shards' sums) of its state type.  By group and stream:
 *
 *   dp         transfer   an allreduce of each bucket, a reduction a step (or a micro-batch); over ranks that share (zero), a
 *                         reduce_scatter of it
 *   replicas   transfer   where groups of ranks share: over the groups an allreduce of each bucket's shard, once a step
 *   gather     gather     zero 1 and 2: an allgather of each bucket of the weights, first parameter first, after the update;
 *                         zero 3: of each unit before it is needed (traffic_gather.h)
 *   shards     compute    over ranks that share, an allreduce of one float64 a row of the parameter table
 *   sums       scalar     an allreduce of the count of tokens, and of two losses; float64
 *   tp         compute    per layer, forward: two allreduces of N C; backward: two.  Embedding: one in forward; head: one in
 *                         backward; the loss: allreduces of N largest and 2 N sums, float64.  With sequence parallel an allreduce is
 *                         an allgather before a layer cut by columns and a reduce_scatter after one cut by rows, or the reverse
 *                         in backward, where the shards of linear layers' inputs are gathered once more; and in the last
 *                         micro-batch of a fold an allreduce of 2 C for each norm and of the positions' gradient
 *   norm       compute    an allreduce of one float64 a row of the parameter table
 *   outputs    outputs    n C for each chunk and micro-batch, sent and received in the schedule's order
 *   gradients  gradients  the same backwards
 *   scale      compute    with a loss scale an allreduce of one float64: did a gradient overflow, and whose
 *   tied       compute    V' C from the last stage to the first and back, once a fold
 */
#ifndef CHECKS_TRAFFIC_H
#define CHECKS_TRAFFIC_H

#include "layout.h"

enum traffic_group {
  TRAFFIC_DP,
  TRAFFIC_REPLICAS,
  TRAFFIC_GATHER,
  TRAFFIC_SHARDS,
  TRAFFIC_SUMS,
  TRAFFIC_TP,
  TRAFFIC_NORM,
  TRAFFIC_OUTPUTS,
  TRAFFIC_GRADIENTS,
  TRAFFIC_TIED,
  TRAFFIC_SCALE,
  TRAFFIC_GROUPS
};

struct traffic_call {
  const char *op;
  enum dtype type;
  int64_t count;
  int64_t microbatch; /* global number in the step; -1: any */
  bool by_width;      /* count is of all `sequence` positions; with narrow fewer, as the micro-batch is wide */
};
struct traffic {
  struct traffic_call *calls;
  int n, room;
};

const char *traffic_name(enum traffic_group g);
const char *traffic_stream(enum traffic_group g);
int64_t traffic_ranks(const struct run_config *c, enum traffic_group g);
/* What a call says that it sends on a ring of n ranks: count elements are the whole. */
int64_t traffic_bytes(const char *op, int64_t bytes, int64_t n);

/* Owner of out->calls: the caller, until traffic_free.  Fails: ERR_MEMORY; ERR_CONFIG for a schedule that is none. */
enum err traffic_expect(const struct run_config *c, const struct layout *at, enum traffic_group g, struct traffic *out);
void traffic_free(struct traffic *t);

#endif
