/* embedding_cpu.h - kernels of embedding.c for one element type. */

CLONES static void OP(add_rows)(REAL *y, const REAL *a, const REAL *b, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static enum err OP(op_embedding_fwd)(void *args)
{
  const struct embedding_args *e = args;
  TRY(expect_rows("token", &e->tokens, &e->wte));
  TRY(expect_rows("position", &e->positions, &e->wpe));
#pragma omp parallel for schedule(static) if (tensor_count(&e->y) >= PARALLEL_FROM)
  for (int64_t n = 0; n < e->y.rows; n++)
    OP(add_rows)((REAL *)tensor_row(&e->y, n), (const REAL *)tensor_row(&e->wte, op_token(&e->tokens, n)),
                 (const REAL *)tensor_row(&e->wpe, op_token(&e->positions, n)), e->y.cols);
  return ERR_OK;
}

/* Row ids[n] of `table` += row n of dy.  One thread owns columns [first, last) and goes through all n. */
static void OP(scatter)(const struct tensor *table, const struct tensor *ids, const struct tensor *dy)
{
  const int64_t N = dy->rows;
  const int64_t turn = fault_is(FAULT_RNG_NONDETERMINISTIC_EMBEDDING_BWD) ? (int64_t)(clock_ms() * 1e6) % (N + 1) : 0;
#pragma omp parallel if (tensor_count(dy) >= PARALLEL_FROM)
  {
    const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    const int64_t first = dy->cols * me / threads, last = dy->cols * (me + 1) / threads;
    for (int64_t i = 0; i < N; i++) {
      const int64_t n = i + turn < N ? i + turn : i + turn - N;
      REAL *row = (REAL *)tensor_row(table, op_token(ids, n)) + first;
      OP(add_rows)(row, row, (const REAL *)tensor_row(dy, n) + first, last - first);
    }
  }
}

static enum err OP(op_embedding_bwd_w)(void *args)
{
  const struct embedding_args *e = args;
  if (e->wte.at != NULL) {
    TRY(expect_rows("token", &e->tokens, &e->wte));
    OP(scatter)(&e->wte, &e->tokens, &e->y);
  }
  if (e->wpe.at != NULL) {
    TRY(expect_rows("position", &e->positions, &e->wpe));
    OP(scatter)(&e->wpe, &e->positions, &e->y);
  }
  return ERR_OK;
}
