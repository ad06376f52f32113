/* attention_test.c - the contract of attention, against the formula written out. */
#include "ops/op_trial.h"

/* trial.number is the number of heads. */
static enum err call_fwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_attention_fwd(s, &t[0], &t[1], &t[2], &t[3], x->number);
}
static enum err call_bwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_attention_bwd(s, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], x->number);
}

/* How document ids lie in a sequence. */
static void one_document(const struct tensor *t, uint32_t seed)
{
  (void)seed;
  for (int64_t b = 0; b < t->rows; b++)
    for (int64_t c = 0; c < t->cols; c++) put(t, b, c, 5);
}
static void runs_then_padding(const struct tensor *t, uint32_t seed)
{
  (void)seed;
  for (int64_t b = 0; b < t->rows; b++)
    for (int64_t c = 0; c < t->cols; c++)
      put(t, b, c, c >= t->cols - t->cols / 5 ? -1 : (double)(c / (3 + 40 * b) + b));
}
static void any_ids(const struct tensor *t, uint32_t seed) /* 0 .. 6 less 1: out of order, padding between */
{
  fill_seeded(t, seed);
  for (int64_t b = 0; b < t->rows; b++)
    for (int64_t c = 0; c < t->cols; c++) put(t, b, c, get(t, b, c) - 1);
}
/* Ids from 0 on: runs that end inside of a block of queries, and two documents that take turns. */
static void long_runs(const struct tensor *t, uint32_t seed)
{
  (void)seed;
  for (int64_t i = 0; i < tensor_count(t); i++) put(t, i / t->cols, i % t->cols, (double)(i % t->cols / 100));
}
static void two_in_turn(const struct tensor *t, uint32_t seed)
{
  (void)seed;
  for (int64_t i = 0; i < tensor_count(t); i++) put(t, i / t->cols, i % t->cols, (double)(i % t->cols % 2));
}
static void (*const layouts[])(const struct tensor *, uint32_t) = {one_document, runs_then_padding, any_ids, long_runs,
                                                                   two_in_turn};
enum { LAYOUTS = 5 };

static struct trial fwd(int64_t B, int64_t T, int heads, int64_t D, int layout)
{
  const int64_t N = B * T, C = heads * D;
  return (struct trial){.name = "attention_fwd",
                        .call = call_fwd,
                        .number = heads,
                        .n = 4,
                        .operand = {{"o", TRIAL_OUT, TRIAL_REAL, N, C},
                                    {"lse", TRIAL_OUT, TRIAL_STATE, N, heads},
                                    {"qkv", TRIAL_IN, TRIAL_REAL, N, 3 * C},
                                    {"docs", TRIAL_IN, DTYPE_I32, B, T, layouts[layout]}}};
}
/* lse is seeded, not a forward's: the bits of the backward do not ask where it is from. */
static struct trial bwd(int64_t B, int64_t T, int heads, int64_t D, int layout)
{
  const int64_t N = B * T, C = heads * D;
  return (struct trial){.name = "attention_bwd",
                        .call = call_bwd,
                        .number = heads,
                        .n = 6,
                        .operand = {{"dqkv", TRIAL_OUT, TRIAL_REAL, N, 3 * C},
                                    {"d_o", TRIAL_IN, TRIAL_REAL, N, C},
                                    {"o", TRIAL_IN, TRIAL_REAL, N, C},
                                    {"lse", TRIAL_IN, TRIAL_STATE, N, heads},
                                    {"qkv", TRIAL_IN, TRIAL_REAL, N, 3 * C},
                                    {"docs", TRIAL_IN, DTYPE_I32, B, T, layouts[layout]}}};
}

static const struct {
  int64_t B, T;
  int heads;
  int64_t D;
} sizes[] = {{1, 1, 1, 1},  {2, 3, 1, 3},  {2, 17, 3, 4},  {1, 33, 2, 17},
             {2, 64, 1, 8}, {2, 65, 2, 4}, {1, 330, 2, 8}, {1, 3, 1, 515}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void bits_depend_on_the_inputs_alone(void)
{
  for (int layout = 0; layout < LAYOUTS; layout++)
    for (int i = 0; i < SIZES; i++) {
      const struct trial a = fwd(sizes[i].B, sizes[i].T, sizes[i].heads, sizes[i].D, layout);
      const struct trial b = bwd(sizes[i].B, sizes[i].T, sizes[i].heads, sizes[i].D, layout);
      trial_same_bits(&a);
      trial_same_bits(&b);
    }
}

static void what_it_touches_is_declared(void)
{
  const struct trial a = fwd(2, 3, 2, 2, 1), b = bwd(2, 3, 2, 2, 1);
  trial_declares(&a);
  trial_declares(&b);
}

static void wrong_shapes_are_refused(void)
{
  const struct trial a = fwd(2, 3, 2, 2, 1), b = bwd(2, 3, 2, 2, 1);
  trial_refuses(&a);
  trial_refuses(&b);
}

/* o and lse of one head from the formula, with the whole T x T matrix; p too. */
static void plain(const struct tensor *qkv, const struct tensor *docs, int64_t b, int heads, int h, double *o,
                  double *lse, double *p)
{
  const int64_t T = docs->cols, C = qkv->cols / 3, D = C / heads;
  for (int64_t t = 0; t < T; t++) {
    const double id = get(docs, b, t);
    double sum = 0;
    for (int64_t u = 0; u < T; u++) {
      double s = 0;
      for (int64_t d = 0; d < D; d++) s += get(qkv, b * T + t, h * D + d) * get(qkv, b * T + u, C + h * D + d);
      const bool sees = u == t || (u < t && id >= 0 && get(docs, b, u) == id);
      p[t * T + u] = sees ? exp(s / sqrt((double)D)) : 0;
      sum += p[t * T + u];
    }
    lse[t] = log(sum);
    for (int64_t d = 0; d < D; d++) o[t * D + d] = 0;
    for (int64_t u = 0; u < T; u++) {
      p[t * T + u] /= sum;
      for (int64_t d = 0; d < D; d++) o[t * D + d] += p[t * T + u] * get(qkv, b * T + u, 2 * C + h * D + d);
    }
  }
}

static void forward_is_the_formula(void)
{
  for (int layout = 0; layout < LAYOUTS; layout++)
    for (int i = 0; i < SIZES; i++) {
      const int64_t B = sizes[i].B, T = sizes[i].T, D = sizes[i].D;
      const int heads = sizes[i].heads;
      struct arena a;
      struct tensor t[TRIAL_OPERANDS];
      const struct trial x = fwd(B, T, heads, D, layout);
      arena_open(&a);
      trial_tensors(&x, DTYPE_F64, 0, 0, &a, t);
      trial_run(&x, DEV_CPU, 2, t);
      double *o = malloc((size_t)(T * D) * sizeof *o), *lse = malloc((size_t)T * sizeof *lse),
             *p = malloc((size_t)(T * T) * sizeof *p);
      double worst = 0;
      for (int64_t b = 0; b < B; b++)
        for (int h = 0; h < heads; h++) {
          plain(&t[2], &t[3], b, heads, h, o, lse, p);
          for (int64_t n = 0; n < T; n++) {
            worst = fmax(worst, fabs(lse[n] - get(&t[1], b * T + n, h)));
            for (int64_t d = 0; d < D; d++) worst = fmax(worst, fabs(o[n * D + d] - get(&t[0], b * T + n, h * D + d)));
          }
        }
      CHECK_NEAR(worst, 0, 4e-15);
      free(o);
      free(lse);
      free(p);
      arena_close(&a);
    }
}

/* The backward of attention.c's header with the whole p, for sequences of several blocks. */
static void backward_is_the_formula(void)
{
  for (int layout = 0; layout < LAYOUTS; layout++)
    for (int i = 0; i < SIZES; i++) {
      const int64_t B = sizes[i].B, T = sizes[i].T, D = sizes[i].D, C = sizes[i].heads * D;
      const int heads = sizes[i].heads;
      const double scale = 1 / sqrt((double)D);
      struct arena a;
      struct tensor f[TRIAL_OPERANDS], x[TRIAL_OPERANDS];
      const struct trial forward = fwd(B, T, heads, D, layout), back = bwd(B, T, heads, D, layout);
      arena_open(&a);
      trial_tensors(&forward, DTYPE_F64, 0, 0, &a, f);
      trial_tensors(&back, DTYPE_F64, 0, 0, &a, x);
      trial_run(&forward, DEV_CPU, 1, f);
      x[2] = f[0], x[3] = f[1], x[4] = f[2], x[5] = f[3];
      trial_run(&back, DEV_CPU, 2, x);
      const struct tensor want = arena_tensor(&a, DTYPE_F64, B * T, 3 * C, 0, 0);
      for (int64_t n = 0; n < B * T; n++)
        for (int64_t c = 0; c < 3 * C; c++) put(&want, n, c, 0);
      double *o = malloc((size_t)(T * D) * sizeof *o), *lse = malloc((size_t)T * sizeof *lse),
             *p = malloc((size_t)(T * T) * sizeof *p);
      for (int64_t b = 0; b < B; b++)
        for (int h = 0; h < heads; h++) {
          plain(&f[2], &f[3], b, heads, h, o, lse, p);
          const int64_t q = h * D, k = C + q, v = 2 * C + q;
          for (int64_t t = 0; t < T; t++) {
            double delta = 0;
            for (int64_t d = 0; d < D; d++) delta += get(&x[1], b * T + t, q + d) * o[t * D + d];
            for (int64_t u = 0; u <= t; u++) {
              double dp = 0;
              for (int64_t d = 0; d < D; d++) dp += get(&x[1], b * T + t, q + d) * get(&f[2], b * T + u, v + d);
              const double pu = p[t * T + u], ds = pu * (dp - delta) * scale;
              for (int64_t d = 0; d < D; d++) {
                put(&want, b * T + u, v + d, get(&want, b * T + u, v + d) + pu * get(&x[1], b * T + t, q + d));
                put(&want, b * T + t, q + d, get(&want, b * T + t, q + d) + ds * get(&f[2], b * T + u, k + d));
                put(&want, b * T + u, k + d, get(&want, b * T + u, k + d) + ds * get(&f[2], b * T + t, q + d));
              }
            }
          }
        }
      CHECK_NEAR(distance(&x[0], &want), 0, 8e-15);
      free(o);
      free(lse);
      free(p);
      arena_close(&a);
    }
}

static void backward_matches_central_differences(void)
{
  for (int layout = 0; layout < LAYOUTS; layout++)
    for (int long_one = 0; long_one < (rig_on_cuda() ? 1 : 2); long_one++) { /* 420 forwards take long there */
      struct arena a;
      struct tensor f[TRIAL_OPERANDS], x[TRIAL_OPERANDS];
      const int64_t B = long_one ? 1 : 2, T = long_one ? 70 : 9;
      const int heads = long_one ? 1 : 2;
      const struct trial forward = fwd(B, T, heads, 3, layout), back = bwd(B, T, heads, 3, layout);
      arena_open(&a);
      trial_tensors(&forward, DTYPE_F64, 2, 0, &a, f);
      trial_run(&forward, DEV_CPU, 1, f);
      trial_tensors(&back, DTYPE_F64, 2, 0, &a, x);
      x[2] = f[0], x[3] = f[1], x[4] = f[2], x[5] = f[3];
      trial_run(&back, DEV_CPU, 1, x);
      trial_slope(&forward, f, 0, &x[1], 2, &x[0], 1e-9);
      arena_close(&a);
    }
}

/* Gradients of a key or value that nobody else sees come from its own row alone: across documents they are 0. */
static void documents_do_not_meet(void)
{
  struct arena a;
  struct tensor t[TRIAL_OPERANDS], again[TRIAL_OPERANDS];
  const struct trial x = fwd(1, 300, 2, 4, 1);
  arena_open(&a);
  trial_tensors(&x, DTYPE_F32, 0, 0, &a, t);
  trial_tensors(&x, DTYPE_F32, 0, 0, &a, again);
  for (int64_t c = 0; c < 24; c++) put(&again[2], 150, c, 1e6); /* ids are c / 3: rows 150, 151, 152 are a document */
  trial_run(&x, DEV_CPU, 1, t);
  trial_run(&x, DEV_CPU, 1, again);
  for (int64_t n = 0; n < 300; n++)
    CHECK((memcmp(tensor_row(&t[0], n), tensor_row(&again[0], n), 8 * sizeof(float)) != 0) == (n >= 150 && n < 153));
  arena_close(&a);
}

/* A tensor core takes weights and slopes in the work type: one rounding of each, 2^-9 (bf16) or 2^-12 (f16) of a sum of their
 * magnitudes times values below 1; the weights of a row add up to 1, and backward several rows meet (worst seen, of both types: 0.55 of the 1
 * forward, 0.97 of the 3 backward). */
static void near(const struct trial *x, enum dtype type, double units, double rounded)
{
  const double left = !rig_on_cuda() ? 0 : type == DTYPE_BF16 ? 0x1p15 : type == DTYPE_F16 ? 0x1p12 : 0;
  trial_rounding_as(x, type, units + rounded * left);
}

/* Scores of size sqrt(D) / 3; sums of at most 330 terms, in double for the weights and in blocks for the values. */
static void float32_is_as_near_as_its_roundings(void)
{
  for (int layout = 0; layout < LAYOUTS; layout++)
    for (int i = 0; i < SIZES; i++) {
      const struct trial a = fwd(sizes[i].B, sizes[i].T, sizes[i].heads, sizes[i].D, layout);
      const struct trial b = bwd(sizes[i].B, sizes[i].T, sizes[i].heads, sizes[i].D, layout);
      for (int type = DTYPE_F32; type <= DTYPE_F16; type++) { /* the types that are not wider */
        near(&a, (enum dtype)type, 24, 1);
        near(&b, (enum dtype)type, 48, 3);
      }
    }
}

/* In bf16 and f16 each head size of the models, and sizes between: on CUDA each shape of the tensor core kernels, with several
 * tiles of queries and keys, whole and masked, within reach of a document and out of it. */
static void heads_of_models_are_as_near_as_their_roundings(void)
{
  static const struct {
    int64_t T, D;
  } each[] = {{200, 16}, {140, 24}, {200, 64}, {135, 96}, {140, 128}, {70, 160}};
  static const int in_use[] = {0, 3};
  for (size_t l = 0; l < sizeof in_use / sizeof *in_use; l++)
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
      struct trial a = fwd(1, each[i].T, 1, each[i].D, in_use[l]), b = bwd(1, each[i].T, 1, each[i].D, in_use[l]);
      a.narrow_only = b.narrow_only = true;
      for (int type = DTYPE_BF16; type <= DTYPE_F16; type++) {
        near(&a, (enum dtype)type, 24, 1);
        near(&b, (enum dtype)type, 48, 3);
      }
      if (in_use[l] == 0 && rig_on_cuda()) trial_same_bits(&a);
      if (in_use[l] == 0 && rig_on_cuda()) trial_same_bits(&b);
    }
}

/* Documents of 100 positions: a tile without a key, or a query, that its rows see is left out, so that not even NaN in
 * it reaches them.  Rows 0 .. 63 are NaN for those that come after, rows 256 .. 299 for those before. */
static void tiles_that_nobody_sees_are_not_read(void)
{
  for (int type = 0; type < REALS; type++)
    for (int after = 0; after < 2; after++) {
      struct arena a;
      struct tensor f[TRIAL_OPERANDS], x[TRIAL_OPERANDS];
      const struct trial forward = fwd(1, 300, 1, 8, 3), back = bwd(1, 300, 1, 8, 3);
      const int64_t bad = after ? 0 : 256, bad_end = after ? 64 : 300, good = after ? 200 : 0;
      arena_open(&a);
      trial_tensors(&forward, reals[type], 0, 0, &a, f);
      trial_tensors(&back, reals[type], 0, 0, &a, x);
      for (int64_t n = bad; n < bad_end; n++) {
        for (int64_t c = 0; c < 24; c++) put(&f[2], n, c, NAN);
        for (int64_t c = 0; c < 8; c++) put(&x[1], n, c, NAN);
      }
      trial_run(&forward, DEV_CPU, 1, f);
      x[2] = f[0], x[3] = f[1], x[4] = f[2], x[5] = f[3];
      trial_run(&back, DEV_CPU, 1, x);
      const struct tensor *o = &f[0], *dqkv = &x[0];
      const struct tensor seen[] = {tensor_part(o, good, 100, 0, 8), tensor_part(dqkv, good, 100, 0, 24),
                                    tensor_part(o, bad, bad_end - bad, 0, 8),
                                    tensor_part(dqkv, bad, bad_end - bad, 0, 24)};
      CHECK(all_finite(&seen[0]) && all_finite(&seen[1]));
      CHECK(isnan(get(&seen[2], 0, 0)) && isnan(get(&seen[3], 0, 0)));
      arena_close(&a);
    }
}

/* More rows than the workspace of a stream has statistics for: the last sequence, alone, gives the same bits. */
static void sequences_are_their_own_however_many_there_are(void)
{
  enum { T = 2, HEADS = 64, D = 2, C = HEADS * D };
  const int64_t B = rig_on_gpu() ? 260 : rig_on_cuda() ? 17 : 3; /* of 32 MiB, of 2 MiB; a CPU needs none */
  const struct trial many = bwd(B, T, HEADS, D, 0), one = bwd(1, T, HEADS, D, 0);
  struct arena a;
  struct tensor all[TRIAL_OPERANDS], last[TRIAL_OPERANDS];
  arena_open(&a);
  trial_tensors(&many, DTYPE_F64, 0, 0, &a, all);
  trial_tensors(&one, DTYPE_F64, 0, 0, &a, last);
  for (int i = 1; i < one.n; i++) /* the same values, by rows from the end */
    for (int64_t r = 0; r < last[i].rows; r++)
      for (int64_t c = 0; c < last[i].cols; c++) put(&last[i], r, c, get(&all[i], all[i].rows - last[i].rows + r, c));
  trial_run(&many, DEV_CPU, 1, all);
  trial_run(&one, DEV_CPU, 1, last);
  const struct tensor end = tensor_part(&all[0], (B - 1) * T, T, 0, 3 * C);
  CHECK(all_finite(&end) && same_bits(&end, &last[0]));
  arena_close(&a);
}

static void fewer_threads_than_asked_for_are_refused(void)
{
  const struct trial a = fwd(1, 9, 2, 3, 0), b = bwd(1, 9, 2, 3, 0);
  trial_needs_its_threads(&a);
  trial_needs_its_threads(&b);
}

/* Large scores overflow nothing: the largest key wins alone. */
static void large_scores_are_safe(void)
{
  for (int type = 0; type < REALS; type++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    const struct trial x = fwd(1, 4, 1, 2, 0);
    arena_open(&a);
    trial_tensors(&x, reals[type], 0, 0, &a, t);
    for (int64_t n = 0; n < 4; n++)
      for (int64_t c = 0; c < 6; c++) put(&t[2], n, c, c < 2 ? 300.0 : c < 4 ? (n == 1 ? 300.0 : -300.0) : (double)n);
    trial_run(&x, DEV_CPU, 1, t);
    CHECK_NEAR(get(&t[0], 0, 0), 0, 0);
    for (int64_t n = 1; n < 4; n++) CHECK_NEAR(get(&t[0], n, 0), 1, 0);
    CHECK(all_finite(&t[1]));
    arena_close(&a);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(bits_depend_on_the_inputs_alone),
      TEST(what_it_touches_is_declared),
      TEST(wrong_shapes_are_refused),
      TEST(forward_is_the_formula),
      TEST(backward_matches_central_differences),
      TEST(documents_do_not_meet),
      TEST(tiles_that_nobody_sees_are_not_read),
      TEST(backward_is_the_formula),
      TEST(large_scores_are_safe),
      TEST(sequences_are_their_own_however_many_there_are),
      TEST(fewer_threads_than_asked_for_are_refused),
      TEST(float32_is_as_near_as_its_roundings),
      TEST(heads_of_models_are_as_near_as_their_roundings),
  };
  return test_main("attention", tests, sizeof tests / sizeof *tests);
}
