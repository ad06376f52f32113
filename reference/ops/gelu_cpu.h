/* gelu_cpu.h - kernels of gelu.c for one element type. */

#define TWO_ROOT ((REAL)1.5957691216057308) /* 2 sqrt(2 / pi) */
#define CUBE ((REAL)0.044715)

CLONES static void OP(gelu_piece)(X *y, const X *x, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++)
  {
    const REAL v = LOAD(x[i]), minus_2u = -TWO_ROOT * (v + CUBE * (v * v * v));
    y[i] = STORE(v / (1 + OP(exp)(minus_2u)));
  }
}

CLONES static void OP(gelu_slope_piece)(X *dx, const X *dy, const X *x, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++)
  {
    const REAL v = LOAD(x[i]), minus_2u = -TWO_ROOT * (v + CUBE * (v * v * v));
    const REAL e = OP(exp)(minus_2u), s = 1 / (1 + e);
    dx[i] = STORE(LOAD(dy[i]) * (s + v * s * (1 - s) * (TWO_ROOT * (1 + 3 * CUBE * (v * v)))));
  }
}

static enum err OP(op_gelu_fwd)(void *args)
{
  const struct gelu_args *g = args;
  const int64_t pieces = span_pieces(g->x.rows, g->x.cols);
#pragma omp parallel for schedule(static) if (tensor_count(&g->x) >= PARALLEL_FROM)
  for (int64_t k = 0; k < pieces; k++) {
    const struct span p = span_at(k, g->x.cols);
    OP(gelu_piece)((X *)tensor_row(&g->y, p.row) + p.col, (const X *)tensor_row(&g->x, p.row) + p.col, p.count);
  }
  return ERR_OK;
}

static enum err OP(op_gelu_bwd)(void *args)
{
  const struct gelu_args *g = args;
  const int64_t pieces = span_pieces(g->x.rows, g->x.cols);
#pragma omp parallel for schedule(static) if (tensor_count(&g->x) >= PARALLEL_FROM)
  for (int64_t k = 0; k < pieces; k++) {
    const struct span p = span_at(k, g->x.cols);
    OP(gelu_slope_piece)((X *)tensor_row(&g->y, p.row) + p.col, (const X *)tensor_row(&g->dy, p.row) + p.col,
                         (const X *)tensor_row(&g->x, p.row) + p.col, p.count);
  }
  return ERR_OK;
}

#undef TWO_ROOT
#undef CUBE
