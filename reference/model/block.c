/* block.c - sum = x + drop(attention(ln_1(x))); out = sum + drop(mlp(ln_2(sum))).
 *
 * Backward goes through the halves in reverse.  The gradient d of the stream passes both a
 * half and the path around it: d_x = d + J^T d, so each half adds to the stream's gradient.
 */
#include "model/block.h"

#include "ops/ops.h"
#include "params/params.h"

#include <stdio.h>

static const double epsilon = 1e-5; /* of the norms, as GPT-2 */

/* Rows of a block, in the table's order; each weight is followed by its bias. */
enum { LN_1 = 0, C_ATTN = 2, ATTENTION_PROJ = 4, LN_2 = 6, C_FC = 8, MLP_PROJ = 10 };

static int row_of(const struct model *m, int layer)
{
  char name[64];
  snprintf(name, sizeof name, "transformer.h.%d.ln_1.weight", layer);
  return params_find(m->config.table, name);
}

static enum err linear(const struct model *m, int row, const struct tensor *y, const struct tensor *x)
{
  const struct tensor w = model_weight(m, row), b = model_weight(m, row + 1);
  return op_linear_fwd(m->config.compute, y, x, &w, &b, false);
}

static enum err linear_backward_x(const struct model *m, int row, const struct tensor *dx, const struct tensor *dy)
{
  const struct tensor w = model_weight(m, row);
  return op_linear_bwd_x(m->config.compute, dx, dy, &w, false);
}

static enum err norm(const struct model *m, int row, const struct tensor *y, const struct tensor *mean,
                     const struct tensor *rstd, const struct tensor *x)
{
  const struct tensor w = model_weight(m, row), b = model_weight(m, row + 1);
  return op_layernorm_fwd(m->config.compute, y, mean, rstd, x, &w, &b, epsilon);
}

/* d (in the norm's output) becomes the gradient in x and is added to the stream's. */
static enum err norm_backward(const struct model *m, int row, const struct tensor *d, const struct tensor *x,
                              const struct tensor *mean, const struct tensor *rstd)
{
  const struct tensor w = model_weight(m, row);
  TRY(model_norm_gradient(m, row, d, x, mean, rstd));
  TRY(op_layernorm_bwd_x(m->config.compute, d, d, x, &w, mean, rstd));
  return op_accumulate(m->config.compute, &m->memory.d_stream, d);
}

enum err block_forward(struct model *m, const struct model_input *in, int layer, const struct tensor *x)
{
  struct dev_stream *s = m->config.compute;
  const struct block_memory *k = &m->memory.blocks[layer];
  const int row = row_of(m, layer);
  m->memory.now = action_forward(layer);
  TRY(region_begin(s, &m->memory, &k->attention));
  TRY(region_begin(s, &m->memory, &k->mlp));
  TRY(region_begin(s, &m->memory, &k->out_region));

  TRY(norm(m, row + LN_1, &k->ln1, &k->mean1, &k->rstd1, x));
  TRY(linear(m, row + C_ATTN, &k->qkv, &k->ln1));
  TRY(op_attention_fwd(s, &k->mixed, &k->lse, &k->qkv, &in->documents, (int)m->config.run->heads));
  TRY(linear(m, row + ATTENTION_PROJ, &k->sum, &k->mixed));
  if (m->drop) TRY(model_dropout(m, in, layer, MODEL_SITE_ATTENTION, &k->sum, &k->sum));
  TRY(op_add(s, &k->sum, x, &k->sum));

  TRY(norm(m, row + LN_2, &k->ln2, &k->mean2, &k->rstd2, &k->sum));
  TRY(linear(m, row + C_FC, &k->fc, &k->ln2));
  TRY(op_gelu_fwd(s, &k->act, &k->fc));
  TRY(linear(m, row + MLP_PROJ, &k->out, &k->act));
  if (m->drop) TRY(model_dropout(m, in, layer, MODEL_SITE_MLP, &k->out, &k->out));
  return op_add(s, &k->out, &k->sum, &k->out);
}

static enum err mlp_backward(const struct model *m, const struct model_input *in, int layer, int row)
{
  struct dev_stream *s = m->config.compute;
  const struct block_memory *k = &m->memory.blocks[layer];
  const struct tensor *d = &m->memory.d_stream;
  TRY(region_begin(s, &m->memory, &k->mlp_backward));
  if (m->drop) {
    TRY(model_dropout(m, in, layer, MODEL_SITE_MLP, &k->d_mlp, d));
    d = &k->d_mlp;
  }
  TRY(model_linear_gradient(m, row + MLP_PROJ, d, &k->act));
  TRY(linear_backward_x(m, row + MLP_PROJ, &k->d_act, d));
  TRY(op_gelu_bwd(s, &k->d_act, &k->d_act, &k->fc));
  TRY(model_linear_gradient(m, row + C_FC, &k->d_act, &k->ln2));
  TRY(linear_backward_x(m, row + C_FC, &k->d_mlp, &k->d_act));
  TRY(norm_backward(m, row + LN_2, &k->d_mlp, &k->sum, &k->mean2, &k->rstd2));
  TRY(region_end(s, &m->memory, &k->mlp_backward));
  return region_end(s, &m->memory, &k->mlp);
}

static enum err attention_backward(const struct model *m, const struct model_input *in, int layer, int row,
                                   const struct tensor *x)
{
  struct dev_stream *s = m->config.compute;
  const struct block_memory *k = &m->memory.blocks[layer];
  const struct tensor *d = &m->memory.d_stream;
  TRY(region_begin(s, &m->memory, &k->attention_backward));
  if (m->drop) {
    TRY(model_dropout(m, in, layer, MODEL_SITE_ATTENTION, &k->d_attention, d));
    d = &k->d_attention;
  }
  TRY(model_linear_gradient(m, row + ATTENTION_PROJ, d, &k->mixed));
  TRY(linear_backward_x(m, row + ATTENTION_PROJ, &k->d_mixed, d));
  TRY(op_attention_bwd(s, &k->d_qkv, &k->d_mixed, &k->mixed, &k->lse, &k->qkv, &in->documents, (int)m->config.run->heads));
  TRY(model_linear_gradient(m, row + C_ATTN, &k->d_qkv, &k->ln1));
  TRY(linear_backward_x(m, row + C_ATTN, &k->d_attention, &k->d_qkv));
  TRY(norm_backward(m, row + LN_1, &k->d_attention, x, &k->mean1, &k->rstd1));
  TRY(region_end(s, &m->memory, &k->attention_backward));
  return region_end(s, &m->memory, &k->attention);
}

enum err block_backward(struct model *m, const struct model_input *in, int layer, const struct tensor *x)
{
  const int row = row_of(m, layer);
  m->memory.now = action_mlp_backward(m->memory.layers, layer);
  TRY(mlp_backward(m, in, layer, row));
  m->memory.now = action_attention_backward(m->memory.layers, layer);
  return attention_backward(m, in, layer, row, x);
}
