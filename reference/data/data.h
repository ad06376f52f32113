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

/* Documents as token strings.
 *
 * synthetic: run.documents of them.  Lengths follow the published Wikipedia histogram
 * (lengths_wikipedia.c), scaled so that its longest, 512 tokens, is the model's `positions`;
 * at least 2 tokens.  A token follows from the one before with probability 3/4, else it is
 * drawn anew with small numbers favoured: there is something to learn.
 * A directory: every regular readable file below it, ordered by path, its bytes the tokens.
 * Empty files, links and compressed files (.gz .xz .bz2 .zst) are no documents. */
struct corpus;
/* Owner of *out: the caller.  Fails: ERR_CONFIG naming `corpus` and what is wrong (missing, no
 * document, tokens beyond the vocabulary), ERR_MEMORY. */
enum err corpus_open(const struct run_config *c, struct corpus **out);
void corpus_close(struct corpus *c); /* NULL is allowed */
int64_t corpus_documents(const struct corpus *c);
int64_t corpus_length(const struct corpus *c, int64_t document);
/* Tokens [first, first + n) of a document.  Fails: ERR_IO if its file changed. */
enum err corpus_tokens(const struct corpus *c, int64_t document, int64_t first, int64_t n, int32_t *out);

/* Host arrays of one micro-batch, B * T each; samples: B. */
struct batch {
  int64_t B, T;
  int32_t *tokens, *targets, *positions, *documents, *samples;
  int64_t n_tokens, n_valid; /* counted from the arrays */
};

struct data_plan;
/* An epoch takes every training document once; its order differs from that of every other.
 * policy padded: documents_each documents side by side in a sequence, each cut to
 * T / documents_each, what is left padding (token 0, target -1, document -1).
 * policy chunked: a document is cut into sequences that fill T; only its last is padded.
 * The last token of a document has no target; the last one before a cut has.  Positions
 * restart with each document and each cut.  Document ids are numbers of the corpus.
 * Every 16th document is kept for evaluation, in one order of its own (with fewer than 16, all
 * serve both).
 *
 * With run.batch_file the sequences are the rows of its tensors `tokens`, `targets`, `positions`,
 * `documents` (int32 or int64, [k * global_batch, T]), step after step and again from the start;
 * evaluation takes the same rows.  corpus is not looked at and may be NULL.
 *
 * Owner of *out: the caller; corpus must outlive it.  Fails: ERR_CONFIG, ERR_FORMAT and ERR_IO
 * (batch_file), ERR_MEMORY. */
enum err data_plan_create(const struct run_config *c, const struct corpus *corpus, struct data_plan **out);
void data_plan_destroy(struct data_plan *p); /* NULL is allowed */
/* Sequences of one epoch; with a batch_file its rows. */
int64_t data_plan_epoch(const struct data_plan *p);
/* Micro-batch m of step k, counted from 0; step < 0: of evaluation batch -1 - step. */
enum err data_plan_batch(const struct data_plan *p, int64_t step, int64_t microbatch, struct batch *out);

enum err batch_create(int64_t B, int64_t T, struct batch *out);
void batch_destroy(struct batch *b);
void batch_count(struct batch *b); /* sets n_tokens and n_valid from the arrays */
/* 64 bits of tokens, targets, positions and document ids. */
uint64_t batch_hash(const struct batch *b);

#endif
