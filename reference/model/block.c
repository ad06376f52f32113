/* block.c - sum = x + drop(attention(ln_1(x))); out = sum + drop(mlp(ln_2(sum))).
 *
 * Backward goes through the halves in reverse.  The gradient d of the stream passes both a
 * half and the path around it: d_x = d + J^T d, so each half adds to the stream's gradient.
 *
 * Each half is  norm -> layer cut by columns -> something by head or by element -> layer cut by
 * rows -> dropout.  A split backward keeps the gradients in both layers' outputs and their
 * inputs for block_backward_weight; a whole one uses them at once.
 *
 * What forward did not keep (recompute), each half's backward makes again first: with the same
 * operations on the same values, so in the same bits.
 */
#include "model/block.h"

#include "base/fault.h"
#include "ops/ops.h"

#include <stdio.h>

/* Rows of a block, in the table's order; each weight is followed by its bias. */
enum { LN_1 = 0, C_ATTN = 2, ATTENTION_PROJ = 4, LN_2 = 6, C_FC = 8, MLP_PROJ = 10 };

/* A block and the places of its pass. */
struct block {
  int64_t layer; /* of the whole model */
  int row;       /* its first          */
  const struct block_stash *stash;
  const struct block_saved *saved;
  const struct block_work *work;
};

int block_row(const struct model *m, int64_t layer)
{
  char name[64];
  snprintf(name, sizeof name, "transformer.h.%d.ln_1.weight", (int)layer);
  return params_find(m->config.table, name);
}

static struct block block_at(const struct model *m, int64_t i, bool forward)
{
  const struct activations *a = &m->memory;
  const struct model_pass *p = m->now.pass;
  const bool passing = forward && a->stash_forward;
  const int64_t layer = m->now.chunk->first + i, slot = p->slot * a->layers + i;
  return (struct block){layer, block_row(m, layer), passing ? &a->stash_forward[slot] : &a->stash[slot],
                        passing           ? &a->work[i].in_forward.saved
                        : m->config.split ? &a->saved[m->weight_held[p->weight_slot] * a->layers + i]
                                          : &a->saved[slot],
                        &a->work[i]};
}

struct tensor block_out(const struct model *m, int64_t i)
{
  return m->memory.stash[m->now.pass->slot * m->memory.layers + i].out;
}

enum err block_end_out(const struct model *m, int64_t i)
{
  return region_end(m->config.compute, &m->memory,
                    &m->memory.stash[m->now.pass->slot * m->memory.layers + i].out_region);
}

/* Which positions see each other. */
static const struct tensor *documents(const struct model *m)
{
  const struct model_input *in = m->now.pass->in;
  return fault_is(FAULT_PP_META_SHAPES_OR_POSITIONS) && m->now.chunk->stage > 0 ? &in->positions : &in->documents;
}

static int heads(const struct model *m) { return (int)m->config.run->heads / m->config.tp.size; }

/* --- forward ------------------------------------------------------------------------------- */

/* Up to the layer cut by rows; without `products` the one cut by columns is there already. */
static enum err attention_inside(const struct model *m, const struct block *k, const struct tensor *x,
                                 const struct tensor *room, bool products)
{
  const struct block_stash *a = k->stash;
  TRY(stage_norm(m, k->row + LN_1, &k->saved->ln1, &a->mean1, &a->rstd1, x));
  if (products) TRY(stage_column(m, k->row + C_ATTN, &a->qkv, &k->saved->ln1, room, TP_EDGE_ATTENTION));
  return op_attention_fwd(m->config.compute, &k->saved->mixed, &a->lse, &a->qkv, documents(m), heads(m));
}

static enum err attention_forward(const struct model *m, const struct block *k, const struct tensor *x,
                                  const struct tensor *room)
{
  const struct block_stash *a = k->stash;
  TRY(attention_inside(m, k, x, room, true));
  TRY(stage_row(m, k->row + ATTENTION_PROJ, &a->sum, &k->saved->mixed, room, TP_EDGE_ATTENTION));
  if (m->now.drop) TRY(stage_dropout(m, k->layer, STAGE_SITE_ATTENTION, &a->sum, &a->sum));
  return op_add(m->config.compute, &a->sum, x, &a->sum);
}

static enum err mlp_inside(const struct model *m, const struct block *k, const struct tensor *room, bool products)
{
  const struct block_stash *a = k->stash;
  TRY(stage_norm(m, k->row + LN_2, &k->saved->ln2, &a->mean2, &a->rstd2, &a->sum));
  if (products) TRY(stage_column(m, k->row + C_FC, &a->fc, &k->saved->ln2, room, TP_EDGE_MLP));
  return op_gelu_fwd(m->config.compute, &k->saved->act, &a->fc);
}

static enum err mlp_forward(const struct model *m, const struct block *k, const struct tensor *room)
{
  const struct block_stash *a = k->stash;
  TRY(mlp_inside(m, k, room, true));
  TRY(stage_row(m, k->row + MLP_PROJ, &a->out, &k->saved->act, room, TP_EDGE_MLP));
  if (m->now.drop) TRY(stage_dropout(m, k->layer, STAGE_SITE_MLP, &a->out, &a->out));
  return op_add(m->config.compute, &a->out, &a->sum, &a->out);
}

enum err block_forward(struct model *m, int64_t i, const struct tensor *x)
{
  struct dev_stream *s = m->config.compute;
  const struct block k = block_at(m, i, true);
  const struct tensor *room = &k.work->whole[BLOCK_FORWARD];
  m->memory.now = action_forward(i);
  TRY(stage_need(m, k.row, ZERO_FORWARD));
  TRY(region_begin(s, &m->memory, &k.stash->attention));
  TRY(region_begin(s, &m->memory, &k.stash->mlp));
  TRY(region_begin(s, &m->memory, &k.stash->out_region));
  TRY(region_begin(s, &m->memory, &k.saved->attention));
  TRY(region_begin(s, &m->memory, &k.saved->mlp));
  TRY(region_begin(s, &m->memory, &k.work->forward));
  TRY(attention_forward(m, &k, x, room));
  TRY(mlp_forward(m, &k, room));
  TRY(stage_done(m, k.row));
  TRY(region_end(s, &m->memory, &k.work->forward));
  return kept_store(m, k.layer, false, &k.stash->out);
}

/* --- backward -------------------------------------------------------------------------------- */

/* Before the second half: full makes all of the block again, selective the second half's. */
static enum err mlp_again(struct model *m, const struct block *k, const struct tensor *x, const struct tensor *room)
{
  struct dev_stream *s = m->config.compute;
  const bool full = m->config.run->recompute == RECOMPUTE_FULL;
  if (m->config.run->recompute == RECOMPUTE_NONE) return ERR_OK;
  TRY(region_begin(s, &m->memory, &k->work->again));
  if (full) TRY(region_begin(s, &m->memory, &k->saved->attention));
  TRY(region_begin(s, &m->memory, &k->saved->mlp));
  m->now.again = true;
  if (full) TRY(attention_forward(m, k, x, room));
  m->now.again = false;
  return mlp_inside(m, k, room, full);
}

static enum err attention_again(const struct model *m, const struct block *k, const struct tensor *x)
{
  if (m->config.run->recompute != RECOMPUTE_SELECTIVE) return ERR_OK;
  TRY(region_begin(m->config.compute, &m->memory, &k->saved->attention));
  return attention_inside(m, k, x, NULL, false);
}

/* The gradient in a row-cut layer's output, all rows of it.  When split it stands in `saved`, which keeps
 * it; else in the stream, in d (n rows) or in `room` (all rows), until that is written again. */
static enum err output_gradient(const struct model *m, const struct block *k, enum stage_site site,
                                const struct tensor *d, const struct tensor *room, const struct tensor *saved,
                                enum tp_edge edge, struct tensor *out)
{
  const bool split = m->config.split, whole = m->n == m->N;
  const struct tensor *rows = split && whole ? saved : d;
  if (m->now.drop)
    TRY(stage_dropout(m, k->layer, site, rows, &m->now.stream));
  else if (rows == saved)
    TRY(op_copy(m->config.compute, rows, &m->now.stream));
  else
    rows = &m->now.stream;
  return stage_whole(m, rows, split ? saved : room, edge, out);
}

/* d (in the norm's output) becomes the gradient in x; with the stream's it is d_x. */
static enum err norm_backward(const struct model *m, int row, const struct tensor *d, const struct tensor *x,
                              const struct tensor *mean, const struct tensor *rstd, const struct tensor *d_x)
{
  const struct tensor w = stage_weight(m, row);
  TRY(stage_norm_gradient(m, row, d, x, mean, rstd));
  TRY(op_layernorm_bwd_x(m->config.compute, d, d, x, &w, mean, rstd));
  return op_add(m->config.compute, d_x, &m->now.stream, d);
}

static enum err mlp_backward(struct model *m, const struct block *k, const struct tensor *x_block)
{
  struct dev_stream *s = m->config.compute;
  const struct block_stash *a = k->stash;
  const struct block_saved *v = k->saved;
  const struct tensor *d = &k->work->d_mlp, *room = &k->work->whole[BLOCK_MLP_BACKWARD];
  struct tensor dy, x;
  TRY(region_begin(s, &m->memory, &k->work->mlp_backward));
  TRY(region_begin(s, &m->memory, &v->mlp_gradient));
  TRY(mlp_again(m, k, x_block, room));
  TRY(output_gradient(m, k, STAGE_SITE_MLP, d, room, &v->d_mlp, TP_EDGE_MLP_BACKWARD, &dy));
  if (!m->config.split) TRY(stage_linear_gradient(m, k->row + MLP_PROJ, &dy, &v->act));
  const struct tensor w = stage_weight(m, k->row + MLP_PROJ);
  TRY(op_linear_bwd_x(s, &v->d_act, &dy, &w, false));
  TRY(op_gelu_bwd(s, &v->d_act, &v->d_act, &a->fc));
  if (!m->config.split) {
    TRY(stage_whole(m, &v->ln2, room, TP_EDGE_MLP_BACKWARD, &x));
    TRY(stage_linear_gradient(m, k->row + C_FC, &v->d_act, &x));
  }
  TRY(stage_column_backward(m, k->row + C_FC, d, &v->d_act, room, TP_EDGE_MLP_BACKWARD));
  TRY(norm_backward(m, k->row + LN_2, d, &a->sum, &a->mean2, &a->rstd2, &m->now.stream));
  TRY(region_end(s, &m->memory, &k->work->mlp_backward));
  return region_end(s, &m->memory, &a->mlp);
}

static enum err attention_backward(const struct model *m, const struct block *k, const struct tensor *x,
                                   const struct tensor *d_x)
{
  struct dev_stream *s = m->config.compute;
  const struct block_stash *a = k->stash;
  const struct block_saved *v = k->saved;
  const struct tensor *d = &k->work->d_attention, *d_mixed = &k->work->d_mixed;
  const struct tensor *room = &k->work->whole[BLOCK_ATTENTION_BACKWARD];
  struct tensor dy, whole;
  TRY(region_begin(s, &m->memory, &k->work->attention_backward));
  TRY(region_begin(s, &m->memory, &v->attention_gradient));
  TRY(attention_again(m, k, x));
  TRY(output_gradient(m, k, STAGE_SITE_ATTENTION, d, room, &v->d_attention, TP_EDGE_ATTENTION_BACKWARD, &dy));
  if (!m->config.split) TRY(stage_linear_gradient(m, k->row + ATTENTION_PROJ, &dy, &v->mixed));
  const struct tensor w = stage_weight(m, k->row + ATTENTION_PROJ);
  TRY(op_linear_bwd_x(s, d_mixed, &dy, &w, false));
  TRY(op_attention_bwd(s, &v->d_qkv, d_mixed, &v->mixed, &a->lse, &a->qkv, documents(m), heads(m)));
  if (!m->config.split) {
    TRY(stage_whole(m, &v->ln1, room, TP_EDGE_ATTENTION_BACKWARD, &whole));
    TRY(stage_linear_gradient(m, k->row + C_ATTN, &v->d_qkv, &whole));
  }
  TRY(stage_column_backward(m, k->row + C_ATTN, d, &v->d_qkv, room, TP_EDGE_ATTENTION_BACKWARD));
  TRY(norm_backward(m, k->row + LN_1, d, x, &a->mean1, &a->rstd1, d_x));
  TRY(region_end(s, &m->memory, &k->work->attention_backward));
  TRY(region_end(s, &m->memory, &k->work->again));
  return region_end(s, &m->memory, &a->attention);
}

enum err block_backward(struct model *m, int64_t i, const struct tensor *x, const struct tensor *d_x)
{
  const struct block k = block_at(m, i, false);
  m->memory.now = action_mlp_backward(m->memory.layers, i);
  TRY(kept_store(m, k.layer, true, &m->now.stream));
  TRY(stage_need(m, k.row, ZERO_BACKWARD));
  TRY(stage_begin(m, k.row));
  TRY(mlp_backward(m, &k, x));
  m->memory.now = action_attention_backward(m->memory.layers, i);
  TRY(attention_backward(m, &k, x, d_x));
  return stage_done(m, k.row);
}

enum err block_backward_weight(struct model *m, int64_t i)
{
  struct dev_stream *s = m->config.compute;
  const struct block k = block_at(m, i, false);
  const struct block_saved *v = k.saved;
  const struct tensor *room = &k.work->whole[BLOCK_WEIGHT];
  struct tensor x;
  m->memory.now = action_weight(m->memory.layers, i);
  TRY(stage_begin(m, k.row));
  TRY(region_begin(s, &m->memory, &k.work->weight));
  TRY(stage_linear_gradient(m, k.row + MLP_PROJ, &v->d_mlp, &v->act));
  TRY(stage_whole(m, &v->ln2, room, TP_EDGE_MLP_BACKWARD, &x));
  TRY(stage_linear_gradient(m, k.row + C_FC, &v->d_act, &x));
  TRY(region_end(s, &m->memory, &v->mlp));
  TRY(region_end(s, &m->memory, &v->mlp_gradient));
  TRY(stage_linear_gradient(m, k.row + ATTENTION_PROJ, &v->d_attention, &v->mixed));
  TRY(stage_whole(m, &v->ln1, room, TP_EDGE_ATTENTION_BACKWARD, &x));
  TRY(stage_linear_gradient(m, k.row + C_ATTN, &v->d_qkv, &x));
  TRY(region_end(s, &m->memory, &v->attention));
  TRY(region_end(s, &m->memory, &v->attention_gradient));
  return region_end(s, &m->memory, &k.work->weight);
}
