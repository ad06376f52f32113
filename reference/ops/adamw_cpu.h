/* adamw_cpu.h - kernels of adamw.c for one element type. */

struct OP(adamw) {
  REAL factor, keep, beta1, rest1, beta2, rest2, rate, root, eps;
};

CLONES static void OP(adamw_piece)(REAL *w, REAL *m, REAL *v, const REAL *g, struct OP(adamw) a, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++)
  {
    const REAL gi = g[i] * a.factor;
    const REAL mi = a.beta1 * m[i] + a.rest1 * gi;
    const REAL vi = a.beta2 * v[i] + a.rest2 * gi * gi;
    m[i] = mi;
    v[i] = vi;
    w[i] = w[i] * a.keep - a.rate * mi / (OP(root)(vi) * a.root + a.eps);
  }
}

static enum err OP(op_adamw)(void *args)
{
  const struct update_args *u = args;
  const double lr = *(const double *)u->lr.at, t = (double)*(const int64_t *)u->t.at;
  if (!(t >= 1)) FAIL(ERR_NUMERIC, "AdamW's update number is %.0f, expected from 1", t);
  if (skipped(u)) return ERR_OK;
  const struct op_adamw *r = &u->rule;
  const struct OP(adamw) a = {
      .factor = (REAL) * (const double *)u->factor.at,
      .keep = (REAL)(1 - lr * r->weight_decay),
      .beta1 = (REAL)r->beta1,
      .rest1 = (REAL)(1 - r->beta1),
      .beta2 = (REAL)r->beta2,
      .rest2 = (REAL)(1 - r->beta2),
      .rate = (REAL)(lr / (1 - pow(r->beta1, t))),
      .root = (REAL)(1 / sqrt(1 - pow(r->beta2, t))),
      .eps = (REAL)r->eps,
  };
  const int64_t pieces = span_pieces(u->w.rows, u->w.cols);
#pragma omp parallel for schedule(static) if (tensor_count(&u->w) >= PARALLEL_FROM)
  for (int64_t k = 0; k < pieces; k++) {
    const struct span p = span_at(k, u->w.cols);
    OP(adamw_piece)((REAL *)tensor_row(&u->w, p.row) + p.col, (REAL *)tensor_row(&u->m, p.row) + p.col,
                    (REAL *)tensor_row(&u->v, p.row) + p.col, (const REAL *)tensor_row(&u->g, p.row) + p.col, a,
                    p.count);
    round_span(u, p);
  }
  return ERR_OK;
}

CLONES static void OP(sgd_piece)(REAL *w, const REAL *g, REAL lr, REAL factor, REAL decay, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) w[i] = w[i] - lr * (g[i] * factor + decay * w[i]);
}

static enum err OP(op_sgd)(void *args)
{
  const struct update_args *u = args;
  const REAL lr = (REAL) * (const double *)u->lr.at, factor = (REAL) * (const double *)u->factor.at;
  const REAL decay = (REAL)u->rule.weight_decay;
  if (skipped(u)) return ERR_OK;
  const int64_t pieces = span_pieces(u->w.rows, u->w.cols);
#pragma omp parallel for schedule(static) if (tensor_count(&u->w) >= PARALLEL_FROM)
  for (int64_t k = 0; k < pieces; k++) {
    const struct span p = span_at(k, u->w.cols);
    OP(sgd_piece)((REAL *)tensor_row(&u->w, p.row) + p.col, (const REAL *)tensor_row(&u->g, p.row) + p.col, lr, factor,
                  decay, p.count);
    round_span(u, p);
  }
  return ERR_OK;
}
