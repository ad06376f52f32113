/* dropout_test.c - the contract of dropout: the mask is that of the global token, whatever the cut. */
#include "ops/op_trial.h"

enum { POSITIONS_MAX = 50 };
static const struct rng_key key = {0x123456789abcdefu, RNG_DROPOUT + 9, 77}; /* the step is read from the device */

static enum err call(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_dropout(s, &t[0], &t[1], x->number % 100 / 100.0, key, &t[2], &t[3], POSITIONS_MAX, x->number / 100,
                    x->first);
}
/* n rows from row0 on of B sequences of T. */
static struct trial drop_rows(int percent, int64_t B, int64_t T, int64_t C, int64_t row0, int64_t n)
{
  return (struct trial){.name = "dropout",
                        .call = call,
                        .number = percent + 100 * (int)T,
                        .first = row0,
                        .n = 4,
                        .operand = {{"y", TRIAL_OUT, TRIAL_REAL, n, C},
                                    {"x", TRIAL_IN, TRIAL_REAL, n, C},
                                    {"step", TRIAL_IN, DTYPE_I32, 1, 1},
                                    {"samples", TRIAL_IN, DTYPE_I32, B, 1, NULL, .any_rows = true}}};
}
static struct trial drop(int percent, int64_t B, int64_t T, int64_t C) { return drop_rows(percent, B, T, C, 0, B * T); }

static const int64_t sizes[][3] = {{1, 1, 1}, {1, 3, 3}, {3, 1, 17}, {2, 17, 33}, {1, 33, 600}, {3, 7, 1029}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void bits_depend_on_the_inputs_alone(void)
{
  for (int i = 0; i < SIZES; i++) {
    const int64_t N = sizes[i][0] * sizes[i][1];
    const struct trial x = drop(30, sizes[i][0], sizes[i][1], sizes[i][2]),
                       last = drop_rows(30, sizes[i][0], sizes[i][1], sizes[i][2], N / 2, N - N / 2);
    trial_same_bits(&x);
    trial_same_bits(&last);
  }
}
static void what_it_touches_is_declared(void)
{
  const struct trial x = drop(30, 3, 2, 5);
  trial_declares(&x);
}
static void wrong_shapes_are_refused(void)
{
  const struct trial x = drop(30, 3, 2, 5);
  trial_refuses(&x);
  struct rig g;
  rig_open(&g, DEV_CPU, 1);
  float room[4] = {0};
  int32_t one[1] = {0};
  const struct tensor t = tensor_at(room, DTYPE_F32, 4, 1), step = tensor_at(one, DTYPE_I32, 1, 1);
  static const struct {
    double p;
    int64_t positions_max, sequence, row0;
    enum err want;
  } cases[] = {{1.0, 9, 4, 0, ERR_ARG},        {-0.1, 9, 4, 0, ERR_ARG}, {NAN, 9, 4, 0, ERR_ARG},
               {0.1, 3, 4, 0, ERR_ARG},        {0.1, 4, 4, 0, ERR_OK},   {0.1, 9, 0, 0, ERR_ARG},
               {0.1, 9, -4, 0, ERR_ARG},       {0.1, 9, 3, 0, ERR_ARG},  {0.1, 9, 5, 0, ERR_OK},
               {0.1, 9, 5, 1, ERR_OK},         {0.1, 9, 5, 2, ERR_ARG},  {0.1, 9, 5, -1, ERR_ARG},
               {0.1, 9, 5, INT64_MAX, ERR_ARG}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    CHECK_ERR(op_dropout(g.compute, rig_at(&g, &t), rig_at(&g, &t), cases[i].p, key, rig_at(&g, &step),
                         rig_at(&g, &step), cases[i].positions_max, cases[i].sequence, cases[i].row0),
              cases[i].want);
  const struct tensor none = tensor_at(one, DTYPE_I32, 0, 1);
  CHECK_ERR(
      op_dropout(g.compute, rig_at(&g, &t), rig_at(&g, &t), 0.1, key, rig_at(&g, &step), rig_at(&g, &none), 9, 4, 0),
      ERR_ARG);
  CHECK_OK(rig_sync(&g));
  rig_close(&g);
}

/* The contract in so many words, from base/rng.h. */
static void an_element_draws_its_own_word(void)
{
  for (int i = 0; i < SIZES; i++)
    for (int type = 0; type < REALS; type++) {
      const int64_t B = sizes[i][0], T = sizes[i][1], C = sizes[i][2];
      struct arena a;
      struct tensor t[TRIAL_OPERANDS];
      const struct trial x = drop(30, B, T, C);
      arena_open(&a);
      trial_tensors(&x, reals[type], 0, 0, &a, t);
      for (int64_t b = 0; b < B; b++) put(&t[3], b, 0, (double)(2000000011 - 1000 * b)); /* words beyond 2^32 */
      put(&t[2], 0, 0, 123456);
      trial_run(&x, DEV_CPU, 1, t);
      struct rng_key own = key;
      own.step = 123456;
      const double scale = 1 / (1 - 0.3);
      for (int64_t n = 0; n < B * T; n++)
        for (int64_t c = 0; c < C; c++) {
          const uint64_t word =
              ((uint64_t)get(&t[3], n / T, 0) * POSITIONS_MAX + (uint64_t)(n % T)) * (uint64_t)C + (uint64_t)c;
          const bool keep = rng_u32(own, word) >= 0.3 * 4294967296.0 - 1;
          const double v = get(&t[1], n, c),
                       want = keep ? (reals[type] == DTYPE_F64 ? v * scale
                                                               : stored(reals[type], (double)((float)v * (float)scale)))
                                   : 0;
          if (get(&t[0], n, c) != want) CHECK_NEAR(get(&t[0], n, c), want, 0);
        }
      CHECK(all_finite(&t[0]));
      arena_close(&a);
    }
}

/* A micro-batch of samples 3, 8 gives the rows that a batch 0 .. 9 gives them. */
static void a_cut_of_the_batch_changes_no_mask(void)
{
  enum { T = 3, C = 34 };
  struct arena a;
  struct tensor whole[TRIAL_OPERANDS], part[TRIAL_OPERANDS];
  const struct trial all = drop(50, 10, T, C), cut = drop(50, 2, T, C);
  arena_open(&a);
  trial_tensors(&all, DTYPE_F32, 0, 0, &a, whole);
  trial_tensors(&cut, DTYPE_F32, 4, 0, &a, part);
  for (int b = 0; b < 10; b++) put(&whole[3], b, 0, b);
  put(&part[3], 0, 0, 3), put(&part[3], 1, 0, 8);
  put(&part[2], 0, 0, get(&whole[2], 0, 0));
  for (int r = 0; r < 2 * T; r++)
    for (int c = 0; c < C; c++) put(&part[1], r, c, get(&whole[1], r < T ? 3 * T + r : 8 * T + r - T, c));
  trial_run(&all, DEV_CPU, 1, whole);
  trial_run(&cut, DEV_CPU, 1, part);
  for (int r = 0; r < 2 * T; r++)
    for (int c = 0; c < C; c++)
      CHECK_NEAR(get(&part[0], r, c), get(&whole[0], r < T ? 3 * T + r : 8 * T + r - T, c), 0);
  arena_close(&a);
}

/* Shards of the rows, of every size, also across the ends of sequences, give the rows that the whole gives them. */
static void a_shard_of_the_rows_changes_no_mask(void)
{
  enum { B = 3, T = 5, C = 34, N = B * T };
  for (int type = 0; type < REALS; type++)
    for (int64_t shard = 1; shard <= N; shard++) {
      struct arena a;
      struct tensor whole[TRIAL_OPERANDS];
      const struct trial all = drop(50, B, T, C);
      arena_open(&a);
      trial_tensors(&all, reals[type], 0, 0, &a, whole);
      const struct tensor y = arena_tensor(&a, whole[0].type, N, C, 3, 0);
      trial_run(&all, DEV_CPU, 1, whole);
      for (int64_t row0 = 0; row0 < N; row0 += shard) {
        const int64_t n = shard < N - row0 ? shard : N - row0;
        const struct trial part = drop_rows(50, B, T, C, row0, n);
        const struct tensor t[TRIAL_OPERANDS] = {tensor_part(&y, row0, n, 0, C), tensor_part(&whole[1], row0, n, 0, C),
                                                 whole[2], whole[3]};
        trial_run(&part, DEV_CPU, 1, t);
      }
      CHECK(same_bits(&y, &whole[0]));
      arena_close(&a);
    }
}

static int64_t kept(int percent, uint64_t seed, uint32_t purpose, int step, int sample, unsigned char mask[20000])
{
  struct arena a;
  struct rig g;
  arena_open(&a);
  rig_open(&g, DEV_CPU, 1);
  const struct tensor y = arena_tensor(&a, DTYPE_F32, 20, 1000, 0, 0), x = arena_tensor(&a, DTYPE_F32, 20, 1000, 0, 0);
  const struct tensor steps = arena_tensor(&a, DTYPE_I32, 1, 1, 0, 0),
                      samples = arena_tensor(&a, DTYPE_I32, 1, 1, 0, 0);
  put(&steps, 0, 0, step), put(&samples, 0, 0, sample);
  fill_seeded(&x, 1);
  const struct rng_key k = {seed, purpose, 0};
  CHECK_OK(op_dropout(g.compute, rig_at(&g, &y), rig_at(&g, &x), percent / 100.0, k, rig_at(&g, &steps),
                      rig_at(&g, &samples), POSITIONS_MAX, 20, 0));
  CHECK_OK(rig_sync(&g));
  int64_t n = 0;
  for (int i = 0; i < 20000; i++) n += mask[i] = get(&y, i / 1000, i % 1000) != 0;
  rig_close(&g);
  arena_close(&a);
  return n;
}

/* 20000 draws: 6 standard deviations are 6 sqrt(20000 p (1 - p)). */
static void the_share_kept_is_one_less_p(void)
{
  unsigned char mask[20000];
  for (int percent = 0; percent < 100; percent += 11)
    CHECK_NEAR((double)kept(percent, 1, RNG_DROPOUT, 0, 0, mask), 200.0 * (100 - percent),
               6 * sqrt(2.0 * percent * (100 - percent)));
}

/* Another seed, site, step or sample agrees on about half of the elements at p = 1/2. */
static void each_part_of_the_key_counts(void)
{
  unsigned char mask[20000], other[20000];
  kept(50, 1, RNG_DROPOUT, 3, 4, mask);
  for (int part = 0; part < 4; part++) {
    kept(50, 1 + (part == 0), RNG_DROPOUT + (part == 1), 3 + (part == 2), 4 + (part == 3), other);
    double same = 0;
    for (int i = 0; i < 20000; i++) same += mask[i] == other[i];
    CHECK_NEAR(same, 10000, 6 * sqrt(5000.0));
  }
}

static void y_may_be_x_and_p_0_copies(void)
{
  for (int percent = 0; percent < 60; percent += 30) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    const struct trial x = drop(percent, 2, 17, 33);
    arena_open(&a);
    trial_tensors(&x, DTYPE_F32, 0, 0, &a, t);
    const struct tensor apart = t[0];
    trial_run(&x, DEV_CPU, 1, t);
    if (percent == 0) CHECK(same_bits(&t[0], &t[1]));
    t[0] = t[1];
    trial_run(&x, DEV_CPU, 1, t);
    CHECK(same_bits(&t[0], &apart));
    arena_close(&a);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(bits_depend_on_the_inputs_alone),    TEST(what_it_touches_is_declared),
      TEST(wrong_shapes_are_refused),           TEST(an_element_draws_its_own_word),
      TEST(a_cut_of_the_batch_changes_no_mask), TEST(a_shard_of_the_rows_changes_no_mask),
      TEST(the_share_kept_is_one_less_p),       TEST(each_part_of_the_key_counts),
      TEST(y_may_be_x_and_p_0_copies),
  };
  return test_main("dropout", tests, sizeof tests / sizeof *tests);
}
