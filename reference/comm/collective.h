/* collective.h - a collective as the work of one stream: started, then tested until done. */
#ifndef COMM_COLLECTIVE_H
#define COMM_COLLECTIVE_H

#include "comm/comm_state.h"

enum collective { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, BARRIER, COLLECTIVES };
extern const char *const collective_names[COLLECTIVES];

/* allreduce, broadcast: all is the buffer, mine is not looked at.  Traces and queues. */
enum err collective_queue(struct comm *c, enum collective kind, const struct tensor *all, const struct tensor *mine,
                          enum comm_op op, int root);
/* Queues the comm's delay where work cannot hold itself back: on a CUDA device, whose stream then waits.
 * Returns in *left what the work must wait itself. */
enum err collective_delay(struct comm *c, double *left_ms);
/* c->messages, posted together; empties them. */
enum err collective_queue_messages(struct comm *c);

#endif
