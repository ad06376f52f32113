/* cross_entropy_cpu.h - kernels of cross_entropy.c for one element type. */

/* The largest of x[0 .. n), n >= 1; the order does not matter.  A NaN may be passed over here: the
 * sum of exponentials then is NaN. */
CLONES static REAL OP(largest)(const REAL *x, int64_t n)
{
  REAL most = x[0];
#pragma omp simd reduction(max : most)
  for (int64_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
  return most;
}

CLONES static double OP(sum_exp)(const REAL *x, REAL shift, int64_t V)
{
  double piece[PIECE], lane[LANES] = {0};
  for (int64_t v = 0; v < V; v += PIECE) {
    const int64_t n = piece_size(V - v);
    SIMD for (int64_t i = 0; i < n; i++) piece[i] = (double)OP(exp)(x[v + i] - shift);
    lanes_add(lane, piece, n);
  }
  return lanes_total(lane);
}

static enum err OP(op_cross_entropy_fwd)(void *args)
{
  const struct cross_entropy_args *a = args;
  const int64_t V = a->logits.cols;
  TRY(expect_targets(&a->targets, V));
#pragma omp parallel for schedule(static) if (tensor_count(&a->logits) >= PARALLEL_FROM)
  for (int64_t n = 0; n < a->logits.rows; n++) {
    const REAL *x = (const REAL *)tensor_row(&a->logits, n);
    const int32_t k = op_token(&a->targets, n);
    const REAL m = OP(largest)(x, V);
    const double log_sum = log(OP(sum_exp)(x, m, V));
    *(REAL *)tensor_row(&a->lse, n) = (REAL)((double)m + log_sum);
    *(double *)tensor_row(&a->losses, n) = k < 0 ? 0.0 : log_sum + ((double)m - (double)x[k]);
  }
  return ERR_OK;
}

CLONES static void OP(softmax_times)(REAL *dx, const REAL *x, REAL lse, REAL scale, int64_t V)
{
  SIMD for (int64_t v = 0; v < V; v++) dx[v] = OP(exp)(x[v] - lse) * scale;
}

static enum err OP(op_cross_entropy_bwd)(void *args)
{
  const struct cross_entropy_args *a = args;
  const int64_t V = a->logits.cols;
  const REAL scale = (REAL) * (const double *)a->scale.at;
  TRY(expect_targets(&a->targets, V));
#pragma omp parallel for schedule(static) if (tensor_count(&a->logits) >= PARALLEL_FROM)
  for (int64_t n = 0; n < a->logits.rows; n++) {
    const REAL *x = (const REAL *)tensor_row(&a->logits, n), lse = *(const REAL *)tensor_row(&a->lse, n);
    REAL *dx = (REAL *)tensor_row(&a->dlogits, n);
    const int32_t k = op_token(&a->targets, n);
    if (k < 0) {
      memset(dx, 0, (size_t)V * sizeof(REAL));
      continue;
    }
    const REAL at_target = (OP(exp)(x[k] - lse) - 1) * scale; /* before dx, which may be x */
    OP(softmax_times)(dx, x, lse, scale, V);
    dx[k] = at_target;
  }
  return ERR_OK;
}
