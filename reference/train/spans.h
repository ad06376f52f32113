/* spans.h - what one step did, stream by stream, and what each part of it waited for: the graph of its dependencies.
 *
 * A span is consecutive pieces of one stream while phase, micro-batch and action stay the same, no other stream is waited
 * for or waits between them, and none is a collective, which is a span of its own.  Spans come stream by stream, each
 * stream's in its order; stream 0 is the host: what it did since the end of the last step, its wait for data, the step's end.
 * An edge says that a span began after another one: the first of each stream after the data, the end after all that
 * the host waited for, else by dev_wait.  The order of a stream itself is no edge.
 */
#ifndef TRAIN_SPANS_H
#define TRAIN_SPANS_H

#include "comm/comm.h"
#include "train/step.h"

enum { SPANS_STREAMS = 17, SPANS_MARKS = 8 };
enum { SPAN_WORK = -1, SPAN_EARLIER = -2 }; /* calls: none; given to the stream before this step began */

struct span {
  int stream;
  const char *kernel; /* the longest of its pieces */
  enum dev_phase phase;
  int microbatch, action;
  int call;           /* index in the step's trace, or one of the above */
  double ready_ms, start_ms, end_ms; /* this host's clock */
  double busy_ms;     /* of its pieces: end less start, less pauses between them */
};

struct spans {
  const char *streams[SPANS_STREAMS]; /* [0]: "host" */
  int n_streams;
  struct span *list;
  int n;
  int64_t *edges; /* pairs: a span, one that it waited for */
  int64_t n_edges;
};

/* What the host did between two steps, in order. */
struct span_marks {
  struct {
    const char *kernel; /* literal: "log", "dump", "evaluate" */
    double start_ms, end_ms;
  } list[SPANS_MARKS];
  int n;
  double since_ms; /* where the next one begins */
};
/* All since the last mark was `kernel`; what follows one of the same name joins it. */
void spans_mark(struct span_marks *m, const char *kernel, double now_ms);
/* A step ended: the next mark begins there. */
void spans_restart(struct span_marks *m, double end_ms);

struct spans_of {
  const struct dev_interval *list; /* of one dev_trace_take */
  int64_t n;
  const struct comm_call *calls;   /* queued in this step */
  int64_t n_calls, step;
  const struct step_clock *clock;
  const struct span_marks *marks;  /* since the last step */
  const char *const *awaited;      /* streams that the host waited for at the step's end */
  int n_awaited;
};
/* Owner of *out: the caller, until spans_free().  Fails: ERR_MEMORY; ERR_ARG if a collective of a stream that the host
 * waited for left no interval, or there are too many streams. */
enum err spans_make(const struct spans_of *of, struct spans *out);
void spans_free(struct spans *s);

#endif
