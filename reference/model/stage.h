/* stage.h - what the parts of a chunk share: the model, the pass being queued, weights, edges.
 *
 * Between blocks stand n = tp_rows rows (tp.sequence: a shard), inside them all N.  A layer cut by
 * columns takes whole rows, one cut by rows gives a term of the sum over the tensor group.
 */
#ifndef MODEL_STAGE_H
#define MODEL_STAGE_H

#include "model/activations.h"
#include "model/kept.h"
#include "model/model.h"

struct chunk {
  int stage;             /* virtual stage, 0 .. stages - 1                */
  int64_t first, layers; /* of the whole model                            */
  bool begins, ends;     /* with the embedding; with norm, head and loss  */
};

/* The pass being queued. */
struct walk {
  const struct chunk *chunk;
  const struct model_pass *pass;
  bool drop, last;
  bool again; /* forward's operations, in backward */
  model_ready ready; /* NULL: nobody asks */
  void *ready_arg;
  const struct tensor *scale;
  struct tensor stream; /* gradient of the residual stream */
};

struct model {
  struct model_config config;
  enum dtype type, state; /* of weights and activations; of their gradients' sums and of statistics */
  int64_t B, T, N, n;
  int head_row;            /* lm_head.weight, or wte when tied */
  int norm_row;            /* ln_f.weight, its bias next       */
  bool tied, begins, ends; /* what any chunk of this rank has */
  void *other_use;         /* tied.h */
  void *term;              /* sums.h */
  int chunks;
  struct chunk *chunk;
  int *weight_held; /* [weight_slots] the place of what W needs, -1: none */
  int *head_held; /* [slots] the head's place of a forward that waits for its backward, -1: none */
  struct activations memory;
  struct kept kept;
  struct walk now;
};

/* Views of what this rank has of a row's weights, between stage_need and stage_done of its unit, and of its
 * gradient, after stage_begin. */
struct tensor stage_weight(const struct model *m, int row);
struct tensor stage_gradient(const struct model *m, int row);
/* The unit of the row is used next; its last use in this pass is queued; its gradient is added to next. */
enum err stage_need(const struct model *m, int row, enum zero_pass pass);
enum err stage_done(const struct model *m, int row);
enum err stage_begin(const struct model *m, int row);
static inline bool stage_frozen(const struct model *m, int row) { return m->config.table->rows[row].frozen; }
/* Of this rank's part of the vocabulary, in the embedding or the head. */
static inline int64_t stage_first_token(const struct model *m, int row)
{
  return m->config.tp.rank * m->config.flat->rows[row];
}

/* Tells whoever asked that the row's gradient is queued; shared rows are their owner's to tell. */
void stage_tell(const struct model *m, int row);

/* Linear layer and norm whose weight is `row` and whose bias is row + 1: gradients, then told.  dy and x have
 * all rows for a linear layer; those of a norm, on shards, are summed over the tensor group when last. */
enum err stage_linear_gradient(const struct model *m, int row, const struct tensor *dy, const struct tensor *x);
enum err stage_norm_gradient(const struct model *m, int row, const struct tensor *dy, const struct tensor *x,
                             const struct tensor *mean, const struct tensor *rstd);
enum err stage_norm(const struct model *m, int row, const struct tensor *y, const struct tensor *mean,
                    const struct tensor *rstd, const struct tensor *x);

/* Where all rows stand: in `room` if this rank's part is a shard of them, else in part itself. */
static inline struct tensor stage_rows(const struct model *m, const struct tensor *part, const struct tensor *room)
{
  return m->n < m->N ? *room : *part;
}
/* The rows of part as a whole: gathered into `room` with sequence, part itself without. */
enum err stage_whole(const struct model *m, const struct tensor *part, const struct tensor *room, enum tp_edge edge,
                     struct tensor *out);
/* Cut by columns.  y = x w + b of all rows; dx [n, C] = the sum over the group of dy w^T.  room as above. */
enum err stage_column(const struct model *m, int row, const struct tensor *y, const struct tensor *x,
                      const struct tensor *room, enum tp_edge edge);
enum err stage_column_backward(const struct model *m, int row, const struct tensor *dx, const struct tensor *dy,
                               const struct tensor *room, enum tp_edge edge);
/* Cut by rows.  y [n, C] = the sum over the group of x w, and the bias once. */
enum err stage_row(const struct model *m, int row, const struct tensor *y, const struct tensor *x,
                   const struct tensor *room, enum tp_edge edge);

/* Sites of dropout, counted from 0 within layer + 1; the embedding's is site 0 of layer -1. */
enum stage_site { STAGE_SITE_EMBEDDING, STAGE_SITE_ATTENTION, STAGE_SITE_MLP };
/* y = dropout(x) of this rank's rows, y may be x; only when now.drop. */
enum err stage_dropout(const struct model *m, int64_t layer, enum stage_site site, const struct tensor *y,
                       const struct tensor *x);

#endif
