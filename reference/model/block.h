/* block.h - one transformer block, forward and backward, and what it needs of the model. */
#ifndef MODEL_BLOCK_H
#define MODEL_BLOCK_H

#include "model/activations.h"
#include "model/model.h"

struct model {
  struct model_config config;
  enum dtype type;
  int64_t B, T;
  int head_row; /* lm_head.weight, or wte when tied */
  int norm_row; /* ln_f.weight, its bias next       */
  bool tied;
  char *head_gradient; /* accumulator of the head's use of a tied, trained wte; NULL otherwise */
  struct activations memory;

  /* of the forward or backward being queued */
  bool drop; /* dropout is on */
  model_ready ready;
  void *ready_arg;
};

/* Views of a row's weights and of its gradient. */
struct tensor model_weight(const struct model *m, int row);
struct tensor model_gradient(const struct model *m, int row);
/* Tells whoever asked that the row's gradient is queued; shared rows are their owner's to tell. */
void model_tell(const struct model *m, int row);

/* Linear layer and norm whose weight is `row` and whose bias is row + 1: gradients, then told. */
enum err model_linear_gradient(const struct model *m, int row, const struct tensor *dy, const struct tensor *x);
enum err model_norm_gradient(const struct model *m, int row, const struct tensor *dy, const struct tensor *x,
                             const struct tensor *mean, const struct tensor *rstd);

/* Sites of dropout, counted from 0 within layer + 1; the embedding's is site 0 of layer -1. */
enum model_site { MODEL_SITE_EMBEDDING, MODEL_SITE_ATTENTION, MODEL_SITE_MLP };
/* y = dropout(x), y may be x; only when m->drop. */
enum err model_dropout(const struct model *m, const struct model_input *in, int layer, enum model_site site,
                       const struct tensor *y, const struct tensor *x);

enum err block_forward(struct model *m, const struct model_input *in, int layer, const struct tensor *x);
/* d_stream: the gradient in the block's output; becomes the one in its input x. */
enum err block_backward(struct model *m, const struct model_input *in, int layer, const struct tensor *x);

#endif
