/* gelu_test.c - the contract of gelu. */
#include "ops/op_trial.h"

static enum err call_fwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_gelu_fwd(s, &t[0], &t[1]);
}
static enum err call_bwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_gelu_bwd(s, &t[0], &t[1], &t[2]);
}
static struct trial fwd(int64_t N, int64_t C)
{
  return (struct trial){.name = "gelu_fwd",
                        .call = call_fwd,
                        .n = 2,
                        .operand = {{"y", TRIAL_OUT, TRIAL_REAL, N, C}, {"x", TRIAL_IN, TRIAL_REAL, N, C}}};
}
static struct trial bwd(int64_t N, int64_t C)
{
  return (struct trial){.name = "gelu_bwd",
                        .call = call_bwd,
                        .n = 3,
                        .operand = {{"dx", TRIAL_OUT, TRIAL_REAL, N, C},
                                    {"dy", TRIAL_IN, TRIAL_REAL, N, C},
                                    {"x", TRIAL_IN, TRIAL_REAL, N, C}}};
}

static const int64_t sizes[][2] = {{1, 1}, {1, 3}, {3, 17}, {17, 33}, {33, 1}, {3, 8200}, {1, 20000}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void bits_depend_on_the_inputs_alone(void)
{
  for (int i = 0; i < SIZES; i++) {
    const struct trial a = fwd(sizes[i][0], sizes[i][1]), b = bwd(sizes[i][0], sizes[i][1]);
    trial_same_bits(&a);
    trial_same_bits(&b);
  }
}

static void what_it_touches_is_declared(void)
{
  const struct trial a = fwd(3, 5), b = bwd(3, 5);
  trial_declares(&a);
  trial_declares(&b);
}

static void wrong_shapes_are_refused(void)
{
  const struct trial a = fwd(3, 5), b = bwd(3, 5);
  trial_refuses(&a);
  trial_refuses(&b);
}

/* The published form, 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), in long double. */
static long double published(long double x)
{
  return 0.5L * x * (1 + tanhl(0.797884560802865355879892L * (x + 0.044715L * x * x * x)));
}

static void forward_is_the_published_form(void)
{
  enum { C = 4001 };
  for (int type = 0; type < 2; type++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    const struct trial x = fwd(1, C);
    arena_open(&a);
    trial_tensors(&x, type ? DTYPE_F64 : DTYPE_F32, 0, 0, &a, t);
    for (int i = 0; i < C; i++) put(&t[1], 0, i, (i - 2000) * 0x1p-8); /* -7.8 .. 7.8, exact in both types */
    trial_run(&x, DEV_CPU, 1, t);
    /* Relative to |x|: the argument of e^-2u carries four roundings and |2u| <= 56 there, but s falls as e^2u. */
    double worst = 0;
    for (int i = 0; i < C; i++) {
      const double v = get(&t[1], 0, i),
                   error = fabs((double)((long double)get(&t[0], 0, i) - published((long double)v)));
      worst = fmax(worst, error / fmax(fabs(v), 0x1p-8));
    }
    CHECK_NEAR(worst / (type ? 0x1p-53 : 0x1p-24), 0, 6);
    arena_close(&a);
  }
}

static void a_small_case_by_hand(void)
{
  struct arena a;
  struct tensor t[TRIAL_OPERANDS];
  const struct trial x = fwd(1, 3);
  arena_open(&a);
  trial_tensors(&x, DTYPE_F64, 0, 0, &a, t);
  fill_values(&t[1], (const double[]){0, 1, -1});
  trial_run(&x, DEV_CPU, 1, t);
  CHECK_NEAR(get(&t[0], 0, 0), 0, 0);
  CHECK_NEAR(get(&t[0], 0, 1), 0.8411919906082768, 1e-15); /* torch.nn.functional.gelu(1, approximate='tanh') */
  CHECK_NEAR(get(&t[0], 0, 2), 0.8411919906082768 - 1, 1e-15);
  arena_close(&a);
}

static void backward_matches_central_differences(void)
{
  struct arena a;
  struct tensor f[TRIAL_OPERANDS], b[TRIAL_OPERANDS];
  const struct trial forward = fwd(7, 9), back = bwd(7, 9);
  arena_open(&a);
  trial_tensors(&forward, DTYPE_F64, 2, 0, &a, f);
  for (int i = 0; i < 63; i++) put(&f[1], i / 9, i % 9, 4 * get(&f[1], i / 9, i % 9));
  trial_tensors(&back, DTYPE_F64, 2, 0, &a, b);
  b[2] = f[1];
  trial_run(&back, DEV_CPU, 1, b);
  trial_slope(&forward, f, 0, &b[1], 1, &b[0], 1e-9);
  arena_close(&a);
}

static void dx_may_be_dy(void)
{
  for (int type = 0; type < REALS; type++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    const struct trial x = bwd(17, 33);
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

/* From 51 elements on: the slope passes zero near -0.75, where one element alone has no digits left. */
static void float32_is_as_near_as_its_roundings(void)
{
  for (int i = 2; i < SIZES; i++) {
    const struct trial a = fwd(sizes[i][0], sizes[i][1]), b = bwd(sizes[i][0], sizes[i][1]);
    trial_rounding(&a, 6);
    trial_rounding(&b, 10);
  }
}

static void extremes_stay_finite(void)
{
  for (int type = 0; type < REALS; type++) {
    struct arena a;
    struct tensor f[TRIAL_OPERANDS], b[TRIAL_OPERANDS];
    const struct trial forward = fwd(1, 4), back = bwd(1, 4);
    arena_open(&a);
    trial_tensors(&forward, reals[type], 0, 0, &a, f);
    trial_tensors(&back, reals[type], 0, 0, &a, b);
    fill_values(&f[1], (const double[]){-6e4, -40, 40, 6e4});
    fill_values(&b[1], (const double[]){1, 1, 1, 1});
    b[2] = f[1];
    trial_run(&forward, DEV_CPU, 1, f);
    trial_run(&back, DEV_CPU, 1, b);
    const double y[] = {0, 0, 40, get(&f[1], 0, 3)}, dx[] = {0, 0, 1, 1};
    for (int i = 0; i < 4; i++) CHECK_NEAR(get(&f[0], 0, i), y[i], 0), CHECK_NEAR(get(&b[0], 0, i), dx[i], 0);
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
      TEST(forward_is_the_published_form),
      TEST(extremes_stay_finite),
      TEST(dx_may_be_dy),
      TEST(backward_matches_central_differences),
      TEST(float32_is_as_near_as_its_roundings),
  };
  return test_main("gelu", tests, sizeof tests / sizeof *tests);
}
