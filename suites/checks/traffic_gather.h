/* traffic_gather.h - the gathers of weights that a rank queues in a step when each has only a shard of them (zero 3).
 *
 * A closed formula of the schedule's list.  A pass needs units in order: forward the parameters before the blocks (in
 * the first stage), each block, in the last stage the tied matrix (if it stands apart from the embedding) and the
 * parameters after the blocks; backward the last stage's first, then the blocks from the last, and what stands before them
 * only where the head reads the tied matrix there.  When one is needed, those up to `prefetch` further on are queued, in
 * order, of the same pass or the next ones, but none of an end of the model whose place is still in use.
 */
#ifndef CHECKS_TRAFFIC_GATHER_H
#define CHECKS_TRAFFIC_GATHER_H

#include "layout.h"
#include "base/schedule.h"

/* One bucket. */
struct traffic_gather {
  int64_t count;      /* of the whole bucket, padding included                           */
  int action;         /* of the rank's list: the pass that had begun when it was queued */
  int64_t microbatch; /* of that pass, in the replica                                    */
};
/* `s`: of the run, its list of stage at->pp is walked.  Owner of *out: the caller, free().  Fails: ERR_MEMORY. */
enum err traffic_gathers(const struct run_config *c, const struct layout *at, const struct schedule *s,
                         struct traffic_gather **out, int *n);

#endif
