/* data_plan.c - which piece of which document stands where in which step.
 *
 * A step has global_batch rows.  Which sequences of which epoch they are follows from the step's number and the tail
 * (row_of_step); which row stands in which slot of which micro-batch, from the tail (row_in_slot) or, balanced, from costs (deal_step);
 * which pieces a sequence of an epoch has, from the policy (place_sequence).  All by keyed permutations: what is stored is
 * where documents begin, their order by length, and the kinds of packs.
 */
#include "data/batch_file.h"
#include "data/data.h"
#include "data/deal.h"
#include "data/packs.h"
#include "data/part.h"

#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

/* Kinds of orders in one epoch: 0 of sequences, 1 .. room of pieces of a length, and beyond, plus room: */
enum { ORDER_SHORT = 1, ORDER_BATCHES, ORDER_IN_BATCH };

/* Training or evaluation. */
struct side {
  struct part part;
  struct packs packs;
  int64_t sequences; /* of one epoch */
  int64_t tail;
  int64_t dealt;     /* balanced: the step that `row` is of, -1: none yet */
};

struct data_plan {
  struct run_config run;
  const struct corpus *corpus;
  struct batch_file *file;
  struct side train, evaluation;
  struct dealing {
    int32_t *row;          /* [global_batch] of each slot */
    struct by_length {
      int64_t length, row;
    } *of_slot;            /* [global_batch] */
    int64_t *length;       /* [global_batch] of each row; 0: empty */
    double *cost;          /* [global_batch] */
  } *dealing;              /* balanced; what stands in it is remembered, not state: `dealt` says of which step */
};

/* --- creating ------------------------------------------------------------------------- */

static int64_t length_of(const void *part, int64_t i) { return part_piece(part, i).length; }

static enum err pack(const struct run_config *c, struct side *s)
{
  struct part *part = &s->part;
  if (c->packing == PACKING_FIRST_FIT) {
    TRY(packs_first_fit(part->pieces, part->room, c->pack_limit, length_of, part, &s->packs));
  } else {
    int64_t *count = malloc((size_t)(part->room + 1) * sizeof *count);
    if (count == NULL) FAIL(ERR_MEMORY, "data plan: histogram of %lld lengths", (long long)part->room);
    for (int64_t l = 0; l <= part->room; l++) count[l] = part->first_of[l + 1] - part->first_of[l];
    const enum err err = packs_histogram(count, part->room, c->pack_limit, c->packing == PACKING_BEST_FIT, &s->packs);
    free(count);
    if (err) return err_trace(err, __FILE__, __LINE__);
  }
  s->sequences = s->packs.sequences;
  return ERR_OK;
}

static enum err side_create(const struct data_plan *p, bool evaluation, struct side *s)
{
  const struct run_config *c = &p->run;
  const bool padded = c->policy == POLICY_PADDED;
  const bool by_length = c->policy == POLICY_BUCKETED || (c->policy == POLICY_PACKED && c->packing != PACKING_FIRST_FIT);
  const int64_t n = corpus_documents(p->corpus);
  struct part *part = &s->part;
  part->corpus = p->corpus;
  part->seed = (uint64_t)c->seed;
  part->shuffle = c->shuffle;
  part->shared = n < PART_HELD_OUT;
  part->evaluation = evaluation;
  part->documents = part->shared ? n : evaluation ? n / PART_HELD_OUT : n - n / PART_HELD_OUT;
  s->tail = evaluation && c->tail == TAIL_DROP ? TAIL_PAD : c->tail;
  s->dealt = -1;
  TRY(part_create(part, padded ? c->sequence / c->documents_each : c->sequence, !padded));
  if (by_length) TRY(part_sort(part));
  s->sequences = padded ? (part->documents + c->documents_each - 1) / c->documents_each : part->pieces;
  if (c->policy == POLICY_PACKED) TRY(pack(c, s));
  part_forget_lengths(part);
  if (s->tail == TAIL_DROP && s->sequences < c->global_batch)
    FAIL(ERR_CONFIG, "global_batch: %lld sequences, but the corpus makes %lld in an epoch, and tail drop leaves no step; valid: at most %lld, or "
         "tail wrap, pad, reshape", (long long)c->global_batch, (long long)s->sequences, (long long)s->sequences);
  return ERR_OK;
}

static enum err dealing_create(struct data_plan *p)
{
  const size_t G = (size_t)p->run.global_batch;
  struct dealing *d = p->dealing = calloc(1, sizeof *d);
  if (d == NULL) FAIL(ERR_MEMORY, "data plan: %zu bytes", sizeof *d);
  d->row = malloc(G * sizeof *d->row);
  d->of_slot = malloc(G * sizeof *d->of_slot);
  d->length = malloc(G * sizeof *d->length);
  d->cost = malloc(G * sizeof *d->cost);
  if (d->row == NULL || d->of_slot == NULL || d->length == NULL || d->cost == NULL) FAIL(ERR_MEMORY, "data plan: dealing %zu sequences", G);
  return ERR_OK;
}

enum err data_plan_create(const struct run_config *c, const struct corpus *corpus, struct data_plan **out)
{
  enum err err;
  *out = NULL;
  if ((double)c->steps * (double)c->global_batch > INT32_MAX)
    FAIL(ERR_CONFIG, "steps: %lld x global_batch %lld; sample numbers reach %d at most", (long long)c->steps,
         (long long)c->global_batch, INT32_MAX);
  struct data_plan *p = calloc(1, sizeof *p);
  if (p == NULL) FAIL(ERR_MEMORY, "data plan: %zu bytes", sizeof *p);
  p->run = *c;
  p->corpus = corpus;

  if (c->batch_file[0]) {
    TRY_TO(destroy_plan, batch_file_open(c, &p->file));
  } else {
    if (c->policy == POLICY_PADDED && c->documents_each > c->sequence)
      FAIL_TO(destroy_plan, ERR_CONFIG, "documents_each: %lld; a sequence of %lld holds at most that many",
              (long long)c->documents_each, (long long)c->sequence);
    TRY_TO(destroy_plan, side_create(p, false, &p->train));
    TRY_TO(destroy_plan, side_create(p, true, &p->evaluation));
    if (c->policy == POLICY_BALANCED) TRY_TO(destroy_plan, dealing_create(p));
  }
  *out = p;
  return ERR_OK;

destroy_plan:
  data_plan_destroy(p);
  return err;
}

static void side_destroy(struct side *s)
{
  packs_destroy(&s->packs);
  part_destroy(&s->part);
}

void data_plan_destroy(struct data_plan *p)
{
  if (p == NULL) return;
  batch_file_close(p->file);
  side_destroy(&p->train);
  side_destroy(&p->evaluation);
  if (p->dealing) {
    free(p->dealing->row);
    free(p->dealing->of_slot);
    free(p->dealing->length);
    free(p->dealing->cost);
    free(p->dealing);
  }
  free(p);
}

int64_t data_plan_epoch(const struct data_plan *p) { return p->file ? batch_file_rows(p->file) : p->train.sequences; }

void data_plan_facts(const struct data_plan *p, struct data_facts *out)
{
  const struct side *s = &p->train;
  const struct part *part = &s->part;
  *out = (struct data_facts){.sequences = data_plan_epoch(p)};
  if (p->file) return;
  out->documents = part->documents;
  out->left_out = corpus_left_out(p->corpus);
  out->tokens = part->tokens;
  out->longest = part->longest;
  out->longer = part->longer;
  out->cut_tokens = part->tokens - part->kept;
  out->dropped = s->tail == TAIL_DROP ? s->sequences % p->run.global_batch : 0;
  out->most = p->run.policy == POLICY_PADDED ? p->run.documents_each : p->run.policy == POLICY_PACKED ? s->packs.most : 1;
  out->filled = (double)part->kept / ((double)s->sequences * (double)p->run.sequence);
}

/* --- steps -> sequences of epochs --------------------------------------------------------- */

struct row {
  int64_t epoch, sequence; /* its place in the order of the epoch */
};

static int64_t epoch_steps(const struct data_plan *p, const struct side *s)
{
  const int64_t G = p->run.global_batch;
  return s->tail == TAIL_DROP ? s->sequences / G : (s->sequences + G - 1) / G;
}

/* Rows of a step that are not empty. */
static int64_t rows_of_step(const struct data_plan *p, const struct side *s, int64_t step)
{
  const int64_t G = p->run.global_batch, left = s->tail == TAIL_WRAP ? G : s->sequences - step % epoch_steps(p, s) * G;
  return left < G ? left : G;
}

static struct row row_of_step(const struct data_plan *p, const struct side *s, int64_t step, int64_t row)
{
  const int64_t G = p->run.global_batch;
  if (s->tail == TAIL_WRAP) {
    int64_t n = step * G + row;
    if (fault_is(FAULT_DATA_POSITION_OFF_BY_SHARD) && n >= s->sequences) n--;
    return (struct row){n / s->sequences, n % s->sequences};
  }
  const int64_t steps = epoch_steps(p, s), epoch = step / steps;
  const int64_t n = step % steps * G + row;
  if (fault_is(FAULT_DATA_POSITION_OFF_BY_SHARD) && epoch > 0) return n > 0 ? (struct row){epoch, n - 1} : (struct row){epoch - 1, s->sequences - 1};
  return (struct row){epoch, n};
}

/* Which row stands in slot b of micro-batch m, where `count` rows are not empty: they are 0 .. count - 1. */
static int64_t row_in_slot(const struct data_plan *p, const struct side *s, int64_t count, int64_t m, int64_t b)
{
  const int64_t B = p->run.micro_batch, M = p->run.global_batch / B;
  if (s->tail != TAIL_RESHAPE) return m * B + b;
  const int64_t extra = count % M, here = count / M + (m < extra), before = m * (count / M) + (m < extra ? m : extra);
  return b < here ? before + b : count + (m * B + b) - (before + here);
}

/* --- sequences of an epoch -> pieces -------------------------------------------------------- */

/* Batches are runs of the order by length.  The short one is cut out of it at a place that differs from epoch to epoch and
 * comes last. */
static struct piece bucketed_piece(const struct data_plan *p, const struct part *part, int64_t epoch, int64_t sequence)
{
  const int64_t G = p->run.global_batch, full = part->pieces / G, rest = part->pieces % G, batch = sequence / G;
  const int64_t cut = part_order(part, epoch, part->room + ORDER_SHORT, full + 1, full), n = batch < full ? G : rest;
  const int64_t number = batch < full ? part_order(part, epoch, part->room + ORDER_BATCHES, full, batch) : cut;
  const int64_t begin = number * G + (batch < full && number >= cut ? rest : 0);
  const int64_t place = begin + part_order(part, epoch, part->room + ORDER_IN_BATCH + batch, n, sequence % G);
  int64_t low = 1, high = part->room; /* the length that place is among */
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (part->first_of[middle + 1] > place) high = middle;
    else low = middle + 1;
  }
  return part_of_length(part, epoch, low, place - part->first_of[low]);
}

static struct piece only_piece(const struct data_plan *p, const struct part *part, int64_t epoch, int64_t sequence)
{
  if (p->run.policy == POLICY_BUCKETED) return bucketed_piece(p, part, epoch, sequence);
  return part_piece(part, part_order(part, epoch, 0, part->pieces, sequence));
}

/* A piece into columns from *col on of row b.  Every token but the document's last has the next one as its target, also where
 * a cut falls between them. */
static enum err place_piece(const struct data_plan *p, struct piece piece, int64_t b, int64_t *col, struct batch *out)
{
  const int64_t n = piece.length, at = b * out->T + *col, end = piece.first + n;
  TRY(corpus_tokens(p->corpus, piece.document, piece.first, n, out->tokens + at));
  memcpy(out->targets + at, out->tokens + at + 1, (size_t)(n - 1) * sizeof *out->targets);
  if (corpus_length(p->corpus, piece.document) > end) TRY(corpus_tokens(p->corpus, piece.document, end, 1, out->targets + at + n - 1));
  const int64_t from = fault_is(FAULT_DATA_PACKED_POSITIONS) ? *col : 0;
  for (int64_t i = 0; i < n; i++) {
    out->positions[at + i] = (int32_t)(from + i);
    out->documents[at + i] = (int32_t)piece.document;
  }
  *col += n;
  return ERR_OK;
}

static void place_padding(int64_t b, struct batch *out)
{
  for (int64_t i = b * out->T; i < (b + 1) * out->T; i++) {
    out->tokens[i] = out->positions[i] = 0;
    out->targets[i] = out->documents[i] = -1;
  }
}

static enum err place_packed(const struct data_plan *p, const struct side *s, int64_t epoch, int64_t sequence, int64_t b, struct batch *out)
{
  const struct packs *packs = &s->packs;
  const int64_t number = part_order(&s->part, epoch, 0, packs->sequences, sequence);
  int64_t col = 0;
  if (packs->begin) {
    for (int64_t i = packs->begin[number]; i < packs->begin[number + 1]; i++)
      TRY(place_piece(p, part_piece(&s->part, packs->piece[i]), b, &col, out));
    return ERR_OK;
  }
  const int64_t kind = packs_kind(packs, number), nth = number - packs->first[kind];
  for (int64_t i = packs->slot[kind]; i < packs->slot[kind + 1]; i++)
    TRY(place_piece(p, part_of_length(&s->part, epoch, packs->length[i], packs->before[i] + nth), b, &col, out));
  return ERR_OK;
}

static enum err place_padded(const struct data_plan *p, const struct part *part, int64_t epoch, int64_t sequence, int64_t b, struct batch *out)
{
  const int64_t each = p->run.documents_each;
  int64_t col = 0;
  for (int64_t j = sequence * each; j < (sequence + 1) * each && j < part->documents; j++)
    TRY(place_piece(p, part_piece(part, part_order(part, epoch, 0, part->pieces, j)), b, &col, out));
  return ERR_OK;
}

static enum err place_sequence(const struct data_plan *p, const struct side *s, struct row row, int64_t b, struct batch *out)
{
  int64_t col = 0;
  if (p->run.policy == POLICY_PADDED) return place_padded(p, &s->part, row.epoch, row.sequence, b, out);
  if (p->run.policy == POLICY_PACKED) return place_packed(p, s, row.epoch, row.sequence, b, out);
  TRY(place_piece(p, only_piece(p, &s->part, row.epoch, row.sequence), b, &col, out));
  return ERR_OK;
}

/* --- balanced --------------------------------------------------------------------------------- */

/* Empty rows last. */
static int shorter(const void *a, const void *b)
{
  const struct by_length *x = a, *y = b;
  if ((x->length == 0) != (y->length == 0)) return x->length == 0 ? 1 : -1;
  if (x->length != y->length) return x->length < y->length ? -1 : 1;
  return x->row < y->row ? -1 : x->row > y->row;
}

/* The rows of a step to ranks by cost; those of a rank by length, so that a micro-batch's are alike.  Remembered until
 * another step is asked for. */
static enum err deal_step(struct data_plan *p, struct side *s, int64_t step)
{
  const struct run_config *c = &p->run;
  struct dealing *d = p->dealing;
  const int64_t G = c->global_batch, each = G / c->deal, count = rows_of_step(p, s, step);
  if (s->dealt == step) return ERR_OK;
  p->train.dealt = p->evaluation.dealt = -1; /* both use what follows */
  for (int64_t r = 0; r < G; r++) {
    const struct row row = row_of_step(p, s, step, r);
    d->length[r] = r < count ? only_piece(p, &s->part, row.epoch, row.sequence).length : 0;
    const double n = (double)d->length[r];
    d->cost[r] = c->cost_b * n + c->cost_c * n * n;
  }
  TRY(deal(d->cost, G, c->deal, d->row));
  for (int64_t i = 0; i < G; i++) d->of_slot[i] = (struct by_length){d->length[d->row[i]], d->row[i]};
  for (int64_t rank = 0; rank < c->deal; rank++) qsort(d->of_slot + rank * each, (size_t)each, sizeof *d->of_slot, shorter);
  for (int64_t i = 0; i < G; i++) d->row[i] = (int32_t)d->of_slot[i].row;
  s->dealt = step;
  return ERR_OK;
}

enum err data_plan_batch(struct data_plan *p, int64_t step, int64_t microbatch, struct batch *out)
{
  if (out->T != p->run.sequence || out->B != p->run.micro_batch)
    FAIL(ERR_ARG, "batch: %lld x %lld, the plan's are %lld x %lld", (long long)out->B, (long long)out->T,
         (long long)p->run.micro_batch, (long long)p->run.sequence);
  struct side *s = step < 0 ? &p->evaluation : &p->train;
  const int64_t number = step < 0 ? -1 - step : step, first = number * p->run.global_batch;
  if (p->dealing) TRY(deal_step(p, s, number));
  const int64_t count = p->file ? p->run.global_batch : rows_of_step(p, s, number);
  for (int64_t b = 0; b < out->B; b++) {
    const int64_t slot = microbatch * out->B + b;
    const int64_t row = p->file ? slot : p->dealing ? p->dealing->row[slot] : row_in_slot(p, s, count, microbatch, b);
    if (p->file) {
      batch_file_row(p->file, (first + row) % batch_file_rows(p->file), b, out);
    } else {
      place_padding(b, out);
      if (row < count) TRY(place_sequence(p, s, row_of_step(p, s, number, row), b, out));
    }
    out->samples[b] = (int32_t)(first + row);
  }
  batch_count(out);
  return ERR_OK;
}
