/* model.h - the GPT-2 stage of one rank: forward and backward of micro-batches.
 *
 * Pre-norm blocks: x += attn(ln_1(x)); x += mlp(ln_2(x)); then ln_f and the head, with
 * dropout after the embedding and after both projections (none inside attention).  All
 * work goes on one compute stream; nothing is allocated after create.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "device/dev.h"
#include "params/params.h"

/* One micro-batch on the device, int32. */
struct model_input {
  struct tensor tokens, targets, positions, documents; /* [B, T]; targets -1 = ignored */
  struct tensor samples;                               /* [B, 1] global sample number   */
};

struct model;

struct model_config {
  const struct run_config *run;
  const struct param_table *table;
  const struct flat *flat;
  struct dev *dev;
  struct dev_stream *compute;
  void *weights, *gradients; /* flat buffers of run->precision on the device */
  struct tensor step;        /* i32 [1,1] device: keys dropout               */
  bool separate;             /* each activation gets a place of its own: more memory, the same bits (for tests) */
};

enum err model_create(const struct model_config *c, struct model **out);
void model_destroy(struct model *m);

/* Loss of one micro-batch: loss_sum f64 [1,1] device, written.  train: dropout is on and
 * activations are kept for the backward that must follow before the next forward. */
enum err model_forward(struct model *m, const struct model_input *in, bool train, const struct tensor *loss_sum);

/* Gradients of scale * loss_sum are added to the flat gradients.  scale f64 [1,1] device.
 *
 * A tied matrix has one accumulator per use: the embedding's is the flat gradient, the
 * head's stands beside it and is added to it, once, in the backward that is the `last`
 * before the flat gradients are folded or reduced (then it is cleared); so the order of the
 * sum does not depend on where the uses run.
 *
 * ready (may be NULL) is called on the host only in the `last` backward, row by row, once
 * all work on that row's gradient is queued: last row first, shared storage once (by its
 * owner's row), after its last use; frozen and unused rows too.  Their gradients are not
 * computed (a frozen weight or bias whose partner is not frozen is, and is not used). */
typedef void (*model_ready)(void *arg, int row);
enum err model_backward(struct model *m, const struct model_input *in, const struct tensor *scale, bool last,
                        model_ready ready, void *arg);

/* O15: the output of block l (or -1: embedding; L: final norm; L + 1: the losses, f64) of the last forward, and the
 * gradient in it of the last backward (none for the losses: it is the scale), [N, C], kept only if asked for at
 * create (run->dump == DUMP_ALL).  Fails: ERR_ARG. */
enum err model_block(struct model *m, int layer, bool gradient, struct tensor *out);

size_t model_activation_bytes(const struct model *m); /* the block in DEV_ACTIVATIONS */
#endif
