/* model.c - embedding, blocks, head and loss; who frees what when. */
#include "model/block.h"

#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

static const double epsilon = 1e-5; /* of the final norm, as GPT-2 */

static bool frozen(const struct model *m, int row) { return m->config.table->rows[row].frozen; }

static struct tensor view(const struct model *m, void *flat, int row)
{
  const struct param *p = &m->config.table->rows[row];
  return tensor_at((char *)flat + (size_t)m->config.flat->offset[row] * dtype_bytes(m->type), m->type, p->rows, p->cols);
}

struct tensor model_weight(const struct model *m, int row) { return view(m, m->config.weights, row); }
struct tensor model_gradient(const struct model *m, int row) { return view(m, m->config.gradients, row); }

void model_tell(const struct model *m, int row)
{
  if (m->ready && m->config.table->rows[row].shared_with < 0) m->ready(m->ready_arg, row);
}

enum err model_linear_gradient(const struct model *m, int row, const struct tensor *dy, const struct tensor *x)
{
  if (!frozen(m, row) || !frozen(m, row + 1)) {
    const struct tensor dw = model_gradient(m, row), db = model_gradient(m, row + 1);
    TRY(op_linear_bwd_w(m->config.compute, &dw, &db, dy, x, false));
  }
  model_tell(m, row + 1);
  model_tell(m, row);
  return ERR_OK;
}

enum err model_norm_gradient(const struct model *m, int row, const struct tensor *dy, const struct tensor *x,
                             const struct tensor *mean, const struct tensor *rstd)
{
  if (!frozen(m, row) || !frozen(m, row + 1)) {
    const struct tensor dw = model_gradient(m, row), db = model_gradient(m, row + 1);
    TRY(op_layernorm_bwd_w(m->config.compute, &dw, &db, dy, x, mean, rstd));
  }
  model_tell(m, row + 1);
  model_tell(m, row);
  return ERR_OK;
}

enum err model_dropout(const struct model *m, const struct model_input *in, int layer, enum model_site site,
                       const struct tensor *y, const struct tensor *x)
{
  const struct run_config *run = m->config.run;
  const struct rng_key key = {(uint64_t)run->seed, RNG_DROPOUT + (uint32_t)(layer + 1) * 4 + (uint32_t)site, 0};
  return op_dropout(m->config.compute, y, x, run->dropout, key, &m->config.step, &in->samples, run->positions, m->T, 0);
}

/* --- create ------------------------------------------------------------------------ */

static struct tensor head_accumulator(const struct model *m)
{
  const struct param *p = &m->config.table->rows[m->head_row];
  return tensor_at(m->head_gradient, m->type, p->rows, p->cols);
}

static enum err create_head_accumulator(struct model *m)
{
  void *at = NULL;
  if (!m->tied || frozen(m, m->head_row)) return ERR_OK;
  const int64_t count = m->config.flat->length[m->head_row];
  TRY(dev_alloc(m->config.dev, (size_t)count * dtype_bytes(m->type), DEV_GRADIENTS, "head's use of the tied matrix", &at));
  m->head_gradient = at;
  const struct tensor accumulator = head_accumulator(m);
  return op_fill(m->config.compute, &accumulator, 0.0);
}

enum err model_create(const struct model_config *c, struct model **out)
{
  enum err err;
  *out = NULL;
  const struct run_config *run = c->run;
  struct model *m = calloc(1, sizeof *m);
  if (m == NULL) FAIL(ERR_MEMORY, "model: %zu bytes", sizeof *m);
  m->config = *c;
  m->type = (enum dtype)run->precision;
  m->B = run->micro_batch;
  m->T = run->sequence;
  m->tied = run->tied;
  m->norm_row = params_find(c->table, "transformer.ln_f.weight");
  m->head_row = params_find(c->table, run->tied ? "transformer.wte.weight" : "lm_head.weight");
  BUG_IF(m->norm_row < 0 || m->head_row < 0);
  const struct activation_sizes sizes = {m->type, m->B * m->T, run->hidden, run->heads, run->vocab, run->layers,
                                         run->dump == DUMP_ALL, c->separate};
  TRY_TO(destroy, activations_allocate(c->dev, &sizes, &m->memory));
  TRY_TO(destroy, create_head_accumulator(m));
  *out = m;
  return ERR_OK;

destroy:
  model_destroy(m);
  return err;
}

void model_destroy(struct model *m)
{
  if (m == NULL) return;
  dev_sync_stream(m->config.compute); /* an error of its work is the caller's to see at its own synchronisation */
  activations_free(m->config.dev, &m->memory);
  dev_free(m->config.dev, m->head_gradient);
  free(m);
}

size_t model_activation_bytes(const struct model *m) { return m->memory.bytes; }

/* --- forward ----------------------------------------------------------------------- */

static enum err check_input(const struct model *m, const struct model_input *in)
{
  TRY(tensor_expect("tokens", &in->tokens, m->B, m->T));
  TRY(tensor_expect("targets", &in->targets, m->B, m->T));
  TRY(tensor_expect("positions", &in->positions, m->B, m->T));
  TRY(tensor_expect("documents", &in->documents, m->B, m->T));
  return tensor_expect("samples", &in->samples, m->B, 1);
}

/* The input of block `layer`; layer L: of the final norm. */
static const struct tensor *input_of(const struct model *m, int layer)
{
  return layer == 0 ? &m->memory.embedding : &m->memory.blocks[layer - 1].out;
}

static enum err embedding_forward(struct model *m, const struct model_input *in)
{
  struct dev_stream *s = m->config.compute;
  const struct tensor wte = model_weight(m, 0), wpe = model_weight(m, 1), *x = &m->memory.embedding;
  m->memory.now = ACTION_EMBEDDING;
  TRY(region_begin(s, &m->memory, &m->memory.embedding_region));
  TRY(op_embedding_fwd(s, x, &wte, &in->tokens, 0, m->config.run->vocab));
  TRY(op_position_fwd(s, x, &wpe, &in->positions, 0));
  return m->drop ? model_dropout(m, in, -1, MODEL_SITE_EMBEDDING, x, x) : ERR_OK;
}

static enum err head_forward(struct model *m, const struct model_input *in, const struct tensor *loss_sum)
{
  struct dev_stream *s = m->config.compute;
  const struct activations *a = &m->memory;
  const struct tensor w = model_weight(m, m->norm_row), b = model_weight(m, m->norm_row + 1), head = model_weight(m, m->head_row);
  m->memory.now = action_head(a->layers);
  TRY(region_begin(s, &m->memory, &a->norm_region));
  TRY(region_begin(s, &m->memory, &a->logits_region));
  TRY(region_begin(s, &m->memory, &a->losses_region));
  TRY(op_layernorm_fwd(s, &a->normed, &a->mean, &a->rstd, input_of(m, (int)a->layers), &w, &b, epsilon));
  TRY(op_linear_fwd(s, &a->logits, &a->normed, &head, NULL, true));
  TRY(op_cross_entropy_fwd(s, &a->losses, &a->lse, &a->logits, &in->targets));
  return op_sum(s, loss_sum, &a->losses);
}

static bool keeps(const struct model *m) { return m->config.run->dump == DUMP_ALL; }

enum err model_forward(struct model *m, const struct model_input *in, bool train, const struct tensor *loss_sum)
{
  TRY(check_input(m, in));
  m->drop = train && m->config.run->dropout > 0.0;
  TRY(embedding_forward(m, in));
  for (int l = 0; l < m->memory.layers; l++) TRY(block_forward(m, in, l, input_of(m, l)));
  TRY(head_forward(m, in, loss_sum));
  return keeps(m) ? ERR_OK : region_end(m->config.compute, &m->memory, &m->memory.losses_region);
}

/* --- backward ---------------------------------------------------------------------- */

static enum err keep_gradient(const struct model *m, const struct region *r, const struct tensor *copy)
{
  if (!keeps(m)) return ERR_OK;
  TRY(region_begin(m->config.compute, &m->memory, r));
  return op_copy(m->config.compute, copy, &m->memory.d_stream);
}

/* The stream's gradient is kept as that in the input of block `layer`, whose own life ends. */
static enum err finish_input_of(const struct model *m, int layer)
{
  const struct activations *a = &m->memory;
  if (layer == 0) {
    TRY(keep_gradient(m, &a->kept_embedding_gradient, &a->d_embedding));
    return keeps(m) ? ERR_OK : region_end(m->config.compute, &m->memory, &a->embedding_region);
  }
  const struct block_memory *k = &a->blocks[layer - 1];
  TRY(keep_gradient(m, &k->kept_gradient, &k->d_out));
  return keeps(m) ? ERR_OK : region_end(m->config.compute, &m->memory, &k->out_region);
}

static enum err head_backward(struct model *m, const struct model_input *in, const struct tensor *scale)
{
  struct dev_stream *s = m->config.compute;
  const struct activations *a = &m->memory;
  const struct tensor *d = &a->d_stream, *x = input_of(m, (int)a->layers);
  const struct tensor head = model_weight(m, m->head_row), w = model_weight(m, m->norm_row);
  const struct tensor d_head = m->tied ? head_accumulator(m) : model_gradient(m, m->head_row);
  m->memory.now = action_head_backward(a->layers);
  TRY(region_begin(s, &m->memory, &a->stream_region));
  TRY(op_cross_entropy_bwd(s, &a->logits, &a->logits, &a->lse, &in->targets, scale, 0, a->logits.cols));
  if (!frozen(m, m->head_row)) TRY(op_linear_bwd_w(s, &d_head, NULL, &a->logits, &a->normed, true));
  if (!m->tied) model_tell(m, m->head_row);
  TRY(op_linear_bwd_x(s, d, &a->logits, &head, true));
  TRY(region_end(s, &m->memory, &a->logits_region));

  TRY(keep_gradient(m, &a->kept_norm_gradient, &a->d_normed));
  TRY(model_norm_gradient(m, m->norm_row, d, x, &a->mean, &a->rstd));
  TRY(op_layernorm_bwd_x(s, d, d, x, &w, &a->mean, &a->rstd));
  return keeps(m) ? ERR_OK : region_end(s, &m->memory, &a->norm_region);
}

static enum err embedding_backward(struct model *m, const struct model_input *in)
{
  struct dev_stream *s = m->config.compute;
  const struct tensor *d = &m->memory.d_stream, d_wte = model_gradient(m, 0), d_wpe = model_gradient(m, 1);
  m->memory.now = action_embedding_backward(m->memory.layers);
  if (m->drop) TRY(model_dropout(m, in, -1, MODEL_SITE_EMBEDDING, d, d));
  if (!frozen(m, 0)) TRY(op_embedding_bwd_w(s, &d_wte, d, &in->tokens, 0, m->config.run->vocab));
  if (!frozen(m, 1)) TRY(op_position_bwd_w(s, &d_wpe, d, &in->positions, 0));
  model_tell(m, 1);
  return region_end(s, &m->memory, &m->memory.stream_region);
}

/* embedding's use + head's use, in this order, once before each reduction. */
static enum err join_tied_uses(struct model *m)
{
  if (m->head_gradient == NULL) return ERR_OK;
  const struct tensor flat = model_gradient(m, m->head_row), head = head_accumulator(m);
  TRY(op_accumulate(m->config.compute, &flat, &head));
  return op_fill(m->config.compute, &head, 0.0);
}

static void tell_unused(const struct model *m)
{
  for (int row = m->config.table->n - 1; row >= 0; row--)
    if (m->config.table->rows[row].unused) model_tell(m, row);
}

enum err model_backward(struct model *m, const struct model_input *in, const struct tensor *scale, bool last,
                        model_ready ready, void *arg)
{
  TRY(check_input(m, in));
  m->ready = last ? ready : NULL;
  m->ready_arg = arg;
  tell_unused(m);
  TRY(head_backward(m, in, scale));
  for (int l = (int)m->memory.layers; l > 0; l--) {
    TRY(finish_input_of(m, l));
    TRY(block_backward(m, in, l - 1, input_of(m, l - 1)));
  }
  TRY(finish_input_of(m, 0));
  TRY(embedding_backward(m, in));
  if (last) TRY(join_tied_uses(m));
  model_tell(m, 0);
  return ERR_OK;
}

/* --- O15 --------------------------------------------------------------------------- */

enum err model_block(struct model *m, int layer, bool gradient, struct tensor *out)
{
  const struct activations *a = &m->memory;
  const int L = (int)a->layers;
  if (!keeps(m)) FAIL(ERR_ARG, "block %d: outputs are kept only with dump: all", layer);
  if (layer < -1 || layer > L + 1 || (layer == L + 1 && gradient))
    FAIL(ERR_ARG, "block %d%s; valid: -1 to %d, and %d without gradient", layer, gradient ? ", gradient" : "", L, L + 1);
  if (layer == L + 1)
    *out = a->losses;
  else if (layer == L)
    *out = gradient ? a->d_normed : a->normed;
  else if (layer == -1)
    *out = gradient ? a->d_embedding : a->embedding;
  else
    *out = gradient ? a->blocks[layer].d_out : a->blocks[layer].out;
  return ERR_OK;
}
