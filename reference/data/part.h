/* part.h - the documents of training, or of evaluation, as pieces that fit in a sequence.
 *
 * A document longer than `room` tokens is split every `room` tokens, or cut: its beginning is then its only piece.  The last
 * token of a document has no target, so a piece of that token alone would teach nothing and is none.  Every piece has a
 * token with a target, so no step that has a piece divides by a count of zero.
 */
#ifndef DATA_PART_H
#define DATA_PART_H

#include "data/data.h"

enum { PART_HELD_OUT = 16 }; /* every 16th document is evaluation's */

struct piece {
  int64_t document, first, length; /* number of the corpus; its tokens [first, first + length) */
};

struct part {
  const struct corpus *corpus;
  uint64_t seed;
  bool shuffle, shared, evaluation; /* shared: too few documents, evaluation takes the training ones */
  int64_t documents, pieces, room;
  int64_t tokens, longest, longer;  /* of documents; longer than room, and so split or cut */
  int64_t kept;                     /* tokens of pieces */
  int32_t *lengths;                 /* [documents] of each; NULL after part_forget_lengths */
  int32_t *first_piece;             /* [documents + 1]; NULL: a piece a document */
  int32_t *by_length;               /* [pieces] from the shortest on; NULL unless part_sort was called */
  int32_t *first_of;                /* [room + 2] where those of a length begin in it */
};

/* Of zeros but for corpus, seed, shuffle, shared, evaluation and documents.  Owner of what it takes: the caller, until
 * part_destroy, also after a failure.  Fails: ERR_CONFIG (more than INT32_MAX), ERR_MEMORY. */
enum err part_create(struct part *p, int64_t room, bool split);
enum err part_sort(struct part *p);
void part_forget_lengths(struct part *p);
void part_destroy(struct part *p);

struct piece part_piece(const struct part *p, int64_t number);

/* i -> a permutation of 0 .. n-1, one for each epoch and `kind`; the same i with shuffle off.  Epochs count from 0;
 * evaluation has one order. */
int64_t part_order(const struct part *p, int64_t epoch, int64_t kind, int64_t n, int64_t i);
/* Piece that stands at place `i` among those of `length` in an epoch. */
struct piece part_of_length(const struct part *p, int64_t epoch, int64_t length, int64_t i);

#endif
