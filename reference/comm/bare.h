/* bare.h - sums over ranks beside a computing thread and nothing else: no streams, events, traces or records.
 *
 * What the overlap suite holds the trainer against.  One thread takes buffers in the order given and makes one
 * all-reduce after the other, looking whether it is done once in a nap; the caller computes meanwhile.
 */
#ifndef COMM_BARE_H
#define COMM_BARE_H

#include "comm/comm.h"

struct bare;
/* All ranks.  Owner of *out: the caller.  Fails: ERR_COMM, ERR_MEMORY, ERR_DEVICE (no thread). */
enum err bare_create(struct comm_world *w, struct bare **out);
void bare_destroy(struct bare *b); /* all ranks, after bare_wait(); NULL is allowed */
/* From now on the sum over ranks of these elements is under way, in place; at most BARE_ROOM at one time.  All ranks in
 * one order.  aligned: a barrier before it, whose time does not count.  Fails: ERR_ARG. */
enum { BARE_ROOM = 1024 };
enum err bare_sum(struct bare *b, void *at, int64_t count, enum dtype type, bool aligned);
/* How long sums took from their start (after the barrier) to their end, together; and what of the processor's time this
 * rank's thread had for them: looks that found nothing to do not counted. */
struct bare_times {
  double ms, processor_ms;
};
/* Until all are done.  Fails: what a sum failed with. */
enum err bare_wait(struct bare *b, struct bare_times *out);
enum err bare_meet(struct bare *b); /* a barrier of the callers; nothing may be under way */

#endif
