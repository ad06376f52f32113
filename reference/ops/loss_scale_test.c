/* loss_scale_test.c - which gradient was the first that is not finite, and the scale step by step. */
#include "ops/op_trial.h"

static enum err call_overflow(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_overflow(s, &t[0], &t[1], x->number, (int)x->first, 2);
}
static enum err call_scale(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_loss_scale(s, &t[0], &t[1], x->number);
}

/* number: the stage; first: the rank of the first row.  Two ranks, two micro-batches. */
static struct trial overflow(int stage, int rank, int64_t buckets)
{
  return (struct trial){.name = "overflow",
                        .call = call_overflow,
                        .number = stage,
                        .first = rank,
                        .n = 2,
                        .operand = {{"key", TRIAL_OUT, DTYPE_F64, 1, 1},
                                    {"largest", TRIAL_IN, DTYPE_F64, 4, buckets, .any_cols = true}}};
}
static struct trial scale(int interval)
{
  return (struct trial){.name = "loss_scale",
                        .call = call_scale,
                        .number = interval,
                        .n = 2,
                        .operand = {{"state", TRIAL_INOUT, DTYPE_F64, 1, OP_SCALE_STATE}, {"key", TRIAL_IN, DTYPE_F64, 1, 1}}};
}

static void what_it_touches_is_declared(void)
{
  const struct trial a = overflow(1, 3, 5), b = scale(2);
  trial_declares(&a);
  trial_declares(&b);
  trial_same_bits(&a);
  trial_same_bits(&b);
}

static void wrong_shapes_are_refused(void)
{
  const struct trial a = overflow(1, 3, 5), b = scale(2);
  trial_refuses(&a);
  trial_refuses(&b);
  struct rig g;
  rig_open(&g, DEV_CPU, 1);
  double room[8] = {0};
  const struct tensor key = tensor_at(room, DTYPE_F64, 1, 1), largest = tensor_at(room + 1, DTYPE_F64, 1, 4),
                      state = tensor_at(room, DTYPE_F64, 1, OP_SCALE_STATE);
  CHECK_ERR(op_overflow(g.compute, rig_at(&g, &key), rig_at(&g, &largest), 0, 0, 2), ERR_ARG);
  CHECK_ERR(op_overflow(g.compute, rig_at(&g, &key), rig_at(&g, &largest), 0, 0, 0), ERR_ARG);
  CHECK_ERR(op_overflow(g.compute, rig_at(&g, &key), rig_at(&g, &largest), 1 << 12, 0, 1), ERR_ARG);
  CHECK_ERR(op_overflow(g.compute, rig_at(&g, &key), rig_at(&g, &largest), 0, -1, 1), ERR_ARG);
  CHECK_ERR(op_loss_scale(g.compute, rig_at(&g, &state), rig_at(&g, &key), 0), ERR_ARG);
  rig_close(&g);
}

static double key_of(int stage, int rank, const double *largest, int64_t buckets)
{
  struct arena a;
  struct tensor t[TRIAL_OPERANDS];
  const struct trial x = overflow(stage, rank, buckets);
  arena_open(&a);
  trial_tensors(&x, DTYPE_F64, 0, 0, &a, t);
  fill_values(&t[1], largest);
  trial_run(&x, DEV_CPU, 1, t);
  const double key = get(&t[0], 0, 0);
  arena_close(&a);
  return key;
}

static void the_first_is_the_earliest_in_the_order_of_backward(void)
{
  enum { B = 3 };
  double x[4 * B];
  const double bad[] = {INFINITY, NAN, -INFINITY, -NAN};
  for (int i = 0; i < 4 * B; i++) x[i] = i * 1e300;
  CHECK_NEAR(key_of(0, 0, x, B), 0, 0); /* however large */
  for (int i = 0; i < 4 * B; i++) {
    double one[4 * B];
    memcpy(one, x, sizeof one);
    one[i] = bad[i % 4];
    const double key = key_of(2, 5, one, B);
    CHECK(key > 0 && op_overflow_rank(key) == 5 + i / B % 2); /* rows are ranks 5, 6, 5, 6 */
    const double later = key_of(3, 5, one, B), other = key_of(2, 6, one, B);
    CHECK(later > key && op_overflow_rank(later) == op_overflow_rank(key)); /* backward comes from the last stage */
    CHECK(other < key);
    one[i] = 0;
    one[i - i % B] = INFINITY; /* the first bucket of that row */
    CHECK(key_of(2, 5, one, B) >= key && (key_of(2, 5, one, B) > key) == (i % B > 0));
    one[(i / B + 1) % 4 * B] = NAN; /* and of another rank's: the lower one is named */
    CHECK(op_overflow_rank(key_of(2, 5, one, B)) == 5);
  }
  const double last = key_of((1 << 12) - 1, (1 << 20) - 2, (const double[]){NAN, 0, 0, 0}, 1);
  CHECK(last + 1 > last && op_overflow_rank(last) == (1 << 20) - 2); /* whole numbers of which none is lost */
}

/* The key as loss_scale_args.h states it, at its ends. */
static void keys_are_numbers_of_three_digits(void)
{
  enum { PLACES = 1 << 20 };
  CHECK(key_of((1 << 12) - 1, 0, (const double[]){NAN, 0, 0, 0}, 1) == 0x1p52);
  CHECK(key_of(0, PLACES - 2, (const double[]){0, INFINITY, 0, 0, 0, 0, 0, 0}, 2) == 1 + (PLACES - 2.0) * PLACES + 1);
}

/* One state, stepped: good steps and overflows as in the list. */
static void the_scale_doubles_after_good_steps_and_halves_at_an_overflow(void)
{
  static const struct { bool overflow; double used, next, good; } steps[] = {
    {false, 1024, 1024, 1}, {false, 1024, 2048, 0}, {false, 2048, 2048, 1}, {true, 2048, 1024, 0}, {true, 1024, 512, 0},
    {false, 512, 512, 1},   {true, 512, 256, 0},    {false, 256, 256, 1},   {false, 256, 512, 0}};
  struct arena a;
  struct tensor t[TRIAL_OPERANDS];
  const struct trial x = scale(2);
  arena_open(&a);
  trial_tensors(&x, DTYPE_F64, 0, 0, &a, t);
  fill_values(&t[0], (const double[]){1024, 0, NAN, NAN});
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    put(&t[1], 0, 0, steps[i].overflow ? 7 : 0);
    trial_run(&x, DEV_CPU, 1, t);
    CHECK(get(&t[0], 0, OP_SCALE_USED) == steps[i].used && get(&t[0], 0, OP_SCALE_NEXT) == steps[i].next);
    CHECK(get(&t[0], 0, OP_SCALE_GOOD) == steps[i].good && get(&t[0], 0, OP_SCALE_SKIP) == steps[i].overflow);
  }
  arena_close(&a);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(what_it_touches_is_declared),
      TEST(wrong_shapes_are_refused),
      TEST(the_first_is_the_earliest_in_the_order_of_backward),
      TEST(keys_are_numbers_of_three_digits),
      TEST(the_scale_doubles_after_good_steps_and_halves_at_an_overflow),
  };
  return test_main("loss_scale", tests, sizeof tests / sizeof *tests);
}
