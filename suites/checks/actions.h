/* actions.h - what the `action` records of one pipeline say: when each action of each stage's list ran, step by step.
 */
#ifndef CHECKS_ACTIONS_H
#define CHECKS_ACTIONS_H

#include "base/schedule.h"
#include "judge.h"

/* One step, as recorded: [stage][action], ms on rank 0's clock. */
struct actions_step {
  double *start[SCHEDULE_RANKS_MAX], *end[SCHEDULE_RANKS_MAX];
};

struct actions {
  const struct schedule *s;
  int ranks[SCHEDULE_RANKS_MAX]; /* world rank of each stage          */
  int64_t first, steps;          /* steps that count: no warm-up      */
  struct actions_step *list;     /* [steps]                           */
  size_t total;                  /* actions of all stages in one step */
};

/* Of replica dp_rank, tensor rank tp_rank.  s must live as long as *out.  Owner of *out: the caller, until
 * actions_free(), also after a failure.  Fails: ERR_UNAVAILABLE when records are missing, ERR_FORMAT when they name
 * other passes than the list, or another order; ERR_MEMORY. */
enum err actions_read(const struct run_data *run, const struct schedule *s, int dp_rank, int tp_rank,
                      struct actions *out);
void actions_free(struct actions *x);

#endif
