/* activations.h - where everything between the first token and the last gradient lies.
 *
 * A region is a run of bytes with one lifetime, holding one or more tensors.  Lifetimes are
 * intervals over the actions of a micro-batch in a chunk of L layers (the largest chunk's):
 *
 *   0                          embedding
 *   1 + l                      forward of block l
 *   L + 1, L + 2               head forward, head backward
 *   L + 3 + 2 (L-1-l), and +1  backward of block l: its second half (mlp), its first (attention)
 *   3 L + 3                    backward of the embedding
 *   3 L + 4 + (L-1-l)          backward of block l for weights, when split
 *
 * With one chunk, one slot and backward whole, nothing runs between a forward and its
 * backward, and all regions share bytes by these lifetimes.  Otherwise other micro-batches
 * run in between: what outlives a pass has bytes of its own, what lives inside one shares.
 *
 * Bytes, s = size of an element, N rows of the micro-batch, n of this rank's shard of them (N / t
 * with sequence, else N), C channels, H heads, V' = ceil(vocab / t); each tensor rounded up to 256:
 *
 *   block        S = s (n (4 C + 4) + N (12 C + H) / t)         ln_1, sum, ln_2, output; qkv (3), attention,
 *                                                               c_fc (4), gelu (4); at t = 1 N (16 C + 4 + H)
 *     when split A = s (n (2 C + 4) + N (7 C + H) / t)          ... of which in the slot
 *                W = s (n 2 C + N (5 C + 7 C) / t + N 2 C)      and in the weight slot, with the gradients of
 *                                                               qkv, of c_fc and in both projections' outputs
 *   embedding    E = s n C                                      on the first virtual stage
 *   head         D = s (n (C + 2) + N (V' + 1))                 logits whole: their gradient takes their place
 *   stream       R = s n C                                      with the head, backward: gradient of the residual
 *                                                               stream; elsewhere it is in the output's place
 *   half         G = s (N 4 C / t + n C + Q), split: s (N C / t + n C + Q)    inside a backward half
 *   rows whole   Q = s N C with sequence, else 0
 *   losses       8 N, and 24 N more when t > 1                  inside the head's forward
 *
 * Shared by lifetimes:
 *   L S + E + max(D + R + Q [at the head's backward], G [at the last block's: the stream is where its output was])
 * Otherwise, L the layers of the rank's largest chunk, h the most micro-batches that the schedule has in the last
 * virtual stage between forward and backward (1 where one follows the other at once; GPipe: all):
 *   slots (L S + E, or L A + E) + weight_slots L W + h D + max(R + G, Q + losses)
 * D, R and losses with the head, E with the embedding only; in both cases inputs * s n C more, and kept for O15
 * 2 s n C for each block, embedding and final norm, 8 N for the losses.
 *
 * Recompute.  What a block's forward makes and its backward reads, in three parts:
 *   quick   s (4 n + N H / t)              means and deviations of both norms, log-sums of attention
 *   wide    s (n C + N (3 C + 4 C) / t)    sum; qkv, c_fc
 *   inputs  s (2 n C + N (C + 4 C) / t)    of the linear layers: ln_1, attention, ln_2, gelu
 * none keeps all; selective keeps wide alone: what it makes again are attention, norms and gelu, no product with a
 * weight and no collective; full keeps nothing but the output, which is the next block's input, and makes all again
 * but the output (which no backward reads): three of the four products, and all collectives of forward but the last.
 * What is not kept has bytes inside the pass, in forward and again in backward.  Then S, A, W, F and G above are
 *
 *   S, A  = s n C + what is kept              selective s (2 n C + 7 N C / t), full s n C
 *   F     = what is not, and Q                inside a block's forward
 *   G    += what is not of mlp (selective), of both (full): s (n (C + 2) + 4 N C / t), s (n (3 C + 4) + N (12 C + H) / t)
 *   split   inputs are in the weight slot, from the backward for inputs on (places there: the most micro-batches between
 *           the two backwards): G += s (2 n + N H / t) (selective, in attention), s (n (C + 4) + N (6 C + H) / t) (full)
 */
#ifndef MODEL_ACTIVATIONS_H
#define MODEL_ACTIVATIONS_H

#include "base/config.h"
#include "device/dev.h"

struct region {
  char *at;
  size_t bytes;        /* 0: there is none                */
  int id;              /* in the plan                     */
  int64_t first, last; /* actions in which it may be used */
};

/* What the backward for inputs needs of a block, forward to backward: one a slot. */
struct block_stash {
  struct region attention; /* until the end of backward    */
  struct tensor mean1, rstd1, qkv, lse;
  struct region mlp;       /* until the middle of backward */
  struct tensor sum, mean2, rstd2, fc;
  struct region out_region; /* until the reader's backward; a chunk's last: the output, then its gradient */
  struct tensor out;
};

/* What the gradients of a block's linear layers are products of, each x with its dy: one a
 * weight slot when backward is split; else one a slot, inside the stash's regions and the work's. */
struct block_saved {
  struct region attention, mlp, attention_gradient, mlp_gradient;
  struct tensor ln1, mixed, ln2, act;
  struct tensor d_qkv, d_attention, d_act, d_mlp; /* d_attention, d_mlp: whole rows, only when split */
};

/* What is not kept, where one pass has it; its own regions are empty. */
struct block_passing {
  struct block_stash stash;
  struct block_saved saved;
};

/* What lives inside a pass. */
struct block_work {
  struct region forward, weight;
  struct region again; /* of full: attention's, made before the second half's backward, used in the first's */
  struct block_passing in_forward, in_backward;
  struct region mlp_backward;
  struct tensor d_act, d_mlp;                /* d_mlp: in the projection's output, then in ln_2's */
  struct region attention_backward;
  struct tensor d_qkv, d_mixed, d_attention; /* likewise, and ln_1's */
  struct tensor whole[4]; /* with sequence, by enum block_pass: all rows, gathered from shards or to be scattered */
};
enum block_pass { BLOCK_FORWARD, BLOCK_MLP_BACKWARD, BLOCK_ATTENTION_BACKWARD, BLOCK_WEIGHT };

/* The last virtual stage's end, forward to backward. */
struct head_stash {
  struct region norm_region, logits_region;
  struct tensor normed, mean, rstd; /* ln_f */
  struct tensor logits, lse;
};

struct head_work {
  struct region losses_region, forward, backward;
  struct tensor losses, max, sums; /* max, sums: of a cut vocabulary */
  struct tensor whole[2];          /* forward, backward */
};

struct activation_sizes {
  enum dtype type, state; /* of activations, of statistics */
  int64_t N, n, C, H, V, layers; /* N, n, V = V' as above */
  int t, slots, weight_slots, inputs, heads;
  bool begins, ends; /* the rank has the embedding; the head */
  bool split, sequence;
  enum recompute recompute;
  bool shared;   /* by lifetimes, as above */
  bool separate; /* all live from first to last, so that none share bytes */
};

struct activations {
  struct activation_sizes sizes; /* of the pass being queued */
  int64_t layers, now; /* of the largest chunk; the action being queued */
  int n_saved, n_heads;
  struct block_stash *stash;         /* [slots][layers], as backward reads it              */
  struct block_stash *stash_forward; /* as forward writes it; NULL: all is kept, so stash  */
  struct block_saved *saved; /* [n_saved][layers] */
  struct block_work *work;   /* [layers]          */
  struct head_stash *heads;  /* [n_heads]         */
  struct head_work head;
  struct region *embedding_regions, embedding_work, embedding_backward, stream_region, *input_regions;
  struct tensor *embeddings; /* [slots]  */
  struct tensor *inputs;     /* [inputs] */
  struct tensor embedding_whole[2]; /* forward, backward */
  struct tensor stream;      /* gradient of the residual stream, in a chunk that ends with the head */
  void *block; /* of all bytes */
  size_t bytes;
};

/* Owner of *a's memory: the caller, until activations_free.  Fails: ERR_MEMORY. */
enum err activations_allocate(struct dev *d, const struct activation_sizes *sizes, struct activations *a);
void activations_free(struct dev *d, struct activations *a);
/* From here on tensors have N rows, or n, at most those of activations_allocate, in the same regions; these are as long as that
 * needs.  What a micro-batch left in its places is where it was once its own N is set again. */
void activations_narrow(struct activations *a, int64_t N, int64_t n);

/* Actions, as numbered above. */
enum { ACTION_EMBEDDING = 0 };
static inline int64_t action_forward(int64_t l) { return 1 + l; }
static inline int64_t action_head(int64_t layers) { return layers + 1; }
static inline int64_t action_head_backward(int64_t layers) { return layers + 2; }
static inline int64_t action_mlp_backward(int64_t layers, int64_t l) { return layers + 3 + 2 * (layers - 1 - l); }
static inline int64_t action_attention_backward(int64_t layers, int64_t l)
{
  return action_mlp_backward(layers, l) + 1;
}
static inline int64_t action_embedding_backward(int64_t layers) { return 3 * layers + 3; }
static inline int64_t action_weight(int64_t layers, int64_t l) { return 3 * layers + 4 + layers - 1 - l; }

/* The life of r begins, or ends, in the action a->now; that the plan does not allow for it is a bug.
 * Of a region that is not there: nothing. */
enum err region_begin(struct dev_stream *s, const struct activations *a, const struct region *r);
enum err region_end(struct dev_stream *s, const struct activations *a, const struct region *r);

#endif
