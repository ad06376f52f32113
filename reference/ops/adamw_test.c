/* adamw_test.c - AdamW, SGD, the clip factor with its planted faults, a reciprocal, a sleep. */
#include "base/clock.h"
#include "base/fault.h"
#include "ops/op_trial.h"

static const struct op_adamw rule = {0.9, 0.95, 1e-8, 0.1};

static enum err call_adamw(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_adamw(s, &t[0], NULL, &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], NULL, &rule);
}
static enum err call_sgd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_sgd(s, &t[0], NULL, &t[1], &t[2], &t[3], NULL, 0.1);
}
static enum err call_adamw_rounded(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_adamw(s, &t[0], &t[7], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], NULL, &rule);
}
static enum err call_sgd_rounded(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_sgd(s, &t[0], &t[4], &t[1], &t[2], &t[3], NULL, 0.1);
}
/* The last operand of what is to be skipped, or not. */
static enum err call_adamw_skip(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_adamw(s, &t[0], &t[7], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[8], &rule);
}
static enum err call_sgd_skip(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_sgd(s, &t[0], &t[4], &t[1], &t[2], &t[3], &t[5], 0.1);
}
/* trial.number is max_norm * 100. */
static enum err call_clip(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_clip_factor(s, &t[0], &t[1], &t[2], x->number / 100.0);
}
static enum err call_reciprocal(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_reciprocal(s, &t[0], &t[1]);
}

static void update_number(const struct tensor *t, uint32_t seed) { put(t, 0, 0, seed % 7 + 1); }

static struct trial adamw(int64_t N, int64_t C)
{
  return (struct trial){.name = "adamw",
                        .call = call_adamw,
                        .n = 7,
                        .operand = {{"w", TRIAL_INOUT, TRIAL_STATE, N, C},
                                    {"m", TRIAL_INOUT, TRIAL_STATE, N, C},
                                    {"v", TRIAL_INOUT, TRIAL_STATE, N, C, fill_positive},
                                    {"g", TRIAL_IN, TRIAL_STATE, N, C},
                                    {"lr", TRIAL_IN, DTYPE_F64, 1, 1, fill_positive},
                                    {"t", TRIAL_IN, DTYPE_I64, 1, 1, update_number},
                                    {"factor", TRIAL_IN, DTYPE_F64, 1, 1, fill_positive}}};
}
static struct trial sgd(int64_t N, int64_t C)
{
  return (struct trial){.name = "sgd",
                        .call = call_sgd,
                        .n = 4,
                        .operand = {{"w", TRIAL_INOUT, TRIAL_STATE, N, C},
                                    {"g", TRIAL_IN, TRIAL_STATE, N, C},
                                    {"lr", TRIAL_IN, DTYPE_F64, 1, 1, fill_positive},
                                    {"factor", TRIAL_IN, DTYPE_F64, 1, 1, fill_positive}}};
}
/* The same with a copy of the new weights in a narrow type. */
static struct trial rounded(struct trial x)
{
  x.operand[x.n] = (struct trial_operand){
      .name = "rounded", .role = TRIAL_OUT, .type = TRIAL_REAL, .rows = x.operand[0].rows, .cols = x.operand[0].cols};
  x.n++;
  x.narrow_only = true;
  x.call = x.call == call_adamw ? call_adamw_rounded : call_sgd_rounded;
  return x;
}
static const struct trial clip = {.name = "clip_factor",
                                  .call = call_clip,
                                  .number = 30,
                                  .n = 3,
                                  .operand = {{"factor", TRIAL_OUT, DTYPE_F64, 1, 1},
                                              {"norm", TRIAL_OUT, DTYPE_F64, 1, 1},
                                              {"sum_squares", TRIAL_IN, DTYPE_F64, 1, 1, fill_positive}}};
static const struct trial reciprocal = {
    .name = "reciprocal",
    .call = call_reciprocal,
    .n = 2,
    .operand = {{"y", TRIAL_OUT, DTYPE_F64, 1, 1}, {"x", TRIAL_IN, DTYPE_F64, 1, 1}}};

static const int64_t sizes[][2] = {{1, 1}, {1, 3}, {3, 17}, {17, 33}, {3, 8200}, {1, 20000}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void bits_depend_on_the_inputs_alone(void)
{
  for (int i = 0; i < SIZES; i++) {
    const struct trial a = adamw(sizes[i][0], sizes[i][1]), b = sgd(sizes[i][0], sizes[i][1]);
    const struct trial ra = rounded(a), rb = rounded(b);
    trial_same_bits(&a);
    trial_same_bits(&b);
    trial_same_bits(&ra);
    trial_same_bits(&rb);
  }
  trial_same_bits(&clip);
  trial_same_bits(&reciprocal);
}
static void what_it_touches_is_declared(void)
{
  const struct trial a = adamw(3, 5), b = sgd(3, 5);
  const struct trial ra = rounded(a), rb = rounded(b);
  trial_declares(&a);
  trial_declares(&b);
  trial_declares(&ra);
  trial_declares(&rb);
  trial_declares(&clip);
  trial_declares(&reciprocal);
}
static void wrong_shapes_are_refused(void)
{
  const struct trial a = adamw(3, 5), b = sgd(3, 5);
  const struct trial ra = rounded(a), rb = rounded(b);
  trial_refuses(&a);
  trial_refuses(&b);
  trial_refuses(&ra);
  trial_refuses(&rb);
  trial_refuses(&clip);
  trial_refuses(&reciprocal);
}

/* Three updates of one weight, each figure from the formula of torch.optim.AdamW by hand in long double. */
static void adamw_is_the_published_rule(void)
{
  for (int type = 0; type < 2; type++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    const struct trial x = adamw(1, 1);
    arena_open(&a);
    trial_tensors(&x, type ? DTYPE_F64 : DTYPE_F32, 0, 0, &a, t);
    put(&t[0], 0, 0, 0.75), put(&t[1], 0, 0, 0), put(&t[2], 0, 0, 0);
    put(&t[4], 0, 0, 0.01), put(&t[6], 0, 0, 0.5);
    long double w = 0.75L, m = 0, v = 0, b1 = 1, b2 = 1;
    static const double gradients[] = {0.5, -0.25, 3};
    for (int step = 1; step <= 3; step++) {
      const long double g = 0.5L * (long double)gradients[step - 1];
      b1 *= 0.9L, b2 *= 0.95L;
      m = 0.9L * m + 0.1L * g;
      v = 0.95L * v + 0.05L * g * g;
      w = w - 0.01L * 0.1L * w;
      w = w - 0.01L * (m / (1 - b1)) / (sqrtl(v / (1 - b2)) + 1e-8L);
      put(&t[3], 0, 0, gradients[step - 1]);
      put(&t[5], 0, 0, step);
      trial_run(&x, DEV_CPU, 1, t);
      const double unit = type ? 0x1p-53 : 0x1p-24;
      CHECK_NEAR(get(&t[0], 0, 0), (double)w, 4 * unit);
      CHECK_NEAR(get(&t[1], 0, 0), (double)m, 4 * unit);
      CHECK_NEAR(get(&t[2], 0, 0), (double)v, 4 * unit);
    }
    arena_close(&a);
  }
}

static void sgd_is_the_published_rule(void)
{
  struct arena a;
  struct tensor t[TRIAL_OPERANDS];
  const struct trial x = sgd(1, 2);
  arena_open(&a);
  trial_tensors(&x, DTYPE_F64, 0, 0, &a, t);
  fill_values(&t[0], (const double[]){2, -4});
  fill_values(&t[1], (const double[]){8, 16});
  put(&t[2], 0, 0, 0.5), put(&t[3], 0, 0, 0.25);
  trial_run(&x, DEV_CPU, 1, t);
  CHECK_NEAR(get(&t[0], 0, 0), 2 - 0.5 * (2 + 0.2), 1e-15);
  CHECK_NEAR(get(&t[0], 0, 1), -4 - 0.5 * (4 - 0.4), 1e-15);
  arena_close(&a);
}

static void an_update_number_below_one_is_an_error(void)
{
  struct arena a;
  struct rig g;
  struct tensor t[TRIAL_OPERANDS];
  const struct trial x = adamw(1, 3);
  arena_open(&a);
  rig_open(&g, DEV_CPU, 1);
  trial_tensors(&x, DTYPE_F32, 0, 0, &a, t);
  put(&t[5], 0, 0, 0);
  CHECK_OK(trial_call(&x, &g, t));
  CHECK_ERR(rig_sync(&g), ERR_NUMERIC);
  rig_close(&g);
  arena_close(&a);
}

/* The float32 weights are those of an update without a copy; the copy is exactly their rounding. */
static void the_copy_is_the_new_weights_rounded_once(void)
{
  for (int k = 0; k < 4; k++) {
    struct arena a;
    struct tensor with[TRIAL_OPERANDS], without[TRIAL_OPERANDS];
    const enum dtype narrow = k < 2 ? DTYPE_BF16 : DTYPE_F16;
    const struct trial x = k % 2 ? sgd(17, 33) : adamw(17, 33), y = rounded(x);
    arena_open(&a);
    trial_tensors(&x, DTYPE_F32, 0, 0, &a, without);
    trial_tensors(&y, narrow, 2, 0, &a, with);
    trial_run(&x, DEV_CPU, 1, without);
    trial_run(&y, DEV_CPU, 1, with);
    const struct tensor *copy = &with[x.n];
    for (int i = 0; i < x.n; i++) CHECK(same_bits(&with[i], &without[i]));
    for (int64_t i = 0; i < 17 * 33; i++)
      CHECK_NEAR(get(copy, i / 33, i % 33), stored(narrow, get(&with[0], i / 33, i % 33)), 0);
    arena_close(&a);
  }
}

static struct trial skippable(struct trial x)
{
  x.operand[x.n++] = (struct trial_operand){.name = "skip", .role = TRIAL_IN, .type = DTYPE_F64, .rows = 1, .cols = 1};
  x.call = x.call == call_adamw_rounded ? call_adamw_skip : call_sgd_skip;
  return x;
}

/* Not even a NaN of the gradients gets through; what is not skipped is the same as without the flag. */
static void a_skipped_step_changes_no_bit(void)
{
  for (int k = 0; k < 4; k++) {
    struct arena a;
    struct tensor before[TRIAL_OPERANDS], t[TRIAL_OPERANDS];
    const struct trial plain = rounded(k % 2 ? sgd(17, 33) : adamw(17, 33)), x = skippable(plain);
    const int g = k % 2 ? 1 : 3;
    arena_open(&a);
    trial_tensors(&x, DTYPE_F16, 0, 0, &a, before);
    trial_tensors(&x, DTYPE_F16, 0, 0, &a, t);
    put(&t[x.n - 1], 0, 0, k < 2);
    if (k < 2) put(&t[g], 2, 3, NAN);
    else trial_run(&plain, DEV_CPU, 1, before);
    trial_run(&x, DEV_CPU, 2, t);
    for (int i = 0; i < x.n - 1; i++)
      if (i != g || k >= 2) CHECK(same_bits(&t[i], &before[i]));
    arena_close(&a);
  }
}

static void the_flag_is_declared_and_its_shape_looked_at(void)
{
  for (int k = 0; k < 2; k++) {
    const struct trial x = skippable(rounded(k ? sgd(3, 5) : adamw(3, 5)));
    trial_declares(&x);
    trial_refuses(&x);
  }
}

/* float64 has no narrower copy. */
static void only_float32_weights_are_rounded(void)
{
  struct arena a;
  struct rig g;
  struct tensor t[TRIAL_OPERANDS];
  const struct trial x = rounded(sgd(1, 3));
  arena_open(&a);
  rig_open(&g, DEV_CPU, 1);
  trial_tensors(&x, DTYPE_F64, 0, 0, &a, t);
  t[4] = arena_tensor(&a, DTYPE_BF16, 1, 3, 0, 0);
  CHECK_ERR(trial_call(&x, &g, t), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "float64, expected float32");
  rig_close(&g);
  arena_close(&a);
}

/* Weights and moments are of order one: a few roundings each; lr up to 1 and mhat / root up to about 10. */
static void float32_is_as_near_as_its_roundings(void)
{
  for (int i = 0; i < SIZES; i++) {
    const struct trial a = adamw(sizes[i][0], sizes[i][1]), b = sgd(sizes[i][0], sizes[i][1]);
    trial_rounding(&a, 16);
    trial_rounding(&b, 6);
  }
}

static double factor_of(int max_norm_hundredths, double sum_squares, double *norm)
{
  struct arena a;
  struct tensor t[TRIAL_OPERANDS];
  struct trial x = clip;
  x.number = max_norm_hundredths;
  arena_open(&a);
  trial_tensors(&x, DTYPE_F64, 0, 0, &a, t);
  put(&t[2], 0, 0, sum_squares);
  trial_run(&x, DEV_CPU, 1, t);
  const double factor = get(&t[0], 0, 0);
  if (norm) *norm = get(&t[1], 0, 0);
  arena_close(&a);
  return factor;
}

static void the_clip_factor_is_torchs(void)
{
  double norm;
  CHECK_NEAR(factor_of(100, 16, &norm), 1 / (4 + 1e-6), 0);
  CHECK_NEAR(norm, 4, 0);
  CHECK_NEAR(factor_of(500, 16, &norm), 1, 0);
  CHECK_NEAR(factor_of(400, 16, &norm), 4 / (4 + 1e-6), 0); /* at the limit itself it is below 1 */
  CHECK_NEAR(factor_of(100, 0, &norm), 1, 0);
  CHECK_NEAR(norm, 0, 0);
  CHECK_NEAR(factor_of(0, 16, &norm), 1, 0); /* off */
  CHECK_NEAR(norm, 4, 0);
}

static void a_norm_that_is_not_finite_is_seen(void)
{
  double norm;
  CHECK(isnan(factor_of(100, INFINITY, &norm)) && norm == INFINITY);
  CHECK(isnan(factor_of(100, NAN, &norm)) && isnan(norm));
  CHECK_NEAR(factor_of(0, INFINITY, &norm), 1, 0); /* off: the gradients show it themselves */
  CHECK_NEAR(factor_of(0, NAN, &norm), 1, 0);
  struct rig g;
  rig_open(&g, DEV_CPU, 1);
  double room[3] = {0};
  const struct tensor t = tensor_at(room, DTYPE_F64, 1, 1);
  CHECK_ERR(op_clip_factor(g.compute, rig_at(&g, &t), rig_at(&g, &t), rig_at(&g, &t), -1), ERR_ARG);
  CHECK_ERR(op_clip_factor(g.compute, rig_at(&g, &t), rig_at(&g, &t), rig_at(&g, &t), NAN), ERR_ARG);
  rig_close(&g);
}

static void planted_faults_change_the_clip_factor(void)
{
  CHECK_OK(fault_plant("clip-max-for-min", 1, 0));
  CHECK_NEAR(factor_of(100, 16, NULL), 1, 0);
  CHECK_NEAR(factor_of(500, 16, NULL), 5 / (4 + 1e-6), 0);
  CHECK_OK(fault_plant("clip-inf-handling", 1, 0));
  CHECK_NEAR(factor_of(100, 16, NULL), 1 / (4 + 1e-6), 0); /* right while nothing is infinite */
  CHECK_NEAR(factor_of(500, 16, NULL), 1, 0);
  CHECK_NEAR(factor_of(100, INFINITY, NULL), 0, 0); /* times an infinite gradient: NaN */
  CHECK(isnan(factor_of(0, 16, NULL)));             /* off is an infinite limit: 0 * inf in the select */
  CHECK_OK(fault_plant("none", 1, 0));
}

static void a_reciprocal_of_zero_is_zero(void)
{
  static const double in[] = {4, -0.5, 0}, out[] = {0.25, -2, 0};
  for (int i = 0; i < 3; i++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    arena_open(&a);
    trial_tensors(&reciprocal, DTYPE_F64, 0, 0, &a, t);
    put(&t[1], 0, 0, in[i]);
    trial_run(&reciprocal, DEV_CPU, 1, t);
    CHECK_NEAR(get(&t[0], 0, 0), out[i], 0);
    arena_close(&a);
  }
}

static void a_sleep_takes_at_least_its_time(void)
{
  struct rig g;
  rig_open(&g, DEV_CPU, 1);
  const double start = clock_ms();
  CHECK_OK(op_sleep(g.compute, 8));
  CHECK_OK(rig_sync(&g));
  CHECK(clock_ms() - start >= 8);
  CHECK_ERR(op_sleep(g.compute, -1), ERR_ARG);
  CHECK_ERR(op_sleep(g.compute, NAN), ERR_ARG);
  rig_close(&g);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(bits_depend_on_the_inputs_alone),
      TEST(what_it_touches_is_declared),
      TEST(wrong_shapes_are_refused),
      TEST(adamw_is_the_published_rule),
      TEST(sgd_is_the_published_rule),
      TEST(an_update_number_below_one_is_an_error),
      TEST(the_copy_is_the_new_weights_rounded_once),
      TEST(a_skipped_step_changes_no_bit),
      TEST(the_flag_is_declared_and_its_shape_looked_at),
      TEST(only_float32_weights_are_rounded),
      TEST(float32_is_as_near_as_its_roundings),
      TEST(the_clip_factor_is_torchs),
      TEST(a_norm_that_is_not_finite_is_seen),
      TEST(planted_faults_change_the_clip_factor),
      TEST(a_reciprocal_of_zero_is_zero),
      TEST(a_sleep_takes_at_least_its_time),
  };
  return test_main("adamw", tests, sizeof tests / sizeof *tests);
}
