/* slots.h - this rank's slot in the state file of its host (base/slot.h). */
#ifndef TRAIN_SLOTS_H
#define TRAIN_SLOTS_H

#include "base/slot.h"
#include "comm/comm.h"

struct slots;
/* Maps dir/state.<host>; comms write into the slot from now on.  dir "": the slot is private.
 * All blocks of the file are taken now, so that a full disk is an error here and no signal later.
 * Owner of *out: the caller.  Fails: ERR_IO, ERR_MEMORY. */
enum err slots_open(struct comm_world *w, const char *dir, const char *run, struct slots **out);
void slots_close(struct slots *s); /* NULL is allowed */
void slots_say(struct slots *s, const char *phase, int64_t step); /* phase: at most SLOT_NAME - 1 characters */
/* World rank in slot i of this host; -1: none. */
int slots_rank(const struct slots *s, int i);
#endif
