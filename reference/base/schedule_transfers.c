/* schedule_transfers.c - sends and receives put into the lists, in one order for all ranks.
 *
 * The passes are timed with free transfers; a transfer can happen when what it carries is
 * there and the place that it goes to is free.  All transfers are sorted by that time, gradients
 * before outputs (a place that a gradient leaves may be received into at once), and merged
 * into each rank's passes by their start.
 *
 * A backward lasts far longer than a forward in this timing.  The order then fits every ratio
 * of the two: where chunks make a ring, one taken at equal costs puts a receive before a send that is ready
 * earlier once a backward lasts more than two forwards, and the step gets longer than its formula.
 */
#include "base/schedule_parts.h"

#include <inttypes.h>
#include <stdlib.h>

/* One micro-batch in one virtual stage. */
struct cell {
  double forward_end, backward_end;  /* -1: not known yet; so all times                       */
  double output, gradient;           /* when its output and its output's gradient are transferred */
  int slot_before, input_before;     /* cell that had its place before; -1: none              */
};

static double duration(enum pass pass) { return schedule_is_backward(pass) ? 1000 : 1; }

struct timing {
  const struct schedule *s;
  struct cell *cells; /* [p v][m] */
  double **start;     /* [p][passes] */
  int *next;          /* [p] pass to be timed next */
  double *free_at;    /* [p] end of the pass before it */
};

static int cell_of(const struct schedule *s, int stage, const struct schedule_action *a)
{
  return schedule_virtual(s, stage, a->chunk) * s->m + a->microbatch;
}

static double later(double a, double b) { return a > b ? a : b; }

/* The transfer of the gradient of cell c's output, once the next virtual stage has it. */
static double gradient_time(struct timing *t, int c)
{
  struct cell *cell = &t->cells[c];
  const double sent = t->cells[c + t->s->m].backward_end;
  if (cell->gradient < 0 && sent >= 0) cell->gradient = later(sent, cell->output);
  return cell->gradient;
}

/* The transfer of cell c's output, once it is there and the place that it goes to is free. */
static double output_time(struct timing *t, int c)
{
  struct cell *cell = &t->cells[c];
  const int m = t->s->m, before = t->cells[c + m].input_before;
  if (cell->output >= 0 || cell->forward_end < 0) return cell->output;
  double freed = 0;
  if (before >= 0) freed = t->s->kind == SCHEDULE_FORWARD ? t->cells[before].forward_end : gradient_time(t, before - m);
  if (freed >= 0) cell->output = later(cell->forward_end, freed);
  return cell->output;
}

/* When pass a of a rank can start after `from`; -1: not known yet. */
static double start_time(struct timing *t, int stage, const struct schedule_action *a, double from)
{
  const struct schedule *s = t->s;
  const int c = cell_of(s, stage, a);
  double causes[2] = {0, 0};
  if (a->pass == PASS_FORWARD) {
    const int before = t->cells[c].slot_before;
    if (!schedule_is_first(s, stage, a->chunk)) causes[0] = output_time(t, c - s->m);
    if (before >= 0 && !schedule_is_last(s, stage, before / s->m / s->p)) causes[1] = output_time(t, before);
  } else if (schedule_is_backward(a->pass) && !schedule_is_last(s, stage, a->chunk))
    causes[0] = gradient_time(t, c);
  if (causes[0] < 0 || causes[1] < 0) return -1;
  return later(from, later(causes[0], causes[1]));
}

/* Times what can be timed of one rank; whether that was anything. */
static bool advance(struct timing *t, int stage)
{
  const struct schedule *s = t->s;
  const int first = t->next[stage];
  for (; t->next[stage] < s->n[stage]; t->next[stage]++) {
    const struct schedule_action *a = &s->list[stage][t->next[stage]];
    const double start = start_time(t, stage, a, t->free_at[stage]);
    if (start < 0) break;
    t->start[stage][t->next[stage]] = start;
    t->free_at[stage] = start + duration(a->pass);
    struct cell *cell = &t->cells[cell_of(s, stage, a)];
    if (a->pass == PASS_FORWARD) cell->forward_end = t->free_at[stage];
    if (schedule_is_backward(a->pass)) cell->backward_end = t->free_at[stage];
  }
  return t->next[stage] > first;
}

/* Who had each place before: in the order of forwards, which is the order of holders. */
static void find_holders(struct timing *t, int stage, int *slot, int *input)
{
  const struct schedule *s = t->s;
  for (int i = 0; i < s->slots[stage]; i++) slot[i] = -1;
  for (int i = 0; i < s->inputs[stage]; i++) input[i] = -1;
  for (int i = 0; i < s->n[stage]; i++) {
    const struct schedule_action *a = &s->list[stage][i];
    if (a->pass != PASS_FORWARD) continue;
    const int c = cell_of(s, stage, a);
    t->cells[c].slot_before = slot[a->slot];
    slot[a->slot] = c;
    if (a->input < 0) continue;
    t->cells[c].input_before = input[a->input];
    input[a->input] = c;
  }
}

static enum err run(struct timing *t)
{
  const struct schedule *s = t->s;
  bool moved = true;
  while (moved) {
    moved = false;
    for (int stage = 0; stage < s->p; stage++) moved |= advance(t, stage);
  }
  for (int stage = 0; stage < s->p; stage++)
    if (t->next[stage] < s->n[stage])
      FAIL(ERR_ARG, "schedule %s: stage %d waits for ever in its pass %d of %d", schedule_name(s->kind), stage,
           t->next[stage], s->n[stage]);
  return ERR_OK;
}

/* --- the total order ------------------------------------------------------------ */

struct transfer {
  double time;
  bool output;   /* else gradient               */
  int boundary;  /* between this virtual stage and the next */
  int microbatch;
};

static int by_time(const void *left, const void *right)
{
  const struct transfer *a = left, *b = right;
  if (a->time != b->time) return a->time < b->time ? -1 : 1;
  if (a->output != b->output) return a->output ? 1 : -1;
  if (a->microbatch != b->microbatch) return a->microbatch < b->microbatch ? -1 : 1;
  return a->boundary < b->boundary ? -1 : a->boundary > b->boundary;
}

static void collect(struct timing *t, struct transfer *out)
{
  const struct schedule *s = t->s;
  int64_t n = 0;
  for (int k = 0; k + 1 < s->p * s->v; k++)
    for (int mb = 0; mb < s->m; mb++) {
      const int c = k * s->m + mb;
      out[n++] = (struct transfer){output_time(t, c), true, k, mb};
      if (s->kind != SCHEDULE_FORWARD) out[n++] = (struct transfer){gradient_time(t, c), false, k, mb};
    }
  qsort(out, (size_t)n, sizeof *out, by_time);
}

/* This rank's end of transfer x, if it has one: its places are those of the passes. */
static bool end_of(const struct schedule *s, int stage, const struct transfer *x, struct schedule_action *out)
{
  const bool below = x->boundary % s->p == stage, above = (x->boundary + 1) % s->p == stage;
  if (!below && !above) return false;
  *out = (struct schedule_action){
    .pass = below ? (x->output ? PASS_SEND_OUTPUT : PASS_RECV_GRADIENT) : (x->output ? PASS_RECV_INPUT : PASS_SEND_GRADIENT),
    .microbatch = x->microbatch,
    .chunk = (x->boundary + above) / s->p,
    .peer = (x->boundary + below) % s->p,
  };
  return true;
}

/* Copies the places of the passes' forwards, which each micro-batch and chunk has once. */
static void copy_places(const struct schedule *s, const struct schedule_action *passes, int n, struct schedule_action *list, int all,
                        const struct schedule_action **forward)
{
  for (int i = 0; i < n; i++)
    if (passes[i].pass == PASS_FORWARD) forward[passes[i].chunk * s->m + passes[i].microbatch] = &passes[i];
  for (int i = 0; i < all; i++) {
    const struct schedule_action *from = forward[list[i].chunk * s->m + list[i].microbatch];
    list[i].slot = from->slot;
    list[i].weight_slot = from->weight_slot;
    list[i].input = from->input;
  }
}

static enum err merge(struct schedule *s, int stage, const double *start, const struct transfer *order, int64_t transfers,
                      const struct schedule_action **forward)
{
  int64_t own = 0;
  struct schedule_action x;
  for (int64_t i = 0; i < transfers; i++) own += end_of(s, stage, &order[i], &x);
  struct schedule_action *list = malloc((size_t)(s->n[stage] + own) * sizeof *list);
  if (list == NULL) FAIL(ERR_MEMORY, "schedule: %" PRId64 " transfers", own);
  int n = 0, pass = 0;
  for (int64_t i = 0; i < transfers; i++) {
    if (!end_of(s, stage, &order[i], &x)) continue;
    while (pass < s->n[stage] && start[pass] < order[i].time) list[n++] = s->list[stage][pass++];
    list[n++] = x;
  }
  while (pass < s->n[stage]) list[n++] = s->list[stage][pass++];
  copy_places(s, s->list[stage], s->n[stage], list, n, forward);
  free(s->list[stage]);
  s->list[stage] = list;
  s->n[stage] = n;
  return ERR_OK;
}

/* --- memory of the above ------------------------------------------------------------ */

static enum err add(struct timing *t, struct schedule *s, struct transfer *order, int *holders,
                    const struct schedule_action **forward)
{
  const int64_t cells = (int64_t)s->p * s->v * s->m;
  for (int64_t c = 0; c < cells; c++) t->cells[c] = (struct cell){-1, -1, -1, -1, -1, -1};
  for (int stage = 0; stage < s->p; stage++) find_holders(t, stage, holders, holders + s->m * s->v + 1);
  TRY(run(t));
  collect(t, order);
  const int64_t transfers = (cells - s->m) * (s->kind == SCHEDULE_FORWARD ? 1 : 2);
  for (int stage = 0; stage < s->p; stage++) TRY(merge(s, stage, t->start[stage], order, transfers, forward));
  return ERR_OK;
}

enum err schedule_add_transfers(struct schedule *s)
{
  const int passes = schedule_passes_count(s);
  const size_t cells = (size_t)s->p * (size_t)s->v * (size_t)s->m, own = (size_t)s->m * (size_t)s->v;
  struct timing t = {.s = s};
  enum err err;
  t.cells = malloc(cells * sizeof *t.cells);
  t.start = calloc((size_t)s->p, sizeof *t.start);
  t.next = calloc((size_t)s->p, sizeof *t.next);
  t.free_at = calloc((size_t)s->p, sizeof *t.free_at);
  double *starts = malloc((size_t)s->p * (size_t)passes * sizeof *starts);
  struct transfer *order = malloc(2 * cells * sizeof *order);
  int *holders = malloc(2 * (own + 1) * sizeof *holders);
  const struct schedule_action **forward = malloc(own * sizeof *forward);
  if (!t.cells || !t.start || !t.next || !t.free_at || !starts || !order || !holders || !forward)
    FAIL_TO(done, ERR_MEMORY, "schedule: %zu micro-batches x virtual stages", cells);
  for (int stage = 0; stage < s->p; stage++) t.start[stage] = starts + (size_t)stage * (size_t)passes;
  TRY_TO(done, add(&t, s, order, holders, forward));

done:
  free(forward);
  free(holders);
  free(order);
  free(starts);
  free(t.free_at);
  free(t.next);
  free(t.start);
  free(t.cells);
  return err;
}
