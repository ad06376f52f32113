/* cross_entropy_cpu.h - kernels of cross_entropy.c for one element type. */

/* The largest of x[0 .. n), n >= 1; the order does not matter.  A NaN may be passed over here: the
 * sum of exponentials then is NaN. */
CLONES static REAL OP(largest)(const X *x, int64_t n)
{
  REAL most = LOAD(x[0]);
#pragma omp simd reduction(max : most)
  for (int64_t i = 1; i < n; i++) most = LOAD(x[i]) > most ? LOAD(x[i]) : most;
  return most;
}

CLONES static double OP(sum_exp)(const X *x, REAL shift, int64_t V)
{
  double piece[PIECE], lane[LANES] = {0};
  for (int64_t v = 0; v < V; v += PIECE) {
    const int64_t n = piece_size(V - v);
    SIMD for (int64_t i = 0; i < n; i++) piece[i] = (double)OP(exp)(LOAD(x[v + i]) - shift);
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
    const X *x = (const X *)tensor_row(&a->logits, n);
    const int32_t k = op_token(&a->targets, n);
    const REAL m = OP(largest)(x, V);
    const double log_sum = log(OP(sum_exp)(x, m, V));
    *(REAL *)tensor_row(&a->lse, n) = (REAL)((double)m + log_sum);
    *(double *)tensor_row(&a->losses, n) = k < 0 ? 0.0 : log_sum + ((double)m - (double)LOAD(x[k]));
  }
  return ERR_OK;
}

static enum err OP(op_cross_entropy_max)(void *args)
{
  const struct cross_entropy_args *a = args;
#pragma omp parallel for schedule(static) if (tensor_count(&a->logits) >= PARALLEL_FROM)
  for (int64_t n = 0; n < a->logits.rows; n++) {
    const X *x = (const X *)tensor_row(&a->logits, n);
    *(double *)tensor_row(&a->max, n) = a->valid > 0 ? (double)OP(largest)(x, a->valid) : -INFINITY;
  }
  return ERR_OK;
}

static enum err OP(op_cross_entropy_sums)(void *args)
{
  const struct cross_entropy_args *a = args;
#pragma omp parallel for schedule(static) if (tensor_count(&a->logits) >= PARALLEL_FROM)
  for (int64_t n = 0; n < a->logits.rows; n++) {
    const X *x = (const X *)tensor_row(&a->logits, n);
    const int64_t k = target_column(a, n);
    double *sums = (double *)tensor_row(&a->sums, n);
    sums[0] = OP(sum_exp)(x, (REAL) * (const double *)tensor_row(&a->max, n), a->valid);
    sums[1] = k < 0 ? 0.0 : (double)LOAD(x[k]);
  }
  return ERR_OK;
}

CLONES static void OP(softmax_times)(X *dx, const X *x, REAL lse, REAL scale, int64_t V)
{
  SIMD for (int64_t v = 0; v < V; v++) dx[v] = STORE(OP(exp)(LOAD(x[v]) - lse) * scale);
}

static enum err OP(op_cross_entropy_bwd)(void *args)
{
  const struct cross_entropy_args *a = args;
  const int64_t V = a->logits.cols;
  const REAL scale = (REAL) * (const double *)a->scale.at;
  TRY(expect_targets(&a->targets, (int64_t)INT32_MAX + 1));
#pragma omp parallel for schedule(static) if (tensor_count(&a->logits) >= PARALLEL_FROM)
  for (int64_t n = 0; n < a->logits.rows; n++) {
    const X *x = (const X *)tensor_row(&a->logits, n);
    const REAL lse = *(const REAL *)tensor_row(&a->lse, n);
    X *dx = (X *)tensor_row(&a->dlogits, n);
    const int64_t k = target_column(a, n), valid = op_token(&a->targets, n) < 0 ? 0 : a->valid;
    const REAL at_target = k < 0 ? 0 : (OP(exp)(LOAD(x[k]) - lse) - 1) * scale; /* before dx, which may be x */
    OP(softmax_times)(dx, x, lse, scale, valid);
    if (k >= 0) dx[k] = STORE(at_target);
    memset(dx + valid, 0, (size_t)(V - valid) * sizeof(X));
  }
  return ERR_OK;
}
