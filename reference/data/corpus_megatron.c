/* corpus_megatron.c - Megatron-LM's indexed data: PREFIX.bin, tokens, and PREFIX.idx, where documents begin in it.
 *
 * PREFIX.idx, little-endian and unaligned (megatron/core/datasets/indexed_dataset.py):
 *   "MMIDIDX\0\0"   u64 version 1   u8 type of token   u64 S   u64 D
 *   i32 [S] tokens of each sequence   i64 [S] its first byte in PREFIX.bin
 *   i64 [D] where each document begins among the sequences: the first 0, the last S, so D - 1 documents
 *   i8 [S] modes, of multimodal data only
 * Document d is the sequences D[d] .. D[d + 1] - 1 in a row.  Sizes and all of the index are checked when it is opened, a
 * token against the vocabulary when it is read.
 */
#include "data/corpus_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[9] = "MMIDIDX";
enum { HEADER = 34, TYPE_AT = 17, SEQUENCES_AT = 18, DOCUMENTS_AT = 26 };

struct megatron {
  struct corpus_map index, bin;
  char path[CONFIG_PATH + 8]; /* of the .bin */
  int64_t sequences, documents, vocab;
  int width;        /* bytes a token */
  bool is_signed;
  int32_t *kept;    /* documents of two tokens or more */
  int64_t n;
};

void corpus_megatron_path(const char *corpus, const char *ending, char out[CONFIG_PATH + 8])
{
  size_t n = strlen(corpus);
  if (n > 4 && (strcmp(corpus + n - 4, ".bin") == 0 || strcmp(corpus + n - 4, ".idx") == 0)) n -= 4;
  snprintf(out, CONFIG_PATH + 8, "%.*s%s", (int)n, corpus, ending);
}

static int64_t read_i64(const unsigned char *at)
{
  int64_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static int64_t sequence_length(const struct megatron *m, int64_t s)
{
  int32_t value;
  memcpy(&value, m->index.at + HEADER + 4 * s, sizeof value);
  return value;
}

static int64_t sequence_at(const struct megatron *m, int64_t s) { return read_i64(m->index.at + HEADER + 4 * m->sequences + 8 * s); }
static int64_t document_at(const struct megatron *m, int64_t d) { return read_i64(m->index.at + HEADER + 12 * m->sequences + 8 * d); }

static int64_t document_length(const struct megatron *m, int64_t d)
{
  int64_t n = 0;
  for (int64_t s = document_at(m, d); s < document_at(m, d + 1); s++) n += sequence_length(m, s);
  return n;
}

/* enum DType of indexed_dataset.py; 6 and 7 are float64 and float32. */
static enum err read_type(const char *path, int code, struct megatron *m)
{
  static const struct { int width; bool is_signed; } types[] = {
    {0, false}, {1, false}, {1, true}, {2, true}, {4, true}, {8, true}, {0, false}, {0, false}, {2, false}};
  if (code < 0 || code >= (int)(sizeof types / sizeof *types) || types[code].width == 0)
    FAIL(ERR_CONFIG, "corpus: %s: type %d of tokens; valid: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16", path, code);
  m->width = types[code].width;
  m->is_signed = types[code].is_signed;
  return ERR_OK;
}

static enum err read_header(const char *path, struct megatron *m)
{
  const unsigned char *at = m->index.at;
  const int64_t bytes = m->index.bytes;
  if (bytes < HEADER || memcmp(at, magic, sizeof magic) != 0)
    FAIL(ERR_CONFIG, "corpus: %s (%lld bytes) does not begin as an index of Megatron-LM does, with MMIDIDX and %d bytes of header", path,
         (long long)bytes, HEADER);
  if (read_i64(at + sizeof magic) != 1) FAIL(ERR_CONFIG, "corpus: %s: version %lld; valid: 1", path, (long long)read_i64(at + sizeof magic));
  TRY(read_type(path, at[TYPE_AT], m));
  m->sequences = read_i64(at + SEQUENCES_AT);
  m->documents = read_i64(at + DOCUMENTS_AT) - 1;
  const bool possible = m->sequences > 0 && m->sequences <= bytes / 12 && m->documents > 0 && m->documents < bytes / 8;
  const int64_t wanted = possible ? HEADER + 12 * m->sequences + 8 * (m->documents + 1) : -1;
  if (!possible || (bytes != wanted && bytes != wanted + m->sequences))
    FAIL(ERR_CONFIG, "corpus: %s has %lld bytes, no index of %lld sequences in %lld documents (truncated?)", path, (long long)bytes,
         (long long)m->sequences, (long long)m->documents);
  if (m->documents >= INT32_MAX) FAIL(ERR_CONFIG, "corpus: %s: %lld documents; valid: below %d", path, (long long)m->documents, INT32_MAX);
  return ERR_OK;
}

static enum err check_index(const char *path, const struct megatron *m)
{
  int64_t end = 0;
  for (int64_t s = 0; s < m->sequences; s++) {
    const int64_t at = sequence_at(m, s), n = sequence_length(m, s);
    if (n < 0 || at < 0 || at > m->bin.bytes || n > (m->bin.bytes - at) / m->width)
      FAIL(ERR_CONFIG, "corpus: %s: sequence %lld, %lld tokens from byte %lld on, is not inside %s of %lld bytes (truncated, or of another index)",
           path, (long long)s, (long long)n, (long long)at, m->path, (long long)m->bin.bytes);
    if (at + n * m->width > end) end = at + n * m->width;
  }
  if (end != m->bin.bytes)
    FAIL(ERR_CONFIG, "corpus: %s has %lld bytes, %s tells of %lld: they are not of one data set", m->path, (long long)m->bin.bytes, path,
         (long long)end);
  for (int64_t d = 0; d <= m->documents; d++) {
    const int64_t at = document_at(m, d), least = d == 0 ? 0 : document_at(m, d - 1);
    if (at < least || at > m->sequences || (d == 0 && at != 0) || (d == m->documents && at != m->sequences))
      FAIL(ERR_CONFIG, "corpus: %s: document %lld begins at sequence %lld of %lld, the one before at %lld", path, (long long)d, (long long)at,
           (long long)m->sequences, (long long)least);
  }
  return ERR_OK;
}

static enum err keep_documents(const char *path, struct megatron *m)
{
  m->kept = malloc((size_t)m->documents * sizeof *m->kept);
  if (m->kept == NULL) FAIL(ERR_MEMORY, "corpus: list of %lld documents", (long long)m->documents);
  for (int64_t d = 0; d < m->documents; d++)
    if (document_length(m, d) >= 2) m->kept[m->n++] = (int32_t)d;
  if (m->n == 0) FAIL(ERR_CONFIG, "corpus: %s: none of %lld documents has two tokens", path, (long long)m->documents);
  return ERR_OK;
}

static int64_t length(const void *self, int64_t document)
{
  const struct megatron *m = self;
  return document_length(m, m->kept[document]);
}

/* Little-endian, as the file and the machines that we run on are. */
static int64_t token_at(const struct megatron *m, int64_t byte)
{
  uint64_t value = 0;
  memcpy(&value, m->bin.at + byte, (size_t)m->width);
  const int unused = 64 - 8 * m->width;
  return m->is_signed ? (int64_t)(value << unused) >> unused : (int64_t)value;
}

static enum err tokens(const void *self, int64_t document, int64_t first, int64_t n, int32_t *out)
{
  const struct megatron *m = self;
  const int64_t d = m->kept[document];
  int64_t done = 0, before = 0; /* tokens of the document's sequences so far */
  for (int64_t s = document_at(m, d); done < n; s++) {
    const int64_t size = sequence_length(m, s);
    for (int64_t i = first + done - before; i < size && done < n; i++, done++) {
      const int64_t token = token_at(m, sequence_at(m, s) + i * m->width);
      if (token < 0 || token >= m->vocab)
        FAIL(ERR_CONFIG, "vocab: %lld; token %lld of document %lld of corpus %s is %lld", (long long)m->vocab, (long long)(first + done),
             (long long)d, m->path, (long long)token);
      out[done] = (int32_t)token;
    }
    before += size;
  }
  return ERR_OK;
}

static void close_files(void *self)
{
  struct megatron *m = self;
  corpus_map_close(&m->index);
  corpus_map_close(&m->bin);
  free(m->kept);
  free(m);
}

enum err corpus_megatron_open(const struct run_config *c, struct corpus_source *out)
{
  enum err err;
  char path[CONFIG_PATH + 8];
  struct megatron *m = calloc(1, sizeof *m);
  if (m == NULL) FAIL(ERR_MEMORY, "corpus: %zu bytes", sizeof *m);
  m->vocab = c->vocab;
  corpus_megatron_path(c->corpus, ".idx", path);
  corpus_megatron_path(c->corpus, ".bin", m->path);
  TRY_TO(close_all, corpus_map_open(path, &m->index));
  TRY_TO(close_all, corpus_map_open(m->path, &m->bin));
  TRY_TO(close_all, read_header(path, m));
  TRY_TO(close_all, check_index(path, m));
  TRY_TO(close_all, keep_documents(path, m));
  *out = (struct corpus_source){m, m->n, m->documents - m->n, length, tokens, close_files};
  return ERR_OK;

close_all:
  close_files(m);
  return err;
}
