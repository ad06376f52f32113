/* idle.h - where the time of a pipeline's stages goes that no pass fills: measured, and the list played with measured
 * costs.
 *
 * From `action` records alone.  Of a step counts the window from the first pass of any stage to the end of the last;
 * a stage is idle for what its own passes leave of it.  The idle time of each stage is split into
 *   schedule   the list played with equal costs (means over virtual stages), transfers free
 *   imbalance  the list played with the step's own costs (means of each virtual stage), transfers free, less that
 *   transfer   the rest: exposed transfers, and being late
 * all three means over steps, so that they add up.  Steps of the warm-up do not count.
 */
#ifndef CHECKS_IDLE_H
#define CHECKS_IDLE_H

#include "base/partition.h"
#include "base/schedule.h"
#include "judge.h"

struct idle_stage {
  double idle_ms, schedule_ms, imbalance_ms, transfer_ms; /* means over steps */
  int n;                                                  /* actions of its list */
  /* of each action, from the window's start: in the step nearest to the median, and simulated */
  double *start_ms, *end_ms, *simulated_start_ms, *simulated_end_ms;
};

struct idle {
  struct schedule *schedule;
  int stages;
  struct idle_stage *stage;
  int64_t steps, shown;                           /* steps that count; the one whose actions are in `stage` */
  double total_ms, bubble_ms;                     /* medians over steps: the window; idle time, mean over stages   */
  double busy_ms;                                 /* the window less the bubble                                    */
  double simulated_total_ms, simulated_bubble_ms; /* the list played with the run's median times       */
  double forward_ms, input_ms, weight_ms, transfer_ms; /* those medians; of passes, means over virtual stages */
  double nearest_ms;                                   /* smallest distance of a step's bubble from the simulated one */
  double late_ms; /* what this machine's own lateness can make of the bubble: see idle.c */
};

/* Replica dp_rank, tensor rank tp_rank.  Owner of *out: the caller, until idle_free().  Fails: ERR_UNAVAILABLE when
 * records are missing, ERR_FORMAT when they name other passes than the list or another order; ERR_MEMORY. */
enum err idle_measure(const struct run_data *run, int dp_rank, int tp_rank, struct idle *out);
void idle_free(struct idle *x);

#endif
