/* block.h - one transformer block of a chunk, forward and backward. */
#ifndef MODEL_BLOCK_H
#define MODEL_BLOCK_H

#include "model/stage.h"

/* Block `i` of the chunk; x: its input. */
enum err block_forward(struct model *m, int64_t i, const struct tensor *x);
/* now.stream: the gradient in the block's output.  d_x becomes the one in x: now.stream itself, or the
 * chunk's input, which may be x.  Unless split with the gradients of the linear layers' weights. */
enum err block_backward(struct model *m, int64_t i, const struct tensor *x, const struct tensor *d_x);
enum err block_backward_weight(struct model *m, int64_t i);
/* Where the output stands. */
int block_row(const struct model *m, int64_t layer); /* first row of the table of a block of the whole model */
struct tensor block_out(const struct model *m, int64_t i);
enum err block_end_out(const struct model *m, int64_t i);

#endif
