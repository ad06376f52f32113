/* ends.h - what stands before the first block and after the last. */
#ifndef MODEL_ENDS_H
#define MODEL_ENDS_H

#include "model/stage.h"

/* Tokens to the first block's input, embedding_out. */
enum err embedding_forward(struct model *m);
struct tensor embedding_out(const struct model *m);
/* now.stream: the gradient in embedding_out. */
enum err embedding_backward(struct model *m);

/* How many micro-batches' activations of the head the run's schedule needs at one time.  Fails: ERR_MEMORY. */
enum err head_places(const struct run_config *run, int *out);
/* Final norm, head and losses of x, the last block's output; their sum. */
enum err head_forward(struct model *m, const struct tensor *x, bool train, const struct tensor *loss_sum);
/* The gradient in x of now.scale * the sum, into now.stream. */
enum err head_backward(struct model *m, const struct tensor *x);

#endif
