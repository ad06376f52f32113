/* embedding_cpu.h - kernels of embedding.c for one element type. */

CLONES static void OP(add_row)(X *y, const X *x, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) y[i] = STORE(LOAD(y[i]) + LOAD(x[i]));
}
CLONES static void OP(add_gradient)(REAL *dw, const X *dy, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) dw[i] += LOAD(dy[i]);
}

static enum err OP(op_embedding_fwd)(void *args)
{
  const struct embedding_args *e = args;
  const size_t bytes = (size_t)e->y.cols * sizeof(X);
  TRY(expect_ids("token", e));
#pragma omp parallel for schedule(static) if (tensor_count(&e->y) >= PARALLEL_FROM)
  for (int64_t n = 0; n < e->y.rows; n++) {
    const int64_t row = row_for(e, n);
    if (row < 0)
      memset(tensor_row(&e->y, n), 0, bytes);
    else
      memcpy(tensor_row(&e->y, n), tensor_row(&e->table, row), bytes);
  }
  return ERR_OK;
}

static enum err OP(op_position_fwd)(void *args)
{
  const struct embedding_args *e = args;
  TRY(expect_ids("position", e));
#pragma omp parallel for schedule(static) if (tensor_count(&e->y) >= PARALLEL_FROM)
  for (int64_t n = 0; n < e->y.rows; n++)
    OP(add_row)((X *)tensor_row(&e->y, n), (const X *)tensor_row(&e->table, row_for(e, n)), e->y.cols);
  return ERR_OK;
}

/* The row that row n of dy asks for += it.  One thread owns columns [first, last) and goes through all n. */
static void OP(scatter)(const struct embedding_args *e)
{
  const int64_t N = e->y.rows, C = e->y.cols;
  const int64_t turn = fault_is(FAULT_RNG_NONDETERMINISTIC_EMBEDDING_BWD) ? (int64_t)(clock_ms() * 1e6) % (N + 1) : 0;
#pragma omp parallel if (tensor_count(&e->y) >= PARALLEL_FROM)
  {
    const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    const int64_t first = C * me / threads, last = C * (me + 1) / threads;
    for (int64_t i = 0; i < N; i++) {
      const int64_t n = i + turn < N ? i + turn : i + turn - N, row = row_for(e, n);
      if (row >= 0)
        OP(add_gradient)
        ((REAL *)tensor_row(&e->table, row) + first, (const X *)tensor_row(&e->y, n) + first, last - first);
    }
  }
}

static enum err OP(op_embedding_bwd_w)(void *args)
{
  TRY(expect_ids("token", args));
  OP(scatter)(args);
  return ERR_OK;
}

static enum err OP(op_position_bwd_w)(void *args)
{
  TRY(expect_ids("position", args));
  OP(scatter)(args);
  return ERR_OK;
}
