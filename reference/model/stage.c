/* stage.c - linear layers, norms and dropout on the part of the model and of the rows that a rank has. */
#include "model/stage.h"

#include "base/fault.h"
#include "model/sums.h"
#include "ops/ops.h"

#include <math.h>

static const double epsilon = 1e-5; /* of the norms, as GPT-2 */

static int unit_of(const struct model *m, int row)
{
  const int unit = flat_unit_of(m->config.flat, row);
  BUG_IF(unit < 0);
  return unit;
}

/* The row in what begins with the unit's first element. */
static struct tensor view(const struct model *m, void *unit, enum dtype type, int row)
{
  const struct flat *f = m->config.flat;
  const int64_t first = f->offset[row] - f->units[unit_of(m, row)].first;
  return tensor_at((char *)unit + (size_t)first * dtype_bytes(type), type, f->rows[row], f->cols[row]);
}

struct tensor stage_weight(const struct model *m, int row)
{
  return view(m, zero_weights(m->config.zero, unit_of(m, row)), m->type, row);
}

struct tensor stage_gradient(const struct model *m, int row)
{
  return view(m, ddp_gradients(m->config.ddp, unit_of(m, row)), m->state, row);
}

enum err stage_need(const struct model *m, int row, enum zero_pass pass)
{
  return zero_need(m->config.zero, unit_of(m, row), pass);
}

enum err stage_done(const struct model *m, int row) { return zero_done(m->config.zero, unit_of(m, row)); }

enum err stage_begin(const struct model *m, int row) { return ddp_begin(m->config.ddp, unit_of(m, row)); }

static bool owns(const struct model *m, int row) { return m->config.table->rows[row].shared_with < 0; }

void stage_tell(const struct model *m, int row)
{
  if (m->now.last && m->now.ready && owns(m, row)) m->now.ready(m->now.ready_arg, row);
}

/* --- gradients of weights ----------------------------------------------------------------- */

enum err stage_linear_gradient(const struct model *m, int row, const struct tensor *dy, const struct tensor *x)
{
  if (!stage_frozen(m, row) || !stage_frozen(m, row + 1)) {
    const struct tensor dw = stage_gradient(m, row), db = stage_gradient(m, row + 1);
    TRY(op_linear_bwd_w(m->config.compute, &dw, &db, dy, x, false));
  }
  stage_tell(m, row + 1);
  stage_tell(m, row);
  return ERR_OK;
}

/* Gain and bias in one call: two rows of C, as far apart as they stand in the flat gradients. */
static enum err sum_norm_gradient(const struct model *m, int row)
{
  if (!m->now.last || !owns(m, row)) return ERR_OK;
  if (fault_is(FAULT_TP_SP_NORM_GRAD_NOT_REDUCED) && row == m->norm_row) return ERR_OK;
  struct tensor both = stage_gradient(m, row);
  both.rows = 2;
  both.stride = m->config.flat->offset[row + 1] - m->config.flat->offset[row];
  return tp_sum_gradient(&m->config.tp, &both);
}

enum err stage_norm_gradient(const struct model *m, int row, const struct tensor *dy, const struct tensor *x,
                             const struct tensor *mean, const struct tensor *rstd)
{
  if (!stage_frozen(m, row) || !stage_frozen(m, row + 1)) {
    const struct tensor dw = stage_gradient(m, row), db = stage_gradient(m, row + 1);
    TRY(op_layernorm_bwd_w(m->config.compute, &dw, &db, dy, x, mean, rstd));
  }
  TRY(sum_norm_gradient(m, row));
  stage_tell(m, row + 1);
  stage_tell(m, row);
  return ERR_OK;
}

enum err stage_norm(const struct model *m, int row, const struct tensor *y, const struct tensor *mean,
                    const struct tensor *rstd, const struct tensor *x)
{
  const struct tensor w = stage_weight(m, row), b = stage_weight(m, row + 1);
  return op_layernorm_fwd(m->config.compute, y, mean, rstd, x, &w, &b, epsilon);
}

/* --- edges ----------------------------------------------------------------------------------- */

enum err stage_whole(const struct model *m, const struct tensor *part, const struct tensor *room, enum tp_edge edge,
                     struct tensor *out)
{
  *out = stage_rows(m, part, room);
  return tp_gather(&m->config.tp, out, part, edge);
}

enum err stage_column(const struct model *m, int row, const struct tensor *y, const struct tensor *x,
                      const struct tensor *room, enum tp_edge edge)
{
  const struct tensor w = stage_weight(m, row), b = stage_weight(m, row + 1);
  struct tensor whole;
  TRY(stage_whole(m, x, room, edge, &whole));
  return op_linear_fwd(m->config.compute, y, &whole, &w, &b, false);
}

enum err stage_column_backward(const struct model *m, int row, const struct tensor *dx, const struct tensor *dy,
                               const struct tensor *room, enum tp_edge edge)
{
  const struct tensor w = stage_weight(m, row), term = stage_rows(m, dx, room);
  if (m->config.run->tp_sums > 1) return sums_column_backward(m, row, dx, dy);
  TRY(op_linear_bwd_x(m->config.compute, &term, dy, &w, false));
  return tp_reduce(&m->config.tp, dx, &term, edge);
}

/* y's columns [first, first + count) get the bias. */
static enum err add_bias(const struct model *m, int row, const struct tensor *y, int64_t first, int64_t count)
{
  const struct tensor b = stage_weight(m, row + 1), part = tensor_part(&b, 0, 1, first, count),
                      to = tensor_part(y, 0, y->rows, first, count);
  return count > 0 ? op_bias_fwd(m->config.compute, &to, &part) : ERR_OK;
}

enum err stage_row(const struct model *m, int row, const struct tensor *y, const struct tensor *x,
                   const struct tensor *room, enum tp_edge edge)
{
  const struct tensor w = stage_weight(m, row), b = stage_weight(m, row + 1), term = stage_rows(m, y, room);
  int64_t added = 0; /* columns whose bias is in already */
  if (m->config.run->tp_sums > 1) return sums_row(m, row, y, x);
  if (m->config.tp.size == 1) return op_linear_fwd(m->config.compute, y, x, &w, &b, false);
  TRY(op_linear_fwd(m->config.compute, &term, x, &w, NULL, false));
  if (fault_is(FAULT_TP_ROW_BIAS_ADDED_PER_RANK)) {
    added = (int64_t)ceil(fmin(fault_strength, 1.0) * (double)y->cols);
    TRY(add_bias(m, row, &term, 0, added));
  }
  TRY(tp_reduce(&m->config.tp, y, &term, edge));
  return add_bias(m, row, y, added, y->cols - added);
}

/* --- dropout ------------------------------------------------------------------------------------ */

enum err stage_dropout(const struct model *m, int64_t layer, enum stage_site site, const struct tensor *y,
                       const struct tensor *x)
{
  const struct run_config *run = m->config.run;
  if (fault_is(FAULT_PP_LAYER_NUMBER_LOCAL)) layer -= m->now.chunk->first;
  if (fault_is(FAULT_RNG_RECOMPUTE_FRESH_MASK) && m->now.again) layer += run->layers;
  const struct rng_key key = {(uint64_t)run->seed, RNG_DROPOUT + (uint32_t)(layer + 1) * 4 + (uint32_t)site, 0};
  return op_dropout(m->config.compute, y, x, run->dropout, key, &m->config.step, &m->now.pass->in->samples,
                    run->positions, m->T, tp_row0(&m->config.tp, m->N));
}
