/* elementwise_cpu.h - kernels of elementwise.c for one element type.  Two operands may be the same
 * memory, element by element: each is read before it is written. */

CLONES static void OP(fill_piece)(X *y, X value, int64_t n) { SIMD for (int64_t i = 0; i < n; i++) y[i] = value; }
CLONES static void OP(add_piece)(X *y, const X *a, const X *b, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) y[i] = STORE(LOAD(a[i]) + LOAD(b[i]));
}
CLONES static void OP(scale_piece)(X *y, const X *x, REAL factor, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) y[i] = STORE(LOAD(x[i]) * factor);
}

static enum err OP(op_fill)(void *args)
{
  const struct elementwise_args *a = args;
  const int64_t pieces = span_pieces(a->y.rows, a->y.cols);
  const X value = OP(rounded)(a->value);
#pragma omp parallel for schedule(static) if (tensor_count(&a->y) >= PARALLEL_FROM)
  for (int64_t k = 0; k < pieces; k++) {
    const struct span p = span_at(k, a->y.cols);
    OP(fill_piece)((X *)tensor_row(&a->y, p.row) + p.col, value, p.count);
  }
  return ERR_OK;
}

static void OP(add_all)(const struct tensor *y, const struct tensor *a, const struct tensor *b)
{
  const int64_t pieces = span_pieces(y->rows, y->cols);
#pragma omp parallel for schedule(static) if (tensor_count(y) >= PARALLEL_FROM)
  for (int64_t k = 0; k < pieces; k++) {
    const struct span p = span_at(k, y->cols);
    OP(add_piece)((X *)tensor_row(y, p.row) + p.col, (const X *)tensor_row(a, p.row) + p.col,
                  (const X *)tensor_row(b, p.row) + p.col, p.count);
  }
}

static enum err OP(op_add)(void *args)
{
  const struct elementwise_args *a = args;
  OP(add_all)(&a->y, &a->x, &a->b);
  return ERR_OK;
}

static enum err OP(op_accumulate)(void *args)
{
  const struct elementwise_args *a = args;
  OP(add_all)(&a->y, &a->y, &a->x);
  return ERR_OK;
}

static enum err OP(op_scale)(void *args)
{
  const struct elementwise_args *a = args;
  const REAL factor = a->b.type == DTYPE_F64 ? (REAL) * (const double *)a->b.at : *(const REAL *)a->b.at;
  const int64_t pieces = span_pieces(a->y.rows, a->y.cols);
#pragma omp parallel for schedule(static) if (tensor_count(&a->y) >= PARALLEL_FROM)
  for (int64_t k = 0; k < pieces; k++) {
    const struct span p = span_at(k, a->y.cols);
    OP(scale_piece)((X *)tensor_row(&a->y, p.row) + p.col, (const X *)tensor_row(&a->x, p.row) + p.col, factor,
                    p.count);
  }
  return ERR_OK;
}
