/* sums.c - products over an axis in as many parts as tensor parallelism would cut it into. */
#include "model/sums.h"

#include "ops/ops.h"

struct part {
  int64_t first, count;
};

/* Part i of n of `extent`, as ranks have it: the last ones may be smaller, or empty. */
static struct part part_of(int64_t extent, int64_t n, int64_t i)
{
  const int64_t each = (extent + n - 1) / n, first = i * each < extent ? i * each : extent;
  return (struct part){first, first + each < extent ? each : extent - first};
}

static struct tensor columns(const struct tensor *t, int64_t first, int64_t count)
{
  return tensor_part(t, 0, t->rows, first, count);
}
static struct tensor rows(const struct tensor *t, int64_t first, int64_t count)
{
  return tensor_part(t, first, count, 0, t->cols);
}

enum err sums_create(struct model *m)
{
  const struct run_config *run = m->config.run;
  if (run->tp_sums == 1) return ERR_OK;
  return dev_alloc(m->config.dev, (size_t)(m->N * run->hidden) * dtype_bytes(m->type), DEV_ACTIVATIONS, "terms of sums",
                   &m->term);
}

void sums_destroy(struct model *m) { dev_free(m->config.dev, m->term); }

/* Where part i of a sum into `sum` is made: the first in it, another apart, as another rank would have it. */
static struct tensor term_of(const struct model *m, const struct tensor *sum, int64_t i)
{
  return i == 0 ? *sum : tensor_at(m->term, sum->type, sum->rows, sum->cols);
}
static enum err add_term(const struct model *m, const struct tensor *sum, const struct tensor *term)
{
  return term->at == sum->at ? ERR_OK : op_accumulate(m->config.compute, sum, term);
}

/* y = x w over the rows of w in parts. */
static enum err product(const struct model *m, const struct tensor *y, const struct tensor *x, const struct tensor *w)
{
  const int64_t n = m->config.run->tp_sums;
  for (int64_t i = 0; i < n; i++) {
    const struct part p = part_of(w->rows, n, i);
    const struct tensor a = columns(x, p.first, p.count), b = rows(w, p.first, p.count), term = term_of(m, y, i);
    if (p.count == 0) continue;
    TRY(op_matmul(m->config.compute, &term, &a, false, &b, false, false));
    TRY(add_term(m, y, &term));
  }
  return ERR_OK;
}

enum err sums_row(const struct model *m, int row, const struct tensor *y, const struct tensor *x)
{
  const struct tensor w = stage_weight(m, row), b = stage_weight(m, row + 1);
  TRY(product(m, y, x, &w));
  return op_bias_fwd(m->config.compute, y, &b);
}

/* Rank i has part i of every block (QKV: three). */
enum err sums_column_backward(const struct model *m, int row, const struct tensor *dx, const struct tensor *dy)
{
  const struct tensor w = stage_weight(m, row);
  const int64_t n = m->config.run->tp_sums, blocks = m->config.table->rows[row].blocks, each = w.cols / blocks;
  for (int64_t i = 0; i < n; i++) {
    const struct part p = part_of(each, n, i);
    const struct tensor term = term_of(m, dx, i);
    if (p.count == 0) continue;
    for (int64_t k = 0; k < blocks; k++) {
      const struct tensor a = columns(dy, k * each + p.first, p.count), b = columns(&w, k * each + p.first, p.count);
      TRY(op_matmul(m->config.compute, &term, &a, false, &b, true, k > 0));
    }
    TRY(add_term(m, dx, &term));
  }
  return ERR_OK;
}

enum err sums_head_backward(const struct model *m, const struct tensor *dx, const struct tensor *dlogits)
{
  const struct tensor w = stage_weight(m, m->head_row);
  return product(m, dx, dlogits, &w);
}
