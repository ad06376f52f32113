/* corpus_llmc.c - a token file of llm.c: 256 int32 of header, then tokens (dev/data/data_common.py).
 *
 *   header[0] 20240520, [1] 1, [2] tokens that follow, each uint16 (GPT-2's, 50256 ends a text)
 *   header[0] 20240801, [1] 7, [2] tokens that follow, each uint32 (Llama 3's, 128000 begins a text)
 * llm.c writes that token before each text: with it a document begins.  All tokens are read when the file is opened, to
 * find them and to check them against the vocabulary.
 */
#include "data/corpus_source.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER = 1024 };

struct llmc {
  struct corpus_map map;
  int64_t tokens, n, room, left_out;
  int width;
  int64_t *first; /* [n] of each document */
  int64_t *length; /* [n] */
};

static const struct kind {
  int32_t magic, version;
  int width;
  int64_t between; /* the token before each text */
} kinds[] = {{20240520, 1, 2, 50256}, {20240801, 7, 4, 128000}};

static int64_t token_at(const struct llmc *l, int64_t i)
{
  uint32_t value = 0; /* little-endian, as the file */
  memcpy(&value, l->map.at + HEADER + i * l->width, (size_t)l->width);
  return value;
}

static enum err read_header(const char *path, struct llmc *l, const struct kind **out)
{
  int32_t header[3] = {0};
  if (l->map.bytes >= HEADER) memcpy(header, l->map.at, sizeof header);
  const struct kind *kind = header[0] == kinds[0].magic ? &kinds[0] : header[0] == kinds[1].magic ? &kinds[1] : NULL;
  if (kind == NULL || header[1] != kind->version)
    FAIL(ERR_CONFIG, "corpus: %s begins with %d %d; a token file of llm.c with 20240520 1 or 20240801 7, and Megatron-LM's needs its .idx beside it",
         path, header[0], header[1]);
  l->width = kind->width;
  l->tokens = header[2];
  if (l->tokens < 0 || l->map.bytes != HEADER + l->tokens * l->width)
    FAIL(ERR_CONFIG, "corpus: %s has %lld bytes; its header tells of %lld tokens, which make %lld (truncated?)", path, (long long)l->map.bytes,
         (long long)l->tokens, (long long)(HEADER + l->tokens * l->width));
  *out = kind;
  return ERR_OK;
}

static enum err add(struct llmc *l, int64_t first, int64_t length)
{
  if (length < 2) {
    l->left_out += length > 0;
    return ERR_OK;
  }
  if (l->n == l->room) {
    const int64_t room = l->room ? 2 * l->room : 1024;
    int64_t *list = realloc(l->first, (size_t)room * sizeof *list);
    if (list != NULL) l->first = list;
    int64_t *lengths = list ? realloc(l->length, (size_t)room * sizeof *lengths) : NULL;
    if (lengths == NULL) FAIL(ERR_MEMORY, "corpus: list of %lld documents", (long long)room);
    l->length = lengths;
    l->room = room;
  }
  l->first[l->n] = first;
  l->length[l->n++] = length;
  return ERR_OK;
}

static enum err find_documents(const struct run_config *c, const struct kind *kind, struct llmc *l)
{
  int64_t begin = 0;
  for (int64_t i = 0; i < l->tokens; i++) {
    const int64_t token = token_at(l, i);
    if (token >= c->vocab)
      FAIL(ERR_CONFIG, "vocab: %lld; token %lld of corpus %s is %lld", (long long)c->vocab, (long long)i, c->corpus, (long long)token);
    if (token != kind->between) continue;
    TRY(add(l, begin, i - begin));
    begin = i;
  }
  TRY(add(l, begin, l->tokens - begin));
  if (l->n == 0) FAIL(ERR_CONFIG, "corpus: %s: no document of two tokens in its %lld", c->corpus, (long long)l->tokens);
  return ERR_OK;
}

static int64_t length(const void *self, int64_t document) { return ((const struct llmc *)self)->length[document]; }

static enum err tokens(const void *self, int64_t document, int64_t first, int64_t n, int32_t *out)
{
  const struct llmc *l = self;
  for (int64_t i = 0; i < n; i++) out[i] = (int32_t)token_at(l, l->first[document] + first + i);
  return ERR_OK;
}

static void close_tokens(void *self)
{
  struct llmc *l = self;
  corpus_map_close(&l->map);
  free(l->first);
  free(l->length);
  free(l);
}

enum err corpus_llmc_open(const struct run_config *c, struct corpus_source *out)
{
  enum err err;
  const struct kind *kind = NULL;
  struct llmc *l = calloc(1, sizeof *l);
  if (l == NULL) FAIL(ERR_MEMORY, "corpus: %zu bytes", sizeof *l);
  TRY_TO(close_file, corpus_map_open(c->corpus, &l->map));
  TRY_TO(close_file, read_header(c->corpus, l, &kind));
  TRY_TO(close_file, find_documents(c, kind, l));
  *out = (struct corpus_source){l, l->n, l->left_out, length, tokens, close_tokens};
  return ERR_OK;

close_file:
  close_tokens(l);
  return err;
}
