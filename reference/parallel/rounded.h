/* rounded.h - gradients that travel between replicas in another type than they are kept in. */
#ifndef PARALLEL_ROUNDED_H
#define PARALLEL_ROUNDED_H
#include "comm/comm.h"
#include "params/params.h"

/* [1, largest bucket] of that type (DEV_GRADIENTS): one bucket at a time is on its way, for the stream's next waits
 * for its last.  Owner: the caller, of out->at.  Fails: ERR_MEMORY. */
enum err rounded_room(struct dev *d, const struct flat *flat, enum dtype type, struct tensor *out);
/* All ranks of c, on its stream: t [1, n] becomes the sum over ranks, rounded to the room's type before and widened after;
 * as it is where the room is at NULL. */
enum err rounded_allreduce(struct comm *c, const struct tensor *t, const struct tensor *room);
#endif
