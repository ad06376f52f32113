/* tied.c - embedding's use + head's use, wherever they run. */
#include "model/tied.h"

#include "base/fault.h"
#include "ops/ops.h"

enum { FIRST_STAGE = 0, LAST_STAGE = 1 }; /* ranks of the tied group */

static bool apart(const struct model *m) { return m->config.place.pp > 1; }

static struct tensor other_use(const struct model *m)
{
  const struct flat *f = m->config.flat;
  return tensor_at(m->other_use, m->state, f->rows[m->head_row], f->cols[m->head_row]);
}

enum err tied_create(struct model *m)
{
  if (!m->tied || stage_frozen(m, m->head_row) || !m->begins) return ERR_OK;
  const size_t bytes = (size_t)m->config.flat->length[m->head_row] * dtype_bytes(m->state);
  TRY(dev_alloc(m->config.dev, bytes, DEV_GRADIENTS, "head's use of the tied matrix", &m->other_use));
  const struct tensor t = other_use(m);
  return apart(m) ? ERR_OK : op_fill(m->config.compute, &t, 0.0);
}

void tied_destroy(struct model *m) { dev_free(m->config.dev, m->other_use); }

struct tensor tied_head_gradient(const struct model *m)
{
  return m->other_use ? other_use(m) : stage_gradient(m, m->head_row);
}

/* On one stage: the head's accumulator starts the next fold empty. */
static enum err join_here(struct model *m)
{
  const struct tensor flat = stage_gradient(m, m->head_row), head = other_use(m);
  TRY(op_accumulate(m->config.compute, &flat, &head));
  return op_fill(m->config.compute, &head, 0.0);
}

static enum err join_stages(struct model *m)
{
  const struct tensor flat = stage_gradient(m, m->head_row);
  if (fault_is(FAULT_PP_TIED_EMBEDDING_NOT_SUMMED)) return ERR_OK;
  if (m->ends) {
    TRY(comm_send(m->config.tied, &flat, FIRST_STAGE));
    return comm_recv(m->config.tied, &flat, FIRST_STAGE);
  }
  const struct tensor head = other_use(m);
  TRY(comm_recv(m->config.tied, &head, LAST_STAGE));
  TRY(op_accumulate(m->config.compute, &flat, &head));
  return comm_send(m->config.tied, &flat, LAST_STAGE);
}

enum err tied_join(struct model *m)
{
  if (!m->tied || stage_frozen(m, m->head_row) || !(m->begins || m->ends)) return ERR_OK;
  TRY(stage_begin(m, m->head_row)); /* no backward did, where passes are slept through */
  return apart(m) ? join_stages(m) : join_here(m);
}
