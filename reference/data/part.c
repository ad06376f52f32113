/* part.c - documents, pieces, and their orders by counter. */
#include "data/part.h"

#include "base/fault.h"
#include "base/rng.h"

#include <stdlib.h>

enum { EVALUATION_ORDER = -1 }; /* the one order of evaluation, where epochs have theirs */

/* Document `i` of a part as a number of the corpus. */
static int64_t document_of(const struct part *p, int64_t i)
{
  if (p->shared) return i;
  return p->evaluation ? i * PART_HELD_OUT + PART_HELD_OUT - 1 : i + i / (PART_HELD_OUT - 1);
}

/* Of n tokens, all but the last with a target. */
static int64_t pieces_of(int64_t n, int64_t room, bool split) { return split ? (n - 2) / room + 1 : 1; }

static enum err read_lengths(struct part *p, bool split)
{
  p->lengths = malloc((size_t)(p->documents + 1) * sizeof *p->lengths);
  if (p->lengths == NULL) FAIL(ERR_MEMORY, "data plan: lengths of %lld documents", (long long)p->documents);
  for (int64_t i = 0; i < p->documents; i++) {
    const int64_t n = corpus_length(p->corpus, document_of(p, i)), pieces = pieces_of(n, p->room, split);
    if (n > INT32_MAX)
      FAIL(ERR_CONFIG, "corpus: document %lld has %lld tokens; valid: at most %d", (long long)document_of(p, i), (long long)n, INT32_MAX);
    p->lengths[i] = (int32_t)n;
    p->tokens += n;
    p->pieces += pieces;
    p->longest = n > p->longest ? n : p->longest;
    p->longer += split ? pieces > 1 : n > p->room;
    p->kept += n - (pieces - 1) * p->room < p->room ? n : pieces * p->room;
  }
  if (p->pieces > INT32_MAX)
    FAIL(ERR_CONFIG, "sequence: %lld tokens make %lld pieces of the corpus; valid: at most %d of them", (long long)p->room,
         (long long)p->pieces, INT32_MAX);
  return ERR_OK;
}

enum err part_create(struct part *p, int64_t room, bool split)
{
  p->room = room;
  if (p->documents > INT32_MAX - 1)
    FAIL(ERR_CONFIG, "documents: %lld; valid: at most %d", (long long)p->documents, INT32_MAX - 1);
  TRY(read_lengths(p, split));
  if (p->pieces == p->documents) return ERR_OK;
  p->first_piece = malloc((size_t)(p->documents + 1) * sizeof *p->first_piece);
  if (p->first_piece == NULL) FAIL(ERR_MEMORY, "data plan: pieces of %lld documents", (long long)p->documents);
  int64_t n = 0;
  for (int64_t i = 0; i < p->documents; i++) {
    p->first_piece[i] = (int32_t)n;
    n += pieces_of(p->lengths[i], room, split);
  }
  p->first_piece[p->documents] = (int32_t)n;
  return ERR_OK;
}

/* Tokens of piece k of a document of n. */
static int64_t piece_length(const struct part *p, int64_t n, int64_t k) { return n - k * p->room < p->room ? n - k * p->room : p->room; }

/* Counting sort, ties in the order of the corpus. */
enum err part_sort(struct part *p)
{
  p->by_length = malloc((size_t)(p->pieces + 1) * sizeof *p->by_length);
  p->first_of = calloc((size_t)p->room + 2, sizeof *p->first_of);
  if (p->by_length == NULL || p->first_of == NULL) FAIL(ERR_MEMORY, "data plan: %lld pieces by length", (long long)p->pieces);
  for (int pass = 0; pass < 2; pass++) {
    int64_t piece = 0;
    for (int64_t d = 0; d < p->documents; d++)
      for (int64_t k = 0, n = p->first_piece ? p->first_piece[d + 1] - p->first_piece[d] : 1; k < n; k++, piece++) {
        int32_t *count = &p->first_of[piece_length(p, p->lengths[d], k)];
        if (pass == 1) p->by_length[*count] = (int32_t)piece;
        ++*count;
      }
    if (pass == 1) break;
    int32_t sum = 0;
    for (int64_t l = 0; l <= p->room + 1; l++) {
      const int32_t here = p->first_of[l];
      p->first_of[l] = sum;
      sum += here;
    }
  }
  for (int64_t l = p->room + 1; l > 0; l--) p->first_of[l] = p->first_of[l - 1]; /* each has moved to where the next begins */
  p->first_of[0] = 0;
  return ERR_OK;
}

void part_forget_lengths(struct part *p)
{
  free(p->lengths);
  p->lengths = NULL;
}

void part_destroy(struct part *p)
{
  free(p->lengths);
  free(p->first_piece);
  free(p->by_length);
  free(p->first_of);
}

/* The document that piece `number` belongs to, by bisection. */
static int64_t document_with(const struct part *p, int64_t number)
{
  int64_t low = 0, high = p->documents - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (p->first_piece[middle + 1] > number) high = middle;
    else low = middle + 1;
  }
  return low;
}

struct piece part_piece(const struct part *p, int64_t number)
{
  const int64_t d = p->first_piece ? document_with(p, number) : number, k = p->first_piece ? number - p->first_piece[d] : 0;
  const int64_t document = document_of(p, d);
  return (struct piece){document, k * p->room, piece_length(p, p->lengths ? p->lengths[d] : corpus_length(p->corpus, document), k)};
}

/* Four rounds of a Feistel network over the next even power of two, walked until it lands inside
 * (Black & Rogaway 2002).  Each round's key is its number. */
static int64_t permute(struct rng_key key, uint64_t kind, int64_t n, int64_t i)
{
  int half = 1;
  while (((int64_t)1 << (2 * half)) < n) half++;
  const uint64_t mask = ((uint64_t)1 << half) - 1;
  uint64_t x = (uint64_t)i;
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 4; round++) {
      const uint64_t mixed = left ^ (rng_u32(key, kind << 34 | round << 32 | right) & mask);
      left = right;
      right = mixed;
    }
    x = left << half | right;
  } while (x >= (uint64_t)n);
  return (int64_t)x;
}

int64_t part_order(const struct part *p, int64_t epoch, int64_t kind, int64_t n, int64_t i)
{
  if (!p->shuffle) return i;
  if (fault_is(FAULT_DATA_SAME_ORDER_EVERY_EPOCH)) epoch = 0;
  const struct rng_key key = {p->seed, RNG_ORDER, (uint32_t)(p->evaluation ? EVALUATION_ORDER : epoch)};
  return permute(key, (uint64_t)kind, n, i);
}

struct piece part_of_length(const struct part *p, int64_t epoch, int64_t length, int64_t i)
{
  const int64_t first = p->first_of[length], n = p->first_of[length + 1] - first;
  return part_piece(p, p->by_length[first + part_order(p, epoch, length, n, i)]);
}
