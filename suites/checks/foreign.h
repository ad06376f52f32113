/* foreign.h - checks of a run of another trainer, where ours ask for what only ours can tell.
 *
 * Each is the part of a check (checks.h) for run_data.foreign.  What the run does not show at all is SKIPPED with the faults that
 * could not be seen for it; what it shows is judged in full: a hole in it is never a pass.
 */
#ifndef CHECKS_FOREIGN_H
#define CHECKS_FOREIGN_H

#include "verdict.h"

/* O1: the weights before step 0 are the case's, name by name, shape by shape, and in every element. */
void foreign_initial(const struct run_data *run, const struct run_data *truth, struct verdict *out);
/* O2: micro-batches as told: each one consumed, with the case's samples and counts, as far as these are told. */
void foreign_batch(const struct run_data *run, const struct run_data *truth, struct verdict *out);
/* O7: what is told under one name (what, group, of) at one step has one hash. */
void foreign_replicas(const struct run_data *run, struct verdict *out);
/* O11: ranks of one group give its collectives in one order.  A call is a text: words, the first one perhaps its number in the group,
 * then operation and group.  Groups dp, tp, pp and world are those of the layout, tensor ranks next to each other, then replicas; of any
 * other name: the ranks that name it.  Point-to-point calls (send, recv) and those of the group "other" are passed over. */
void foreign_trace(const struct run_data *run, struct verdict *out);

/* What can be judged: 1 records of steps, 2 updates (weights before and after one, and moments), 3 gradients; 0: nothing. */
int foreign_level(const struct run_data *run);

/* A part of a check that passed without it: what the run left out, and what could not be seen for it.  The i-th of `check`; false: no
 * such part. */
bool foreign_unseen(const struct run_data *run, const char *check, int i, struct verdict *out);

#endif
