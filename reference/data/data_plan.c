/* data_plan.c - which piece of which document stands where in which step.
 *
 * The sequences of all epochs are numbered through: sequence n = step * global_batch +
 * microbatch * micro_batch + b is number n % E of epoch n / E, E sequences an epoch.  A keyed
 * permutation turns that into documents (padded) or chunks (chunked), so nothing is stored
 * but, for chunked, where each document's chunks begin.
 */
#include "data/batch_file.h"
#include "data/data.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

enum { HELD_OUT = 16 };            /* every 16th document is evaluation's            */
enum { EVALUATION_ORDER = -1 };    /* the one order of evaluation, where epochs have theirs */

/* Training or evaluation: the pieces (documents or chunks) it is made of. */
struct part {
  int64_t documents, pieces, sequences; /* sequences: of one epoch                 */
  int64_t *first_piece;                 /* chunked: [documents + 1]                */
};

struct data_plan {
  struct run_config run;
  const struct corpus *corpus;
  struct batch_file *file;
  bool shared; /* too few documents: evaluation takes the training ones */
  struct part train, evaluation;
};

/* --- a permutation by counter ------------------------------------------------ */

/* i -> a permutation of 0 .. n-1: four rounds of a Feistel network over the next even power of
 * two, walked until it lands inside (Black & Rogaway 2002).  Each round's key is its number. */
static int64_t permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
  const struct rng_key key = {seed, RNG_ORDER, (uint32_t)epoch};
  int half = 1;
  while (((int64_t)1 << (2 * half)) < n) half++;
  const uint64_t mask = ((uint64_t)1 << half) - 1;
  uint64_t x = (uint64_t)i;
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 4; round++) {
      const uint64_t mixed = left ^ (rng_u32(key, round << 32 | right) & mask);
      left = right;
      right = mixed;
    }
    x = left << half | right;
  } while (x >= (uint64_t)n);
  return (int64_t)x;
}

/* --- parts -------------------------------------------------------------------- */

/* Document `i` of a part as a number of the corpus. */
static int64_t document_of(const struct data_plan *p, const struct part *part, int64_t i)
{
  if (p->shared) return i;
  return part == &p->evaluation ? i * HELD_OUT + HELD_OUT - 1 : i + i / (HELD_OUT - 1);
}

static enum err part_create(const struct data_plan *p, int64_t documents, struct part *part)
{
  const int64_t T = p->run.sequence, each = p->run.documents_each;
  part->documents = documents;
  if (p->run.policy == POLICY_PADDED) {
    part->pieces = documents;
    part->sequences = (documents + each - 1) / each;
    return ERR_OK;
  }
  part->first_piece = malloc((size_t)(documents + 1) * sizeof *part->first_piece);
  if (part->first_piece == NULL) FAIL(ERR_MEMORY, "data plan: chunks of %lld documents", (long long)documents);
  for (int64_t i = 0; i < documents; i++) {
    part->first_piece[i] = part->pieces;
    part->pieces += (corpus_length(p->corpus, document_of(p, part, i)) + T - 1) / T;
  }
  part->first_piece[documents] = part->sequences = part->pieces;
  return ERR_OK;
}

/* The document that chunk `piece` belongs to, by bisection. */
static int64_t document_with_piece(const struct part *part, int64_t piece)
{
  int64_t low = 0, high = part->documents - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (part->first_piece[middle + 1] > piece) high = middle;
    else low = middle + 1;
  }
  return low;
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
    const int64_t n = corpus_documents(corpus);
    p->shared = n < HELD_OUT;
    TRY_TO(destroy_plan, part_create(p, p->shared ? n : n - n / HELD_OUT, &p->train));
    TRY_TO(destroy_plan, part_create(p, p->shared ? n : n / HELD_OUT, &p->evaluation));
  }
  *out = p;
  return ERR_OK;

destroy_plan:
  data_plan_destroy(p);
  return err;
}

void data_plan_destroy(struct data_plan *p)
{
  if (p == NULL) return;
  batch_file_close(p->file);
  free(p->train.first_piece);
  free(p->evaluation.first_piece);
  free(p);
}

int64_t data_plan_epoch(const struct data_plan *p) { return p->file ? batch_file_rows(p->file) : p->train.sequences; }

/* --- sequences ------------------------------------------------------------------ */

/* Tokens from `first` of a document into columns [col, col + room) of row b.  Every token but
 * the document's last has the next one as its target, also where the cut falls between them. */
static enum err place_document(const struct data_plan *p, int64_t document, int64_t first, int64_t b, int64_t col, int64_t room,
                               struct batch *out)
{
  const int64_t left = corpus_length(p->corpus, document) - first, n = left < room ? left : room, at = b * out->T + col;
  TRY(corpus_tokens(p->corpus, document, first, n, out->tokens + at));
  memcpy(out->targets + at, out->tokens + at + 1, (size_t)(n - 1) * sizeof *out->targets);
  if (left > n) TRY(corpus_tokens(p->corpus, document, first + n, 1, out->targets + at + n - 1));
  for (int64_t i = 0; i < n; i++) {
    out->positions[at + i] = (int32_t)i;
    out->documents[at + i] = (int32_t)document;
  }
  return ERR_OK;
}

static void place_padding(int64_t b, struct batch *out)
{
  for (int64_t i = b * out->T; i < (b + 1) * out->T; i++) {
    out->tokens[i] = out->positions[i] = 0;
    out->targets[i] = out->documents[i] = -1;
  }
}

/* Sequence `i` of an epoch of `part`. */
static enum err place_sequence(const struct data_plan *p, const struct part *part, int64_t epoch, int64_t i, int64_t b,
                               struct batch *out)
{
  const int64_t order = part == &p->evaluation ? EVALUATION_ORDER : epoch;
  const int64_t T = p->run.sequence, each = p->run.documents_each;
  place_padding(b, out);
  if (p->run.policy == POLICY_CHUNKED) {
    const int64_t piece = permute((uint64_t)p->run.seed, order, part->pieces, i);
    const int64_t d = document_with_piece(part, piece);
    TRY(place_document(p, document_of(p, part, d), (piece - part->first_piece[d]) * T, b, 0, T, out));
    return ERR_OK;
  }
  int64_t col = 0;
  for (int64_t j = i * each; j < (i + 1) * each && j < part->documents; j++) {
    const int64_t d = document_of(p, part, permute((uint64_t)p->run.seed, order, part->pieces, j));
    const int64_t room = T / each, length = corpus_length(p->corpus, d);
    TRY(place_document(p, d, 0, b, col, room, out));
    col += length < room ? length : room;
  }
  return ERR_OK;
}

enum err data_plan_batch(const struct data_plan *p, int64_t step, int64_t microbatch, struct batch *out)
{
  if (out->T != p->run.sequence || out->B != p->run.micro_batch)
    FAIL(ERR_ARG, "batch: %lld x %lld, the plan's are %lld x %lld", (long long)out->B, (long long)out->T,
         (long long)p->run.micro_batch, (long long)p->run.sequence);
  const struct part *part = step < 0 ? &p->evaluation : &p->train;
  const int64_t batch = step < 0 ? -1 - step : step;
  for (int64_t b = 0; b < out->B; b++) {
    const int64_t n = batch * p->run.global_batch + microbatch * out->B + b;
    if (p->file) batch_file_row(p->file, n % batch_file_rows(p->file), b, out);
    else TRY(place_sequence(p, part, n / part->sequences, n % part->sequences, b, out));
    out->samples[b] = (int32_t)n;
  }
  batch_count(out);
  return ERR_OK;
}
