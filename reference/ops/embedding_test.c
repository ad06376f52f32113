/* embedding_test.c - the contract of the embedding, and its planted fault. */
#include "base/fault.h"
#include "ops/op_trial.h"

enum { V = 9, P = 7 };
enum { TOKENS = 1, POSITIONS = 2 }; /* which gradients are asked for */

static enum err call_fwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_embedding_fwd(s, &t[0], &t[1], &t[2], &t[3], &t[4]);
}
static enum err call_bwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_embedding_bwd_w(s, x->number & TOKENS ? &t[3] : NULL, x->number & POSITIONS ? &t[4] : NULL, &t[0], &t[1],
                            &t[2]);
}
static struct trial fwd(int64_t B, int64_t T, int64_t C)
{
  return (struct trial){.name = "embedding_fwd",
                        .call = call_fwd,
                        .n = 5,
                        .operand = {{"y", TRIAL_OUT, TRIAL_REAL, B * T, C},
                                    {"wte", TRIAL_IN, TRIAL_REAL, V, C, NULL, .any_rows = true},
                                    {"wpe", TRIAL_IN, TRIAL_REAL, P, C, NULL, .any_rows = true},
                                    {"tokens", TRIAL_IN, DTYPE_I32, B, T},
                                    {"positions", TRIAL_IN, DTYPE_I32, B, T}}};
}
static struct trial bwd(int64_t B, int64_t T, int64_t C)
{
  return (struct trial){.name = "embedding_bwd_w",
                        .call = call_bwd,
                        .number = TOKENS | POSITIONS,
                        .n = 5,
                        .operand = {{"dy", TRIAL_IN, TRIAL_REAL, B * T, C},
                                    {"tokens", TRIAL_IN, DTYPE_I32, B, T},
                                    {"positions", TRIAL_IN, DTYPE_I32, B, T},
                                    {"dwte", TRIAL_INOUT, TRIAL_REAL, V, C, NULL, .any_rows = true},
                                    {"dwpe", TRIAL_INOUT, TRIAL_REAL, P, C, NULL, .any_rows = true}}};
}

static const int64_t sizes[][3] = {{1, 1, 1}, {1, 3, 17}, {3, 1, 33}, {2, 17, 3}, {3, 11, 600}, {5, 7, 1030}};
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
  const struct trial a = fwd(2, 3, 5), b = bwd(2, 3, 5);
  trial_declares(&a);
  trial_declares(&b);
}

static void wrong_shapes_are_refused(void)
{
  const struct trial a = fwd(2, 3, 5), b = bwd(2, 3, 5);
  trial_refuses(&a);
  trial_refuses(&b);
}

static void a_small_case_by_hand(void)
{
  struct arena a;
  struct tensor f[TRIAL_OPERANDS], b[TRIAL_OPERANDS];
  const struct trial forward = fwd(1, 3, 2), back = bwd(1, 3, 2);
  arena_open(&a);
  trial_tensors(&forward, DTYPE_F32, 0, 0, &a, f);
  trial_tensors(&back, DTYPE_F32, 0, 0, &a, b);
  for (int r = 0; r < V; r++) put(&f[1], r, 0, r), put(&f[1], r, 1, 10 * r);
  for (int r = 0; r < P; r++) put(&f[2], r, 0, 100 * r), put(&f[2], r, 1, 1000 * r);
  fill_values(&f[3], (const double[]){8, 0, 8});
  fill_values(&f[4], (const double[]){0, 6, 1});
  trial_run(&forward, DEV_CPU, 1, f);
  const double y[] = {8, 80, 600, 6000, 108, 1080};
  for (int i = 0; i < 6; i++) CHECK_NEAR(get(&f[0], i / 2, i % 2), y[i], 0);
  for (int i = 0; i < 2 * V; i++) put(&b[3], i / 2, i % 2, i);
  for (int i = 0; i < 2 * P; i++) put(&b[4], i / 2, i % 2, i);
  fill_values(&b[0], (const double[]){1, 2, 3, 4, 5, 6});
  b[1] = f[3], b[2] = f[4];
  trial_run(&back, DEV_CPU, 1, b);
  for (int i = 0; i < 2 * V; i++)
    CHECK_NEAR(get(&b[3], i / 2, i % 2), i + (i == 16 ? 6 : i == 17 ? 8 : i == 0 ? 3 : i == 1 ? 4 : 0), 0);
  for (int i = 0; i < 2 * P; i++)
    CHECK_NEAR(get(&b[4], i / 2, i % 2),
               i + (i == 0    ? 1
                    : i == 1  ? 2
                    : i == 12 ? 3
                    : i == 13 ? 4
                    : i == 2  ? 5
                    : i == 3  ? 6
                              : 0),
               0);
  arena_close(&a);
}

static void backward_matches_central_differences(void)
{
  struct arena a;
  struct tensor f[TRIAL_OPERANDS], b[TRIAL_OPERANDS];
  const struct trial forward = fwd(2, 7, 3), back = bwd(2, 7, 3);
  arena_open(&a);
  trial_tensors(&forward, DTYPE_F64, 2, 0, &a, f);
  trial_tensors(&back, DTYPE_F64, 2, 0, &a, b);
  for (int i = 3; i < 5; i++)
    for (int64_t r = 0; r < b[i].rows; r++)
      for (int64_t c = 0; c < b[i].cols; c++) put(&b[i], r, c, 0);
  b[1] = f[3], b[2] = f[4];
  trial_run(&back, DEV_CPU, 1, b);
  trial_slope(&forward, f, 0, &b[0], 1, &b[3], 1e-9);
  trial_slope(&forward, f, 0, &b[0], 2, &b[4], 1e-9);
  arena_close(&a);
}

/* Either gradient may be left out; then neither it nor its ids are touched or declared. */
static void a_gradient_not_wanted_is_left_alone(void)
{
  for (int which = TOKENS; which <= POSITIONS; which++) {
    struct arena a;
    struct tensor both[TRIAL_OPERANDS], one[TRIAL_OPERANDS];
    const struct trial all = bwd(2, 7, 33);
    struct trial x = all;
    x.number = which;
    arena_open(&a);
    trial_tensors(&all, DTYPE_F32, 0, 0, &a, both);
    trial_tensors(&all, DTYPE_F32, 0, 0, &a, one);
    const int unused = which == TOKENS ? 2 : 1;
    for (int64_t i = 0; i < 14; i++) put(&one[unused], i / 7, i % 7, 1 << 30); /* would be ERR_NUMERIC */
    trial_run(&all, DEV_CPU, 1, both);
    trial_run(&x, DEV_CPU, 1, one);
    CHECK(same_bits(&one[which == TOKENS ? 3 : 4], &both[which == TOKENS ? 3 : 4]));
    CHECK(!trial_collides(&x, one, one[which == TOKENS ? 4 : 3].at, 4, true));
    CHECK(!trial_collides(&x, one, one[unused].at, 4, true));
    free(a.at);
  }
}

/* Rows are added in index order, onto what was there. */
static void gradients_add_rows_in_index_order(void)
{
  struct arena a;
  struct tensor t[TRIAL_OPERANDS];
  const struct trial x = bwd(3, 11, 5);
  arena_open(&a);
  trial_tensors(&x, DTYPE_F32, 0, 0, &a, t);
  const struct tensor want = arena_tensor(&a, DTYPE_F32, V, 5, 0, 0);
  fill_seeded(&want, 103);
  for (int n = 0; n < 33; n++)
    for (int c = 0; c < 5; c++) {
      const int64_t row = (int64_t)get(&t[1], n / 11, n % 11);
      put(&want, row, c, (double)((float)get(&want, row, c) + (float)get(&t[0], n, c)));
    }
  trial_run(&x, DEV_CPU, 2, t);
  CHECK(same_bits(&t[3], &want));
  arena_close(&a);
}

static void an_id_outside_the_table_is_named(void)
{
  static const struct {
    int operand;
    double id;
    const char *text;
  } bad[] = {{3, V, "token 9 at [1, 2]"},
             {3, -1, "token -1 at [1, 2]"},
             {4, P, "position 7 at [1, 2]"},
             {4, -1, "position -1 at [1, 2]"}};
  for (int way = 0; way < 8; way++) {
    struct arena a;
    struct rig g;
    struct tensor t[TRIAL_OPERANDS];
    const struct trial x = way < 4 ? fwd(2, 3, 5) : bwd(2, 3, 5);
    arena_open(&a);
    rig_open(&g, DEV_CPU, 1);
    trial_tensors(&x, DTYPE_F32, 0, 0, &a, t);
    put(&t[bad[way % 4].operand - (way < 4 ? 0 : 2)], 1, 2, bad[way % 4].id);
    CHECK_OK(x.call(g.compute, t, &x));
    CHECK_ERR(dev_sync(g.dev), ERR_NUMERIC);
    CHECK_TEXT_HAS(err_text(), bad[way % 4].text);
    rig_close(&g);
    arena_close(&a);
  }
}

/* The planted fault turns the order of the rows by the clock: within a few tries the bits differ,
 * and the values stay what they were up to rounding. */
static void the_planted_order_changes_bits_but_not_values(void)
{
  const struct trial x = bwd(5, 7, 600);
  struct arena a;
  struct tensor clean[TRIAL_OPERANDS];
  bool differs = false;
  arena_open(&a);
  trial_tensors(&x, DTYPE_F32, 0, 0, &a, clean);
  trial_run(&x, DEV_CPU, 1, clean);
  CHECK_OK(fault_plant("rng-nondeterministic-embedding-bwd", 1, 0));
  for (int i = 0; i < 200 && !differs; i++) {
    struct arena b;
    struct tensor t[TRIAL_OPERANDS];
    arena_open(&b);
    trial_tensors(&x, DTYPE_F32, 0, 0, &b, t);
    trial_run(&x, DEV_CPU, 1, t);
    differs = !same_bits(&t[3], &clean[3]);
    CHECK_NEAR(distance(&t[3], &clean[3]), 0, 35 * 35 * 0x1p-24);
    arena_close(&b);
  }
  CHECK_OK(fault_plant("none", 1, 0));
  CHECK(differs);
  arena_close(&a);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(bits_depend_on_the_inputs_alone),
      TEST(what_it_touches_is_declared),
      TEST(wrong_shapes_are_refused),
      TEST(a_small_case_by_hand),
      TEST(gradients_add_rows_in_index_order),
      TEST(backward_matches_central_differences),
      TEST(a_gradient_not_wanted_is_left_alone),
      TEST(an_id_outside_the_table_is_named),
      TEST(the_planted_order_changes_bits_but_not_values),
  };
  return test_main("embedding", tests, sizeof tests / sizeof *tests);
}
