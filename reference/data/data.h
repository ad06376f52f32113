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

/* Documents as token strings, each of two tokens or more: one of fewer has no target, is left out and counted.
 *
 * synthetic: run.documents of them.  run.lengths says how long they are: the published histograms of Wikipedia
 * (lengths_wikipedia.c) and SQuAD (lengths_squad.c), scaled so that their longest is the model's `positions`; Wikipedia's
 * in ascending order; lognormal; all alike; one of `positions` among seven short ones; or all longer than half of
 * `positions`, evenly up to it.  A token follows from the one before with probability 3/4, else it is drawn anew with
 * small numbers favoured: there is something to learn.
 * A directory: every regular readable file below it, ordered by path, its bytes the tokens.  Links and compressed files
 * (.gz .xz .bz2 .zst) are no documents.
 * X.jsonl: the bytes of `text` of each line (corpus_jsonl.c).  X of X.bin and X.idx: Megatron-LM's indexed data
 * (corpus_megatron.c).  X.bin without an index: a token file of llm.c (corpus_llmc.c).  These are mapped into memory. */
struct corpus;
/* Owner of *out: the caller.  Fails: ERR_CONFIG naming `corpus` and what is wrong (missing, empty, truncated, of another
 * format, no document, tokens beyond the vocabulary), ERR_MEMORY. */
enum err corpus_open(const struct run_config *c, struct corpus **out);
void corpus_close(struct corpus *c); /* NULL is allowed */
int64_t corpus_documents(const struct corpus *c);
int64_t corpus_left_out(const struct corpus *c); /* of fewer than two tokens, or not readable */
int64_t corpus_length(const struct corpus *c, int64_t document);
/* Tokens [first, first + n) of a document.  Fails: ERR_IO if its file changed, ERR_CONFIG for a
 * token beyond the vocabulary that opening did not look at. */
enum err corpus_tokens(const struct corpus *c, int64_t document, int64_t first, int64_t n, int32_t *out);

/* Host arrays of one micro-batch, B * T each; samples: B. */
struct batch {
  int64_t B, T;
  int32_t *tokens, *targets, *positions, *documents, *samples;
  int64_t n_tokens, n_valid, n_pairs; /* counted from the arrays; pairs: of tokens of one document, each with itself too */
};

struct data_plan;
/* An epoch takes every training document once; its order differs from that of every other (run.shuffle: false: the order of
 * the corpus in each).  A sequence holds one piece or several; a document longer than a sequence is split into pieces of T
 * tokens, counted in data_facts.
 *
 *   padded    documents_each documents side by side in a sequence, each cut (not split) to T / documents_each
 *   chunked   a piece in each sequence
 *   bucketed  a piece in each sequence, those of one batch of similar length; the order of batches is shuffled
 *   packed    pieces side by side, as many as fit, by run.packing (packs.h); which pieces of a length stand in which
 *             sequence differs from epoch to epoch, but for first-fit, where the order of sequences alone does
 *   balanced  a piece in each sequence; a step's are dealt to run.deal ranks by predicted cost, as many to each (deal.h),
 *             and those of a rank put together by length into micro-batches
 *
 * What is left of a sequence is padding (token 0, target -1, document -1).  The last token of a document has no target; the
 * last one before a cut has.  Positions restart with each piece.  Document ids are numbers of the corpus.  So chunked,
 * bucketed, packed and balanced have the same tokens with the same neighbours in an epoch, and over an epoch the same loss;
 * padded has where nothing is cut.
 *
 * An epoch's last sequences, R of them, may be too few for a step.  run.tail wrap: the step goes on with the next epoch, also
 * through several where the corpus is smaller than a step.  drop: they are left out, others in each epoch; a corpus smaller than
 * a step is refused.  pad: they fill the first micro-batches, the others are empty.  reshape: each micro-batch has
 * its share of them (balanced: deals empty ones by their cost of nothing, in both).  Empty sequences are all padding: a rank
 * may have no valid token, a step always has one.
 * Every 16th document is kept for evaluation, in one order of its own (with fewer than 16, all serve both); its tail is
 * never dropped but padded.
 *
 * Where a run stands is the number of its step: there is no other state to save.
 *
 * With run.batch_file the sequences are the rows of its tensors `tokens`, `targets`, `positions`,
 * `documents` (int32 or int64, [k * global_batch, T]), step after step and again from the start;
 * evaluation takes the same rows.  corpus is not looked at and may be NULL.
 *
 * Owner of *out: the caller; corpus must outlive it.  One thread at a time.  Fails: ERR_CONFIG, ERR_FORMAT and ERR_IO
 * (batch_file), ERR_MEMORY. */
enum err data_plan_create(const struct run_config *c, const struct corpus *corpus, struct data_plan **out);
void data_plan_destroy(struct data_plan *p); /* NULL is allowed */
/* Sequences of one epoch; with a batch_file its rows. */
int64_t data_plan_epoch(const struct data_plan *p);
/* Of the training part; of zeros but for sequences with a batch_file. */
struct data_facts {
  int64_t documents, left_out; /* of training; of the whole corpus, for having fewer than two tokens or being unreadable */
  int64_t tokens, longest;     /* of documents */
  int64_t longer;              /* documents that do not fit: split, with policy padded cut */
  int64_t cut_tokens;          /* that no sequence has: beyond a cut, or a document's last that would stand alone */
  int64_t sequences, dropped;  /* of an epoch; of these, left out by tail drop */
  int64_t most;                /* documents in one sequence */
  double filled;               /* tokens of all sequences / positions of all sequences */
};
void data_plan_facts(const struct data_plan *p, struct data_facts *out);
/* Micro-batch m of step k, counted from 0; step < 0: of evaluation batch -1 - step. */
enum err data_plan_batch(struct data_plan *p, int64_t step, int64_t microbatch, struct batch *out);

/* Its arrays are one block, from `tokens` on. */
size_t batch_bytes(int64_t B, int64_t T);
struct batch batch_at(void *block, int64_t B, int64_t T); /* a view */
enum err batch_create(int64_t B, int64_t T, struct batch *out);
void batch_destroy(struct batch *b);
void batch_count(struct batch *b); /* sets n_tokens, n_valid and n_pairs from the arrays */
/* Positions of each sequence that a pass has to look at: up to the last token of any of them, rounded up to a multiple of
 * BATCH_WIDTH, and on until `shards` divides the micro-batch's positions; T at most, whose B * T shards divides. */
enum { BATCH_WIDTH = 16 };
int64_t batch_width(const struct batch *b, int64_t shards);
/* 64 bits of tokens, targets, positions and document ids. */
uint64_t batch_hash(const struct batch *b);

#endif
