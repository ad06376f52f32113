/* ops.h - the mathematics of a step, each operation queued on a stream.
 *
 * Every function checks shapes and types (ERR_ARG naming the tensor), declares the
 * ranges it reads and writes, and queues its kernel; it returns before the work is
 * done.  Floating tensors of one call have one work type X, f64, f32, bf16 or f16, unless said
 * otherwise: sums over rows, gradients of weights and what an update changes have the state
 * type S, f64 for f64, f32 for the others.  bf16 and f16 are storage: each element is widened, computed
 * with as in f32, and rounded once when it is written.  N rows = B sequences * T positions.  Each operation's
 * file states its formula, source and order of sums.  "written": old contents are
 * ignored (may be NaN).  "added to": gradients collect micro-batches.  No aliasing
 * unless stated.  Scalars that change from step to step are [1,1] device tensors.
 */
#ifndef OPS_OPS_H
#define OPS_OPS_H

#include "base/rng.h"
#include "device/dev.h"

#ifdef __cplusplus
extern "C" {
#endif

#define T_ const struct tensor *

/* y = value / y = x (types may differ: rounds once) / y = a + b (y may be a or b) /
 * y += x / y = x * factor, factor S or f64 [1,1] (y may be x). */
enum err op_fill(struct dev_stream *s, T_ y, double value);
enum err op_copy(struct dev_stream *s, T_ y, T_ x);
enum err op_add(struct dev_stream *s, T_ y, T_ a, T_ b);
enum err op_accumulate(struct dev_stream *s, T_ y, T_ x);
enum err op_scale(struct dev_stream *s, T_ y, T_ x, T_ factor);

/* c = op(a) op(b), or c += with accumulate.  op(a) [M, K], op(b) [K, N], c [M, N] of X or S; rows
 * may be strided.  float32: oneDNN; float64: own loop, K in index order; bf16, f16: sums in float32.  CUDA: cuBLASLt. */
enum err op_matmul(struct dev_stream *s, T_ c, T_ a, bool transpose_a, T_ b, bool transpose_b, bool accumulate);

/* y [N, O] = x [N, I] w + b.  w is [I, O] (Hugging Face Conv1D), or [O, I] with
 * transposed (a tied head).  b [1, O] or NULL. */
enum err op_linear_fwd(struct dev_stream *s, T_ y, T_ x, T_ w, T_ b, bool transposed);
enum err op_linear_bwd_x(struct dev_stream *s, T_ dx, T_ dy, T_ w, bool transposed);        /* dx written       */
enum err op_linear_bwd_w(struct dev_stream *s, T_ dw, T_ db, T_ dy, T_ x, bool transposed); /* dw, db S, added to;
                                                                                             * db may be NULL   */

/* y [n, O] += b [1, O]: of a row-cut linear layer, whose bias is added once, after the sum over ranks.  The
 * same bits as op_linear_fwd with b where both add in one order (cpu, not bf16 or f16).  Its backward is db of op_linear_bwd_w. */
enum err op_bias_fwd(struct dev_stream *s, T_ y, T_ b);

/* y [N, C] = wte[token - first], tokens i32 [B, T]: wte [V, C] has the rows first.. of a table of `vocab` tokens;
 * a token of another part gives zeros and no gradient, so that the sum over parts is the whole table's.
 * A token outside 0..vocab-1 is ERR_NUMERIC at the next sync.  bwd: dwte S, added to, index order over n,
 * no atomics. */
enum err op_embedding_fwd(struct dev_stream *s, T_ y, T_ wte, T_ tokens, int64_t first, int64_t vocab);
enum err op_embedding_bwd_w(struct dev_stream *s, T_ dwte, T_ dy, T_ tokens, int64_t first, int64_t vocab);

/* y [n, C] += wpe[position]: row i of y is row row0 + i of the positions, i32 [B, T].  One outside wpe, in these
 * rows, is ERR_NUMERIC.  bwd: dwpe S, added to, index order over n. */
enum err op_position_fwd(struct dev_stream *s, T_ y, T_ wpe, T_ positions, int64_t row0);
enum err op_position_bwd_w(struct dev_stream *s, T_ dwpe, T_ dy, T_ positions, int64_t row0);

/* y = (x - mean) * rstd * w + b by row; mean, rstd S [N, 1], eps 1e-5 as GPT-2.
 * bwd_x: dx written, may be dy.  bwd_w: dw, db S [1, C] added to. */
enum err op_layernorm_fwd(struct dev_stream *s, T_ y, T_ mean, T_ rstd, T_ x, T_ w, T_ b, double eps);
enum err op_layernorm_bwd_x(struct dev_stream *s, T_ dx, T_ dy, T_ x, T_ w, T_ mean, T_ rstd);
enum err op_layernorm_bwd_w(struct dev_stream *s, T_ dw, T_ db, T_ dy, T_ x, T_ mean, T_ rstd);

/* Causal self-attention inside documents.  qkv [N, 3C]: q, k, v side by side, head h in
 * columns h*D..h*D+D-1 of each.  docs i32 [B, T]: position t sees u <= t with docs equal;
 * a negative id is padding: it sees itself only.  o [N, C]; lse S [N, H]: log of the
 * sum of exponentials.  The T x T matrix is never stored.  bwd: dqkv [N, 3C] written. */
enum err op_attention_fwd(struct dev_stream *s, T_ o, T_ lse, T_ qkv, T_ docs, int heads);
enum err op_attention_bwd(struct dev_stream *s, T_ dqkv, T_ d_o, T_ o, T_ lse, T_ qkv, T_ docs, int heads);

/* tanh form, as GPT-2.  y may not be x (x is needed later); dx may be dy. */
enum err op_gelu_fwd(struct dev_stream *s, T_ y, T_ x);
enum err op_gelu_bwd(struct dev_stream *s, T_ dx, T_ dy, T_ x);

/* y = x * keep / (1 - p); y may be x.  Its own backward.  x [n, cols] are the rows row0.. of B sequences of
 * `sequence` positions; element (b, t, c) draws word (sample[b] * positions_max + t) * cols + c of the key, so a mask
 * depends on nothing but seed, site, step and the global token.  samples i32 [B, 1]; step i32 [1,1] device. */
enum err op_dropout(struct dev_stream *s, T_ y, T_ x, double p, struct rng_key key, T_ step, T_ samples,
                    int64_t positions_max, int64_t sequence, int64_t row0);

/* Softmax cross-entropy.  logits [N, V]; targets i32 [B, T], -1 ignored, otherwise outside
 * 0..V-1 is ERR_NUMERIC.  losses f64 [N, 1] (0 where ignored), lse S [N, 1]. */
enum err op_cross_entropy_fwd(struct dev_stream *s, T_ losses, T_ lse, T_ logits, T_ targets);
/* The same with the vocabulary cut in parts: logits has the columns first.. of it, of which `valid` count and the
 * rest is padding, never read.  Between the three the caller takes the largest `max` over the parts, then adds `sums`.
 * One part of all columns gives the bits of op_cross_entropy_fwd.
 *   max   f64 [N, 1], -infinity with no valid column
 *   sums  f64 [N, 2]: the sum of exp(logit - max); the logit of the target, 0 if it is another part's
 *   join  targets outside -1..vocab-1 are ERR_NUMERIC */
enum err op_cross_entropy_max(struct dev_stream *s, T_ max, T_ logits, int64_t valid);
enum err op_cross_entropy_sums(struct dev_stream *s, T_ sums, T_ logits, T_ max, T_ targets, int64_t first,
                               int64_t valid);
enum err op_cross_entropy_join(struct dev_stream *s, T_ losses, T_ lse, T_ max, T_ sums, T_ targets, int64_t vocab);
/* dlogits = (softmax - onehot) * scale, 0 where ignored and in padding; dlogits may be logits; scale f64 [1,1]
 * device (1 / global valid tokens).  Targets are as the forward took them: the upper limit is not looked at again. */
enum err op_cross_entropy_bwd(struct dev_stream *s, T_ dlogits, T_ logits, T_ lse, T_ targets, T_ scale, int64_t first,
                              int64_t valid);

/* Whole-tensor sums in double into f64 [1,1], written.  The order is fixed by the number of elements
 * alone (reduce.c): equal contents in row order, equal bits, whatever shape, stride or threads. */
enum err op_sum(struct dev_stream *s, T_ out, T_ x);
enum err op_sum_squares(struct dev_stream *s, T_ out, T_ x);
enum err op_max_abs(struct dev_stream *s, T_ out, T_ x); /* NaN if any is NaN */
/* y f64 [1,1] = 1 / x, x f64 [1,1]; 0 for x = 0. */
enum err op_reciprocal(struct dev_stream *s, T_ y, T_ x);
/* 64-bit hash of the bytes of x in row order into i64 [1,1]: equal contents, equal hash. */
enum err op_hash(struct dev_stream *s, T_ out, T_ x);

/* factor f64 [1,1] = min(1, max_norm / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_;
 * norm f64 [1,1] = sqrt(sum of squares), both written.  max_norm 0: factor 1, whatever the norm.  Otherwise
 * a norm that is not finite gives a factor of NaN: gradients become NaN, seen. */
enum err op_clip_factor(struct dev_stream *s, T_ factor, T_ norm, T_ sum_squares, double max_norm);

struct op_adamw { double beta1, beta2, eps, weight_decay; };
/* Decoupled decay (Loshchilov & Hutter 2019), in the order of torch.optim.AdamW:
 * w -= lr*decay*w; m, v; w -= lr * mhat / (sqrt(vhat) + eps).  g is multiplied by factor
 * first.  w, m, v, g S; rounded bf16, f16 or NULL: receives the new w rounded (w f32).
 * lr, factor f64 [1,1]; t i64 [1,1] = this update's number, from 1; skip f64 [1,1] or NULL: where it is not 0 nothing
 * is written.  All device. */
enum err op_adamw(struct dev_stream *s, T_ w, T_ rounded, T_ m, T_ v, T_ g, T_ lr, T_ t, T_ factor, T_ skip,
                  const struct op_adamw *rule);
enum err op_sgd(struct dev_stream *s, T_ w, T_ rounded, T_ g, T_ lr, T_ factor, T_ skip, double weight_decay);

/* Dynamic loss scale (Micikevicius et al. 2018, section 3.2).
 * key f64 [1,1], written: 0 if all of `largest` is finite, else which rank's was the first that is not; of two keys
 * the larger is the earlier.  largest f64 [K n, B]: row k n + i has the largest magnitudes of gradients of rank
 * `rank` + i after micro-batch k, a column for each bucket in the order of backward.  Earlier: a later stage, an earlier
 * bucket, a lower rank.  op_overflow_rank gives the rank of a key that is not 0. */
enum err op_overflow(struct dev_stream *s, T_ key, T_ largest, int stage, int rank, int n);
int op_overflow_rank(double key);
/* state f64 [1, OP_SCALE_STATE]: the scale that comes next and the good steps since it changed, read and written; the scale of
 * this step and whether it is skipped (1, else 0), written.  A step is skipped if key f64 [1,1] is not 0: then the scale
 * halves; after `interval` good steps it doubles. */
enum op_scale_state { OP_SCALE_NEXT, OP_SCALE_GOOD, OP_SCALE_USED, OP_SCALE_SKIP, OP_SCALE_STATE };
enum err op_loss_scale(struct dev_stream *s, T_ state, T_ key, int64_t interval);

/* The stream is busy (its core is not) for this long: planted delays, compute: sleep. */
enum err op_sleep(struct dev_stream *s, double ms);

#undef T_

const char *op_matmul_library(enum dev_kind kind); /* "oneDNN 2.6.3; bf16 ..." or "cuBLASLt 13.0.2", for records */

#ifdef __cplusplus
}
#endif
#endif
