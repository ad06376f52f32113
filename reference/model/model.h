/* model.h - the part of GPT-2 that one rank has: forward and backward of micro-batches.
 *
 * Pre-norm blocks: x += attn(ln_1(x)); x += mlp(ln_2(x)); then ln_f and the head, with
 * dropout after the embedding and after both projections (none inside attention).  All
 * work goes on one compute stream; nothing is allocated after create.
 *
 * A rank has chunks 0 .. v-1, each a virtual stage: chunk c is stage c * pp + pp_rank of the
 * partition.  Stage 0 begins with the embedding; the last ends with final norm, head and
 * loss.  Under tensor parallelism (config.tp) a rank has its part of every cut weight, the
 * reductions are in here, on the compute stream (parallel/tensor.h); with tp.sequence the
 * residual stream, dropout and norms are on a shard of the rows.
 *
 * Memory of a micro-batch under way has numbered places that the schedule deals out: a slot
 * from forward to backward, a weight_slot from forward to the backward for weights (only
 * when backward is split), an input for what the stage before sends.  What a pass needs
 * only while it runs is shared by all.  activations.h has the closed formula of the bytes.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "comm/comm.h"
#include "device/dev.h"
#include "parallel/ddp.h"
#include "parallel/tensor.h"
#include "parallel/zero.h"

/* One micro-batch on the device, int32. */
struct model_input {
  struct tensor tokens, targets, positions, documents; /* [B, T], T at most run->sequence; targets -1 = ignored */
  struct tensor samples;                               /* [B, 1] global sample number   */
};

struct model;

struct model_config {
  const struct run_config *run;
  const struct param_table *table;
  const struct flat *flat; /* of this place */
  struct params_place place;
  struct dev *dev;
  struct dev_stream *compute;
  struct zero *zero;         /* where weights are, of run_work_type          */
  struct ddp *ddp;           /* where gradients are, of run_state_type       */
  struct tensor step;        /* i32 [1,1] device: keys dropout               */
  struct tp tp;              /* size 1, comm NULL: no tensor parallelism     */
  struct comm *tied;         /* pp > 1 and tied: first and last stage's group of these two, on compute; else NULL */
  int slots, weight_slots, inputs; /* places; slots >= 1 */
  bool split;                /* backward comes in two passes; weight_slots >= 1 */
  bool separate;             /* each activation gets a place of its own: more memory, the same bits (for tests) */
};

/* Fails: ERR_ARG, ERR_MEMORY. */
enum err model_create(const struct model_config *c, struct model **out);
void model_destroy(struct model *m);

/* What runs: a micro-batch through a chunk, and its places (not looked at where there is none:
 * weight_slot unless split; input of virtual stage 0). */
struct model_pass {
  int chunk, slot, weight_slot, input;
  const struct model_input *in;
};

/* The chunk's layers.  loss_sum f64 [1,1] device: written by the last virtual stage, may be NULL
 * elsewhere.  train: dropout is on and activations are kept for the backward that must follow
 * before these places are used again.  Weights are asked for unit by unit (zero_need, zero_done). */
enum err model_forward(struct model *m, const struct model_pass *pass, bool train, const struct tensor *loss_sum);

/* Gradients of scale * loss_sum are added to those of each unit, after ddp_begin.  scale f64 [1,1] device, read
 * by the last virtual stage only.
 *
 * ready (may be NULL) is called on the host only in the `last` backward of a chunk (the one
 * before the flat gradients are folded or reduced), row by row of those that this rank has,
 * once all work on that row's gradient is queued: within a pass the chunk's last row first, shared
 * storage once (by its owner's row), after its last use; frozen rows too.  Their gradients
 * are not computed (a frozen weight or bias whose partner is not frozen is, and is not used).
 * A tied matrix and rows that no forward touches are model_finish's to tell. */
typedef void (*model_ready)(void *arg, int row);
enum err model_backward(struct model *m, const struct model_pass *pass, const struct tensor *scale, bool last,
                        model_ready ready, void *arg);

/* The same in two, with the same bits; only when split.  Input: the gradient that the stage
 * before needs, with the gradients of norms, embedding and head.  Weight: those of the blocks'
 * linear layers, any time later.  Each tells its own rows. */
enum err model_backward_input(struct model *m, const struct model_pass *pass, const struct tensor *scale, bool last,
                              model_ready ready, void *arg);
enum err model_backward_weight(struct model *m, const struct model_pass *pass, bool last, model_ready ready, void *arg);

/* After the last pass before gradients are folded or reduced, once.
 *
 * A tied matrix has one accumulator per use, embedding's use + head's use are added in this
 * order: so the order of the sum does not depend on where the uses run.  On one stage the
 * embedding's is the flat gradient and the head's stands beside it; on two each stage's is its
 * flat gradient, the last sends its own, the first adds and sends the sum back (all ranks of
 * both stages call).  Then tells the tied matrix and the rows that no forward touches. */
enum err model_finish(struct model *m, model_ready ready, void *arg);

/* What a pass of the chunk needs of the weights (zero_plan), in order: places in `out` for its layers and 3 more.
 * ZERO_BACKWARD: a backward, whole or for inputs; one for weights needs none.  Returns how many. */
int model_lives(const struct model *m, int chunk, enum zero_pass pass, struct zero_life *out);

/* [tp_rows, C], contiguous.  Input: what the stage before sends, received before the forward;
 * after the (input) backward: the gradient to send back.  Output: to be sent after the forward;
 * the gradient in it is received here before the backward.  Neither begins nor ends in another's
 * pass: output from its forward to the end of its backward; the input is the caller's. */
struct tensor model_boundary(const struct model *m, const struct model_pass *pass, bool output);

/* O15: the output of block l (or -1: embedding; L: final norm; L + 1: the losses, f64 [N, 1]) of the last
 * forward, and the gradient in it of the last backward (none for the losses: it is the scale),
 * [tp_rows, C], kept only if asked for at create (run->dump == DUMP_ALL).
 * Fails: ERR_ARG, also for what another stage has (model_has_block). */
enum err model_block(struct model *m, int layer, bool gradient, struct tensor *out);
bool model_has_block(const struct model *m, int layer);

size_t model_activation_bytes(const struct model *m); /* the block in DEV_ACTIVATIONS */
#endif
