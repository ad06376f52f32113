/* pipeline_state.h - what a pipeline is made of; for pipeline.c and its tests.
 *
 * The list with its waits is laid out once as a line of steps, so that a run only walks
 * along it, and a test can leave out any one wait.  Waits that earlier ones see to are not there.
 */
#ifndef PARALLEL_PIPELINE_STATE_H
#define PARALLEL_PIPELINE_STATE_H

#include "parallel/pipeline.h"

enum pipeline_step_kind {
  PIPELINE_WAIT,   /* stream waits for event          */
  PIPELINE_ACTION, /* of the list, on stream          */
  PIPELINE_RECORD, /* event is what stream has so far */
};

struct pipeline_step {
  enum pipeline_step_kind kind;
  enum schedule_stream stream;
  int event;  /* of WAIT and RECORD: an action's number in the list, n: the start of the run */
  int action; /* in the list; that a WAIT or RECORD is for; -1: of the whole run              */
};

struct pipeline {
  const struct schedule *schedule;
  int stage;
  bool overlap;
  struct dev_stream *stream[SCHEDULE_STREAMS]; /* NULL: not used */
  struct comm *comm[SCHEDULE_STREAMS];
  struct dev_event **events; /* [n + 1]; NULL: nobody waits for it */
  struct pipeline_step *steps;
  int n_steps;
};

#endif
