/* attention_cpu.h - one head of attention.c for one type to compute with. */

/* One (sequence, head): rows 0 .. T of its columns.  q, k, v, dq, dk, dv lie in rows of `stride`. */
struct OP(head) {
  const REAL *q, *k, *v, *o, *d_o;
  REAL *out, *lse, *dq, *dk, *dv;
  const int32_t *docs;
  int64_t T, D, stride, o_stride, do_stride, lse_stride, d_stride;
  bool ordered;
  REAL scale;
};

static struct OP(head) OP(head_of)(const struct attention_args *a, int64_t i)
{
  const int64_t T = a->docs.cols, C = a->o.cols, D = C / a->heads, b = i / a->heads, h = i % a->heads;
  struct OP(head) x = {.T = T, .D = D, .stride = a->qkv.stride, .o_stride = a->o.stride, .lse_stride = a->lse.stride};
  x.q = (const REAL *)tensor_row(&a->qkv, b * T) + h * D;
  x.k = x.q + C;
  x.v = x.k + C;
  x.out = (REAL *)tensor_row(&a->o, b * T) + h * D;
  x.o = x.out;
  x.lse = (REAL *)tensor_row(&a->lse, b * T) + h;
  x.docs = (const int32_t *)tensor_row(&a->docs, b);
  x.ordered = docs_ordered(x.docs, T);
  x.scale = (REAL)(1.0 / sqrt((double)D));
  if (a->dqkv.at != NULL) {
    x.do_stride = a->d_o.stride;
    x.d_stride = a->dqkv.stride;
    x.d_o = (const REAL *)tensor_row(&a->d_o, b * T) + h * D;
    x.dq = (REAL *)tensor_row(&a->dqkv, b * T) + h * D;
    x.dk = x.dq + C;
    x.dv = x.dk + C;
  }
  return x;
}

/* Scores s[0 .. n) of query t with keys k0 ..: scaled, -inf where t does not see; the largest. */
CLONES static REAL OP(scale_and_mask)(REAL *s, const int32_t *docs, int64_t t, int64_t k0, int64_t n, REAL scale)
{
  const struct seen seen = docs_seen(docs, t, k0, n);
  const int32_t id = docs[t], *keys = docs + k0;
  REAL most = -(REAL)INFINITY;
  for (int64_t u = 0; u < seen.from; u++) s[u] = -(REAL)INFINITY;
#pragma omp simd reduction(max : most) /* any order has the same largest */
  for (int64_t u = seen.from; u < seen.to; u++) {
    const REAL score = keys[u] == id ? s[u] * scale : -(REAL)INFINITY;
    s[u] = score;
    most = score > most ? score : most;
  }
  for (int64_t u = seen.to; u < n; u++) s[u] = -(REAL)INFINITY;
  return most;
}

/* s = e^(s - shift); the sum. */
CLONES static double OP(exp_row)(REAL *s, REAL shift, int64_t n)
{
  double piece[KEYS], lane[LANES] = {0};
  SIMD for (int64_t u = 0; u < n; u++)
  {
    s[u] = OP(exp)(s[u] - shift);
    piece[u] = (double)s[u];
  }
  lanes_add(lane, piece, n);
  return lanes_total(lane);
}

CLONES static void OP(scale_row)(REAL *x, REAL factor, int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

/* Queries [q0, q1): o and lse. */
static enum err OP(queries_fwd)(const struct OP(head) *x, int64_t q0, int64_t q1)
{
  REAL tile[QUERIES * KEYS], most[QUERIES];
  double sum[QUERIES];
  const int64_t rows = q1 - q0, first = docs_first_key(x->docs, x->ordered, q0, q1);
  for (int64_t r = 0; r < rows; r++) {
    most[r] = -(REAL)INFINITY;
    sum[r] = 0;
  }
  REAL *o = x->out + q0 * x->o_stride;
  for (int64_t k0 = first; k0 < q1; k0 += KEYS) {
    const int64_t n = q1 - k0 < KEYS ? q1 - k0 : KEYS;
    TRY(OP(matmul)(rows, n, x->D, x->q + q0 * x->stride, x->stride, false, x->k + k0 * x->stride, x->stride, true,
                   false, tile, KEYS));
    for (int64_t r = 0; r < rows; r++) {
      REAL *s = tile + r * KEYS, top = OP(scale_and_mask)(s, x->docs, q0 + r, k0, n, x->scale);
      top = top > most[r] ? top : most[r];
      const bool nothing = top == -(REAL)INFINITY; /* so far: e^(-inf - 0) is 0 */
      const double added = OP(exp_row)(s, nothing ? 0 : top, n);
      const REAL shrink = nothing ? 1 : OP(exp)(most[r] - top);
      if (k0 > first) OP(scale_row)(o + r * x->o_stride, shrink, x->D);
      sum[r] = sum[r] * (double)shrink + added;
      most[r] = top;
    }
    TRY(OP(matmul)(rows, x->D, n, tile, KEYS, false, x->v + k0 * x->stride, x->stride, false, k0 > first, o,
                   x->o_stride));
  }
  for (int64_t r = 0; r < rows; r++) {
    OP(scale_row)(o + r * x->o_stride, (REAL)(1 / sum[r]), x->D);
    x->lse[(q0 + r) * x->lse_stride] = (REAL)((double)most[r] + log(sum[r]));
  }
  return ERR_OK;
}

/* In place: scores s -> p, dp -> ds; 0 where query t does not see. */
CLONES static void OP(weights_and_slopes)(REAL *s, REAL *dp, const int32_t *docs, int64_t t, int64_t k0, int64_t n,
                                          REAL scale, REAL lse, REAL delta)
{
  const struct seen seen = docs_seen(docs, t, k0, n);
  const int32_t id = docs[t], *keys = docs + k0;
  for (int64_t u = 0; u < seen.from; u++) s[u] = dp[u] = 0;
  SIMD for (int64_t u = seen.from; u < seen.to; u++)
  {
    const REAL p = keys[u] == id ? OP(exp)(s[u] * scale - lse) : 0;
    s[u] = p;
    dp[u] = keys[u] == id ? p * (dp[u] - delta) * scale : 0;
  }
  for (int64_t u = seen.to; u < n; u++) s[u] = dp[u] = 0;
}

/* sum(a * b), in double. */
CLONES static double OP(dot)(const REAL *a, const REAL *b, int64_t n)
{
  double piece[PIECE], lane[LANES] = {0};
  for (int64_t c = 0; c < n; c += PIECE) {
    const int64_t m = piece_size(n - c);
    SIMD for (int64_t i = 0; i < m; i++) piece[i] = (double)a[c + i] * (double)b[c + i];
    lanes_add(lane, piece, m);
  }
  return lanes_total(lane);
}

/* Queries [q0, q1): dq written; their part of dk and dv added. */
static enum err OP(queries_bwd)(const struct OP(head) *x, int64_t q0, int64_t q1)
{
  REAL weights[QUERIES * KEYS], slopes[QUERIES * KEYS], delta[QUERIES];
  const int64_t rows = q1 - q0, first = docs_first_key(x->docs, x->ordered, q0, q1), D = x->D;
  const REAL *q = x->q + q0 * x->stride, *d_o = x->d_o + q0 * x->do_stride;
  for (int64_t r = 0; r < rows; r++) delta[r] = (REAL)OP(dot)(d_o + r * x->do_stride, x->o + (q0 + r) * x->o_stride, D);
  for (int64_t k0 = first; k0 < q1; k0 += KEYS) {
    const int64_t n = q1 - k0 < KEYS ? q1 - k0 : KEYS;
    const REAL *k = x->k + k0 * x->stride, *v = x->v + k0 * x->stride;
    TRY(OP(matmul)(rows, n, D, q, x->stride, false, k, x->stride, true, false, weights, KEYS));
    TRY(OP(matmul)(rows, n, D, d_o, x->do_stride, false, v, x->stride, true, false, slopes, KEYS));
    for (int64_t r = 0; r < rows; r++)
      OP(weights_and_slopes)(weights + r * KEYS, slopes + r * KEYS, x->docs, q0 + r, k0, n, x->scale,
                             x->lse[(q0 + r) * x->lse_stride], delta[r]);
    TRY(OP(matmul)(rows, D, n, slopes, KEYS, false, k, x->stride, false, k0 > first, x->dq + q0 * x->d_stride,
                   x->d_stride));
    TRY(OP(matmul)(n, D, rows, slopes, KEYS, true, q, x->stride, false, true, x->dk + k0 * x->d_stride, x->d_stride));
    TRY(OP(matmul)(n, D, rows, weights, KEYS, true, d_o, x->do_stride, false, true, x->dv + k0 * x->d_stride,
                   x->d_stride));
  }
  return ERR_OK;
}

static enum err OP(head_run)(const struct OP(head) *x, bool backward)
{
  for (int64_t t = 0; backward && t < x->T; t++) {
    memset(x->dk + t * x->d_stride, 0, (size_t)x->D * sizeof(REAL));
    memset(x->dv + t * x->d_stride, 0, (size_t)x->D * sizeof(REAL));
  }
  for (int64_t q0 = 0; q0 < x->T; q0 += QUERIES) {
    const int64_t q1 = q0 + QUERIES < x->T ? q0 + QUERIES : x->T;
    TRY(backward ? OP(queries_bwd)(x, q0, q1) : OP(queries_fwd)(x, q0, q1));
  }
  return ERR_OK;
}
