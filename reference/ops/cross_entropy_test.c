/* cross_entropy_test.c - the contract of the fused softmax cross-entropy; its parts: cross_entropy_parts_test.c. */
#include "ops/op_trial.h"

static enum err call_fwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_cross_entropy_fwd(s, &t[0], &t[1], &t[2], &t[3]);
}
static enum err call_bwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_cross_entropy_bwd(s, &t[0], &t[1], &t[2], &t[3], &t[4], 0, t[1].cols);
}

/* Every third target is ignored; the others are 0, 2, 3, 0, 1, 3, 4, ... */
static void some_ignored(const struct tensor *t, uint32_t seed)
{
  (void)seed;
  for (int64_t i = 0; i < tensor_count(t); i++) put(t, i / t->cols, i % t->cols, i % 3 == 1 ? -1 : (double)(i % 5));
}
static void zeros(const struct tensor *t, uint32_t seed)
{
  (void)seed;
  for (int64_t i = 0; i < tensor_count(t); i++) put(t, i / t->cols, i % t->cols, 0);
}

static struct trial fwd(int64_t B, int64_t T, int64_t V)
{
  const int64_t N = B * T;
  return (struct trial){.name = "cross_entropy_fwd",
                        .call = call_fwd,
                        .n = 4,
                        .operand = {{"losses", TRIAL_OUT, DTYPE_F64, N, 1},
                                    {"lse", TRIAL_OUT, TRIAL_STATE, N, 1},
                                    {"logits", TRIAL_IN, TRIAL_REAL, N, V, NULL, .any_cols = true},
                                    {"targets", TRIAL_IN, DTYPE_I32, B, T, V < 5 ? zeros : some_ignored}}};
}
static struct trial bwd(int64_t B, int64_t T, int64_t V)
{
  const int64_t N = B * T;
  return (struct trial){.name = "cross_entropy_bwd",
                        .call = call_bwd,
                        .n = 5,
                        .operand = {{"dlogits", TRIAL_OUT, TRIAL_REAL, N, V},
                                    {"logits", TRIAL_IN, TRIAL_REAL, N, V},
                                    {"lse", TRIAL_IN, TRIAL_STATE, N, 1},
                                    {"targets", TRIAL_IN, DTYPE_I32, B, T, V < 5 ? zeros : some_ignored},
                                    {"scale", TRIAL_IN, DTYPE_F64, 1, 1}}};
}

static const int64_t sizes[][3] = {{1, 1, 1}, {1, 3, 3}, {3, 1, 17}, {1, 17, 33}, {3, 11, 515}, {2, 3, 5000}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void bits_depend_on_the_inputs_alone(void)
{
  for (int i = 0; i < SIZES; i++) {
    const struct trial a = fwd(sizes[i][0], sizes[i][1], sizes[i][2]), b = bwd(sizes[i][0], sizes[i][1], sizes[i][2]);
    trial_same_bits(&a);
    trial_same_bits(&b);
  }
}

static void what_it_touches_is_declared(void)
{
  const struct trial a = fwd(2, 2, 6), b = bwd(2, 2, 6);
  trial_declares(&a);
  trial_declares(&b);
}

static void wrong_shapes_are_refused(void)
{
  const struct trial a = fwd(2, 2, 6), b = bwd(2, 2, 6);
  trial_refuses(&a);
  trial_refuses(&b);
  struct rig g;
  rig_open(&g, DEV_CPU, 1);
  double room[2];
  int32_t target[1];
  const struct tensor one = tensor_at(room, DTYPE_F64, 1, 1), targets = tensor_at(target, DTYPE_I32, 1, 1);
  const struct tensor none = tensor_at(room + 1, DTYPE_F64, 1, 0);
  CHECK_ERR(
      op_cross_entropy_fwd(g.compute, rig_at(&g, &one), rig_at(&g, &one), rig_at(&g, &none), rig_at(&g, &targets)),
      ERR_ARG);
  rig_close(&g);
}

/* Logits ln 1, ln 2, ln 5 have softmax 1/8, 2/8, 5/8. */
static void a_small_case_by_hand(void)
{
  struct arena a;
  struct tensor f[TRIAL_OPERANDS], b[TRIAL_OPERANDS];
  const struct trial forward = fwd(1, 2, 3), back = bwd(1, 2, 3);
  arena_open(&a);
  trial_tensors(&forward, DTYPE_F64, 0, 0, &a, f);
  trial_tensors(&back, DTYPE_F64, 0, 0, &a, b);
  fill_values(&f[2], (const double[]){0, log(2), log(5), 7, 7 + log(2), 7 + log(5)});
  fill_values(&f[3], (const double[]){1, -1});
  fill_values(&b[4], (const double[]){0.5});
  trial_run(&forward, DEV_CPU, 1, f);
  b[1] = f[2], b[2] = f[1], b[3] = f[3];
  trial_run(&back, DEV_CPU, 1, b);
  CHECK_NEAR(get(&f[0], 0, 0), log(4), 1e-15);
  CHECK_NEAR(get(&f[0], 1, 0), 0, 0);
  CHECK_NEAR(get(&f[1], 0, 0), log(8), 1e-15);
  CHECK_NEAR(get(&f[1], 1, 0), 7 + log(8), 2e-15);
  const double want[] = {1 / 16.0, -3 / 8.0, 5 / 16.0, 0, 0, 0};
  for (int i = 0; i < 6; i++) CHECK_NEAR(get(&b[0], i / 3, i % 3), want[i], 1e-15);
  arena_close(&a);
}

static void backward_matches_central_differences(void)
{
  struct arena a;
  struct tensor f[TRIAL_OPERANDS], b[TRIAL_OPERANDS];
  const struct trial forward = fwd(3, 3, 7), back = bwd(3, 3, 7);
  arena_open(&a);
  trial_tensors(&forward, DTYPE_F64, 2, 0, &a, f);
  trial_tensors(&back, DTYPE_F64, 2, 0, &a, b);
  const struct tensor weight = arena_tensor(&a, DTYPE_F64, 9, 1, 0, 0);
  for (int n = 0; n < 9; n++) put(&weight, n, 0, get(&b[4], 0, 0)); /* all losses times scale */
  trial_run(&forward, DEV_CPU, 1, f);
  b[1] = f[2], b[2] = f[1], b[3] = f[3];
  trial_run(&back, DEV_CPU, 1, b);
  trial_slope(&forward, f, 0, &weight, 2, &b[0], 1e-9);
  arena_close(&a);
}

static void dlogits_may_be_logits(void)
{
  for (int type = 0; type < REALS; type++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    const struct trial x = bwd(3, 11, 515);
    arena_open(&a);
    trial_tensors(&x, reals[type], 0, 0, &a, t);
    const struct tensor apart = t[0];
    trial_run(&x, DEV_CPU, 1, t);
    t[0] = t[1];
    trial_run(&x, DEV_CPU, 1, t);
    CHECK(same_bits(&t[0], &apart));
    arena_close(&a);
  }
}

/* Losses are near ln V + 0.3; lse in float32 is rounded once, which the backward sees as a factor. */
static void float32_is_as_near_as_its_roundings(void)
{
  for (int i = 1; i < SIZES; i++) {
    const struct trial a = fwd(sizes[i][0], sizes[i][1], sizes[i][2]), b = bwd(sizes[i][0], sizes[i][1], sizes[i][2]);
    trial_rounding(&a, 3);
    trial_rounding(&b, 8);
  }
}

static void large_logits_are_safe(void)
{
  for (int type = 0; type < REALS; type++) {
    struct arena a;
    struct tensor f[TRIAL_OPERANDS];
    const struct trial forward = fwd(1, 2, 3);
    arena_open(&a);
    trial_tensors(&forward, reals[type], 0, 0, &a, f);
    fill_values(&f[2], (const double[]){0, 1e4, -1e4, -2e4, -3e4, -1e4});
    fill_values(&f[3], (const double[]){1, 2});
    trial_run(&forward, DEV_CPU, 1, f);
    for (int n = 0; n < 2; n++) CHECK_NEAR(get(&f[0], n, 0), 0, 0);
    arena_close(&a);
  }
}

static void a_nan_logit_gives_a_nan_loss(void)
{
  for (int at = 0; at < 40; at++) {
    struct arena a;
    struct tensor f[TRIAL_OPERANDS];
    const struct trial forward = fwd(1, 1, 40);
    arena_open(&a);
    trial_tensors(&forward, DTYPE_F32, 0, 0, &a, f);
    put(&f[2], 0, at, NAN);
    put(&f[3], 0, 0, 2);
    trial_run(&forward, DEV_CPU, 1, f);
    CHECK(isnan(get(&f[0], 0, 0)));
    arena_close(&a);
  }
}

/* The backward no longer knows where the vocabulary ends. */
static void a_target_outside_the_vocabulary_is_named(void)
{
  for (int way = 0; way < 3; way++) {
    struct arena a;
    struct rig g;
    struct tensor t[TRIAL_OPERANDS];
    const struct trial x = way < 2 ? fwd(2, 2, 6) : bwd(2, 2, 6);
    arena_open(&a);
    rig_open(&g, way % 2 ? DEV_LAZY : DEV_CPU, 1);
    trial_tensors(&x, DTYPE_F32, 0, 0, &a, t);
    put(&t[3], 1, 1, way % 2 ? 6 : -2);
    CHECK_OK(trial_call(&x, &g, t));
    CHECK_ERR(rig_sync(&g), ERR_NUMERIC);
    CHECK_TEXT_HAS(err_text(), way % 2 ? "target 6 at [1, 1]" : "target -2 at [1, 1]");
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
      TEST(a_small_case_by_hand),
      TEST(large_logits_are_safe),
      TEST(a_nan_logit_gives_a_nan_loss),
      TEST(dlogits_may_be_logits),
      TEST(backward_matches_central_differences),
      TEST(float32_is_as_near_as_its_roundings),
      TEST(a_target_outside_the_vocabulary_is_named),
  };
  return test_main("cross_entropy", tests, sizeof tests / sizeof *tests);
}
