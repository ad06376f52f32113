/* head.c - final norm, logits and cross-entropy, over a vocabulary that may be cut.
 *
 * A rank has the logits of its own tokens.  The largest and the sum of exponentials of a row are found
 * over the tensor group, so every rank knows each row's loss; padding after the last token takes no part.
 */
#include "model/ends.h"

#include "base/schedule.h"
#include "model/sums.h"
#include "model/tied.h"
#include "ops/ops.h"

/* This rank's tokens: the first and how many; what follows in its part is padding. */
struct tokens {
  int64_t first, valid;
};

static struct tokens tokens_of(const struct model *m)
{
  const int64_t first = stage_first_token(m, m->head_row), rows = m->config.flat->rows[m->head_row];
  const int64_t left = m->config.run->vocab - first;
  return (struct tokens){first, left < 0 ? 0 : left < rows ? left : rows};
}

/* --- places ------------------------------------------------------------------------------ */

/* Most micro-batches of the last virtual stage between forward and backward: one, where a backward follows
 * each forward, whatever the number of slots. */
enum err head_places(const struct run_config *run, int *out)
{
  const int p = (int)run->pp, v = (int)run->chunks,
            m = (int)(run->global_batch / (run->micro_batch * run->dp * run->replicas));
  struct schedule *s;
  int live = 0;
  *out = 0;
  TRY(schedule_create((enum schedule_kind)run->schedule, p, m, v, &s));
  for (int i = 0; i < s->n[p - 1]; i++) {
    const struct schedule_action *a = &s->list[p - 1][i];
    if (a->chunk != v - 1) continue;
    live += a->pass == PASS_FORWARD;
    live -= a->pass == PASS_BACKWARD || a->pass == PASS_BACKWARD_INPUT;
    if (live > *out) *out = live;
  }
  schedule_destroy(s);
  return ERR_OK;
}

/* The slot's place, or the lowest that no slot holds; -1: none. */
static int place_for(const struct model *m, int slot)
{
  if (m->head_held[slot] >= 0) return m->head_held[slot];
  for (int place = 0; place < m->memory.n_heads; place++) {
    bool held = false;
    for (int other = 0; other < m->config.slots; other++) held |= m->head_held[other] == place;
    if (!held) return place;
  }
  return -1;
}

/* The head reads the unit after the blocks, and the one before them where the matrix is the embedding's. */
static enum err need(const struct model *m, enum zero_pass pass)
{
  if (m->tied) TRY(stage_need(m, m->head_row, pass));
  return stage_need(m, m->norm_row, pass);
}
static enum err done(const struct model *m)
{
  TRY(stage_done(m, m->norm_row));
  return m->tied ? stage_done(m, m->head_row) : ERR_OK;
}

/* --- forward ------------------------------------------------------------------------------- */

static enum err losses_forward(const struct model *m, const struct head_stash *h)
{
  struct dev_stream *s = m->config.compute;
  const struct head_work *w = &m->memory.head;
  const struct tensor *targets = &m->now.pass->in->targets;
  const struct tokens t = tokens_of(m);
  if (m->config.tp.size == 1) return op_cross_entropy_fwd(s, &w->losses, &h->lse, &h->logits, targets);
  TRY(op_cross_entropy_max(s, &w->max, &h->logits, t.valid));
  TRY(comm_allreduce(m->config.tp.comm, &w->max, COMM_MAX));
  TRY(op_cross_entropy_sums(s, &w->sums, &h->logits, &w->max, targets, t.first, t.valid));
  TRY(comm_allreduce(m->config.tp.comm, &w->sums, COMM_SUM));
  return op_cross_entropy_join(s, &w->losses, &h->lse, &w->max, &w->sums, targets, m->config.run->vocab);
}

enum err head_forward(struct model *m, const struct tensor *x, bool train, const struct tensor *loss_sum)
{
  struct dev_stream *s = m->config.compute;
  const struct activations *a = &m->memory;
  const int slot = m->now.pass->slot, place = place_for(m, slot);
  struct tensor normed;
  if (place < 0)
    FAIL(ERR_ARG,
         "forward in slot %d: %d of the head's activations wait for their backward, all that this schedule needs", slot,
         a->n_heads);
  if (train) m->head_held[slot] = place;
  const struct head_stash *h = &a->heads[place];
  m->memory.now = action_head(a->layers);
  TRY(region_begin(s, a, &h->norm_region));
  TRY(region_begin(s, a, &h->logits_region));
  TRY(region_begin(s, a, &a->head.losses_region));
  TRY(region_begin(s, a, &a->head.forward));
  TRY(need(m, ZERO_FORWARD));
  const struct tensor weight = stage_weight(m, m->head_row);
  TRY(stage_norm(m, m->norm_row, &h->normed, &h->mean, &h->rstd, x));
  TRY(kept_store(m, m->config.run->layers, false, &h->normed));
  TRY(stage_whole(m, &h->normed, &a->head.whole[0], TP_EDGE_HEAD, &normed));
  TRY(op_linear_fwd(s, &h->logits, &normed, &weight, NULL, true));
  TRY(done(m));
  TRY(region_end(s, a, &a->head.forward));
  TRY(losses_forward(m, h));
  TRY(op_sum(s, loss_sum, &a->head.losses));
  TRY(kept_store(m, m->config.run->layers + 1, false, &a->head.losses));
  return region_end(s, a, &a->head.losses_region);
}

/* --- backward -------------------------------------------------------------------------------- */

/* The gradient in the final norm's output, of this rank's rows, into the stream. */
static enum err logits_backward(const struct model *m, const struct head_stash *h)
{
  struct dev_stream *s = m->config.compute;
  const struct tensor *d = &m->now.stream, *room = &m->memory.head.whole[1], weight = stage_weight(m, m->head_row),
                      term = stage_rows(m, d, room);
  const struct tokens t = tokens_of(m);
  struct tensor normed;
  TRY(op_cross_entropy_bwd(s, &h->logits, &h->logits, &h->lse, &m->now.pass->in->targets, m->now.scale, t.first,
                           t.valid));
  TRY(stage_whole(m, &h->normed, room, TP_EDGE_HEAD_BACKWARD, &normed));
  if (!stage_frozen(m, m->head_row)) {
    const struct tensor d_weight = tied_head_gradient(m);
    TRY(op_linear_bwd_w(s, &d_weight, NULL, &h->logits, &normed, true));
  }
  if (!m->tied) stage_tell(m, m->head_row);
  if (m->config.run->tp_sums > 1) return sums_head_backward(m, d, &h->logits);
  TRY(op_linear_bwd_x(s, &term, &h->logits, &weight, true));
  return tp_reduce(&m->config.tp, d, &term, TP_EDGE_HEAD_BACKWARD);
}

enum err head_backward(struct model *m, const struct tensor *x)
{
  struct dev_stream *s = m->config.compute;
  const struct activations *a = &m->memory;
  const int slot = m->now.pass->slot;
  const struct tensor *d = &a->stream;
  if (m->head_held[slot] < 0)
    FAIL(ERR_ARG, "backward in slot %d: no forward has left the head's activations there", slot);
  const struct head_stash *h = &a->heads[m->head_held[slot]];
  m->head_held[slot] = -1;
  m->memory.now = action_head_backward(a->layers);
  m->now.stream = *d;
  TRY(region_begin(s, a, &a->stream_region));
  TRY(region_begin(s, a, &a->head.backward));
  TRY(need(m, ZERO_BACKWARD));
  TRY(stage_begin(m, m->norm_row));
  if (m->tied && !m->begins) TRY(stage_begin(m, m->head_row));
  TRY(logits_backward(m, h));
  TRY(region_end(s, a, &a->head.backward));
  TRY(region_end(s, a, &h->logits_region));
  TRY(kept_store(m, m->config.run->layers, true, d));
  TRY(stage_norm_gradient(m, m->norm_row, d, x, &h->mean, &h->rstd));
  const struct tensor w = stage_weight(m, m->norm_row);
  TRY(op_layernorm_bwd_x(s, d, d, x, &w, &h->mean, &h->rstd));
  TRY(done(m));
  return region_end(s, a, &h->norm_region);
}
