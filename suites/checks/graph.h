/* graph.h - one step of all ranks as a graph: what took how long, and what waited for what; and the step played again with
 * other lengths.
 *
 * From `span`, `trace` and `clock` records alone.  A node is a span.  It is ready once the node ahead of it on its stream,
 * and all that its edges name, have ended, and `lag` after (a thread woken late, work launched late).  Work ends its own
 * length later.  A node of a collective or of a message ends its transfer after the last of its peers was ready: what it
 * waits before that is theirs.  A sender that was gone before its receiver came waits for nobody.
 *
 * A step goes, on each rank, from the end of the step before it to its own: what the host does between steps counts.
 * Times are of rank 0's clock, drift taken out.
 */
#ifndef CHECKS_GRAPH_H
#define CHECKS_GRAPH_H

#include "judge.h"

/* Out of what a rank can be late. */
enum graph_phase { GRAPH_DATA, GRAPH_FORWARD, GRAPH_BACKWARD, GRAPH_OPTIMIZER, GRAPH_OTHER, GRAPH_LINK, GRAPH_BETWEEN, GRAPH_PHASES };
const char *graph_phase_name(enum graph_phase p); /* "data", "forward", "backward", "optimizer", "other", "link", "between" */

struct graph_node {
  int rank, stream;       /* stream: of that rank's record; 0: its host                    */
  enum graph_phase phase; /* whose time it is; of all that travels: link                   */
  bool main;              /* on the compute stream                                         */
  bool given;             /* it was on its way before the step: its end does not move      */
  int call;               /* position in its rank's trace; -1: no collective               */
  int kind;               /* below GRAPH_KINDS: what travels (group; collective, send, receive); -1: no collective */
  int group, first, n;    /* index in groups, -1: work; what it waits for: before[first ..] */
  bool waits;             /* for its group                                                 */
  double lag, ms;         /* length; of one that waits for its group its transfer alone    */
};
enum { GRAPH_KINDS = 64 };
struct graph_group {
  int first, n;  /* members[first ..]                               */
  bool message;  /* of a pipeline's neighbours, or of the tied ends */
};

struct graph {
  int ranks, n, n_groups;
  struct graph_node *nodes;
  int *before, *members;
  struct graph_group *groups;
  int *order;         /* nodes as they become ready, and -1 - g where group g is whole; n + n_groups */
  int *first, *end;   /* [ranks] a rank's first node; its last, the host's end of the step           */
  double *origin;     /* [ranks] end of the step before; of the first recorded step its begin        */
  double base;        /* the latest of them: a step's time is counted from it                        */
  double error_ms;    /* of any time of another rank                                                 */
  double *ready, *ended, *busy; /* [n] as measured; busy: without pauses between pieces */
};

/* Owner of *out: the caller, until graph_free().  Fails: ERR_UNAVAILABLE when a record is missing (trace_spans: true asks for
 * them) or a rank of a group left none of a call; ERR_FORMAT when records contradict each other; ERR_MEMORY. */
enum err graph_read(const struct run_data *run, int64_t step, struct graph *out);
void graph_free(struct graph *g);
/* For graph_read(): lengths and order, once nodes, their times, before [n_before] and groups are there.  Fails: ERR_FORMAT, ERR_MEMORY. */
enum err graph_finish(struct graph *g, int n_before);

/* One way in which it went. */
struct graph_play {
  double *ready, *end; /* [n]                                                                 */
  int *cause;          /* [n] what it was ready after; -1: nothing                            */
  int *last;           /* [groups] the member that was ready last                             */
  double total_ms;     /* from the base to the last rank's end                                */
  int latest;          /* that rank                                                           */
};
enum err graph_play_create(const struct graph *g, struct graph_play *out);
void graph_play_free(struct graph_play *p);
/* With lengths ms [n] and all lags times `lags`. */
void graph_play(const struct graph *g, const double *ms, double lags, struct graph_play *out);

/* What a node's beginning came from: the last of its peers where it waited for it, else what it was ready after; -1: nothing. */
int graph_behind(const struct graph *g, const struct graph_play *p, int node);

#endif
