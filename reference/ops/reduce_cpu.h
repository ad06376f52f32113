/* reduce_cpu.h - kernels of reduce.c for one element type. */

CLONES static double OP(chunk_sum)(const X *x, int64_t n)
{
  double piece[PIECE], lane[LANES] = {0};
  for (int64_t k = 0; k < n; k += PIECE) {
    const int64_t m = piece_size(n - k);
    SIMD for (int64_t i = 0; i < m; i++) piece[i] = (double)LOAD(x[k + i]);
    lanes_add(lane, piece, m);
  }
  return lanes_total(lane);
}

CLONES static double OP(chunk_sum_squares)(const X *x, int64_t n)
{
  double piece[PIECE], lane[LANES] = {0};
  for (int64_t k = 0; k < n; k += PIECE) {
    const int64_t m = piece_size(n - k);
    SIMD for (int64_t i = 0; i < m; i++) piece[i] = (double)LOAD(x[k + i]) * (double)LOAD(x[k + i]);
    lanes_add(lane, piece, m);
  }
  return lanes_total(lane);
}

/* Without its sign bit a number orders like an integer, and every NaN is above infinity. */
CLONES static double OP(chunk_max_abs)(const X *x, int64_t n)
{
  OP(bits) lane[LANES] = {0};
  const OP(bits) no_sign = (OP(bits)) ~((OP(bits))1 << (8 * sizeof(X) - 1));
  int64_t i = 0;
  for (; i < n; i += LANES) {
    OP(bits) b[LANES] = {0};
    memcpy(b, x + i, (size_t)(n - i < LANES ? n - i : LANES) * sizeof(X));
    SIMD for (int l = 0; l < LANES; l++)
    {
      const OP(bits) size = b[l] & no_sign;
      lane[l] = size > lane[l] ? size : lane[l];
    }
  }
  OP(bits) most = 0;
  for (int l = 0; l < LANES; l++) most = lane[l] > most ? lane[l] : most;
  X value;
  memcpy(&value, &most, sizeof value);
  return (double)LOAD(value);
}

/* The sums of chunks first .. first + n into part[]. */
static void OP(chunks)(double part[BATCH], const struct tensor *x, int64_t first, int64_t n,
                       double (*of_chunk)(const X *, int64_t))
{
  const int64_t count = tensor_count(x);
#pragma omp parallel for schedule(static) if (n * CHUNK >= PARALLEL_FROM)
  for (int64_t k = 0; k < n; k++) {
    X room[CHUNK];
    const int64_t start = (first + k) * CHUNK, size = count - start < CHUNK ? count - start : CHUNK;
    part[k] = of_chunk(row_order(x, start, size, room), size);
  }
}

static enum err OP(reduce)(const struct reduce_args *a, double (*of_chunk)(const X *, int64_t), bool largest)
{
  const int64_t chunks = (tensor_count(&a->x) + CHUNK - 1) / CHUNK;
  double total = 0;
  for (int64_t first = 0; first < chunks; first += BATCH) {
    double part[BATCH];
    const int64_t n = chunks - first < BATCH ? chunks - first : BATCH;
    OP(chunks)(part, &a->x, first, n, of_chunk);
    for (int64_t k = 0; k < n; k++) {
      if (!largest)
        total += part[k];
      else if (isnan(part[k]) || part[k] > total) /* a NaN stays: nothing is above it */
        total = part[k];
    }
  }
  *(double *)a->out.at = total;
  return ERR_OK;
}

static enum err OP(op_sum)(void *args) { return OP(reduce)(args, OP(chunk_sum), false); }
static enum err OP(op_sum_squares)(void *args) { return OP(reduce)(args, OP(chunk_sum_squares), false); }
static enum err OP(op_max_abs)(void *args) { return OP(reduce)(args, OP(chunk_max_abs), true); }
