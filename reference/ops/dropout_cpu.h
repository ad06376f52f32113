/* dropout_cpu.h - kernels of dropout.c for one element type. */

/* y may be x: an element is read before it is written. */
CLONES static void OP(drop_piece)(X *y, const X *x, const uint32_t *words, uint32_t threshold, REAL scale,
                                  int64_t n)
{
  SIMD for (int64_t i = 0; i < n; i++) y[i] = STORE(words[i] >= threshold ? LOAD(x[i]) * scale : 0);
}

static enum err OP(op_dropout)(void *args)
{
  const struct dropout_args *d = args;
  struct rng_key key = d->key;
  key.step = (uint32_t) * (const int32_t *)d->step.at;
  const int64_t C = d->x.cols;
#pragma omp parallel for schedule(static) if (tensor_count(&d->x) >= PARALLEL_FROM)
  for (int64_t n = 0; n < d->x.rows; n++) {
    const int64_t global = d->row0 + n, sample = *(const int32_t *)tensor_row(&d->samples, global / d->T);
    const uint64_t row = (uint64_t)(sample * d->positions_max + global % d->T) * (uint64_t)C;
    X *y = (X *)tensor_row(&d->y, n);
    const X *x = (const X *)tensor_row(&d->x, n);
    for (int64_t c = 0; c < C; c += PIECE) {
      const int64_t count = piece_size(C - c);
      const uint64_t word = row + (uint64_t)c, skip = word % 4;
      uint32_t words[4 * BLOCKS];
      draw_blocks(key, word / 4, ((int64_t)skip + count + 3) / 4, words);
      OP(drop_piece)(y + c, x + c, words + skip, d->threshold, (REAL)d->scale, count);
    }
  }
  return ERR_OK;
}
