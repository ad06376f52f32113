/* layernorm_test.c - the contract of layernorm. */
#include "ops/op_trial.h"

static enum err call_fwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_layernorm_fwd(s, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], 1e-5);
}
static enum err call_bwd_x(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_layernorm_bwd_x(s, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5]);
}
static enum err call_bwd_w(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_layernorm_bwd_w(s, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5]);
}

static struct trial fwd(int64_t N, int64_t C)
{
  return (struct trial){.name = "layernorm_fwd",
                        .call = call_fwd,
                        .n = 6,
                        .operand = {{"y", TRIAL_OUT, TRIAL_REAL, N, C},
                                    {"mean", TRIAL_OUT, TRIAL_STATE, N, 1},
                                    {"rstd", TRIAL_OUT, TRIAL_STATE, N, 1},
                                    {"x", TRIAL_IN, TRIAL_REAL, N, C},
                                    {"w", TRIAL_IN, TRIAL_REAL, 1, C},
                                    {"b", TRIAL_IN, TRIAL_REAL, 1, C}}};
}
static struct trial bwd_x(int64_t N, int64_t C)
{
  return (struct trial){.name = "layernorm_bwd_x",
                        .call = call_bwd_x,
                        .n = 6,
                        .operand = {{"dx", TRIAL_OUT, TRIAL_REAL, N, C},
                                    {"dy", TRIAL_IN, TRIAL_REAL, N, C},
                                    {"x", TRIAL_IN, TRIAL_REAL, N, C},
                                    {"w", TRIAL_IN, TRIAL_REAL, 1, C},
                                    {"mean", TRIAL_IN, TRIAL_STATE, N, 1},
                                    {"rstd", TRIAL_IN, TRIAL_STATE, N, 1, fill_positive}}};
}
static struct trial bwd_w(int64_t N, int64_t C)
{
  return (struct trial){.name = "layernorm_bwd_w",
                        .call = call_bwd_w,
                        .n = 6,
                        .operand = {{"dw", TRIAL_INOUT, TRIAL_STATE, 1, C},
                                    {"db", TRIAL_INOUT, TRIAL_STATE, 1, C},
                                    {"dy", TRIAL_IN, TRIAL_REAL, N, C},
                                    {"x", TRIAL_IN, TRIAL_REAL, N, C},
                                    {"mean", TRIAL_IN, TRIAL_STATE, N, 1},
                                    {"rstd", TRIAL_IN, TRIAL_STATE, N, 1, fill_positive}}};
}

static const int64_t sizes[][2] = {{1, 1}, {1, 3}, {3, 17}, {17, 33}, {33, 1}, {40, 1030}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void bits_depend_on_the_inputs_alone(void)
{
  for (int i = 0; i < SIZES; i++) {
    const struct trial a = fwd(sizes[i][0], sizes[i][1]), b = bwd_x(sizes[i][0], sizes[i][1]),
                       c = bwd_w(sizes[i][0], sizes[i][1]);
    trial_same_bits(&a);
    trial_same_bits(&b);
    trial_same_bits(&c);
  }
}

static void what_it_touches_is_declared(void)
{
  const struct trial a = fwd(3, 5), b = bwd_x(3, 5), c = bwd_w(3, 5);
  trial_declares(&a);
  trial_declares(&b);
  trial_declares(&c);
}

static void wrong_shapes_are_refused(void)
{
  const struct trial a = fwd(3, 5), b = bwd_x(3, 5), c = bwd_w(3, 5);
  trial_refuses(&a);
  trial_refuses(&b);
  trial_refuses(&c);
}

/* By hand: x = 1, 2, 3, 4 has mean 5/2 and variance 5/4. */
static void a_small_case_by_hand(void)
{
  struct arena a;
  struct tensor t[TRIAL_OPERANDS];
  const struct trial x = fwd(1, 4);
  arena_open(&a);
  trial_tensors(&x, DTYPE_F64, 0, 0, &a, t);
  fill_values(&t[3], (const double[]){1, 2, 3, 4});
  fill_values(&t[4], (const double[]){1, 2, -1, 0.5});
  fill_values(&t[5], (const double[]){0, 1, 2, 3});
  trial_run(&x, DEV_CPU, 1, t);
  const double r = 1 / sqrt(1.25 + 1e-5), want[4] = {-1.5 * r, 1 - r, 2 - 0.5 * r, 3 + 0.75 * r};
  CHECK_NEAR(get(&t[1], 0, 0), 2.5, 0);
  CHECK_NEAR(get(&t[2], 0, 0), r, 1e-16);
  for (int c = 0; c < 4; c++) CHECK_NEAR(get(&t[0], 0, c), want[c], 1e-15);
  arena_close(&a);
}

static void backward_matches_central_differences(void)
{
  enum { N = 5, C = 7 };
  struct arena a;
  struct tensor f[TRIAL_OPERANDS], x[TRIAL_OPERANDS], w[TRIAL_OPERANDS];
  const struct trial forward = fwd(N, C), back_x = bwd_x(N, C), back_w = bwd_w(N, C);
  arena_open(&a);
  trial_tensors(&forward, DTYPE_F64, 2, 0, &a, f);
  trial_run(&forward, DEV_CPU, 1, f);
  trial_tensors(&back_x, DTYPE_F64, 2, 0, &a, x);
  x[2] = f[3], x[3] = f[4], x[4] = f[1], x[5] = f[2];
  trial_run(&back_x, DEV_CPU, 1, x);
  trial_tensors(&back_w, DTYPE_F64, 2, 0, &a, w);
  w[2] = x[1], w[3] = f[3], w[4] = f[1], w[5] = f[2];
  struct tensor dw0 = arena_tensor(&a, DTYPE_F64, 1, C, 0, 0), db0 = arena_tensor(&a, DTYPE_F64, 1, C, 0, 0);
  for (int c = 0; c < C; c++) put(&dw0, 0, c, get(&w[0], 0, c)), put(&db0, 0, c, get(&w[1], 0, c));
  trial_run(&back_w, DEV_CPU, 1, w);
  for (int c = 0; c < C; c++) { /* added to */
    put(&w[0], 0, c, get(&w[0], 0, c) - get(&dw0, 0, c));
    put(&w[1], 0, c, get(&w[1], 0, c) - get(&db0, 0, c));
  }
  trial_slope(&forward, f, 0, &x[1], 3, &x[0], 2e-8); /* worst seen is recorded below each bound's decade */
  trial_slope(&forward, f, 0, &x[1], 4, &w[0], 1e-9);
  trial_slope(&forward, f, 0, &x[1], 5, &w[1], 1e-9);
  arena_close(&a);
}

static void dx_may_be_dy(void)
{
  for (int type = 0; type < REALS; type++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    const struct trial x = bwd_x(33, 17);
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

/* Statistics are rounded once from double.  Forward: (x - mean) rstd w + b has four roundings and those of mean and
 * rstd, each of a value up to twice the largest; backward: three terms of that kind.  Worst seen: 1.9, 2.1 and 1.0
 * units. */
static void float32_is_as_near_as_its_roundings(void)
{
  for (int i = 1; i < SIZES; i++) {
    const struct trial a = fwd(sizes[i][0], sizes[i][1]), b = bwd_x(sizes[i][0], sizes[i][1]),
                       c = bwd_w(sizes[i][0], sizes[i][1]);
    trial_rounding(&a, 6);
    trial_rounding(&b, 8);
    trial_rounding(&c, 4);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(bits_depend_on_the_inputs_alone),
      TEST(what_it_touches_is_declared),
      TEST(wrong_shapes_are_refused),
      TEST(a_small_case_by_hand),
      TEST(backward_matches_central_differences),
      TEST(dx_may_be_dy),
      TEST(float32_is_as_near_as_its_roundings),
  };
  return test_main("layernorm", tests, sizeof tests / sizeof *tests);
}
