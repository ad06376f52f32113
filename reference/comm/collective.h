/* collective.h - a collective as the work of one stream: started, then tested until done. */
#ifndef COMM_COLLECTIVE_H
#define COMM_COLLECTIVE_H

#include "comm/comm_state.h"

enum collective { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, BARRIER, COLLECTIVES };
extern const char *const collective_names[COLLECTIVES];

/* allreduce, broadcast: all is the buffer, mine is not looked at.  Traces and queues. */
enum err collective_queue(struct comm *c, enum collective kind, const struct tensor *all, const struct tensor *mine,
                          enum comm_op op, int root);
/* c->messages, posted together; empties them. */
enum err collective_queue_messages(struct comm *c);

#endif
