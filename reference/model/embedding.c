/* embedding.c - token's row + position's row, and dropout.
 *
 * The vocabulary is cut over the tensor group: a rank gives zeros for tokens that it has not, the sum
 * over ranks is the whole table's row.  Positions are added after it, by each rank to its own rows.
 */
#include "model/ends.h"

#include "ops/ops.h"

enum { WTE = 0, WPE = 1 }; /* rows of the table */

struct tensor embedding_out(const struct model *m) { return m->memory.embeddings[m->now.pass->slot]; }

enum err embedding_forward(struct model *m)
{
  struct dev_stream *s = m->config.compute;
  const struct activations *a = &m->memory;
  const struct model_input *in = m->now.pass->in;
  m->memory.now = ACTION_EMBEDDING;
  TRY(stage_need(m, WTE, ZERO_FORWARD));
  const struct tensor wte = stage_weight(m, WTE), wpe = stage_weight(m, WPE), x = embedding_out(m),
                      all = stage_rows(m, &x, &a->embedding_whole[0]);
  TRY(region_begin(s, a, &a->embedding_regions[m->now.pass->slot]));
  TRY(region_begin(s, a, &a->embedding_work));
  TRY(op_embedding_fwd(s, &all, &wte, &in->tokens, stage_first_token(m, WTE), m->config.run->vocab));
  TRY(tp_reduce(&m->config.tp, &x, &all, TP_EDGE_EMBEDDING));
  TRY(region_end(s, a, &a->embedding_work));
  TRY(op_position_fwd(s, &x, &wpe, &in->positions, tp_row0(&m->config.tp, m->N)));
  TRY(stage_done(m, WTE));
  if (m->now.drop) TRY(stage_dropout(m, -1, STAGE_SITE_EMBEDDING, &x, &x));
  return kept_store(m, -1, false, &x);
}

static enum err position_gradient(const struct model *m)
{
  const struct tensor d_wpe = stage_gradient(m, WPE);
  if (!stage_frozen(m, WPE))
    TRY(op_position_bwd_w(m->config.compute, &d_wpe, &m->now.stream, &m->now.pass->in->positions,
                          tp_row0(&m->config.tp, m->N)));
  if (m->now.last) TRY(tp_sum_gradient(&m->config.tp, &d_wpe));
  stage_tell(m, WPE);
  return ERR_OK;
}

enum err embedding_backward(struct model *m)
{
  struct dev_stream *s = m->config.compute;
  const struct activations *a = &m->memory;
  const struct tensor *d = &m->now.stream;
  struct tensor all;
  m->memory.now = action_embedding_backward(a->layers);
  TRY(kept_store(m, -1, true, d));
  TRY(stage_begin(m, WTE));
  const struct tensor d_wte = stage_gradient(m, WTE);
  if (m->now.drop) TRY(stage_dropout(m, -1, STAGE_SITE_EMBEDDING, d, d));
  TRY(position_gradient(m));
  TRY(region_begin(s, a, &a->embedding_backward));
  TRY(stage_whole(m, d, &a->embedding_whole[1], TP_EDGE_EMBEDDING_BACKWARD, &all));
  if (!stage_frozen(m, WTE))
    TRY(op_embedding_bwd_w(s, &d_wte, &all, &m->now.pass->in->tokens, stage_first_token(m, WTE), m->config.run->vocab));
  TRY(region_end(s, a, &a->embedding_backward));
  if (!m->tied) stage_tell(m, WTE);
  return ERR_OK;
}
