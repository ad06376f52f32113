/* schedule.h - pipeline schedules as data: what each rank runs, sends and receives, in which order.
 *
 * A schedule is one list of actions a pipeline rank ("stage"), made by a pure function of
 * (kind, p, m, v): p ranks, m micro-batches of one replica in a step, v chunks ("virtual
 * stages") a rank.  Virtual stage k of p v is chunk k / p of rank k % p; its output goes to
 * virtual stage k + 1, so the last rank's to the first one's next chunk.
 *
 * How a list is run, by the executor (parallel/pipeline.h), the verifier and the simulator alike:
 * a rank has three streams; each takes its own actions from the list, in order, one at a time.
 *   compute     F, B, I, W
 *   outputs     SEND_OUTPUT, RECV_INPUT       } both ends must be there: sends are rendezvous
 *   gradients   SEND_GRADIENT, RECV_GRADIENT  }
 * Across streams an action waits for others of its own rank (schedule_waits), all earlier in the list:
 *   F              RECV_INPUT of its micro-batch and chunk; SEND_OUTPUT of the one that had its slot before
 *   SEND_OUTPUT    its F
 *   RECV_INPUT     the one that had its input place before is done with it: SEND_GRADIENT; without backwards F
 *   RECV_GRADIENT  SEND_OUTPUT of the same: it goes into the same buffer
 *   B, I           RECV_GRADIENT
 *   SEND_GRADIENT  its B or I
 * The first virtual stage receives no input and sends no gradient, the last one the reverse.
 * Each chunk's backwards are in micro-batch order, so that sums of gradients are those of one rank.
 *
 * Transfers stand in the lists in one total order, the same for both ends: by the time at
 * which they can happen in a timing with free transfers (schedule_transfers.c).  All that an
 * action waits for comes before it in that order, so whatever the real times are, the first
 * action not yet done can go on.  schedule_verify proves it once more by playing the lists.
 */
#ifndef BASE_SCHEDULE_H
#define BASE_SCHEDULE_H

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

enum schedule_kind {
#define SCHEDULE(id, ...) SCHEDULE_##id,
#include "base/schedules.def"
#undef SCHEDULE
  SCHEDULE_FORWARD, /* evaluation: forwards alone, any v and m */
  SCHEDULES
};
const char *schedule_name(enum schedule_kind kind); /* "1f1b"; "forward" */

enum pass {
  PASS_FORWARD,
  PASS_BACKWARD,        /* for inputs and weights           */
  PASS_BACKWARD_INPUT,  /* apart, where the schedule splits */
  PASS_BACKWARD_WEIGHT,
  PASS_SEND_OUTPUT,
  PASS_RECV_INPUT,
  PASS_SEND_GRADIENT,   /* of the chunk's input             */
  PASS_RECV_GRADIENT,   /* of the chunk's output            */
  PASSES
};
const char *schedule_pass_name(enum pass pass); /* "F", "B", "I", "W", "send-output", ... */

enum schedule_stream { SCHEDULE_COMPUTE, SCHEDULE_OUTPUTS, SCHEDULE_GRADIENTS, SCHEDULE_STREAMS };
enum schedule_stream schedule_stream_of(enum pass pass);

/* Places are numbers in pools that a rank's chunks share; all actions of one micro-batch and
 * chunk on a rank carry the same.  A place has one holder at a time.
 *   slot         stash and output buffer, from F to B or I; without backwards for F and its send
 *   weight_slot  what W needs, from F to W; -1 where the schedule does not split
 *   input        boundary buffer of the chunk's input, from one F of this rank before its own
 *                (so that it can be received meanwhile) until its gradient is sent; without
 *                backwards until F is done; -1 in the first virtual stage, which has none */
struct schedule_action {
  enum pass pass;
  int microbatch, chunk;
  int peer; /* rank at the other end of a transfer; -1: none */
  int slot, weight_slot, input;
};

struct schedule {
  enum schedule_kind kind;
  int p, m, v;
  bool splits;                           /* has I and W instead of B   */
  int *n;                                /* [p] actions of each rank   */
  struct schedule_action **list;         /* [p][n]                     */
  int *slots, *weight_slots, *inputs;    /* [p] places needed          */
};

enum { SCHEDULE_RANKS_MAX = 512 }; /* p v too */

/* Owner of *out: the caller.  Fails: ERR_CONFIG if p, m or v is below 1, p v above
 * SCHEDULE_RANKS_MAX, v above 1 on one rank or in a schedule without chunks, v of 1 or m no multiple of p in
 * one with chunks; ERR_MEMORY. */
enum err schedule_create(enum schedule_kind kind, int p, int m, int v, struct schedule **out);
void schedule_destroy(struct schedule *s); /* NULL is allowed */

/* For each action of a rank's list the actions of other streams that it waits for, as
 * indices in that list; -1: none.  Fails: ERR_ARG naming an action whose cause is missing or stands later;
 * ERR_MEMORY. */
enum { SCHEDULE_WAITS = 2 };
struct schedule_waits {
  int on[SCHEDULE_WAITS];
};
enum err schedule_waits(const struct schedule *s, int stage, struct schedule_waits *out /* [n[stage]] */);

/* --- proof --------------------------------------------------------------- */

/* What holds of a list at equal costs: F, I and W last 1, B 2, transfers nothing. */
struct schedule_facts {
  double total, ideal;             /* time of the step; of a rank's passes alone            */
  double bubble_of_ideal;          /* (total - ideal) / ideal, (p-1)/m for 1F1B              */
  double bubble_of_total;          /* (total - ideal) / total, (p-1)/(m+p-1) for 1F1B        */
  int live[SCHEDULE_RANKS_MAX];    /* of each rank, the most: F begun, B or I not done       */
  int pending[SCHEDULE_RANKS_MAX]; /* I done, W not: the most while so many are live         */
};
/* Complete (each pass and transfer of each micro-batch and chunk once, nothing else), ordered, no place
 * held twice, both ends of each transfer agree, no deadlock.  Fails: ERR_ARG, naming stage and action;
 * ERR_MEMORY. */
enum err schedule_verify(const struct schedule *s, struct schedule_facts *out);
/* Most micro-batches x chunks of a rank between I and W. */
int schedule_pending_places(const struct schedule *s, int stage);
/* Largest live * per_live + pending * per_pending of a rank at one time. */
double schedule_peak(const struct schedule *s, int stage, double per_live, double per_pending);

/* --- time ---------------------------------------------------------------- */

struct schedule_costs {
  double *forward, *input, *weight; /* [p v] of one micro-batch in each virtual stage; B lasts input + weight */
  double transfer;                  /* of one message                                                         */
};
struct schedule_times {
  double total;          /* end of the last action                     */
  double **start, **end; /* [p][n] of each action, 0 the step's start  */
  double *busy, *idle;   /* [p] compute stream; together total         */
};
/* The lists played with these costs.  Owner of *out: the caller.  Fails: ERR_ARG (deadlock, and what
 * schedule_waits refuses), ERR_MEMORY. */
enum err schedule_simulate(const struct schedule *s, const struct schedule_costs *costs, struct schedule_times **out);
void schedule_times_destroy(struct schedule_times *t); /* NULL is allowed */

/* --- published formulas, of schedules.def -------------------------------- */

/* Idle time of a rank in a step; f, b, w: times of one micro-batch on one rank, all its chunks.
 * SCHEDULE_FORWARD: (p-1) f / v, for m a multiple of p. */
double schedule_bubble_time(enum schedule_kind kind, int p, int m, int v, double f, double b, double w);
/* The same at equal times, as a fraction of the ideal time m (f + b + w) and of the total time. */
double schedule_bubble_of_ideal(enum schedule_kind kind, int p, int m, int v);
double schedule_bubble_of_total(enum schedule_kind kind, int p, int m, int v);
/* Most micro-batches x chunks that a stage holds, for m >= p, or 2p with chunks; and how many wait
 * for W meanwhile. */
int schedule_live(enum schedule_kind kind, int p, int m, int v, int stage);
int schedule_pending(enum schedule_kind kind, int p, int m, int v, int stage);

#ifdef __cplusplus
}
#endif
#endif
