/* model.c - the walk through a chunk's layers; create and destroy. */
#include "model/block.h"
#include "model/ends.h"
#include "model/sums.h"
#include "model/tied.h"

#include "base/fault.h"
#include "base/schedule.h"

#include <stdlib.h>

/* --- create ------------------------------------------------------------------------ */

static enum err check_config(const struct model_config *c)
{
  const struct params_place *place = &c->place;
  if (c->slots < 1 || c->inputs < 0 || c->weight_slots < (c->split ? 1 : 0))
    FAIL(ERR_ARG, "model: %d slots, %d weight slots, %d inputs; valid: from 1, %d and 0", c->slots, c->weight_slots,
         c->inputs, c->split);
  if (place->pp < 1 || (place->pp > 1 && place->partition.stages % place->pp != 0))
    FAIL(ERR_ARG, "model: %d virtual stages on %d pipeline ranks", place->partition.stages, place->pp);
  if (c->tp.size != place->tp || c->tp.rank != place->tp_rank || (c->tp.size > 1) != (c->tp.comm != NULL))
    FAIL(ERR_ARG, "model: rank %d of a tensor group of %d at place %d of %d", c->tp.rank, c->tp.size, place->tp_rank,
         place->tp);
  return ERR_OK;
}

static enum err create_chunks(struct model *m)
{
  const struct params_place *place = &m->config.place;
  const struct partition whole = {1, {0, m->config.run->layers}},
                         *partition = place->pp > 1 ? &place->partition : &whole;
  m->chunks = partition->stages / place->pp;
  m->chunk = calloc((size_t)m->chunks, sizeof *m->chunk);
  if (m->chunk == NULL) FAIL(ERR_MEMORY, "model: %d chunks", m->chunks);
  for (int c = 0; c < m->chunks; c++) {
    const int k = c * place->pp + place->pp_rank;
    const int64_t *first = &partition->first[k];
    m->chunk[c] = (struct chunk){k, first[0], first[1] - first[0], k == 0, k == partition->stages - 1};
    m->begins |= m->chunk[c].begins;
    m->ends |= m->chunk[c].ends;
  }
  return ERR_OK;
}

/* What W needs is there from the forward on; with recompute only from the backward for inputs on: as many places as
 * micro-batches are between the two in the run's schedule. */
static enum err weight_places(const struct model_config *c, int *out)
{
  const struct run_config *run = c->run;
  const int m = (int)(run->global_batch / (run->micro_batch * run->dp * run->replicas));
  struct schedule *s;
  *out = c->weight_slots;
  if (run->recompute == RECOMPUTE_NONE || c->weight_slots == 0) return ERR_OK;
  TRY(schedule_create((enum schedule_kind)run->schedule, (int)run->pp, m, (int)run->chunks, &s));
  const int most = s->splits ? schedule_pending_places(s, c->place.pp_rank) : c->weight_slots;
  if (most < *out) *out = most;
  schedule_destroy(s);
  return ERR_OK;
}

static enum err create_places(struct model *m)
{
  const struct model_config *c = &m->config;
  m->head_held = malloc((size_t)c->slots * sizeof *m->head_held);
  if (m->head_held == NULL) FAIL(ERR_MEMORY, "model: %d slots", c->slots);
  for (int i = 0; i < c->slots; i++) m->head_held[i] = -1;
  m->weight_held = malloc((size_t)(c->weight_slots + 1) * sizeof *m->weight_held);
  if (m->weight_held == NULL) FAIL(ERR_MEMORY, "model: %d weight slots", c->weight_slots);
  for (int i = 0; i < c->weight_slots; i++) m->weight_held[i] = c->run->recompute == RECOMPUTE_NONE ? i : -1;
  return ERR_OK;
}

static enum err create_memory(struct model *m)
{
  const struct model_config *c = &m->config;
  const struct run_config *run = c->run;
  int64_t layers = 0;
  int heads = 0, weights;
  TRY(create_places(m));
  TRY(weight_places(c, &weights));
  if (m->ends) TRY(head_places(run, &heads));
  for (int i = 0; i < m->chunks; i++)
    if (m->chunk[i].layers > layers) layers = m->chunk[i].layers;
  const struct activation_sizes sizes = {.type = m->type,
                                         .state = m->state,
                                         .N = m->N,
                                         .n = m->n,
                                         .C = run->hidden,
                                         .H = run->heads,
                                         .V = c->flat->rows[m->head_row],
                                         .layers = layers,
                                         .t = c->tp.size,
                                         .slots = c->slots,
                                         .weight_slots = weights,
                                         .inputs = c->inputs,
                                         .heads = heads < c->slots ? heads : c->slots,
                                         .begins = m->begins,
                                         .ends = m->ends,
                                         .split = c->split,
                                         .sequence = m->n < m->N,
                                         .recompute = (enum recompute)run->recompute,
                                         .shared = c->slots == 1 && m->chunks == 1 && !c->split,
                                         .separate = c->separate};
  return activations_allocate(c->dev, &sizes, &m->memory);
}

enum err model_create(const struct model_config *c, struct model **out)
{
  enum err err;
  *out = NULL;
  TRY(check_config(c));
  const struct run_config *run = c->run;
  struct model *m = calloc(1, sizeof *m);
  if (m == NULL) FAIL(ERR_MEMORY, "model: %zu bytes", sizeof *m);
  m->config = *c;
  m->type = run_work_type(run);
  m->state = run_state_type(run);
  m->B = run->micro_batch;
  m->T = run->sequence;
  m->N = m->B * m->T;
  m->n = tp_rows(&c->tp, m->N);
  m->tied = run->tied;
  m->norm_row = params_find(c->table, "transformer.ln_f.weight");
  m->head_row = params_find(c->table, run->tied ? "transformer.wte.weight" : "lm_head.weight");
  BUG_IF(m->norm_row < 0 || m->head_row < 0);
  TRY_TO(destroy, create_chunks(m));
  if (m->tied && c->place.pp > 1 && (m->begins || m->ends) && c->tied == NULL)
    FAIL_TO(destroy, ERR_ARG, "model: the tied matrix is on two stages, and there is no group of them");
  TRY_TO(destroy, create_memory(m));
  TRY_TO(destroy, kept_create(m));
  TRY_TO(destroy, tied_create(m));
  TRY_TO(destroy, sums_create(m));
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
  sums_destroy(m);
  tied_destroy(m);
  kept_destroy(m);
  activations_free(m->config.dev, &m->memory);
  free(m->weight_held);
  free(m->head_held);
  free(m->chunk);
  free(m);
}

size_t model_activation_bytes(const struct model *m) { return m->memory.bytes + m->kept.bytes; }

/* --- passes -------------------------------------------------------------------------- */

static enum err check_input(const struct model *m, const struct model_input *in)
{
  TRY(tensor_expect("tokens", &in->tokens, m->B, m->T));
  TRY(tensor_expect("targets", &in->targets, m->B, m->T));
  TRY(tensor_expect("positions", &in->positions, m->B, m->T));
  TRY(tensor_expect("documents", &in->documents, m->B, m->T));
  return tensor_expect("samples", &in->samples, m->B, 1);
}

/* Memory is planned for micro-batches of run->sequence positions; this one may have fewer. */
static enum err set_width(struct model *m, const struct model_input *in)
{
  const int64_t T = in->tokens.cols, N = m->B * T, shards = m->config.tp.sequence ? m->config.tp.size : 1;
  if (T == m->T) return ERR_OK;
  if (T < 1 || T > m->config.run->sequence || N % shards != 0)
    FAIL(ERR_ARG, "micro-batch of %lld x %lld positions; valid: 1 to %lld in each sequence, in shards for %lld ranks", (long long)m->B, (long long)T,
         (long long)m->config.run->sequence, (long long)shards);
  m->T = T;
  m->N = N;
  m->n = tp_rows(&m->config.tp, N);
  activations_narrow(&m->memory, m->N, m->n);
  return ERR_OK;
}

static enum err in_range(const char *what, int i, int n)
{
  if (i < 0 || i >= n) FAIL(ERR_ARG, "pass: %s %d of %d", what, i, n);
  return ERR_OK;
}

static enum err begin_pass(struct model *m, const struct model_pass *p, bool last, model_ready ready, void *arg)
{
  TRY(in_range("chunk", p->chunk, m->chunks));
  TRY(in_range("slot", p->slot, m->config.slots));
  if (m->config.split) TRY(in_range("weight slot", p->weight_slot, m->config.weight_slots));
  if (!m->chunk[p->chunk].begins) TRY(in_range("input", p->input, m->config.inputs));
  TRY(set_width(m, p->in));
  TRY(check_input(m, p->in));
  m->now = (struct walk){.chunk = &m->chunk[p->chunk], .pass = p, .last = last, .ready = ready, .ready_arg = arg};
  return ERR_OK;
}

/* The input of block i of the chunk; i = its layers: the output of the last. */
static struct tensor input_of(const struct model *m, int64_t i)
{
  if (i > 0) return block_out(m, i - 1);
  return m->now.chunk->begins ? embedding_out(m) : m->memory.inputs[m->now.pass->input];
}

enum err model_forward(struct model *m, const struct model_pass *pass, bool train, const struct tensor *loss_sum)
{
  TRY(begin_pass(m, pass, false, NULL, NULL));
  const struct chunk *c = m->now.chunk;
  m->now.drop = train && m->config.run->dropout > 0.0;
  if (c->begins) TRY(embedding_forward(m));
  for (int64_t i = 0; i < c->layers; i++) {
    const struct tensor x = input_of(m, i);
    TRY(block_forward(m, i, &x));
  }
  const struct tensor out = block_out(m, c->layers - 1);
  return c->ends ? head_forward(m, &out, train, loss_sum) : ERR_OK;
}

/* Whose reader is through with its backward: the input of block i. */
static enum err end_input(const struct model *m, int64_t i)
{
  if (i > 0) return block_end_out(m, i - 1);
  if (!m->now.chunk->begins) return ERR_OK; /* the caller's */
  return region_end(m->config.compute, &m->memory, &m->memory.embedding_regions[m->now.pass->slot]);
}

/* The lowest place of what W needs that no weight slot holds is the pass's, until its W. */
static enum err take_weight_place(struct model *m)
{
  const int slot = m->now.pass->weight_slot;
  if (!m->config.split || m->config.run->recompute == RECOMPUTE_NONE) return ERR_OK;
  for (int place = 0; place < m->memory.n_saved; place++) {
    bool held = false;
    for (int i = 0; i < m->config.weight_slots; i++) held |= m->weight_held[i] == place;
    if (held) continue;
    m->weight_held[slot] = place;
    return ERR_OK;
  }
  FAIL(ERR_ARG, "backward for inputs in weight slot %d: %d wait for that for weights, all that this schedule needs", slot,
       m->memory.n_saved);
}

static enum err backward(struct model *m, const struct tensor *scale)
{
  const struct chunk *c = m->now.chunk;
  TRY(take_weight_place(m));
  const struct tensor out = block_out(m, c->layers - 1);
  m->now.drop = m->config.run->dropout > 0.0;
  m->now.scale = scale;
  m->now.stream = out; /* what the next stage sent; it ends where it is used up */
  if (c->ends) TRY(head_backward(m, &out));
  if (c->ends) TRY(end_input(m, c->layers));
  for (int64_t i = c->layers - 1; i >= 0; i--) {
    const struct tensor x = input_of(m, i);
    TRY(block_backward(m, i, &x, i == 0 && !c->begins ? &x : &m->now.stream));
    TRY(end_input(m, i));
  }
  if (c->begins) TRY(embedding_backward(m));
  return c->ends ? region_end(m->config.compute, &m->memory, &m->memory.stream_region) : end_input(m, c->layers);
}

static enum err backward_weight(struct model *m)
{
  if (fault_is(FAULT_PP_ZB_BYPASSES_HOOKS)) m->now.ready = NULL;
  if (m->weight_held[m->now.pass->weight_slot] < 0)
    FAIL(ERR_ARG, "backward for weights in slot %d: no backward for inputs has left anything there", m->now.pass->weight_slot);
  for (int64_t i = m->now.chunk->layers - 1; i >= 0; i--) TRY(block_backward_weight(m, i));
  if (m->config.run->recompute != RECOMPUTE_NONE) m->weight_held[m->now.pass->weight_slot] = -1;
  return ERR_OK;
}

enum err model_backward(struct model *m, const struct model_pass *pass, const struct tensor *scale, bool last,
                        model_ready ready, void *arg)
{
  TRY(begin_pass(m, pass, last, ready, arg));
  TRY(backward(m, scale));
  return m->config.split ? backward_weight(m) : ERR_OK;
}

static enum err expect_split(const struct model *m)
{
  if (!m->config.split) FAIL(ERR_ARG, "backward in two passes: this model was created to do it in one");
  return ERR_OK;
}

enum err model_backward_input(struct model *m, const struct model_pass *pass, const struct tensor *scale, bool last,
                              model_ready ready, void *arg)
{
  TRY(expect_split(m));
  TRY(begin_pass(m, pass, last, ready, arg));
  return backward(m, scale);
}

enum err model_backward_weight(struct model *m, const struct model_pass *pass, bool last, model_ready ready, void *arg)
{
  TRY(expect_split(m));
  TRY(begin_pass(m, pass, last, ready, arg));
  return backward_weight(m);
}

enum err model_finish(struct model *m, model_ready ready, void *arg)
{
  m->now = (struct walk){.last = true, .ready = ready, .ready_arg = arg};
  TRY(tied_join(m));
  for (int row = m->config.table->n - 1; row >= 0; row--) {
    if (!m->config.table->rows[row].unused || m->config.flat->length[row] == 0) continue;
    TRY(stage_begin(m, row));
    stage_tell(m, row);
  }
  if (m->tied && m->config.flat->length[m->head_row] > 0) stage_tell(m, m->head_row);
  return ERR_OK;
}

/* As embedding.c, block.c and head.c ask. */
int model_lives(const struct model *m, int chunk, enum zero_pass pass, struct zero_life *out)
{
  const struct chunk *c = &m->chunk[chunk];
  const struct flat *f = m->config.flat;
  const bool forward = pass == ZERO_FORWARD, both = c->begins && c->ends && m->tied; /* embedding and head read one unit */
  const int begin = 0, end = f->n_units - 1;
  int n = 0;
  if (forward && c->begins) out[n++] = (struct zero_life){begin, pass, both ? 2 : 1};
  if (!forward && c->ends && m->tied) out[n++] = (struct zero_life){begin, pass, 1};
  if (!forward && c->ends) out[n++] = (struct zero_life){end, pass, 1};
  for (int64_t i = 0; i < c->layers; i++) {
    const int64_t layer = c->first + (forward ? i : c->layers - 1 - i);
    out[n++] = (struct zero_life){flat_unit_of(f, block_row(m, layer)), pass, 1};
  }
  if (forward && c->ends && m->tied && !both) out[n++] = (struct zero_life){begin, pass, 1};
  if (forward && c->ends) out[n++] = (struct zero_life){end, pass, 1};
  return n;
}

struct tensor model_boundary(const struct model *m, const struct model_pass *pass, bool output)
{
  const struct chunk *c = &m->chunk[pass->chunk];
  BUG_IF(output ? pass->slot < 0 || pass->slot >= m->config.slots : pass->input < 0 || pass->input >= m->config.inputs);
  struct tensor t = output ? m->memory.stash[pass->slot * m->memory.layers + c->layers - 1].out : m->memory.inputs[pass->input];
  t.rows = tp_rows(&m->config.tp, m->B * pass->in->tokens.cols); /* the pass that was queued last may be of another width */
  return t;
}
