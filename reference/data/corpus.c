/* corpus.c - which kind of corpus a path is. */
#include "data/corpus_source.h"
#include "data/data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct corpus {
  struct corpus_source source;
};

enum err corpus_needs_bytes(const struct run_config *c)
{
  if (c->vocab < 256) FAIL(ERR_CONFIG, "vocab: %lld; the bytes of corpus '%s' need at least 256", (long long)c->vocab, c->corpus);
  return ERR_OK;
}

static bool ends_with(const char *text, const char *ending)
{
  const size_t n = strlen(text), e = strlen(ending);
  return n > e && strcmp(text + n - e, ending) == 0;
}

static enum err open_source(const struct run_config *c, struct corpus_source *out)
{
  struct stat s, index;
  char path[CONFIG_PATH + 8];
  if (strcmp(c->corpus, "synthetic") == 0) return corpus_synthetic_open(c, out);
  const bool there = stat(c->corpus, &s) == 0;
  const int reason = errno;
  if (there && S_ISDIR(s.st_mode)) return corpus_text_open(c, out);
  if (there && ends_with(c->corpus, ".jsonl")) return corpus_jsonl_open(c, out);
  corpus_megatron_path(c->corpus, ".idx", path);
  if (stat(path, &index) == 0) return corpus_megatron_open(c, out);
  if (there && ends_with(c->corpus, ".bin")) return corpus_llmc_open(c, out);
  FAIL(ERR_CONFIG, "corpus: '%s'%s%s; valid: synthetic, a directory of text files, a file X.jsonl, the X of Megatron-LM's X.bin and X.idx, "
       "a token file X.bin of llm.c", c->corpus, there ? "" : ": ", there ? " is none" : strerror(reason));
}

enum err corpus_open(const struct run_config *c, struct corpus **out)
{
  enum err err;
  *out = NULL;
  struct corpus *x = calloc(1, sizeof *x);
  if (x == NULL) FAIL(ERR_MEMORY, "corpus: %zu bytes", sizeof *x);
  TRY_TO(free_corpus, open_source(c, &x->source));
  *out = x;
  return ERR_OK;

free_corpus:
  free(x);
  return err;
}

void corpus_close(struct corpus *c)
{
  if (c == NULL) return;
  c->source.close(c->source.self);
  free(c);
}

int64_t corpus_documents(const struct corpus *c) { return c->source.documents; }
int64_t corpus_left_out(const struct corpus *c) { return c->source.left_out; }
int64_t corpus_length(const struct corpus *c, int64_t document) { return c->source.length(c->source.self, document); }

enum err corpus_tokens(const struct corpus *c, int64_t document, int64_t first, int64_t n, int32_t *out)
{
  if (document < 0 || document >= c->source.documents || first < 0 || n < 0 || first + n > corpus_length(c, document))
    FAIL(ERR_ARG, "corpus: tokens %lld + %lld of document %lld of %lld", (long long)first, (long long)n, (long long)document,
         (long long)c->source.documents);
  TRY(c->source.tokens(c->source.self, document, first, n, out));
  return ERR_OK;
}
