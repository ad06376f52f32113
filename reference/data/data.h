/* data.h - the global batch: a pure function of corpus, policy and step.
 *
 * A layout only deals its parts out.  Step k has global_batch sequences in
 * global_batch / micro_batch micro-batches, numbered in the whole step; replica r takes
 * the consecutive ones r * a .. r * a + a - 1, a = accumulation.  Any rank can make any
 * micro-batch without the others.
 */
#ifndef DATA_DATA_H
#define DATA_DATA_H

#include "base/config.h"

struct corpus; /* documents as token strings: synthetic, or files of bytes */
/* Fails: ERR_CONFIG naming `corpus` and what is wrong (missing, no document, tokens
 * beyond the vocabulary), ERR_IO. */
enum err corpus_open(const struct run_config *c, struct corpus **out);
void corpus_close(struct corpus *c);
int64_t corpus_documents(const struct corpus *c);
int64_t corpus_length(const struct corpus *c, int64_t document);
/* tokens [first, first + n) of a document */
void corpus_tokens(const struct corpus *c, int64_t document, int64_t first, int64_t n, int32_t *out);

/* Host arrays of one micro-batch, B * T each; samples: B. */
struct batch {
  int64_t B, T;
  int32_t *tokens, *targets, *positions, *documents, *samples;
  int64_t n_tokens, n_valid; /* counted from the arrays */
};

struct data_plan;
/* Shuffles of documents differ by epoch.  policy padded: documents_each documents side by
 * side in a sequence, cut to fit, the rest padding (token 0, target -1, document -1).
 * policy chunked: a document is cut into sequences that fill T; only its last is padded.
 * The last token of a document has no target.  Positions restart with each document. */
enum err data_plan_create(const struct run_config *c, const struct corpus *corpus, struct data_plan **out);
void data_plan_destroy(struct data_plan *p);
/* Micro-batch m of step k (evaluation: its own fixed documents, step < 0 = -1 - number). */
enum err data_plan_batch(const struct data_plan *p, int64_t step, int64_t microbatch, struct batch *out);
enum err batch_create(int64_t B, int64_t T, struct batch *out);
void batch_destroy(struct batch *b);
uint64_t batch_hash(const struct batch *b);

#endif
