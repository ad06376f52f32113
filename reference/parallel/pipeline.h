/* pipeline.h - the one executor of pipeline schedules: it queues a rank's list of actions.
 *
 * What each action is, and what it waits for, base/schedule.h says.  Three streams of
 * one rank take their actions from the list: compute (passes), and those of the comms
 * `outputs` (activations to the next virtual stage) and `gradients` (back).  Order
 * between them is made by events alone; what a pass does and where boundary buffers are is
 * the caller's, so that a model, a timed wait or a test can be run by it.
 *
 *   compute    ─F0──────F1──────B0──────F2──      an arrow is an event that another
 *                │ ↑      │ ↑    ↑ │               stream waits for
 *   outputs    ──S0─R1────S1┘    │ │
 *   gradients  ──────────────R0──┘ S0──
 *
 * Every stream's first use of a buffer in a run comes after the work before it on the
 * compute stream, and the compute stream goes on after the run only when all transfers
 * are done: runs follow each other, also of several pipelines on the same buffers (training
 * and evaluation), without another wait.
 */
#ifndef PARALLEL_PIPELINE_H
#define PARALLEL_PIPELINE_H

#include "base/schedule.h"
#include "comm/comm.h"

struct pipeline_work {
  void *arg;
  /* Queues F, B, I or W of a's micro-batch and chunk on the compute stream, in a's places. */
  enum err (*pass)(void *arg, const struct schedule_action *a);
  /* The boundary buffer of a's chunk and places: its output (sent after F; holds the output's
   * gradient before B) or its input (received before F; holds the input's gradient after B).  Asked for right
   * before the transfer is queued, so phases and trace tags can be set here. */
  struct tensor (*boundary)(void *arg, const struct schedule_action *a, bool output);
  /* May be NULL.  After a pass and the event that transfers wait for: what is queued on compute here holds back
   * later passes, but nothing that this rank sends.  A collective that other stages join only after they
   * received from here belongs here; in `pass` it would deadlock. */
  enum err (*after)(void *arg, const struct schedule_action *a);
};

struct pipeline;
/* For rank `stage` of the schedule, which must outlive it.  overlap false: the compute stream waits for each transfer
 * before its next pass; same calls.  outputs and gradients: comms of the schedule's p
 * ranks in the order of its stages, on two streams of their own; NULL with p = 1; gradients may be NULL for
 * SCHEDULE_FORWARD.  Owner of *out: the caller.  Fails: ERR_ARG, ERR_MEMORY. */
enum err pipeline_create(const struct schedule *s, int stage, bool overlap, struct dev_stream *compute, struct comm *outputs,
                         struct comm *gradients, struct pipeline **out);
void pipeline_destroy(struct pipeline *p); /* NULL is allowed */

/* Queues the whole list; allocates nothing.  All ranks of the schedule.  While an action is
 * queued it is the device's (dev_set_action). */
enum err pipeline_run(struct pipeline *p, const struct pipeline_work *w);

#endif
