/* schedule_simulate.c - lists played by the executor's rules: times, or where they stand for ever. */
#include "base/schedule_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One rank while it plays. */
struct player {
  struct schedule_waits *waits; /* [n] */
  int at[SCHEDULE_STREAMS];     /* index in the list of the head of each stream; n: done */
  double free_at[SCHEDULE_STREAMS];
};

struct play {
  const struct schedule *s;
  const struct schedule_costs *costs;
  struct player *players;
  struct schedule_times *times;
};

static int next_of(const struct schedule *s, int stage, enum schedule_stream stream, int i)
{
  while (i < s->n[stage] && schedule_stream_of(s->list[stage][i].pass) != stream) i++;
  return i;
}

/* When the head of a stream is ready: what it waits for is done; -1: not yet, or no head. */
static double ready(const struct play *g, int stage, enum schedule_stream stream)
{
  const struct player *p = &g->players[stage];
  const int i = p->at[stream];
  if (i >= g->s->n[stage]) return -1;
  double time = p->free_at[stream];
  for (int w = 0; w < SCHEDULE_WAITS; w++) {
    const int on = p->waits[i].on[w];
    if (on < 0) continue;
    const double end = g->times->end[stage][on];
    if (end < 0) return -1;
    if (end > time) time = end;
  }
  return time;
}

static void finish(struct play *g, int stage, enum schedule_stream stream, double start, double end)
{
  struct player *p = &g->players[stage];
  const int i = p->at[stream];
  g->times->start[stage][i] = start;
  g->times->end[stage][i] = end;
  if (end > g->times->total) g->times->total = end;
  p->free_at[stream] = end;
  p->at[stream] = next_of(g->s, stage, stream, i + 1);
}

static double cost_of(const struct play *g, int stage, const struct schedule_action *a)
{
  const int k = schedule_virtual(g->s, stage, a->chunk);
  switch (a->pass) {
  case PASS_FORWARD: return g->costs->forward[k];
  case PASS_BACKWARD: return g->costs->input[k] + g->costs->weight[k];
  case PASS_BACKWARD_INPUT: return g->costs->input[k];
  case PASS_BACKWARD_WEIGHT: return g->costs->weight[k];
  default: return g->costs->transfer;
  }
}

static bool compute(struct play *g, int stage)
{
  const double start = ready(g, stage, SCHEDULE_COMPUTE);
  if (start < 0) return false;
  const double cost = cost_of(g, stage, &g->s->list[stage][g->players[stage].at[SCHEDULE_COMPUTE]]);
  g->times->busy[stage] += cost;
  finish(g, stage, SCHEDULE_COMPUTE, start, start + cost);
  return true;
}

static bool sends(enum pass p) { return p == PASS_SEND_OUTPUT || p == PASS_SEND_GRADIENT; }

/* The head of this rank's stream is a send and its peer's a receive from it: they happen, at
 * the later's time.  Seen from the sender alone, so that each happens once. */
static enum err transfer(struct play *g, int stage, enum schedule_stream stream, bool *moved)
{
  const struct schedule *s = g->s;
  const double mine = ready(g, stage, stream);
  *moved = false;
  if (mine < 0) return ERR_OK;
  const struct schedule_action *a = &s->list[stage][g->players[stage].at[stream]];
  if (!sends(a->pass)) return ERR_OK;
  if (a->peer < 0 || a->peer >= s->p || a->peer == stage)
    FAIL(ERR_ARG, "schedule %s: stage %d: %s of micro-batch %d in chunk %d has peer %d", schedule_name(s->kind), stage,
         schedule_pass_name(a->pass), a->microbatch, a->chunk, a->peer);
  const double theirs = ready(g, a->peer, stream);
  if (theirs < 0) return ERR_OK;
  const struct schedule_action *b = &s->list[a->peer][g->players[a->peer].at[stream]];
  if (sends(b->pass) || b->peer != stage) return ERR_OK;
  const int step = stream == SCHEDULE_OUTPUTS ? 1 : -1;
  if (b->microbatch != a->microbatch || schedule_virtual(s, a->peer, b->chunk) != schedule_virtual(s, stage, a->chunk) + step)
    FAIL(ERR_ARG, "schedule %s: stage %d sends micro-batch %d of chunk %d by %s, stage %d receives it as micro-batch %d of chunk %d",
         schedule_name(s->kind), stage, a->microbatch, a->chunk, schedule_pass_name(a->pass), a->peer, b->microbatch, b->chunk);
  const double start = mine > theirs ? mine : theirs;
  const int peer = a->peer;
  finish(g, stage, stream, start, start + g->costs->transfer);
  finish(g, peer, stream, start, start + g->costs->transfer);
  *moved = true;
  return ERR_OK;
}

/* "stage 1 in send-output of micro-batch 0 in chunk 0 to 0; ..." */
static enum err stuck(const struct play *g)
{
  char text[512] = "";
  for (int stage = 0; stage < g->s->p; stage++)
    for (int stream = 0; stream < SCHEDULE_STREAMS; stream++) {
      const int i = g->players[stage].at[stream];
      const size_t used = strlen(text);
      if (i >= g->s->n[stage]) continue;
      const struct schedule_action *a = &g->s->list[stage][i];
      snprintf(text + used, sizeof text - used, "%sstage %d at %s %d %d", used ? ", " : "", stage, schedule_pass_name(a->pass),
               a->microbatch, a->chunk);
    }
  if (text[0] == '\0') return ERR_OK;
  FAIL(ERR_ARG, "schedule %s: deadlock with rendezvous sends (pass, micro-batch, chunk): %s", schedule_name(g->s->kind), text);
}

static enum err run(struct play *g)
{
  bool moved = true;
  while (moved) {
    moved = false;
    for (int stage = 0; stage < g->s->p; stage++) {
      while (compute(g, stage)) moved = true;
      for (int stream = SCHEDULE_OUTPUTS; stream < SCHEDULE_STREAMS; stream++)
        for (bool more = true; more; moved |= more) TRY(transfer(g, stage, (enum schedule_stream)stream, &more));
    }
  }
  return stuck(g);
}

static enum err play(struct play *g)
{
  const struct schedule *s = g->s;
  for (int stage = 0; stage < s->p; stage++) {
    struct player *p = &g->players[stage];
    p->waits = malloc((size_t)(s->n[stage] + 1) * sizeof *p->waits);
    if (p->waits == NULL) FAIL(ERR_MEMORY, "schedule: %d actions", s->n[stage]);
    TRY(schedule_waits(s, stage, p->waits));
    for (int stream = 0; stream < SCHEDULE_STREAMS; stream++) p->at[stream] = next_of(s, stage, (enum schedule_stream)stream, 0);
  }
  TRY(run(g));
  for (int stage = 0; stage < s->p; stage++) g->times->idle[stage] = g->times->total - g->times->busy[stage];
  return ERR_OK;
}

static enum err times_create(const struct schedule *s, struct schedule_times **out)
{
  size_t all = 0;
  for (int stage = 0; stage < s->p; stage++) all += (size_t)s->n[stage];
  struct schedule_times *t = calloc(1, sizeof *t);
  double *numbers = malloc((2 * all + 2 * (size_t)s->p) * sizeof *numbers);
  double **rows = malloc(2 * (size_t)s->p * sizeof *rows);
  if (t == NULL || numbers == NULL || rows == NULL) {
    free(t);
    free(numbers);
    free(rows);
    FAIL(ERR_MEMORY, "schedule: times of %zu actions", all);
  }
  *t = (struct schedule_times){.start = rows, .end = rows + s->p, .busy = numbers, .idle = numbers + s->p};
  for (size_t i = 0; i < 2 * all + 2 * (size_t)s->p; i++) numbers[i] = i < 2 * (size_t)s->p ? 0 : -1;
  double *at = numbers + 2 * s->p;
  for (int stage = 0; stage < s->p; stage++) {
    t->start[stage] = at;
    t->end[stage] = at + s->n[stage];
    at += 2 * s->n[stage];
  }
  *out = t;
  return ERR_OK;
}

void schedule_times_destroy(struct schedule_times *t)
{
  if (t == NULL) return;
  free(t->busy);
  free(t->start);
  free(t);
}

enum err schedule_simulate(const struct schedule *s, const struct schedule_costs *costs, struct schedule_times **out)
{
  enum err err = ERR_OK;
  *out = NULL;
  struct play g = {.s = s, .costs = costs};
  g.players = calloc((size_t)s->p, sizeof *g.players);
  if (g.players == NULL) FAIL(ERR_MEMORY, "schedule: %d ranks", s->p);
  TRY_TO(done, times_create(s, &g.times));
  TRY_TO(done, play(&g));
  *out = g.times;
  g.times = NULL;

done:
  schedule_times_destroy(g.times);
  for (int stage = 0; stage < s->p; stage++) free(g.players[stage].waits);
  free(g.players);
  return err;
}
