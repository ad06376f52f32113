/* ops_across_cuda_test.c - every operation on the CPU against the same on a CUDA device, from the same inputs.
 *
 * Where both compute an element from the same numbers with the same roundings, or promise bits, bits are demanded;
 * elsewhere a bound that follows from how many roundings there are.  In units of the state type's roundoff, 2^-24 or
 * 2^-53, of the largest of the output; a bfloat16 output may also be the neighbour, 2^-7 of itself.
 */
#include "ops/op_trial.h"

/* units 0: bits. */
struct across {
  struct trial x;
  double units;
  double coarse; /* more in bfloat16, relative: what the tensor cores and the short exponential round to; in f16 an eighth */
  bool wide;     /* computed in double whatever the types                                               */
};

static const struct op_adamw rule = {0.9, 0.95, 1e-8, 0.1};
static const struct rng_key key = {0x123456789abcdefu, RNG_DROPOUT + 5, 0};

#define CALL(name, call)                                                                    \
  static enum err name(struct dev_stream *s, const struct tensor *t, const struct trial *x) \
  {                                                                                         \
    (void)x;                                                                                \
    return call;                                                                            \
  }
CALL(fill, op_fill(s, &t[0], 0.3))
CALL(copy, op_copy(s, &t[0], &t[1]))
CALL(add, op_add(s, &t[0], &t[1], &t[2]))
CALL(accumulate, op_accumulate(s, &t[0], &t[1]))
CALL(scale, op_scale(s, &t[0], &t[1], &t[2]))
CALL(bias, op_bias_fwd(s, &t[0], &t[1]))
CALL(matmul, op_matmul(s, &t[0], &t[1], x->number & 1, &t[2], x->number & 2, x->number & 4))
CALL(linear_fwd, op_linear_fwd(s, &t[0], &t[1], &t[2], &t[3], x->number))
CALL(linear_bwd_x, op_linear_bwd_x(s, &t[0], &t[1], &t[2], x->number))
CALL(linear_bwd_w, op_linear_bwd_w(s, &t[0], &t[1], &t[2], &t[3], x->number))
CALL(embedding_fwd, op_embedding_fwd(s, &t[0], &t[1], &t[2], x->first, x->number))
CALL(embedding_bwd, op_embedding_bwd_w(s, &t[0], &t[1], &t[2], x->first, x->number))
CALL(position_fwd, op_position_fwd(s, &t[0], &t[1], &t[2], x->first))
CALL(position_bwd, op_position_bwd_w(s, &t[0], &t[1], &t[2], x->first))
CALL(layernorm_fwd, op_layernorm_fwd(s, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], 1e-5))
CALL(layernorm_bwd_x, op_layernorm_bwd_x(s, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5]))
CALL(layernorm_bwd_w, op_layernorm_bwd_w(s, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5]))
CALL(attention_fwd, op_attention_fwd(s, &t[0], &t[1], &t[2], &t[3], x->number))
CALL(attention_bwd, op_attention_bwd(s, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], x->number))
CALL(gelu_fwd, op_gelu_fwd(s, &t[0], &t[1]))
CALL(gelu_bwd, op_gelu_bwd(s, &t[0], &t[1], &t[2]))
CALL(dropout, op_dropout(s, &t[0], &t[1], 0.3, key, &t[2], &t[3], 700, x->number, x->first))
CALL(entropy_fwd, op_cross_entropy_fwd(s, &t[0], &t[1], &t[2], &t[3]))
CALL(entropy_max, op_cross_entropy_max(s, &t[0], &t[1], x->number))
CALL(entropy_sums, op_cross_entropy_sums(s, &t[0], &t[1], &t[2], &t[3], x->first, x->number))
CALL(entropy_join, op_cross_entropy_join(s, &t[0], &t[1], &t[2], &t[3], &t[4], x->number))
CALL(entropy_bwd, op_cross_entropy_bwd(s, &t[0], &t[1], &t[2], &t[3], &t[4], x->first, x->number))
CALL(sum, op_sum(s, &t[0], &t[1]))
CALL(sum_squares, op_sum_squares(s, &t[0], &t[1]))
CALL(max_abs, op_max_abs(s, &t[0], &t[1]))
CALL(hash, op_hash(s, &t[0], &t[1]))
CALL(reciprocal, op_reciprocal(s, &t[0], &t[1]))
CALL(clip, op_clip_factor(s, &t[0], &t[1], &t[2], 0.3))
CALL(adamw, op_adamw(s, &t[0], NULL, &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], NULL, &rule))
CALL(adamw_rounded, op_adamw(s, &t[0], &t[7], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], NULL, &rule))
CALL(sgd, op_sgd(s, &t[0], NULL, &t[1], &t[2], &t[3], NULL, 0.1))
CALL(sgd_rounded, op_sgd(s, &t[0], &t[4], &t[1], &t[2], &t[3], NULL, 0.1))

/* --- inputs ---------------------------------------------------------------------------------- */

static void one_to_seven(const struct tensor *t, uint32_t seed) { put(t, 0, 0, seed % 7 + 1); }
static void up_to_ten(const struct tensor *t, uint32_t seed)
{
  fill_seeded(t, seed);
  for (int64_t i = 0; i < tensor_count(t); i++) put(t, i / t->cols, i % t->cols, 10 * get(t, i / t->cols, i % t->cols));
}
static void documents(const struct tensor *t, uint32_t seed) /* of 5 positions, the last fifth padding */
{
  (void)seed;
  for (int64_t i = 0; i < tensor_count(t); i++)
    put(t, i / t->cols, i % t->cols, i % t->cols >= t->cols - t->cols / 5 ? -1 : (double)(i % t->cols / 5));
}
static void some_ignored(const struct tensor *t, uint32_t seed) /* none from 5 on */
{
  (void)seed;
  for (int64_t i = 0; i < tensor_count(t); i++) put(t, i / t->cols, i % t->cols, i % 3 == 1 ? -1 : (double)(i % 5));
}

/* --- the list ----------------------------------------------------------------------------------- */

enum { X = TRIAL_REAL, S = TRIAL_STATE, I32 = DTYPE_I32, F64 = DTYPE_F64, CASES = 80 };
#define IN TRIAL_IN
#define OUT TRIAL_OUT
#define INOUT TRIAL_INOUT
/* Of one call: operands as {name, role, type, rows, columns, values}. */
#define OF(call_, units_, ...) .x = {.name = #call_, .call = call_, .operand = {__VA_ARGS__}}, .units = (units_)
#define CASE(...) out[n++] = counted((struct across){__VA_ARGS__})

static struct trial_operand operand(const char *name, enum trial_role role, int type, int64_t rows, int64_t cols,
                                    void (*values)(const struct tensor *, uint32_t))
{
  return (struct trial_operand){.name = name, .role = role, .type = type, .rows = rows, .cols = cols, .fill = values};
}
static struct across counted(struct across c)
{
  while (c.x.n < TRIAL_OPERANDS && c.x.operand[c.x.n].name != NULL) c.x.n++;
  return c;
}

/* N = B T rows of C columns; a vocabulary of V >= 7. */
static int elementwise_cases(struct across *out, int64_t N, int64_t C)
{
  static const int types[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16, DTYPE_F16};
  int n = 0;
  CASE(OF(fill, 0, {"y", OUT, X, N, C}));
  CASE(OF(add, 0, {"y", OUT, X, N, C}, {"a", IN, X, N, C}, {"b", IN, X, N, C}));
  CASE(OF(accumulate, 0, {"y", INOUT, X, N, C}, {"x", IN, X, N, C}));
  CASE(OF(scale, 0, {"y", OUT, X, N, C}, {"x", IN, X, N, C}, {"factor", IN, S, 1, 1}));
  CASE(OF(scale, 0, {"y", OUT, X, N, C}, {"x", IN, X, N, C}, {"factor", IN, F64, 1, 1}));
  CASE(OF(bias, 0, {"y", INOUT, X, N, C}, {"b", IN, X, 1, C}));
  CASE(OF(gelu_fwd, 12, {"y", OUT, X, N, C}, {"x", IN, X, N, C, up_to_ten}), .coarse = 0x1p-15);
  CASE(OF(gelu_bwd, 20, {"dx", OUT, X, N, C}, {"dy", IN, X, N, C}, {"x", IN, X, N, C, up_to_ten}), .coarse = 0x1p-15);
  for (int to = 0; to < 4; to++)
    for (int from = 0; from < 4; from++) {
      CASE(OF(copy, 0, {"y", OUT, types[to], N, C}, {"x", IN, types[from], N, C}));
      out[n - 1].x.narrow_only = true; /* once */
    }
  CASE(OF(copy, 0, {"y", OUT, I32, N, C}, {"x", IN, I32, N, C}));
  CASE(OF(reciprocal, 0, {"y", OUT, F64, 1, 1}, {"x", IN, F64, 1, 1}));
  CASE(OF(clip, 2, {"factor", OUT, F64, 1, 1}, {"norm", OUT, F64, 1, 1}, {"squares", IN, F64, 1, 1, fill_positive}),
       .wide = true);
  return n;
}

static int whole_tensor_cases(struct across *out, int64_t N, int64_t C)
{
  int n = 0;
  const struct trial_operand one = operand("out", OUT, F64, 1, 1, NULL), x = operand("x", IN, X, N, C, NULL),
                             w = operand("w", INOUT, S, N, C, NULL), m = operand("m", INOUT, S, N, C, NULL),
                             v = operand("v", INOUT, S, N, C, fill_positive), g = operand("g", IN, S, N, C, NULL),
                             lr = operand("lr", IN, F64, 1, 1, fill_positive),
                             t = operand("t", IN, DTYPE_I64, 1, 1, one_to_seven),
                             factor = operand("factor", IN, F64, 1, 1, fill_positive),
                             rounded = operand("rounded", OUT, X, N, C, NULL);
  CASE(OF(sum, 4.0 * (double)(N * C), one, x), .wide = true); /* signs cancel, to the root of their number */
  CASE(OF(sum_squares, 4.0 * (double)(N * C), one, x), .wide = true);
  CASE(OF(max_abs, 0, one, x));
  CASE(OF(hash, 0, {"out", OUT, DTYPE_I64, 1, 1}, x));
  CASE(OF(hash, 0, {"out", OUT, DTYPE_I64, 1, 1}, {"x", IN, I32, N, C}));
  CASE(OF(adamw, 32, w, m, v, g, lr, t, factor));
  CASE(OF(adamw_rounded, 32, w, m, v, g, lr, t, factor, rounded));
  out[n - 1].x.narrow_only = true;
  CASE(OF(sgd, 12, w, g, lr, factor));
  CASE(OF(sgd_rounded, 12, w, g, lr, factor, rounded));
  out[n - 1].x.narrow_only = true;
  return n;
}

static int row_cases(struct across *out, int64_t B, int64_t T, int64_t C)
{
  const int64_t N = B * T, V = 9, row0 = N / 2;
  int n = 0;
  const struct trial_operand x = operand("x", IN, X, N, C, NULL), dy = operand("dy", IN, X, N, C, NULL),
                             w = operand("w", IN, X, 1, C, NULL), mean = operand("mean", IN, S, N, 1, NULL),
                             rstd = operand("rstd", IN, S, N, 1, fill_positive),
                             tokens = operand("tokens", IN, I32, B, T, NULL);
  /* A row's sums: a warp adds C / 32 terms a lane, the CPU all of them in double. */
  const double of_row = 16 + (double)C / 32, of_rows = 16 + (double)N / 8;
  CASE(OF(layernorm_fwd, of_row, {"y", OUT, X, N, C}, {"mean", OUT, S, N, 1}, {"rstd", OUT, S, N, 1}, x, w,
          {"b", IN, X, 1, C}));
  CASE(OF(layernorm_bwd_x, of_row, {"dx", OUT, X, N, C}, dy, x, w, mean, rstd));
  CASE(OF(layernorm_bwd_w, of_rows, {"dw", INOUT, S, 1, C}, {"db", INOUT, S, 1, C}, dy, x, mean, rstd));
  CASE(OF(embedding_fwd, 0, {"y", OUT, X, N, C}, {"wte", IN, X, V, C}, tokens));
  out[n - 1].x.number = V;
  CASE(OF(embedding_bwd, 0, {"dwte", INOUT, S, V, C}, dy, tokens));
  out[n - 1].x.number = V;
  CASE(OF(embedding_fwd, 0, {"y", OUT, X, N, C}, {"wte", IN, X, 3, C}, tokens)); /* rows 2, 3, 4 of the table */
  out[n - 1].x.number = V, out[n - 1].x.first = 2;
  CASE(OF(embedding_bwd, 0, {"dwte", INOUT, S, 3, C}, dy, tokens));
  out[n - 1].x.number = V, out[n - 1].x.first = 2;
  CASE(OF(position_fwd, 0, {"y", INOUT, X, N - row0, C}, {"wpe", IN, X, V, C}, tokens));
  out[n - 1].x.first = row0;
  CASE(OF(position_bwd, 0, {"dwpe", INOUT, S, V, C}, {"dy", IN, X, N - row0, C}, tokens));
  out[n - 1].x.first = row0;
  CASE(OF(dropout, 0, {"y", OUT, X, N - row0, C}, {"x", IN, X, N - row0, C}, {"step", IN, I32, 1, 1},
          {"samples", IN, I32, B, 1}));
  out[n - 1].x.number = (int)T, out[n - 1].x.first = row0;
  return n;
}

/* Logits below 10: a sum of V exponentials, each of a few roundings, then its logarithm. */
static int entropy_cases(struct across *out, int64_t B, int64_t T, int64_t V)
{
  const int64_t N = B * T;
  int n = 0;
  const struct trial_operand losses = operand("losses", OUT, F64, N, 1, NULL), lse = operand("lse", OUT, S, N, 1, NULL),
                             logits = operand("logits", IN, X, N, V, up_to_ten),
                             targets = operand("targets", IN, I32, B, T, some_ignored),
                             max = operand("max", IN, F64, N, 1, up_to_ten),
                             sums = operand("sums", IN, F64, N, 2, fill_positive);
  CASE(OF(entropy_fwd, 8, losses, lse, logits, targets), .coarse = 0x1p-18);
  CASE(OF(entropy_max, 0, {"max", OUT, F64, N, 1}, logits));
  out[n - 1].x.number = (int)(V - V / 4);
  CASE(OF(entropy_sums, 24, {"sums", OUT, F64, N, 2}, logits, max, targets), .coarse = 0x1p-18);
  out[n - 1].x.number = (int)(V - V / 4), out[n - 1].x.first = 2;
  CASE(OF(entropy_join, 2, losses, lse, max, sums, targets), .wide = true);
  out[n - 1].x.number = 5;
  CASE(OF(entropy_bwd, 24, {"dlogits", OUT, X, N, V}, logits, {"lse", IN, S, N, 1}, targets, {"scale", IN, F64, 1, 1}),
       .coarse = 0x1p-15);
  out[n - 1].x.number = (int)(V - V / 4), out[n - 1].x.first = 2;
  return n;
}

/* Sums of K terms, in orders of their own. */
static int product_cases(struct across *out, int64_t M, int64_t N, int64_t K)
{
  int n = 0;
  for (int form = 0; form < 8; form++) {
    CASE(OF(matmul, 8 + (double)K, {"c", INOUT, X, M, N}, {"a", IN, X, form & 1 ? K : M, form & 1 ? M : K},
            {"b", IN, X, form & 2 ? N : K, form & 2 ? K : N}));
    out[n - 1].x.number = form;
  }
  for (int form = 0; form < 2; form++) {
    const int64_t rows = form ? N : K, cols = form ? K : N;
    CASE(OF(linear_fwd, 8 + (double)K, {"y", OUT, X, M, N}, {"x", IN, X, M, K}, {"w", IN, X, rows, cols},
            {"b", IN, X, 1, N}));
    out[n - 1].x.number = form;
    CASE(OF(linear_bwd_x, 8 + (double)N, {"dx", OUT, X, M, K}, {"dy", IN, X, M, N}, {"w", IN, X, rows, cols}));
    out[n - 1].x.number = form;
    CASE(OF(linear_bwd_w, 8 + (double)M, {"dw", INOUT, S, rows, cols}, {"db", INOUT, S, 1, N}, {"dy", IN, X, M, N},
            {"x", IN, X, M, K}));
    out[n - 1].x.number = form;
  }
  return n;
}

/* The forward's bound of attention_test.c twice; backward from any lse, so that weights are not below 1. */
static int attention_cases(struct across *out, int64_t B, int64_t T, int heads, int64_t D)
{
  const int64_t N = B * T, C = heads * D;
  const struct trial_operand docs = operand("docs", IN, I32, B, T, documents),
                             qkv = operand("qkv", IN, X, N, 3 * C, NULL);
  int n = 0;
  CASE(OF(attention_fwd, 48, {"o", OUT, X, N, C}, {"lse", OUT, S, N, heads}, qkv, docs), .coarse = 0x1p-8);
  out[n - 1].x.number = heads;
  CASE(OF(attention_bwd, 96, {"dqkv", OUT, X, N, 3 * C}, {"d_o", IN, X, N, C}, {"o", IN, X, N, C},
          {"lse", IN, S, N, heads}, qkv, docs),
       .coarse = 0x1p-7);
  out[n - 1].x.number = heads;
  return n;
}

/* --- both, compared ------------------------------------------------------------------------------- */

static void run_on(enum dev_kind kind, const struct trial *x, const struct tensor t[TRIAL_OPERANDS])
{
  struct rig g;
  rig_open_on(&g, kind, 2);
  CHECK_OK(trial_call(x, &g, t));
  CHECK_OK(rig_sync(&g));
  rig_close(&g);
}

/* The worst distance of two outputs, in units. */
static double units_apart(const struct across *c, enum dtype real, const struct tensor *got, const struct tensor *want)
{
  const double unit = c->wide || real == DTYPE_F64 ? 0x1p-53 : 0x1p-24;
  double size = 0, worst = 0;
  for (int64_t i = 0; i < tensor_count(want); i++) size = fmax(size, fabs(get(want, i / want->cols, i % want->cols)));
  for (int64_t i = 0; i < tensor_count(want); i++) {
    const double w = get(want, i / want->cols, i % want->cols), g = get(got, i / want->cols, i % want->cols);
    const double allowed =
        (is_narrow(want->type) ? 2 * unit_of(want->type) * fabs(w) : 0) + (want->type == DTYPE_F16 ? 0x1p-24 : 0) +
        (real == DTYPE_BF16 ? c->coarse * size : real == DTYPE_F16 ? c->coarse / 8 * size : 0);
    const double excess = g == w ? 0 : (fabs(g - w) - allowed) / size / unit;
    if (!(excess <= worst)) worst = excess;
  }
  return worst;
}

static void compare(const struct across *c, enum dtype real, int gap, int shift)
{
  struct arena near, far;
  struct tensor want[TRIAL_OPERANDS], got[TRIAL_OPERANDS];
  arena_open(&near);
  arena_open(&far);
  trial_tensors(&c->x, real, gap, shift, &near, want);
  trial_tensors(&c->x, real, gap, shift, &far, got);
  run_on(DEV_CPU, &c->x, want);
  run_on(DEV_CUDA, &c->x, got);
  for (int i = 0; i < c->x.n; i++) {
    const struct trial_operand *o = &c->x.operand[i];
    char what[160];
    snprintf(what, sizeof what, "%s %s [%d]: %s [%d, %d], gap %d, shift %d", c->x.name, dtype_name(real), c->x.number,
             o->name, (int)o->rows, (int)o->cols, gap, shift);
    check_true(all_finite(&want[i]), __FILE__, __LINE__, what);
    if (c->units == 0 || o->role == TRIAL_IN)
      check_true(same_bits(&got[i], &want[i]), __FILE__, __LINE__, what);
    else
      check_near(units_apart(c, real, &got[i], &want[i]), 0, c->units, __FILE__, __LINE__, what);
  }
  arena_close(&near);
  arena_close(&far);
}

static void compare_all(const struct across *cases, int n)
{
  for (int i = 0; i < n; i++)
    for (int type = 0; type < REALS; type++) {
      if (cases[i].x.narrow_only && !is_narrow(reals[type])) continue;
      compare(&cases[i], reals[type], 0, 0);
      compare(&cases[i], reals[type], 5, 3);
    }
}

static void elements_agree(void)
{
  static const int64_t sizes[][2] = {{1, 1}, {3, 17}, {17, 8}, {1, 4099}, {5, 1030}};
  struct across cases[CASES];
  for (int i = 0; i < 5; i++) compare_all(cases, elementwise_cases(cases, sizes[i][0], sizes[i][1]));
}
static void whole_tensors_agree(void)
{
  static const int64_t sizes[][2] = {{1, 1}, {3, 17}, {7, 5001}, {1, 16385}};
  struct across cases[CASES];
  for (int i = 0; i < 4; i++) compare_all(cases, whole_tensor_cases(cases, sizes[i][0], sizes[i][1]));
}
static void rows_agree(void)
{
  static const int64_t sizes[][3] = {{1, 1, 1},    {2, 3, 17},   {3, 11, 130}, {1, 5, 700},
                                     {1, 7, 1029}, {1, 3, 2053}, {2, 150, 5}};
  struct across cases[CASES];
  for (int i = 0; i < 7; i++) compare_all(cases, row_cases(cases, sizes[i][0], sizes[i][1], sizes[i][2]));
  row_cases(cases, 1, 4100, 3); /* rows that take longer slices, for the sums over them */
  compare_all(cases + 2, 1);
}
static void losses_agree(void)
{
  static const int64_t sizes[][3] = {{1, 1, 7}, {2, 3, 131}, {3, 2, 5003}};
  struct across cases[CASES];
  for (int i = 0; i < 3; i++) compare_all(cases, entropy_cases(cases, sizes[i][0], sizes[i][1], sizes[i][2]));
}
static void products_agree(void)
{
  static const int64_t sizes[][3] = {{1, 1, 1}, {3, 17, 5}, {33, 7, 129}};
  struct across cases[CASES];
  for (int i = 0; i < 3; i++) compare_all(cases, product_cases(cases, sizes[i][0], sizes[i][1], sizes[i][2]));
}
static void attention_agrees(void)
{
  static const int64_t sizes[][4] = {{1, 1, 1, 8}, {2, 17, 3, 5}, {1, 130, 1, 16}};
  struct across cases[CASES];
  for (int i = 0; i < 3; i++)
    compare_all(cases, attention_cases(cases, sizes[i][0], sizes[i][1], (int)sizes[i][2], sizes[i][3]));
}

/* One bad number in operand `operand`, row 0 and its last column: what each device says of it. */
static void bad_numbers_are_told_in_the_same_words(void)
{
  struct across rows[CASES], losses[CASES], updates[CASES];
  row_cases(rows, 1, 4, 5);
  entropy_cases(losses, 1, 4, 9);
  whole_tensor_cases(updates, 1, 3);
  const struct {
    const struct trial *x;
    int operand;
    double bad;
  } cases[] = {{&rows[3].x, 2, 9},    {&rows[3].x, 2, -1},  {&rows[4].x, 2, 9},    {&rows[7].x, 2, 12},
               {&rows[8].x, 2, -5},   {&losses[0].x, 3, 9}, {&losses[0].x, 3, -2}, {&losses[3].x, 4, 7},
               {&losses[4].x, 3, -2}, {&updates[5].x, 5, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char said[2][200];
    for (int k = 0; k < 2; k++) {
      struct arena a;
      struct rig g;
      struct tensor t[TRIAL_OPERANDS];
      arena_open(&a);
      trial_tensors(cases[i].x, DTYPE_F32, 0, 0, &a, t);
      put(&t[cases[i].operand], 0, t[cases[i].operand].cols - 1, cases[i].bad);
      rig_open_on(&g, k ? DEV_CUDA : DEV_CPU, 1);
      CHECK_OK(trial_call(cases[i].x, &g, t));
      CHECK_ERR(rig_sync(&g), ERR_NUMERIC);
      snprintf(said[k], sizeof said[k], "%s", err_text());
      rig_close(&g);
      arena_close(&a);
    }
    check_true(strcmp(said[0], said[1]) == 0 && said[0][0] != '\0', __FILE__, __LINE__, said[1]);
  }
}

/* A stream that only transfers has no workspace: what needs one is refused before anything is written. */
static void what_needs_a_workspace_says_so(void)
{
  struct across rows[CASES], whole[CASES];
  row_cases(rows, 1, 4, 5);
  whole_tensor_cases(whole, 1, 3);
  const struct trial *cases[] = {&whole[0].x, &whole[1].x, &whole[2].x, &whole[3].x,
                                 &rows[2].x,  &rows[4].x,  &rows[8].x};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct arena a;
    struct rig g;
    struct tensor t[TRIAL_OPERANDS], there[TRIAL_OPERANDS];
    arena_open(&a);
    trial_tensors(cases[i], DTYPE_F32, 0, 0, &a, t);
    rig_open_on(&g, DEV_CUDA, 1);
    for (int k = 0; k < cases[i]->n; k++) there[k] = *rig_at(&g, &t[k]);
    CHECK_OK(cases[i]->call(g.other, there, cases[i]));
    check_err(dev_sync_stream(g.other), ERR_MEMORY, __FILE__, __LINE__, cases[i]->name);
    CHECK_TEXT_HAS(err_text(), "the workspace has 0");
    rig_close(&g);
    arena_close(&a);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(elements_agree),
      TEST(whole_tensors_agree),
      TEST(rows_agree),
      TEST(losses_agree),
      TEST(products_agree),
      TEST(attention_agrees),
      TEST(bad_numbers_are_told_in_the_same_words),
      TEST(what_needs_a_workspace_says_so),
  };
  return test_main("ops_across_cuda", tests, sizeof tests / sizeof *tests);
}
