/* corpus_synthetic.c - documents by counter: any length and any token is a function of (seed, document, index). */
#include "data/corpus_source.h"
#include "data/lengths.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

enum { SITE_LENGTH, SITE_TOKEN }; /* low bits of RNG_DATA */
enum { LONGEST = 1 << 24 };       /* of a lognormal document */
enum { SHORT_IN_LONG = 8 };       /* one bimodal document in eight is long */

struct synthetic {
  int64_t documents, positions, vocab, lengths, length;
  uint64_t seed;
  int n;                                 /* entries of the histogram */
  int64_t cumulative[LENGTHS_WIKIPEDIA]; /* documents of at most i + 1 tokens */
};

/* The first entry whose sum is above `at`, scaled from the histogram's longest to the model's. */
static int64_t quantile(const struct synthetic *s, int64_t at)
{
  int low = 0, high = s->n - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (s->cumulative[middle] > at) high = middle;
    else low = middle + 1;
  }
  return ((low + 1) * s->positions + s->n - 1) / s->n;
}

static int64_t raw_length(const struct synthetic *s, int64_t document)
{
  const struct rng_key key = {s->seed, RNG_DATA + SITE_LENGTH, 0};
  const uint64_t index = (uint64_t)document;
  const int64_t all = s->cumulative[s->n - 1], half = s->positions / 2;
  switch (s->lengths) {
  case LENGTHS_LOGNORMAL: { /* of deviation 1, as the logarithms of text corpora's lengths have about */
    const double length = (double)s->length * exp(rng_normal(key, index));
    return length < LONGEST ? (int64_t)(length + 0.5) : LONGEST;
  }
  case LENGTHS_FIXED: return s->length;
  case LENGTHS_BIMODAL: return rng_below(key, index, SHORT_IN_LONG) == 0 ? s->positions : s->length;
  case LENGTHS_SORTED: return quantile(s, (int64_t)(((__int128)2 * document + 1) * all / ((__int128)2 * s->documents)));
  case LENGTHS_ADVERSARIAL: return half + 1 + (int64_t)rng_below(key, index, (uint64_t)(s->positions - half));
  default: return quantile(s, (int64_t)rng_below(key, index, (uint64_t)all));
  }
}

static int64_t length(const void *self, int64_t document)
{
  const int64_t n = raw_length(self, document);
  return n < 2 ? 2 : n;
}

/* The chain starts at the document's first token. */
static enum err tokens(const void *self, int64_t document, int64_t first, int64_t n, int32_t *out)
{
  const struct synthetic *s = self;
  const struct rng_key key = {s->seed, RNG_DATA + SITE_TOKEN, (uint32_t)document};
  int64_t token = 0;
  for (int64_t i = 0; i < first + n; i++) {
    uint32_t word[4];
    rng_block(key, (uint64_t)i, word);
    const double u = ((double)word[1] + 0.5) / 4294967296.0;
    if (i == 0 || word[0] < UINT32_MAX / 4) token = (int64_t)((double)s->vocab * u * u * u);
    else token = (token * 5 + 7) % s->vocab;
    if (i >= first) out[i - first] = (int32_t)token;
  }
  return ERR_OK;
}

static int64_t default_length(const struct run_config *c)
{
  return c->lengths == LENGTHS_FIXED ? c->positions : c->lengths == LENGTHS_LOGNORMAL ? c->positions / 4 : c->positions / SHORT_IN_LONG;
}

enum err corpus_synthetic_open(const struct run_config *c, struct corpus_source *out)
{
  if (c->documents < 1) FAIL(ERR_CONFIG, "documents: %lld; the corpus needs at least 1", (long long)c->documents);
  struct synthetic *s = calloc(1, sizeof *s);
  if (s == NULL) FAIL(ERR_MEMORY, "corpus: %zu bytes", sizeof *s);
  const bool squad = c->lengths == LENGTHS_OF_SQUAD;
  const int64_t *histogram = squad ? lengths_squad : lengths_wikipedia;
  s->documents = c->documents;
  s->positions = c->positions;
  s->vocab = c->vocab;
  s->lengths = c->lengths;
  s->length = c->length ? c->length : default_length(c);
  if (s->length < 2) s->length = 2;
  s->seed = (uint64_t)c->seed;
  s->n = squad ? LENGTHS_SQUAD : LENGTHS_WIKIPEDIA;
  int64_t sum = 0;
  for (int i = 0; i < s->n; i++) s->cumulative[i] = sum += histogram[i];
  *out = (struct corpus_source){.self = s, .documents = c->documents, .length = length, .tokens = tokens, .close = free};
  return ERR_OK;
}
