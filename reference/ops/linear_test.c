/* linear_test.c - the contract of linear, with w either way round and with or without a bias, and of the bias alone. */
#include "ops/op_trial.h"

enum { TRANSPOSED = 1, BIAS = 2, FORMS = 4 };

static enum err call_fwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_linear_fwd(s, &t[0], &t[1], &t[2], x->number & BIAS ? &t[3] : NULL, x->number & TRANSPOSED);
}
static enum err call_bwd_x(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_linear_bwd_x(s, &t[0], &t[1], &t[2], x->number & TRANSPOSED);
}
static enum err call_bwd_w(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_linear_bwd_w(s, &t[0], x->number & BIAS ? &t[3] : NULL, &t[1], &t[2], x->number & TRANSPOSED);
}

static struct trial_operand weight(int form, enum trial_role role, int64_t I, int64_t O)
{
  struct trial_operand w = {
      .name = "w", .role = role, .type = role == TRIAL_IN ? TRIAL_REAL : TRIAL_STATE, .rows = I, .cols = O};
  if (form & TRANSPOSED) w.rows = O, w.cols = I;
  return w;
}
static struct trial fwd(int form, int64_t N, int64_t I, int64_t O)
{
  return (struct trial){.name = "linear_fwd",
                        .call = call_fwd,
                        .number = form,
                        .by_cublas = true,
                        .n = form & BIAS ? 4 : 3,
                        .operand = {{"y", TRIAL_OUT, TRIAL_REAL, N, O},
                                    {"x", TRIAL_IN, TRIAL_REAL, N, I},
                                    weight(form, TRIAL_IN, I, O),
                                    {"b", TRIAL_IN, TRIAL_REAL, 1, O}}};
}
static struct trial bwd_x(int form, int64_t N, int64_t I, int64_t O)
{
  return (struct trial){.name = "linear_bwd_x",
                        .call = call_bwd_x,
                        .number = form,
                        .by_cublas = true,
                        .n = 3,
                        .operand = {{"dx", TRIAL_OUT, TRIAL_REAL, N, I},
                                    {"dy", TRIAL_IN, TRIAL_REAL, N, O},
                                    weight(form, TRIAL_IN, I, O)}};
}
static struct trial bwd_w(int form, int64_t N, int64_t I, int64_t O)
{
  return (struct trial){.name = "linear_bwd_w",
                        .call = call_bwd_w,
                        .number = form,
                        .by_cublas = true,
                        .n = form & BIAS ? 4 : 3,
                        .operand = {weight(form, TRIAL_INOUT, I, O),
                                    {"dy", TRIAL_IN, TRIAL_REAL, N, O},
                                    {"x", TRIAL_IN, TRIAL_REAL, N, I},
                                    {"db", TRIAL_INOUT, TRIAL_STATE, 1, O}}};
}

static enum err call_bias(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_bias_fwd(s, &t[0], &t[1]);
}
static struct trial bias(int64_t N, int64_t O)
{
  return (struct trial){
      .name = "bias_fwd",
      .call = call_bias,
      .n = 2,
      .operand = {{"y", TRIAL_INOUT, TRIAL_REAL, N, O, NULL, .any_rows = true}, {"b", TRIAL_IN, TRIAL_REAL, 1, O}}};
}

static const int64_t sizes[][3] = {{1, 1, 1}, {3, 17, 33}, {17, 33, 3}, {33, 3, 17}, {130, 48, 144}, {40, 7, 1030}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void each(void (*check)(const struct trial *), int form, int64_t N, int64_t I, int64_t O)
{
  const struct trial a = fwd(form, N, I, O), b = bwd_x(form, N, I, O), c = bwd_w(form, N, I, O), d = bias(N, O);
  check(&a);
  check(&b);
  check(&c);
  if (form == 0) check(&d);
}

static void bits_depend_on_the_inputs_alone(void)
{
  for (int form = 0; form < FORMS; form++)
    for (int i = 0; i < SIZES; i++) each(trial_same_bits, form, sizes[i][0], sizes[i][1], sizes[i][2]);
}
static void what_it_touches_is_declared(void)
{
  for (int form = 0; form < FORMS; form++) each(trial_declares, form, 3, 4, 5);
}
static void wrong_shapes_are_refused(void)
{
  for (int form = 0; form < FORMS; form++) each(trial_refuses, form, 3, 4, 5);
}

static void fewer_threads_than_asked_for_are_refused(void) { each(trial_needs_its_threads, BIAS, 5, 4, 3); }

static void near(const struct trial *x)
{
  trial_rounding(x, 40);
} /* sqrt(130) terms of one another's size, times 3.5 */
static void float32_is_as_near_as_its_roundings(void)
{
  for (int form = 0; form < FORMS; form++)
    for (int i = 0; i < SIZES; i++) each(near, form, sizes[i][0], sizes[i][1], sizes[i][2]);
}

/* x = [1 2; 3 4], w = [1 0 2; 0 1 -1], b = [10 20 30] */
static void a_small_case_by_hand(void)
{
  for (int form = 0; form < FORMS * REALS; form++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    const struct trial x = fwd(form % FORMS, 2, 2, 3);
    arena_open(&a);
    trial_tensors(&x, reals[form / FORMS], 0, 0, &a, t);
    fill_values(&t[1], (const double[]){1, 2, 3, 4});
    fill_values(&t[2], form & TRANSPOSED ? (const double[]){1, 0, 0, 1, 2, -1} : (const double[]){1, 0, 2, 0, 1, -1});
    if (form & BIAS) fill_values(&t[3], (const double[]){10, 20, 30});
    trial_run(&x, DEV_CPU, 1, t);
    const double b = form & BIAS ? 10 : 0, want[] = {1 + b, 2 + 2 * b, 3 * b, 3 + b, 4 + 2 * b, 2 + 3 * b};
    for (int i = 0; i < 6; i++) CHECK_NEAR(get(&t[0], i / 3, i % 3), want[i], 0);
    arena_close(&a);
  }
}

static void backward_matches_central_differences(void)
{
  for (int form = 0; form < FORMS; form++) {
    struct arena a;
    struct tensor f[TRIAL_OPERANDS], x[TRIAL_OPERANDS], w[TRIAL_OPERANDS];
    const struct trial forward = fwd(form, 5, 4, 3), back_x = bwd_x(form, 5, 4, 3), back_w = bwd_w(form, 5, 4, 3);
    arena_open(&a);
    trial_tensors(&forward, DTYPE_F64, 2, 0, &a, f);
    trial_tensors(&back_x, DTYPE_F64, 2, 0, &a, x);
    trial_tensors(&back_w, DTYPE_F64, 2, 0, &a, w);
    x[2] = f[2], w[1] = x[1], w[2] = f[1];
    for (int64_t i = 0; i < tensor_count(&w[0]); i++) put(&w[0], i / w[0].cols, i % w[0].cols, 0);
    for (int64_t i = 0; form & BIAS && i < 3; i++) put(&w[3], 0, i, 0);
    trial_run(&back_x, DEV_CPU, 1, x);
    trial_run(&back_w, DEV_CPU, 1, w);
    trial_slope(&forward, f, 0, &x[1], 1, &x[0], 1e-9);
    trial_slope(&forward, f, 0, &x[1], 2, &w[0], 1e-9);
    if (form & BIAS) trial_slope(&forward, f, 0, &x[1], 3, &w[3], 1e-9);
    arena_close(&a);
  }
}

/* Two micro-batches, one after the other, into one gradient; the bias's is in doubles until its last rounding. */
static void weight_gradients_are_added_to(void)
{
  for (int form = 0; form < FORMS; form++) {
    struct arena a;
    struct tensor once[TRIAL_OPERANDS], twice[TRIAL_OPERANDS];
    const struct trial x = bwd_w(form, 5, 4, 3);
    arena_open(&a);
    trial_tensors(&x, DTYPE_F64, 0, 0, &a, once);
    trial_tensors(&x, DTYPE_F64, 0, 0, &a, twice);
    const struct tensor before[2] = {arena_tensor(&a, DTYPE_F64, once[0].rows, once[0].cols, 0, 0),
                                     arena_tensor(&a, DTYPE_F64, 1, 3, 0, 0)};
    for (int i = 0; i < 2; i++) fill_seeded(&before[i], i ? 103 : 100); /* as trial_tensors() fills dw and db */
    trial_run(&x, DEV_CPU, 1, once);
    trial_run(&x, DEV_CPU, 1, twice);
    trial_run(&x, DEV_CPU, 1, twice);
    for (int i = 0; i < (form & BIAS ? 2 : 1); i++) {
      const struct tensor *o = &once[3 * i], *t = &twice[3 * i];
      for (int64_t k = 0; k < tensor_count(o); k++) {
        const int64_t r = k / o->cols, c = k % o->cols;
        CHECK_NEAR(get(t, r, c) - get(o, r, c), get(o, r, c) - get(&before[i], r, c), 1e-14);
      }
    }
    arena_close(&a);
  }
}

/* The product first, the bias after it: to the bit what the layer with its bias gives, and that is y + b; but a GPU's
 * library may add up the product with a bias in another order (at most 48 terms of size 1). */
static void a_bias_added_later_is_the_layers_own(void)
{
  for (int type = 0; type < 2; type++)
    for (int i = 0; i < SIZES; i++) {
      struct arena a;
      struct tensor whole[TRIAL_OPERANDS], plain[TRIAL_OPERANDS];
      const struct trial with = fwd(BIAS, sizes[i][0], sizes[i][1], sizes[i][2]),
                         without = fwd(0, sizes[i][0], sizes[i][1], sizes[i][2]),
                         later = bias(sizes[i][0], sizes[i][2]);
      arena_open(&a);
      trial_tensors(&with, type ? DTYPE_F64 : DTYPE_F32, 0, 0, &a, whole);
      trial_tensors(&without, type ? DTYPE_F64 : DTYPE_F32, 0, 0, &a, plain);
      const struct tensor sum[TRIAL_OPERANDS] = {plain[0], whole[3]};
      trial_run(&with, DEV_CPU, 1, whole);
      trial_run(&without, DEV_CPU, 1, plain);
      const double y = get(&plain[0], 0, 0), b = get(&whole[3], 0, 0);
      trial_run(&later, DEV_CPU, 1, sum);
      if (rig_on_gpu())
        CHECK_NEAR(distance(&sum[0], &whole[0]), 0, type ? 0x1p-44 : 0x1p-15);
      else
        CHECK(same_bits(&sum[0], &whole[0]));
      CHECK_NEAR(get(&sum[0], 0, 0), type ? y + b : (double)((float)y + (float)b), 0);
      arena_close(&a);
    }
}

/* What is kept of a product's shape is not the bias of the call that it was made for. */
static void each_call_has_its_own_bias(void)
{
  for (int type = 0; type < REALS; type++) {
    const struct trial x = fwd(BIAS, 3, 4, 8);
    struct arena a;
    struct rig g;
    struct tensor t[2][TRIAL_OPERANDS], apart[TRIAL_OPERANDS];
    arena_open(&a);
    for (int k = 0; k < 2; k++) trial_tensors(&x, reals[type], 0, 0, &a, t[k]);
    trial_tensors(&x, reals[type], 0, 0, &a, apart);
    for (int64_t c = 0; c < 8; c++) {
      put(&t[1][3], 0, c, 8 + (double)c);
      put(&apart[3], 0, c, 8 + (double)c);
    }
    rig_open(&g, DEV_CPU, 1);
    for (int k = 0; k < 2; k++) CHECK_OK(trial_call(&x, &g, t[k]));
    CHECK_OK(rig_sync(&g));
    rig_close(&g);
    trial_run(&x, DEV_CPU, 1, apart);
    CHECK_NEAR(distance(&t[1][0], &apart[0]), 0, 0.125); /* a GPU may choose another kernel */
    CHECK(!(distance(&t[0][0], &apart[0]) < 4));
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
      TEST(backward_matches_central_differences),
      TEST(weight_gradients_are_added_to),
      TEST(a_bias_added_later_is_the_layers_own),
      TEST(fewer_threads_than_asked_for_are_refused),
      TEST(float32_is_as_near_as_its_roundings),
      TEST(each_call_has_its_own_bias),
  };
  return test_main("linear", tests, sizeof tests / sizeof *tests);
}
