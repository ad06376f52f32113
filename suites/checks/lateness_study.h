/* lateness_study.h - what the files of lateness share: the steps of one run, and the lengths that would have been. */
#ifndef CHECKS_LATENESS_STUDY_H
#define CHECKS_LATENESS_STUDY_H

#include "lateness.h"

/* One step. */
struct study_step {
  struct graph g;
  struct graph_play play;   /* as it was                                        */
  double *ms, *other, *less; /* [n] lengths as they were, replaced by peers', the smaller of the two */
};

struct study {
  const struct run_data *run;
  int ranks;
  int64_t first, n;         /* steps that count                                 */
  struct study_step *steps; /* [n]                                              */
  double *spent;            /* [n][ranks][GRAPH_PHASES] sums of lengths         */
  double *work;             /* [ranks][GRAPH_PHASES] what peers' time is scaled by; 1 where they do the same */
  bool modelled;
  double *room;             /* for a median of any of it */
};

static inline double *study_spent(const struct study *s, int64_t step, int rank) { return s->spent + (step * s->ranks + rank) * GRAPH_PHASES; }
static inline double study_work(const struct study *s, int rank, int phase) { return s->work[rank * GRAPH_PHASES + phase]; }

/* --- lateness_replace.c --- */
/* Fills spent, work and other.  Fails: ERR_CONFIG, ERR_MEMORY. */
enum err study_replace(struct study *s);
/* Steps `draw` [n] (any, also twice) instead of all: the change that replacing makes to the rank's phase, over its own time. */
double study_change(const struct study *s, int rank, enum graph_phase phase, const int *draw);
bool study_are_peers(const struct study *s, int a, int b);

/* --- lateness_walk.c --- */
/* Adds one rank's in one way that a step went; all its waits are in waiting_ms. */
void study_parts(const struct graph *g, const struct graph_play *p, int rank, struct lateness_parts *out);
/* Adds what each is charged for a step that took ms instead of less (nowhere more than ms), into charge [ranks][phases]. */
enum err study_charge(const struct graph *g, const double *ms, const double *less, double *charge, double *lost_ms);
/* Adds each wait, in ms, to those that it is followed back to, [ranks][phases]; returns all waiting. */
enum err study_waits(const struct graph *g, const struct graph_play *p, const double *ms, const double *less, double *waits, double *all_ms);

#endif
