/* corpus.c - documents: synthetic ones by counter, or the files of a directory. */
#include "data/corpus_text.h"
#include "data/data.h"
#include "data/lengths.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

enum { SITE_LENGTH, SITE_TOKEN }; /* low bits of RNG_DATA */

struct corpus {
  bool synthetic;
  int64_t documents, positions, vocab;
  uint64_t seed;
  int64_t cumulative[LENGTHS_WIKIPEDIA]; /* documents of at most i + 1 tokens */
  struct corpus_text text;
};

enum err corpus_open(const struct run_config *c, struct corpus **out)
{
  enum err err;
  *out = NULL;
  struct corpus *x = calloc(1, sizeof *x);
  if (x == NULL) FAIL(ERR_MEMORY, "corpus: %zu bytes", sizeof *x);

  x->synthetic = strcmp(c->corpus, "synthetic") == 0;
  x->documents = c->documents;
  x->positions = c->positions;
  x->vocab = c->vocab;
  x->seed = (uint64_t)c->seed;
  if (x->synthetic) {
    if (x->documents < 1) FAIL_TO(free_corpus, ERR_CONFIG, "documents: %lld; the corpus needs at least 1", (long long)x->documents);
    int64_t sum = 0;
    for (int i = 0; i < LENGTHS_WIKIPEDIA; i++) x->cumulative[i] = sum += lengths_wikipedia[i];
  } else {
    if (x->vocab < 256)
      FAIL_TO(free_corpus, ERR_CONFIG, "vocab: %lld; the bytes of corpus '%s' need at least 256", (long long)x->vocab, c->corpus);
    TRY_TO(free_corpus, corpus_text_open(c->corpus, &x->text));
    x->documents = x->text.n;
  }
  *out = x;
  return ERR_OK;

free_corpus:
  free(x);
  return err;
}

void corpus_close(struct corpus *c)
{
  if (c == NULL) return;
  corpus_text_close(&c->text);
  free(c);
}

int64_t corpus_documents(const struct corpus *c) { return c->documents; }

/* A length by the inverse of the cumulative histogram, scaled from its 512 to the model's. */
static int64_t synthetic_length(const struct corpus *c, int64_t document)
{
  const struct rng_key key = {c->seed, RNG_DATA + SITE_LENGTH, 0};
  const int64_t at = (int64_t)rng_below(key, (uint64_t)document, (uint64_t)c->cumulative[LENGTHS_WIKIPEDIA - 1]);
  int low = 0, high = LENGTHS_WIKIPEDIA - 1; /* first entry whose sum is above `at` */
  while (low < high) {
    const int middle = (low + high) / 2;
    if (c->cumulative[middle] > at) high = middle;
    else low = middle + 1;
  }
  const int64_t scaled = ((low + 1) * c->positions + LENGTHS_WIKIPEDIA - 1) / LENGTHS_WIKIPEDIA;
  return scaled < 2 ? 2 : scaled;
}

int64_t corpus_length(const struct corpus *c, int64_t document)
{
  return c->synthetic ? synthetic_length(c, document) : c->text.files[document].bytes;
}

/* The chain starts at the document's first token: a token is a function of (seed, document, index). */
static void synthetic_tokens(const struct corpus *c, int64_t document, int64_t first, int64_t n, int32_t *out)
{
  const struct rng_key key = {c->seed, RNG_DATA + SITE_TOKEN, (uint32_t)document};
  int64_t token = 0;
  for (int64_t i = 0; i < first + n; i++) {
    uint32_t word[4];
    rng_block(key, (uint64_t)i, word);
    const double u = ((double)word[1] + 0.5) / 4294967296.0;
    if (i == 0 || word[0] < UINT32_MAX / 4) token = (int64_t)((double)c->vocab * u * u * u);
    else token = (token * 5 + 7) % c->vocab;
    if (i >= first) out[i - first] = (int32_t)token;
  }
}

enum err corpus_tokens(const struct corpus *c, int64_t document, int64_t first, int64_t n, int32_t *out)
{
  if (document < 0 || document >= c->documents || first < 0 || n < 0 || first + n > corpus_length(c, document))
    FAIL(ERR_ARG, "corpus: tokens %lld + %lld of document %lld of %lld", (long long)first, (long long)n, (long long)document,
         (long long)c->documents);
  if (!c->synthetic) TRY(corpus_text_read(&c->text, document, first, n, out));
  else synthetic_tokens(c, document, first, n, out);
  return ERR_OK;
}
