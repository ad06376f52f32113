/* activations.h - where everything between the first token and the last gradient lies.
 *
 * A region is a run of bytes with one lifetime, holding one or more tensors.  Lifetimes are
 * intervals over the actions of a micro-batch:
 *
 *   0                          embedding
 *   1 + l                      forward of block l
 *   L + 1, L + 2               head forward, head backward
 *   L + 3 + 2 (L-1-l), and +1  backward of block l: its second half (mlp), its first (attention)
 *   3 L + 3                    backward of the embedding
 *
 * Bytes per token of the micro-batch, s = size of an element (each tensor rounded up to 256):
 *
 *   block, forward to backward   s (16 C + 4 + H)      16 C = ln_1, qkv (3), attention, sum,
 *                                                      ln_2, c_fc (4), gelu (4), output
 *   embedding                    s C
 *   head                         s (C + 2 + V + 1)     logits whole: their gradient takes their place
 *   losses                       8
 *   gradient of the stream       s C                   from head backward to the end
 *   inside a backward half       s 5 C                 shared by all blocks
 *
 * The peak is at head backward (all blocks, embedding, head, stream) unless V < 3 C - 3 or so,
 * when it is at the last block's backward (the same with 3 C in place of V + 3).
 */
#ifndef MODEL_ACTIVATIONS_H
#define MODEL_ACTIVATIONS_H

#include "device/dev.h"

struct region {
  char *at;
  size_t bytes;
  int id;              /* in the plan                     */
  int64_t first, last; /* actions in which it may be used */
};

/* One block's tensors.  N rows each. */
struct block_memory {
  struct region attention; /* forward to the end of backward     */
  struct tensor ln1, mean1, rstd1, qkv, mixed, lse;
  struct region mlp;       /* forward to the middle of backward  */
  struct tensor sum, ln2, mean2, rstd2, fc, act;
  struct region out_region; /* until the reader's backward       */
  struct tensor out;
  struct region mlp_backward;
  struct tensor d_act, d_mlp;       /* d_mlp: in the projection's output, then in ln_2's */
  struct region attention_backward;
  struct tensor d_qkv, d_mixed, d_attention; /* likewise, and ln_1's */
  struct region kept_gradient;      /* only if asked for */
  struct tensor d_out;
};

struct activations {
  int64_t layers, now; /* the action being queued */
  struct block_memory *blocks;
  struct region embedding_region, norm_region, logits_region, losses_region, stream_region;
  struct tensor embedding;
  struct tensor normed, mean, rstd; /* ln_f */
  struct tensor logits, lse, losses;
  struct tensor d_stream;           /* gradient of the residual stream */
  struct region kept_embedding_gradient, kept_norm_gradient;
  struct tensor d_embedding, d_normed;
  void *block; /* of all bytes */
  size_t bytes;
};

struct activation_sizes {
  enum dtype type;
  int64_t N, C, H, V, layers;
  bool keep;     /* outputs and gradients of blocks live to the end (O15)  */
  bool separate; /* all live from first to last, so that none share bytes  */
};

/* Owner of *a's memory: the caller, until activations_free.  Fails: ERR_MEMORY. */
enum err activations_allocate(struct dev *d, const struct activation_sizes *sizes, struct activations *a);
void activations_free(struct dev *d, struct activations *a);

/* Actions, as numbered above. */
enum { ACTION_EMBEDDING = 0 };
static inline int64_t action_forward(int64_t l) { return 1 + l; }
static inline int64_t action_head(int64_t layers) { return layers + 1; }
static inline int64_t action_head_backward(int64_t layers) { return layers + 2; }
static inline int64_t action_mlp_backward(int64_t layers, int64_t l) { return layers + 3 + 2 * (layers - 1 - l); }
static inline int64_t action_attention_backward(int64_t layers, int64_t l) { return action_mlp_backward(layers, l) + 1; }
static inline int64_t action_embedding_backward(int64_t layers) { return 3 * layers + 3; }

/* The life of r begins, or ends, in the action a->now; that the plan does not allow for it is a bug. */
enum err region_begin(struct dev_stream *s, const struct activations *a, const struct region *r);
enum err region_end(struct dev_stream *s, const struct activations *a, const struct region *r);

#endif
