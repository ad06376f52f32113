/* packs.h - which lengths stand together in a sequence of T tokens.
 *
 * Two ways over a histogram, longest first, of M. M. Krell, M. Kosec, S. P. Perez, A. Fitzgibbon, "Efficient Sequence Packing
 * without Cross-contamination", arXiv 2107.02027, section 3: shortest-pack-first puts each into the sequence with the
 * most room, best fit (there: longest-pack-first) into the one with the least that is enough.  Equal packs are one kind
 * with a count, so their cost does not grow with the number of documents.
 * First fit takes the pieces one by one, each into the first sequence that has room (Johnson 1973).
 */
#ifndef DATA_PACKS_H
#define DATA_PACKS_H

#include "base/err.h"

#include <stdint.h>

struct packs {
  int64_t sequences;
  int64_t most; /* pieces in one of them */
  /* over a histogram: kind k is the sequences first[k] .. first[k + 1] - 1 and the slots slot[k] .. slot[k + 1] - 1 of each */
  int64_t kinds;
  int64_t *first, *slot;   /* [kinds + 1] */
  int32_t *length;         /* [slot[kinds]] tokens of each slot */
  int64_t *before;         /* [slot[kinds]] pieces of that length in slots before it */
  /* first fit: sequence s has the pieces piece[begin[s]] .. piece[begin[s + 1] - 1] */
  int32_t *begin, *piece;
};

/* count[l]: pieces of l tokens, l = 1 .. T.  limit: pieces in a sequence, 0: any number.  Owner of what *out holds: the caller,
 * until packs_destroy.  Fails: ERR_MEMORY; *out is then of zeros. */
enum err packs_histogram(const int64_t *count, int64_t T, int64_t limit, bool best, struct packs *out);
/* length_of(arg, i): tokens of piece i of n, at most T. */
enum err packs_first_fit(int64_t n, int64_t T, int64_t limit, int64_t (*length_of)(const void *arg, int64_t i), const void *arg, struct packs *out);
void packs_destroy(struct packs *p);

/* Over a histogram: the kind of sequence s. */
int64_t packs_kind(const struct packs *p, int64_t s);

#endif
