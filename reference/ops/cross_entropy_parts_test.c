/* cross_entropy_parts_test.c - cross-entropy with the vocabulary cut: parts that are joined make the whole. */
#include "ops/op_trial.h"

/* --- trials: `number` columns count, the first of them is number `first` of the vocabulary -------------- */

static enum err call_max(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_cross_entropy_max(s, &t[0], &t[1], x->number);
}
static enum err call_sums(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_cross_entropy_sums(s, &t[0], &t[1], &t[2], &t[3], x->first, x->number);
}
static enum err call_join(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_cross_entropy_join(s, &t[0], &t[1], &t[2], &t[3], &t[4], x->number);
}
static enum err call_bwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_cross_entropy_bwd(s, &t[0], &t[1], &t[2], &t[3], &t[4], x->first, x->number);
}

/* Every third target is ignored, the others are 0, 2, 3, 0, 1, 3, 4, ... */
static void some_ignored(const struct tensor *t, uint32_t seed)
{
  (void)seed;
  for (int64_t i = 0; i < tensor_count(t); i++) put(t, i / t->cols, i % t->cols, i % 3 == 1 ? -1 : (double)(i % 5));
}

enum { TRIALS = 4, MAX = 0, SUMS, JOIN, BWD };
static struct trial trial_of(int kind, int64_t B, int64_t T, int64_t cols, int64_t first, int64_t valid)
{
  const int64_t N = B * T;
  const struct trial_operand logits = {.name = "logits",
                                       .type = TRIAL_REAL,
                                       .rows = N,
                                       .cols = cols,
                                       .any_cols = true,
                                       .any_type = true}, /* either real type */
      targets = {.name = "targets", .type = DTYPE_I32, .rows = B, .cols = T, .fill = some_ignored},
                             max = {.name = "max", .type = DTYPE_F64, .rows = N, .cols = 1},
                             sums = {.name = "sums", .type = DTYPE_F64, .rows = N, .cols = 2, .fill = fill_positive};
  struct trial x = {.number = (int)valid, .first = first};
  switch (kind) {
  case MAX:
    x.name = "cross_entropy_max", x.call = call_max, x.n = 2;
    x.operand[0] = max, x.operand[1] = logits;
    break;
  case SUMS:
    x.name = "cross_entropy_sums", x.call = call_sums, x.n = 4;
    x.operand[0] = sums, x.operand[1] = logits, x.operand[2] = max, x.operand[3] = targets;
    break;
  case JOIN:
    x.name = "cross_entropy_join", x.call = call_join, x.n = 5, x.number = 5;
    x.operand[0] = (struct trial_operand){.name = "losses", .type = DTYPE_F64, .rows = N, .cols = 1};
    x.operand[1] = (struct trial_operand){.name = "lse", .role = TRIAL_OUT, .type = TRIAL_STATE, .rows = N, .cols = 1};
    x.operand[1].any_type = true; /* either real type */
    x.operand[2] = max, x.operand[3] = sums, x.operand[4] = targets;
    break;
  default:
    x.name = "cross_entropy_bwd", x.call = call_bwd, x.n = 5;
    x.operand[0] = (struct trial_operand){.name = "dlogits", .type = TRIAL_REAL, .rows = N, .cols = cols};
    x.operand[1] = logits, x.operand[1].any_cols = x.operand[1].any_type = false;
    x.operand[2] = (struct trial_operand){.name = "lse", .type = TRIAL_STATE, .rows = N, .cols = 1};
    x.operand[3] = targets;
    x.operand[4] = (struct trial_operand){.name = "scale", .type = DTYPE_F64, .rows = 1, .cols = 1};
  }
  x.operand[0].role = TRIAL_OUT;
  return x;
}

static const int64_t sizes[][3] = {{1, 1, 1}, {3, 1, 17}, {1, 17, 33}, {3, 11, 515}, {2, 3, 5000}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* All columns, most of them, the target's part not here. */
static void bits_depend_on_the_inputs_alone(void)
{
  for (int i = 0; i < SIZES; i++)
    for (int kind = 0; kind < TRIALS; kind++)
      for (int part = 0; part < 3; part++) {
        const int64_t V = sizes[i][2], valid = part ? (V + 1) / 2 : V;
        const struct trial x = trial_of(kind, sizes[i][0], sizes[i][1], V, part == 2 ? 100 : 0, valid);
        trial_same_bits(&x);
      }
}
static void what_it_touches_is_declared(void)
{
  for (int kind = 0; kind < TRIALS; kind++) {
    const struct trial x = trial_of(kind, 2, 2, 6, 0, 4);
    trial_declares(&x);
  }
}
static void wrong_shapes_are_refused(void)
{
  for (int kind = 0; kind < TRIALS; kind++) {
    const struct trial x = trial_of(kind, 2, 2, 6, 0, 4);
    trial_refuses(&x);
  }
}

static void parts_that_cannot_be_are_refused(void)
{
  static const struct {
    int kind, number;
    int64_t first;
    enum err want;
  } cases[] = {{MAX, -1, 0, ERR_ARG},  {MAX, 7, 0, ERR_ARG},  {MAX, 6, 0, ERR_OK},   {MAX, 0, 0, ERR_OK},
               {SUMS, -1, 0, ERR_ARG}, {SUMS, 7, 0, ERR_ARG}, {SUMS, 0, 6, ERR_OK},  {SUMS, 4, -1, ERR_ARG},
               {BWD, -1, 0, ERR_ARG},  {BWD, 7, 0, ERR_ARG},  {BWD, 4, -1, ERR_ARG}, {BWD, 0, 0, ERR_OK},
               {JOIN, 0, 0, ERR_ARG},  {JOIN, -5, 0, ERR_ARG}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct arena a;
    struct rig g;
    struct tensor t[TRIAL_OPERANDS];
    struct trial x = trial_of(cases[i].kind, 2, 2, 6, 0, 6);
    x.number = cases[i].number;
    x.first = cases[i].first;
    arena_open(&a);
    rig_open(&g, DEV_CPU, 1);
    trial_tensors(&x, DTYPE_F32, 0, 0, &a, t);
    CHECK_ERR(trial_call(&x, &g, t), cases[i].want);
    t[1].type = DTYPE_I32; /* logits, or lse */
    CHECK_ERR(trial_call(&x, &g, t), ERR_ARG);
    CHECK_OK(rig_sync(&g));
    rig_close(&g);
    arena_close(&a);
  }
}

static void float32_is_as_near_as_its_roundings(void)
{
  for (int i = 1; i < SIZES; i++)
    for (int kind = 0; kind < TRIALS; kind++) {
      const struct trial x = trial_of(kind, sizes[i][0], sizes[i][1], sizes[i][2], 0, (sizes[i][2] + 1) / 2);
      trial_rounding(&x, 8);
    }
}

/* --- a whole and its parts ------------------------------------------------------------------------------ */

/* Parts of equal width, V columns in all, the last ones padded or nothing but padding.  Padding in the logits is
 * `pad`: a large number that would win, or NaN. */
enum { PARTS_MAX = 6 };
struct cut {
  int64_t B, T, V;
  enum dtype real, state;
  int parts;
  double pad;
};

struct whole {
  struct tensor logits, targets, losses, lse, scale, dlogits;
};

/* Logits up to 20 apart, so that the sums of parts are of different sizes; row 1 is ignored, its target's
 * part has none. */
static void make_whole(struct arena *a, struct rig *g, const struct cut *c, struct whole *w)
{
  const int64_t N = c->B * c->T;
  w->logits = arena_tensor(a, c->real, N, c->V, 0, 0);
  w->targets = arena_tensor(a, DTYPE_I32, c->B, c->T, 0, 0);
  w->losses = arena_tensor(a, DTYPE_F64, N, 1, 0, 0);
  w->lse = arena_tensor(a, c->state, N, 1, 0, 0);
  w->scale = arena_tensor(a, DTYPE_F64, 1, 1, 0, 0);
  w->dlogits = arena_tensor(a, c->real, N, c->V, 0, 0);
  fill_seeded(&w->logits, 7);
  put(&w->scale, 0, 0, 0.3);
  for (int64_t n = 0; n < N; n++) {
    put(&w->targets, n / c->T, n % c->T, n == 1 ? -1 : (double)((n * 7 + 3) % c->V));
    for (int64_t v = 0; v < c->V; v++) put(&w->logits, n, v, 10 * get(&w->logits, n, v));
  }
  CHECK_OK(op_cross_entropy_fwd(g->compute, rig_at(g, &w->losses), rig_at(g, &w->lse), rig_at(g, &w->logits),
                                rig_at(g, &w->targets)));
  CHECK_OK(op_cross_entropy_bwd(g->compute, rig_at(g, &w->dlogits), rig_at(g, &w->logits), rig_at(g, &w->lse),
                                rig_at(g, &w->targets), rig_at(g, &w->scale), 0, c->V));
  CHECK_OK(rig_sync(g));
}

static int64_t valid_of(const struct cut *c, int part)
{
  const int64_t width = (c->V + c->parts - 1) / c->parts, left = c->V - part * width;
  return left < 0 ? 0 : left < width ? left : width;
}

/* The cut forward and backward as ranks do it, the max and sums combined here.  Worst distances from the whole's:
 * of losses, absolute; of gradients and lse, in units of `real` at the largest there is (scale, lse). */
struct gap {
  double loss, lse, gradient;
  bool same_bits;
};
static struct gap run_cut(enum dev_kind kind, const struct cut *c)
{
  const int64_t N = c->B * c->T, width = (c->V + c->parts - 1) / c->parts;
  struct arena a;
  struct rig g;
  struct whole w;
  struct tensor part[PARTS_MAX], max[PARTS_MAX + 1], sums[PARTS_MAX + 1];
  arena_open(&a);
  rig_open(&g, kind, 1);
  make_whole(&a, &g, c, &w);
  for (int p = 0; p <= c->parts; p++) {
    max[p] = arena_place(&a, DTYPE_F64, N, 1, 0, 0, AROUND_OUTPUTS);
    sums[p] = arena_place(&a, DTYPE_F64, N, 2, 0, 0, AROUND_OUTPUTS);
    if (p == c->parts) break;
    part[p] = arena_place(&a, c->real, N, width, 2, 0, AROUND_OUTPUTS);
    for (int64_t n = 0; n < N; n++)
      for (int64_t v = 0; v < width; v++)
        put(&part[p], n, v, v < valid_of(c, p) ? get(&w.logits, n, p * width + v) : c->pad);
    CHECK_OK(op_cross_entropy_max(g.compute, rig_at(&g, &max[p]), rig_at(&g, &part[p]), valid_of(c, p)));
  }
  CHECK_OK(rig_sync(&g));
  const struct tensor *M = &max[c->parts], *S = &sums[c->parts];
  for (int64_t n = 0; n < N; n++) {
    put(M, n, 0, -INFINITY);
    for (int p = 0; p < c->parts; p++) {
      CHECK(valid_of(c, p) > 0 ? isfinite(get(&max[p], n, 0)) : get(&max[p], n, 0) == -INFINITY);
      put(M, n, 0, fmax(get(M, n, 0), get(&max[p], n, 0)));
    }
  }
  for (int p = 0; p < c->parts; p++)
    CHECK_OK(op_cross_entropy_sums(g.compute, rig_at(&g, &sums[p]), rig_at(&g, &part[p]), rig_at(&g, M),
                                   rig_at(&g, &w.targets), p * width, valid_of(c, p)));
  CHECK_OK(rig_sync(&g));
  for (int64_t i = 0; i < 2 * N; i++) {
    put(S, i / 2, i % 2, 0);
    for (int p = 0; p < c->parts; p++) put(S, i / 2, i % 2, get(S, i / 2, i % 2) + get(&sums[p], i / 2, i % 2));
  }
  const struct tensor losses = arena_place(&a, DTYPE_F64, N, 1, 0, 0, AROUND_OUTPUTS),
                      lse = arena_place(&a, c->state, N, 1, 0, 0, AROUND_OUTPUTS);
  CHECK_OK(op_cross_entropy_join(g.compute, rig_at(&g, &losses), rig_at(&g, &lse), rig_at(&g, M), rig_at(&g, S),
                                 rig_at(&g, &w.targets), c->V));
  for (int p = 0; p < c->parts; p++)
    CHECK_OK(op_cross_entropy_bwd(g.compute, rig_at(&g, &part[p]), rig_at(&g, &part[p]), rig_at(&g, &lse),
                                  rig_at(&g, &w.targets), rig_at(&g, &w.scale), p * width, valid_of(c, p)));
  CHECK_OK(rig_sync(&g));

  const double unit = unit_of(c->real);
  struct gap gap = {distance(&losses, &w.losses), 0, 0, same_bits(&losses, &w.losses) && same_bits(&lse, &w.lse)};
  for (int64_t n = 0; n < N; n++)
    gap.lse =
        fmax(gap.lse, fabs(get(&lse, n, 0) - get(&w.lse, n, 0)) / fmax(1, fabs(get(&w.lse, n, 0))) / unit_of(c->state));
  for (int p = 0; p < c->parts; p++)
    for (int64_t n = 0; n < N; n++)
      for (int64_t v = 0; v < width; v++) {
        const double got = get(&part[p], n, v);
        if (v >= valid_of(c, p) || n == 1) {
          CHECK(got == 0 && !signbit(got));
          continue;
        }
        const double want = get(&w.dlogits, n, p * width + v), error = fabs(got - want) / 0.3 / unit;
        if (!(error <= gap.gradient)) gap.gradient = error;
        gap.same_bits = gap.same_bits && got == want;
      }
  rig_close(&g);
  arena_close(&a);
  return gap;
}

/* One part is the whole to the bit.  K parts add the exponentials in another order: relative K 2^-52 of the sum, so
 * that much absolute in its logarithm.  Then lse, below 17, may round to the neighbour (32 units of 2^-53), and the
 * loss, below 32; what lse is off by is relative in the gradient.  Worst seen in float64: loss 32, gradient 15 units;
 * in float32 nothing, as the sum of so few floats is exact in double.  A CUDA kernel takes a part's exponentials from
 * the part's own largest and adds a thread's in float32: four units of 2^-24 on either side. */
static void parts_joined_are_the_whole(void)
{
  static const int64_t shapes[][3] = {{2, 3, 131}, {1, 4, 7}, {3, 2, 515}, {2, 2, 5}, {1, 2, 1}};
  static const int counts[] = {1, 2, 3, 6};
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 5; i++)
      for (int n = 0; n < 4; n++)
        for (int type = 0; type < REALS; type++)
          for (int pad = 0; pad < 2; pad++) {
            const enum dtype state = reals[type] == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
            const struct cut c = {shapes[i][0], shapes[i][1], shapes[i][2],   reals[type],
                                  state,        counts[n],    pad ? NAN : 1e3};
            const struct gap g = run_cut(k ? DEV_LAZY : DEV_CPU, &c);
            const bool rounded = rig_on_cuda() && state == DTYPE_F32;
            CHECK_NEAR(g.loss, 0, rounded ? 8 * 0x1p-24 : (64 + 2 * counts[n]) * 0x1p-53);
            CHECK_NEAR(g.lse, 0, 2 + 2 * counts[n]);
            CHECK_NEAR(g.gradient, 0, 32 + 2 * counts[n]);
            CHECK(counts[n] > 1 || g.same_bits);
          }
}

/* Cut in two, with logits ln 1, ln 2 | ln 5, softmax is 1/8, 2/8 | 5/8; the first row's target is 1, the second's 2.
 * The left part has a column of padding where the right one's first number would be. */
static void a_small_case_by_hand(void)
{
  struct arena a;
  struct rig g;
  arena_open(&a);
  rig_open(&g, DEV_CPU, 1);
  const struct tensor left = arena_tensor(&a, DTYPE_F64, 2, 3, 0, 0), right = arena_tensor(&a, DTYPE_F64, 2, 2, 0, 0);
  const struct tensor max = arena_tensor(&a, DTYPE_F64, 2, 1, 0, 0), other = arena_tensor(&a, DTYPE_F64, 2, 1, 0, 0);
  const struct tensor sums = arena_tensor(&a, DTYPE_F64, 2, 2, 0, 0), more = arena_tensor(&a, DTYPE_F64, 2, 2, 0, 0);
  const struct tensor losses = arena_tensor(&a, DTYPE_F64, 2, 1, 0, 0), lse = arena_tensor(&a, DTYPE_F64, 2, 1, 0, 0);
  const struct tensor targets = arena_tensor(&a, DTYPE_I32, 1, 2, 0, 0),
                      scale = arena_tensor(&a, DTYPE_F64, 1, 1, 0, 0);
  fill_values(&left, (const double[]){0, log(2), 99, 7, 7 + log(2), 99});
  fill_values(&right, (const double[]){log(5), 99, 7 + log(5), 99});
  fill_values(&targets, (const double[]){1, 2});
  fill_values(&scale, (const double[]){0.5});
  CHECK_OK(op_cross_entropy_max(g.compute, rig_at(&g, &max), rig_at(&g, &left), 2));
  CHECK_OK(op_cross_entropy_max(g.compute, rig_at(&g, &other), rig_at(&g, &right), 1));
  CHECK_OK(rig_sync(&g));
  CHECK(get(&max, 0, 0) == log(2) && get(&max, 1, 0) == 7 + log(2));
  CHECK(get(&other, 0, 0) == log(5) && get(&other, 1, 0) == 7 + log(5));
  CHECK_OK(op_cross_entropy_sums(g.compute, rig_at(&g, &sums), rig_at(&g, &left), rig_at(&g, &other),
                                 rig_at(&g, &targets), 0, 2));
  CHECK_OK(op_cross_entropy_sums(g.compute, rig_at(&g, &more), rig_at(&g, &right), rig_at(&g, &other),
                                 rig_at(&g, &targets), 2, 1));
  CHECK_OK(rig_sync(&g));
  const double want_sums[] = {0.6, log(2), 0.6, 0}, want_more[] = {1, 0, 1, 7 + log(5)};
  for (int i = 0; i < 4; i++) {
    CHECK_NEAR(get(&sums, i / 2, i % 2), want_sums[i], 1e-15);
    CHECK_NEAR(get(&more, i / 2, i % 2), want_more[i], 1e-15);
  }
  CHECK_OK(op_accumulate(g.compute, rig_at(&g, &sums), rig_at(&g, &more)));
  CHECK_OK(op_cross_entropy_join(g.compute, rig_at(&g, &losses), rig_at(&g, &lse), rig_at(&g, &other),
                                 rig_at(&g, &sums), rig_at(&g, &targets), 3));
  CHECK_OK(op_cross_entropy_bwd(g.compute, rig_at(&g, &left), rig_at(&g, &left), rig_at(&g, &lse), rig_at(&g, &targets),
                                rig_at(&g, &scale), 0, 2));
  CHECK_OK(op_cross_entropy_bwd(g.compute, rig_at(&g, &right), rig_at(&g, &right), rig_at(&g, &lse),
                                rig_at(&g, &targets), rig_at(&g, &scale), 2, 1));
  CHECK_OK(rig_sync(&g));
  CHECK_NEAR(get(&losses, 0, 0), log(4), 1e-15);
  CHECK_NEAR(get(&losses, 1, 0), log(8 / 5.0), 2e-15);
  CHECK_NEAR(get(&lse, 1, 0), 7 + log(8), 2e-15);
  const double d_left[] = {1 / 16.0, -3 / 8.0, 0, 1 / 16.0, 1 / 8.0, 0}, d_right[] = {5 / 16.0, 0, -3 / 16.0, 0};
  for (int i = 0; i < 6; i++) CHECK_NEAR(get(&left, i / 3, i % 3), d_left[i], 1e-15);
  for (int i = 0; i < 4; i++) CHECK_NEAR(get(&right, i / 2, i % 2), d_right[i], 1e-15);
  rig_close(&g);
  arena_close(&a);
}

/* The sum of losses of a batch in two parts, in the left part's logits. */
static enum err losses_of_two(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  const struct tensor *losses = &t[0], *left = &t[1], *right = &t[2], *targets = &t[3], *max = &t[4], *sums = &t[5],
                      *more = &t[6];
  TRY(op_cross_entropy_max(s, max, right, right->cols)); /* any shift will do, if all use it */
  TRY(op_cross_entropy_sums(s, sums, left, max, targets, 0, left->cols));
  TRY(op_cross_entropy_sums(s, more, right, max, targets, left->cols, right->cols));
  TRY(op_accumulate(s, sums, more));
  return op_cross_entropy_join(s, losses, &t[7], max, sums, targets, left->cols + right->cols);
}
static void backward_matches_central_differences(void)
{
  const struct trial x = {.name = "cross_entropy in two parts",
                          .call = losses_of_two,
                          .n = 8,
                          .operand = {{"losses", TRIAL_OUT, DTYPE_F64, 9, 1},
                                      {"left", TRIAL_IN, DTYPE_F64, 9, 3},
                                      {"right", TRIAL_IN, DTYPE_F64, 9, 4},
                                      {"targets", TRIAL_IN, DTYPE_I32, 3, 3, some_ignored},
                                      {"max", TRIAL_OUT, DTYPE_F64, 9, 1},
                                      {"sums", TRIAL_OUT, DTYPE_F64, 9, 2},
                                      {"more", TRIAL_OUT, DTYPE_F64, 9, 2},
                                      {"lse", TRIAL_OUT, DTYPE_F64, 9, 1}}};
  struct arena a;
  struct rig g;
  struct tensor t[TRIAL_OPERANDS];
  arena_open(&a);
  trial_tensors(&x, DTYPE_F64, 0, 0, &a, t);
  const struct tensor scale = arena_tensor(&a, DTYPE_F64, 1, 1, 0, 0), weight = arena_tensor(&a, DTYPE_F64, 9, 1, 0, 0);
  const struct tensor d_left = arena_tensor(&a, DTYPE_F64, 9, 3, 0, 0),
                      d_right = arena_tensor(&a, DTYPE_F64, 9, 4, 0, 0);
  put(&scale, 0, 0, 0.7);
  for (int n = 0; n < 9; n++) put(&weight, n, 0, 0.7);
  rig_open(&g, DEV_CPU, 1);
  CHECK_OK(trial_call(&x, &g, t));
  CHECK_OK(op_cross_entropy_bwd(g.compute, rig_at(&g, &d_left), rig_at(&g, &t[1]), rig_at(&g, &t[7]), rig_at(&g, &t[3]),
                                rig_at(&g, &scale), 0, 3));
  CHECK_OK(op_cross_entropy_bwd(g.compute, rig_at(&g, &d_right), rig_at(&g, &t[2]), rig_at(&g, &t[7]),
                                rig_at(&g, &t[3]), rig_at(&g, &scale), 3, 4));
  CHECK_OK(rig_sync(&g));
  rig_close(&g);
  trial_slope(&x, t, 0, &weight, 1, &d_left, 1e-9);
  trial_slope(&x, t, 0, &weight, 2, &d_right, 1e-9);
  arena_close(&a);
}

/* In whichever part a NaN stands, and wherever in it, the losses of that row are NaN, also where all but the max
 * would have passed it over. */
static void a_nan_logit_gives_a_nan_loss(void)
{
  enum { V = 12 };
  for (int at = 0; at < V; at++) {
    struct arena a;
    struct rig g;
    arena_open(&a);
    rig_open(&g, DEV_CPU, 1);
    const struct tensor logits = arena_tensor(&a, DTYPE_F32, 1, V, 0, 0), max = arena_tensor(&a, DTYPE_F64, 1, 2, 0, 0);
    const struct tensor sums = arena_tensor(&a, DTYPE_F64, 2, 2, 0, 0),
                        targets = arena_tensor(&a, DTYPE_I32, 1, 1, 0, 0);
    const struct tensor loss = arena_tensor(&a, DTYPE_F64, 1, 1, 0, 0), lse = arena_tensor(&a, DTYPE_F32, 1, 1, 0, 0);
    fill_seeded(&logits, 5);
    put(&logits, 0, at, NAN);
    put(&targets, 0, 0, 2);
    for (int p = 0; p < 2; p++) {
      const struct tensor part = tensor_part(&logits, 0, 1, 6 * p, 6), m = tensor_part(&max, 0, 1, p, 1);
      CHECK_OK(op_cross_entropy_max(g.compute, rig_at(&g, &m), rig_at(&g, &part), 6));
    }
    CHECK_OK(rig_sync(&g));
    const struct tensor m = tensor_part(&max, 0, 1, 0, 1);
    put(&m, 0, 0, fmax(get(&max, 0, 0), get(&max, 0, 1))); /* as a reduction that lets a NaN lose */
    for (int p = 0; p < 2; p++) {
      const struct tensor part = tensor_part(&logits, 0, 1, 6 * p, 6), s = tensor_part(&sums, p, 1, 0, 2);
      CHECK_OK(op_cross_entropy_sums(g.compute, rig_at(&g, &s), rig_at(&g, &part), rig_at(&g, &m), rig_at(&g, &targets),
                                     6 * p, 6));
    }
    const struct tensor s = tensor_part(&sums, 0, 1, 0, 2), more = tensor_part(&sums, 1, 1, 0, 2);
    CHECK_OK(op_accumulate(g.compute, rig_at(&g, &s), rig_at(&g, &more)));
    CHECK_OK(op_cross_entropy_join(g.compute, rig_at(&g, &loss), rig_at(&g, &lse), rig_at(&g, &m), rig_at(&g, &s),
                                   rig_at(&g, &targets), V));
    CHECK_OK(rig_sync(&g));
    CHECK(isnan(get(&loss, 0, 0)));
    rig_close(&g);
    arena_close(&a);
  }
}

static void a_target_outside_the_vocabulary_is_named(void)
{
  for (int way = 0; way < 4; way++) {
    struct arena a;
    struct rig g;
    struct tensor t[TRIAL_OPERANDS];
    struct trial x = trial_of(JOIN, 2, 2, 6, 0, 6);
    x.number = 6;
    arena_open(&a);
    rig_open(&g, DEV_CPU, 1);
    trial_tensors(&x, DTYPE_F32, 0, 0, &a, t);
    put(&t[4], 1, 1, way == 0 ? 6 : way == 1 ? -2 : way == 2 ? 5 : -1);
    CHECK_OK(trial_call(&x, &g, t));
    CHECK_ERR(rig_sync(&g), way < 2 ? ERR_NUMERIC : ERR_OK);
    if (way < 2)
      CHECK_TEXT_HAS(err_text(), way ? "target -2 at [1, 1] is outside -1..5" : "target 6 at [1, 1] is outside -1..5");
    rig_close(&g);
    arena_close(&a);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(bits_depend_on_the_inputs_alone),
      TEST(what_it_touches_is_declared),
      TEST(wrong_shapes_are_refused),
      TEST(parts_that_cannot_be_are_refused),
      TEST(float32_is_as_near_as_its_roundings),
      TEST(a_small_case_by_hand),
      TEST(parts_joined_are_the_whole),
      TEST(backward_matches_central_differences),
      TEST(a_nan_logit_gives_a_nan_loss),
      TEST(a_target_outside_the_vocabulary_is_named),
  };
  return test_main("cross_entropy_parts", tests, sizeof tests / sizeof *tests);
}
