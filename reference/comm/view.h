/* view.h - elements of a view by their number in row order, and sums in rank order. */
#ifndef COMM_VIEW_H
#define COMM_VIEW_H

#include "base/tensor.h"
#include "comm/comm.h"

/* Elements [first, first + count) of t, counted row by row, to and from one run of memory.
 * `at` may be where they already are. */
void view_pack(const struct tensor *t, int64_t first, int64_t count, void *at);
void view_unpack(const struct tensor *t, int64_t first, int64_t count, const void *at);
/* t as packing sees it: planted, pointer and count whatever the stride. */
struct tensor view_packed(const struct tensor *t);
/* First byte and one past the last that a view touches (equal for no elements). */
void view_extent(const struct tensor *t, const char **first, const char **end);

/* parts: n runs of `count` elements, one a rank, side by side.  The first becomes
 * ((part 0 op part 1) op part 2) ..., element by element, rounded to `type` each time. */
void view_reduce(void *parts, int n, int64_t count, enum dtype type, enum comm_op op);

#endif
