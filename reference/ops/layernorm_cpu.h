/* layernorm_cpu.h - kernels of layernorm.c for one element type. */

/* mean(x) and mean((x - mean)^2) of one row. */
CLONES static void OP(moments)(const X *x, int64_t C, double *mean, double *variance)
{
  double piece[PIECE], lane[LANES] = {0}, lane2[LANES] = {0};
  for (int64_t c = 0; c < C; c += PIECE) {
    const int64_t n = piece_size(C - c);
    SIMD for (int64_t i = 0; i < n; i++) piece[i] = (double)LOAD(x[c + i]);
    lanes_add(lane, piece, n);
  }
  const double m = lanes_total(lane) / (double)C;
  for (int64_t c = 0; c < C; c += PIECE) {
    const int64_t n = piece_size(C - c);
    SIMD for (int64_t i = 0; i < n; i++)
    {
      const double d = (double)LOAD(x[c + i]) - m;
      piece[i] = d * d;
    }
    lanes_add(lane2, piece, n);
  }
  *mean = m;
  *variance = lanes_total(lane2) / (double)C;
}

CLONES static void OP(normalize)(X *y, const X *x, const X *w, const X *b, REAL mean, REAL rstd, int64_t C)
{
  SIMD for (int64_t c = 0; c < C; c++) y[c] = STORE((LOAD(x[c]) - mean) * rstd * LOAD(w[c]) + LOAD(b[c]));
}

static enum err OP(op_layernorm_fwd)(void *args)
{
  const struct layernorm_args *l = args;
#pragma omp parallel for schedule(static) if (tensor_count(&l->x) >= PARALLEL_FROM)
  for (int64_t n = 0; n < l->x.rows; n++) {
    const X *x = (const X *)tensor_row(&l->x, n);
    double m, variance;
    OP(moments)(x, l->x.cols, &m, &variance);
    const REAL mean = (REAL)m, rstd = (REAL)(1.0 / sqrt(variance + l->eps));
    *(REAL *)tensor_row(&l->mean, n) = mean;
    *(REAL *)tensor_row(&l->rstd, n) = rstd;
    OP(normalize)((X *)tensor_row(&l->y, n), x, l->w.at, l->b.at, mean, rstd, l->x.cols);
  }
  return ERR_OK;
}

/* mean(g) and mean(g * xh) of one row. */
CLONES static void OP(projections)(const X *dy, const X *x, const X *w, REAL mean, REAL rstd, int64_t C,
                                   double *of_g, double *of_gx)
{
  double g[PIECE], gx[PIECE], lane[LANES] = {0}, lane2[LANES] = {0};
  for (int64_t c = 0; c < C; c += PIECE) {
    const int64_t n = piece_size(C - c);
    SIMD for (int64_t i = 0; i < n; i++)
    {
      g[i] = (double)LOAD(dy[c + i]) * (double)LOAD(w[c + i]);
      gx[i] = g[i] * (double)((LOAD(x[c + i]) - mean) * rstd);
    }
    lanes_add(lane, g, n);
    lanes_add(lane2, gx, n);
  }
  *of_g = lanes_total(lane) / (double)C;
  *of_gx = lanes_total(lane2) / (double)C;
}

/* dx may be dy: an element is read before it is written. */
CLONES static void OP(project)(X *dx, const X *dy, const X *x, const X *w, REAL mean, REAL rstd, REAL of_g, REAL of_gx,
                               int64_t C)
{
  SIMD for (int64_t c = 0; c < C; c++)
    dx[c] = STORE(rstd * (LOAD(dy[c]) * LOAD(w[c]) - of_g - (LOAD(x[c]) - mean) * rstd * of_gx));
}

static enum err OP(op_layernorm_bwd_x)(void *args)
{
  const struct layernorm_args *l = args;
#pragma omp parallel for schedule(static) if (tensor_count(&l->x) >= PARALLEL_FROM)
  for (int64_t n = 0; n < l->x.rows; n++) {
    const X *x = (const X *)tensor_row(&l->x, n), *dy = (const X *)tensor_row(&l->y, n);
    const REAL mean = *(const REAL *)tensor_row(&l->mean, n), rstd = *(const REAL *)tensor_row(&l->rstd, n);
    double of_g, of_gx;
    OP(projections)(dy, x, l->w.at, mean, rstd, l->x.cols, &of_g, &of_gx);
    OP(project)((X *)tensor_row(&l->dx, n), dy, x, l->w.at, mean, rstd, (REAL)of_g, (REAL)of_gx, l->x.cols);
  }
  return ERR_OK;
}

/* dw, db [0 .. n) += the sums over rows, for at most PIECE columns from column c on. */
CLONES static void OP(sum_rows)(const struct layernorm_args *l, int64_t c, int64_t n)
{
  double dw[PIECE] = {0}, db[PIECE] = {0};
  for (int64_t r = 0; r < l->x.rows; r++) {
    const X *x = (const X *)tensor_row(&l->x, r) + c, *dy = (const X *)tensor_row(&l->y, r) + c;
    const REAL mean = *(const REAL *)tensor_row(&l->mean, r), rstd = *(const REAL *)tensor_row(&l->rstd, r);
    SIMD for (int64_t i = 0; i < n; i++)
    {
      dw[i] += (double)LOAD(dy[i]) * (double)((LOAD(x[i]) - mean) * rstd);
      db[i] += (double)LOAD(dy[i]);
    }
  }
  REAL *out_w = (REAL *)l->w.at + c, *out_b = (REAL *)l->b.at + c;
  SIMD for (int64_t i = 0; i < n; i++)
  {
    out_w[i] = (REAL)((double)out_w[i] + dw[i]);
    out_b[i] = (REAL)((double)out_b[i] + db[i]);
  }
}

static enum err OP(op_layernorm_bwd_w)(void *args)
{
  const struct layernorm_args *l = args;
#pragma omp parallel for schedule(static) if (tensor_count(&l->x) >= PARALLEL_FROM)
  for (int64_t c = 0; c < l->x.cols; c += PIECE) OP(sum_rows)(l, c, piece_size(l->x.cols - c));
  return ERR_OK;
}
