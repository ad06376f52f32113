/* linear_cpu.h - kernels of linear.c for one element type. */

CLONES static void OP(add_bias)(X *y, const X *b, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) y[i] = STORE(LOAD(y[i]) + LOAD(b[i]));
}

static enum err OP(op_bias_fwd)(void *args)
{
  const struct linear_args *l = args;
#pragma omp parallel for schedule(static) if (tensor_count(&l->y) >= PARALLEL_FROM)
  for (int64_t n = 0; n < l->y.rows; n++) OP(add_bias)((X *)tensor_row(&l->y, n), l->b.at, l->y.cols);
  return ERR_OK;
}

static enum err OP(op_linear_fwd)(void *args)
{
  const struct linear_args *l = args;
  const bool joins = l->b.at != NULL && sizeof(X) < sizeof(REAL); /* the sum, before the only rounding */
  for (int64_t n = 0; n < l->y.rows && joins; n++)
    memcpy(tensor_row(&l->y, n), l->b.at, (size_t)l->y.cols * sizeof(X));
  TRY(OP(matmul)(l->y.rows, l->y.cols, l->x.cols, l->x.at, l->x.stride, false, l->w.at, l->w.stride, l->transposed,
                 joins, l->y.at, l->y.stride));
  return l->b.at == NULL || joins ? ERR_OK : OP(op_bias_fwd)(args);
}

static enum err OP(op_linear_bwd_x)(void *args)
{
  const struct linear_args *l = args;
  return OP(matmul)(l->x.rows, l->x.cols, l->y.cols, l->y.at, l->y.stride, false, l->w.at, l->w.stride, !l->transposed,
                    false, l->x.at, l->x.stride);
}

/* db[0 .. n) += the sum over rows, for at most PIECE columns. */
CLONES static void OP(sum_columns)(REAL *db, const X *dy, int64_t stride, int64_t rows, int64_t n)
{
  double sum[PIECE] = {0};
  for (int64_t r = 0; r < rows; r++) {
    const X *row = dy + r * stride;
    SIMD for (int64_t i = 0; i < n; i++) sum[i] += (double)LOAD(row[i]);
  }
  SIMD for (int64_t i = 0; i < n; i++) db[i] = (REAL)((double)db[i] + sum[i]);
}

static enum err OP(op_linear_bwd_w)(void *args)
{
  const struct linear_args *l = args;
  const struct tensor *left = l->transposed ? &l->y : &l->x, *right = l->transposed ? &l->x : &l->y;
  TRY(OP(matmul_state)(l->w.rows, l->w.cols, l->y.rows, left->at, left->stride, true, right->at, right->stride, false,
                       true, l->w.at, l->w.stride));
  if (l->b.at == NULL) return ERR_OK;
#pragma omp parallel for schedule(static) if (tensor_count(&l->y) >= PARALLEL_FROM)
  for (int64_t c = 0; c < l->y.cols; c += PIECE)
    OP(sum_columns)((REAL *)l->b.at + c, (const X *)l->y.at + c, l->y.stride, l->y.rows, piece_size(l->y.cols - c));
  return ERR_OK;
}
