/* tensor.h - the edges of tensor parallelism: where what a layer's ranks hold apart becomes whole, and back.
 *
 * A block's layers are cut over the ranks of a tensor group: the first by columns (each rank makes its own
 * heads, or its own part of the wide activations), the second by rows (each rank's product is one term of
 * the sum).  Between the blocks stand the N = B * T rows of the residual stream,
 *   whole on every rank (no sequence parallelism), or
 *   cut into shards (sequence): rank r of t has the rows r * N / t .. (r + 1) * N / t - 1, norms, dropout and
 *   the residual work on them alone.
 *
 *                       forward                        backward
 *   before a column-cut   tp_gather: whole rows          tp_reduce: sum of the ranks' input gradients
 *   after a row-cut       tp_reduce: sum of the terms    tp_gather: whole rows of the output's gradient
 *
 * gather and reduce are transposes of each other: without sequence nothing and an all-reduce, with it an
 * all-gather and a reduce-scatter.  Their sums run as the comm's mode says.  All ranks of the group make
 * the same calls in the same order; all is queued on the comm's stream, which is the compute stream.
 */
#ifndef PARALLEL_TENSOR_H
#define PARALLEL_TENSOR_H
#include "comm/comm.h"

struct tp {
  struct comm *comm; /* of the tensor group, on the compute stream; NULL: a group of one, whatever size is */
  int size, rank;
  bool sequence;
};

/* Where in the model, for messages and planted faults. */
enum tp_edge {
  TP_EDGE_EMBEDDING, TP_EDGE_ATTENTION, TP_EDGE_MLP, TP_EDGE_HEAD,
  TP_EDGE_EMBEDDING_BACKWARD, TP_EDGE_ATTENTION_BACKWARD, TP_EDGE_MLP_BACKWARD, TP_EDGE_HEAD_BACKWARD,
  TP_EDGES
};

/* Of N rows: how many this rank has between the blocks, and the first of them.  With sequence size divides N. */
int64_t tp_rows(const struct tp *tp, int64_t N);
int64_t tp_row0(const struct tp *tp, int64_t N);

/* full [N, C], part [tp_rows, C], of one type.  With sequence: full is written from the parts of all ranks; part may
 * be this rank's rows of full.  Without, or in a group of one: full must be part, and nothing is done. */
enum err tp_gather(const struct tp *tp, const struct tensor *full, const struct tensor *part, enum tp_edge edge);
/* With sequence: part is written with this rank's rows of the sum of all full (which stays as it is; part may be
 * those rows of full, given scratch).  Without: full must be part, and becomes the sum.  A group of one: nothing. */
enum err tp_reduce(const struct tp *tp, const struct tensor *part, const struct tensor *full, enum tp_edge edge);
/* The gradient of what every rank holds whole but used on its own rows: summed in place with sequence,
 * otherwise whole already and left alone. */
enum err tp_sum_gradient(const struct tp *tp, const struct tensor *gradient);
#endif
