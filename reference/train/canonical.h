/* canonical.h - rows of the table in full, on rank 0's host, whatever the layout. */
#ifndef TRAIN_CANONICAL_H
#define TRAIN_CANONICAL_H
#include "train/trainer.h"

/* True if some row of the weights is not whole on rank 0. */
bool canonical_is_cut(const struct trainer *t);

/* Host copies for it: a flat buffer on each rank, and on rank 0 one of the whole model.  All ranks. */
struct canonical;
enum err canonical_create(struct trainer *t, struct canonical **out);
void canonical_destroy(struct canonical *c); /* NULL is allowed */
/* The buffer of the device, or one that is offloaded, of the replica of dp_rank 0 or of those that share with it, to rank 0.  All ranks; waits for
 * the device. */
enum err canonical_take(struct canonical *c, const struct flat_buffer *b);
/* Rank 0, after canonical_take.  The layout of the whole, uncut and without padding, and a row in it. */
const struct flat *canonical_flat(const struct canonical *c);
const void *canonical_host(const struct canonical *c);
struct tensor canonical_row(const struct canonical *c, int row);
#endif
