/* embedding_test.c - the contract of both embeddings, whole and in parts, and their planted fault. */
#include "base/fault.h"
#include "ops/op_trial.h"

enum { V = 9, P = 7 }; /* numbers that fill_seeded() draws are 0 .. 6 */

/* --- trials: tokens of the rows first.. of a table of `number`, positions of the rows first.. ------------ */

static enum err call_fwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_embedding_fwd(s, &t[0], &t[1], &t[2], x->first, x->number);
}
static enum err call_bwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_embedding_bwd_w(s, &t[2], &t[0], &t[1], x->first, x->number);
}
static enum err call_position_fwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_position_fwd(s, &t[0], &t[1], &t[2], x->first);
}
static enum err call_position_bwd(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_position_bwd_w(s, &t[2], &t[0], &t[1], x->first);
}
/* Differences of the forward need a y that does not grow. */
static enum err call_position_alone(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  TRY(op_fill(s, &t[0], 0));
  return call_position_fwd(s, t, x);
}
static struct trial fwd(int64_t B, int64_t T, int64_t C)
{
  return (struct trial){.name = "embedding_fwd",
                        .call = call_fwd,
                        .number = V,
                        .n = 3,
                        .operand = {{"y", TRIAL_OUT, TRIAL_REAL, B * T, C},
                                    {"wte", TRIAL_IN, TRIAL_REAL, V, C, NULL, .any_rows = true},
                                    {"tokens", TRIAL_IN, DTYPE_I32, B, T}}};
}
static struct trial bwd(int64_t B, int64_t T, int64_t C)
{
  return (struct trial){.name = "embedding_bwd_w",
                        .call = call_bwd,
                        .number = V,
                        .n = 3,
                        .operand = {{"dy", TRIAL_IN, TRIAL_REAL, B * T, C},
                                    {"tokens", TRIAL_IN, DTYPE_I32, B, T},
                                    {"dwte", TRIAL_INOUT, TRIAL_STATE, V, C, NULL, .any_rows = true}}};
}
/* Rows row0 .. row0 + n - 1 of the positions. */
static struct trial position_fwd(int64_t B, int64_t T, int64_t C, int64_t row0, int64_t n)
{
  return (struct trial){
      .name = "position_fwd",
      .call = call_position_fwd,
      .first = row0,
      .n = 3,
      .operand = {{"y", TRIAL_INOUT, TRIAL_REAL, n, C},
                  {"wpe", TRIAL_IN, TRIAL_REAL, P, C, NULL, .any_rows = true},
                  {"positions", TRIAL_IN, DTYPE_I32, B, T, NULL, .any_rows = true, .any_cols = true}}};
}
static struct trial position_bwd(int64_t B, int64_t T, int64_t C, int64_t row0, int64_t n)
{
  return (struct trial){.name = "position_bwd_w",
                        .call = call_position_bwd,
                        .first = row0,
                        .n = 3,
                        .operand = {{"dy", TRIAL_IN, TRIAL_REAL, n, C},
                                    {"positions", TRIAL_IN, DTYPE_I32, B, T, NULL, .any_rows = true, .any_cols = true},
                                    {"dwpe", TRIAL_INOUT, TRIAL_STATE, P, C, NULL, .any_rows = true}}};
}

/* B, T, C: the four, the positions both of all rows and of the last ones. */
enum { TRIALS = 6 };
static void trials_of(int64_t B, int64_t T, int64_t C, struct trial out[TRIALS])
{
  const int64_t N = B * T, row0 = N / 2;
  out[0] = fwd(B, T, C);
  out[1] = bwd(B, T, C);
  out[2] = position_fwd(B, T, C, 0, N);
  out[3] = position_bwd(B, T, C, 0, N);
  out[4] = position_fwd(B, T, C, row0, N - row0);
  out[5] = position_bwd(B, T, C, row0, N - row0);
}

static const int64_t sizes[][3] = {{1, 1, 1}, {1, 3, 17}, {3, 1, 33}, {2, 17, 3}, {3, 11, 600}, {5, 7, 1030}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void bits_depend_on_the_inputs_alone(void)
{
  for (int i = 0; i < SIZES; i++) {
    struct trial x[TRIALS];
    trials_of(sizes[i][0], sizes[i][1], sizes[i][2], x);
    for (int k = 0; k < TRIALS; k++) trial_same_bits(&x[k]);
  }
}

static void what_it_touches_is_declared(void)
{
  struct trial x[TRIALS];
  trials_of(2, 3, 5, x);
  for (int k = 0; k < TRIALS; k++) trial_declares(&x[k]);
}

static void wrong_shapes_are_refused(void)
{
  struct trial x[TRIALS];
  trials_of(2, 3, 5, x);
  for (int k = 0; k < TRIALS; k++) trial_refuses(&x[k]);
}

/* Parts that begin before the first row, tables of nothing, rows of positions that are not there. */
static void parts_outside_the_whole_are_refused(void)
{
  static const struct {
    int kind;
    int64_t first;
    int number;
    enum err want;
  } cases[] = {{0, -1, V, ERR_ARG}, {1, -1, V, ERR_ARG}, {0, 0, 0, ERR_ARG},        {1, 0, -1, ERR_ARG},
               {0, 3, 8, ERR_OK},   {0, 99, V, ERR_OK},  {2, 1, 0, ERR_ARG},        {3, 1, 0, ERR_ARG},
               {4, -1, 0, ERR_ARG}, {5, -1, 0, ERR_ARG}, {4, 4, 0, ERR_ARG},        {5, 4, 0, ERR_ARG},
               {4, 2, 0, ERR_OK},   {5, 2, 0, ERR_OK},   {5, INT64_MAX, 0, ERR_ARG}};
  struct trial x[TRIALS];
  trials_of(2, 3, 5, x);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct arena a;
    struct rig g;
    struct tensor t[TRIAL_OPERANDS];
    struct trial changed = x[cases[i].kind];
    changed.first = cases[i].first;
    changed.number = cases[i].number;
    arena_open(&a);
    rig_open(&g, DEV_CPU, 1);
    trial_tensors(&changed, DTYPE_F32, 0, 0, &a, t);
    CHECK_ERR(trial_call(&changed, &g, t), cases[i].want);
    CHECK_OK(rig_sync(&g));
    rig_close(&g);
    arena_close(&a);
  }
}

/* --- values --------------------------------------------------------------------------------- */

static void a_small_case_by_hand(void)
{
  struct arena a;
  struct tensor f[TRIAL_OPERANDS], p[TRIAL_OPERANDS], b[TRIAL_OPERANDS], q[TRIAL_OPERANDS];
  const struct trial forward = fwd(1, 3, 2), place = position_fwd(1, 3, 2, 0, 3), back = bwd(1, 3, 2),
                     unplace = position_bwd(1, 3, 2, 0, 3);
  arena_open(&a);
  trial_tensors(&forward, DTYPE_F32, 0, 0, &a, f);
  trial_tensors(&place, DTYPE_F32, 0, 0, &a, p);
  trial_tensors(&back, DTYPE_F32, 0, 0, &a, b);
  trial_tensors(&unplace, DTYPE_F32, 0, 0, &a, q);
  for (int r = 0; r < V; r++) put(&f[1], r, 0, r), put(&f[1], r, 1, 10 * r);
  for (int r = 0; r < P; r++) put(&p[1], r, 0, 100 * r), put(&p[1], r, 1, 1000 * r);
  fill_values(&f[2], (const double[]){8, 0, 8});
  fill_values(&p[2], (const double[]){0, 6, 1});
  p[0] = f[0];
  trial_run(&forward, DEV_CPU, 1, f);
  trial_run(&place, DEV_CPU, 1, p);
  const double y[] = {8, 80, 600, 6000, 108, 1080};
  for (int i = 0; i < 6; i++) CHECK_NEAR(get(&f[0], i / 2, i % 2), y[i], 0);

  for (int i = 0; i < 2 * V; i++) put(&b[2], i / 2, i % 2, i);
  for (int i = 0; i < 2 * P; i++) put(&q[2], i / 2, i % 2, i);
  fill_values(&b[0], (const double[]){1, 2, 3, 4, 5, 6});
  b[1] = f[2], q[0] = b[0], q[1] = p[2];
  trial_run(&back, DEV_CPU, 1, b);
  trial_run(&unplace, DEV_CPU, 1, q);
  double dwte[2 * V] = {3, 4, [16] = 6, 8}, dwpe[2 * P] = {1, 2, 5, 6, [12] = 3, 4};
  for (int i = 0; i < 2 * V; i++) CHECK_NEAR(get(&b[2], i / 2, i % 2), i + dwte[i], 0);
  for (int i = 0; i < 2 * P; i++) CHECK_NEAR(get(&q[2], i / 2, i % 2), i + dwpe[i], 0);
  arena_close(&a);
}

static void backward_matches_central_differences(void)
{
  struct trial forward[] = {fwd(2, 7, 3), position_fwd(2, 7, 3, 5, 8)};
  const struct trial back[] = {bwd(2, 7, 3), position_bwd(2, 7, 3, 5, 8)};
  forward[1].call = call_position_alone;
  for (int k = 0; k < 2; k++) {
    struct arena a;
    struct rig g;
    struct tensor f[TRIAL_OPERANDS], b[TRIAL_OPERANDS];
    arena_open(&a);
    trial_tensors(&forward[k], DTYPE_F64, 2, 0, &a, f);
    trial_tensors(&back[k], DTYPE_F64, 2, 0, &a, b);
    b[1] = f[2];
    rig_open(&g, DEV_CPU, 1);
    CHECK_OK(op_fill(g.compute, rig_at(&g, &b[2]), 0));
    CHECK_OK(rig_sync(&g));
    rig_close(&g);
    trial_run(&back[k], DEV_CPU, 1, b);
    trial_slope(&forward[k], f, 0, &b[0], 1, &b[2], 1e-9);
    arena_close(&a);
  }
}

/* Rows are added in index order, onto what was there; also so many that a CUDA block compares several tiles of them. */
static void gradients_add_rows_in_index_order(void)
{
  const struct trial x[] = {bwd(3, 11, 5), position_bwd(3, 11, 5, 4, 29), bwd(4, 1607, 2)};
  for (int k = 0; k < 3; k++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    arena_open(&a);
    trial_tensors(&x[k], DTYPE_F32, 0, 0, &a, t);
    const int64_t T = t[1].cols, C = t[0].cols;
    const struct tensor want = arena_tensor(&a, DTYPE_F32, t[2].rows, C, 0, 0);
    fill_seeded(&want, 102);
    for (int64_t n = 0; n < t[0].rows; n++)
      for (int64_t c = 0; c < C; c++) {
        const int64_t i = x[k].first + n, row = (int64_t)get(&t[1], i / T, i % T);
        put(&want, row, c, (double)((float)get(&want, row, c) + (float)get(&t[0], n, c)));
      }
    trial_run(&x[k], DEV_CPU, 2, t);
    CHECK(same_bits(&t[2], &want));
    arena_close(&a);
  }
}

/* --- parts ------------------------------------------------------------------------------------ */

/* The table cut into `parts` of equal height, the last padded with rows that no token may touch: outputs add up to
 * the whole's, to the bit since all but one are zero, and gradients are the whole's rows. */
static void parts_of_the_table_make_the_whole(void)
{
  for (int type = 0; type < REALS; type++)
    for (int parts = 1; parts <= 6; parts++) {
      enum { B = 3, T = 5, C = 33 };
      const enum dtype real = reals[type];
      const int64_t height = (V + parts - 1) / parts;
      struct arena a;
      struct tensor f[TRIAL_OPERANDS], b[TRIAL_OPERANDS], pf[TRIAL_OPERANDS], pb[TRIAL_OPERANDS];
      const struct trial forward = fwd(B, T, C), back = bwd(B, T, C);
      arena_open(&a);
      trial_tensors(&forward, real, 0, 0, &a, f);
      trial_tensors(&back, real, 0, 0, &a, b);
      for (int64_t n = 0; n < B * T; n++) put(&f[2], n / T, n % T, (double)((5 * n + 3) % V)); /* each at least once */
      b[1] = f[2];
      const struct tensor before = arena_tensor(&a, b[2].type, V, C, 0, 0),
                          sum = arena_tensor(&a, real, B * T, C, 0, 0);
      fill_seeded(&before, 102);
      trial_run(&forward, DEV_CPU, 1, f);
      trial_run(&back, DEV_CPU, 1, b);
      for (int64_t i = 0; i < tensor_count(&sum); i++) put(&sum, i / C, i % C, 0);
      for (int part = 0; part < parts; part++) {
        struct trial pforward = forward, pback = back;
        pforward.first = pback.first = part * height;
        pforward.operand[1].rows = pback.operand[2].rows = height;
        struct arena own;
        arena_open(&own);
        trial_tensors(&pforward, real, 3, 0, &own, pf); /* what is not filled below is padding, of seeded numbers */
        trial_tensors(&pback, real, 0, 0, &own, pb);
        const struct tensor padding = arena_tensor(&own, b[2].type, height, C, 0, 0);
        for (int64_t i = 0; i < height * C; i++) put(&padding, i / C, i % C, get(&pb[2], i / C, i % C));
        for (int64_t r = 0; r < height && pforward.first + r < V; r++)
          for (int64_t c = 0; c < C; c++) {
            put(&pf[1], r, c, get(&f[1], pforward.first + r, c));
            put(&pb[2], r, c, get(&before, pforward.first + r, c));
          }
        pf[2] = pb[1] = f[2], pb[0] = b[0];
        trial_run(&pforward, DEV_CPU, 2, pf);
        trial_run(&pback, DEV_LAZY, 1, pb);
        for (int64_t i = 0; i < tensor_count(&sum); i++)
          put(&sum, i / C, i % C, get(&sum, i / C, i % C) + get(&pf[0], i / C, i % C));
        for (int64_t r = 0; r < height; r++) {
          const bool real_row = pforward.first + r < V;
          const struct tensor got = tensor_part(&pb[2], r, 1, 0, C),
                              want =
                                  tensor_part(real_row ? &b[2] : &padding, real_row ? pforward.first + r : r, 1, 0, C);
          CHECK(same_bits(&got, &want));
        }
        arena_close(&own);
      }
      CHECK(same_bits(&sum, &f[0]));
      arena_close(&a);
    }
}

/* Shards of the rows make what one call over all rows makes. */
static void shards_of_positions_make_the_whole(void)
{
  enum { B = 2, T = 9, C = 17, N = B * T };
  for (int64_t shard = 1; shard <= N; shard++) {
    struct arena a;
    struct tensor f[TRIAL_OPERANDS], b[TRIAL_OPERANDS];
    const struct trial all = position_fwd(B, T, C, 0, N), back = position_bwd(B, T, C, 0, N);
    arena_open(&a);
    trial_tensors(&all, DTYPE_F32, 2, 0, &a, f);
    trial_tensors(&back, DTYPE_F32, 2, 0, &a, b);
    const struct tensor y = arena_tensor(&a, DTYPE_F32, N, C, 0, 0), dwpe = arena_tensor(&a, DTYPE_F32, P, C, 0, 0);
    fill_seeded(&y, 100), fill_seeded(&dwpe, 102);
    trial_run(&all, DEV_CPU, 1, f);
    trial_run(&back, DEV_CPU, 1, b);
    for (int64_t row0 = 0; row0 < N; row0 += shard) {
      const int64_t n = shard < N - row0 ? shard : N - row0;
      const struct trial part = position_fwd(B, T, C, row0, n), part_back = position_bwd(B, T, C, row0, n);
      const struct tensor pf[TRIAL_OPERANDS] = {tensor_part(&y, row0, n, 0, C), f[1], f[2]};
      const struct tensor pb[TRIAL_OPERANDS] = {tensor_part(&b[0], row0, n, 0, C), b[1], dwpe};
      trial_run(&part, DEV_CPU, 1, pf);
      trial_run(&part_back, DEV_CPU, 1, pb);
    }
    CHECK(same_bits(&y, &f[0]));
    CHECK(same_bits(&dwpe, &b[2]));
    arena_close(&a);
  }
}

/* --- what is wrong ---------------------------------------------------------------------------- */

static void an_id_outside_the_table_is_named(void)
{
  static const struct {
    int kind, operand;
    double id;
    const char *text;
  } bad[] = {{0, 2, V, "token 9 at [1, 2] is outside 0..8"},
             {0, 2, -1, "token -1 at [1, 2]"},
             {1, 1, V, "token 9 at [1, 2]"},
             {1, 1, -1, "token -1 at [1, 2]"},
             {2, 2, P, "position 7 at [1, 2] is outside 0..6"},
             {2, 2, -1, "position -1 at [1, 2]"},
             {3, 1, P, "position 7 at [1, 2]"},
             {3, 1, -1, "position -1 at [1, 2]"},
             {4, 2, P, "position 7 at [1, 2]"},
             {5, 1, -1, "position -1 at [1, 2]"}};
  for (size_t way = 0; way < sizeof bad / sizeof *bad; way++) {
    struct arena a;
    struct rig g;
    struct tensor t[TRIAL_OPERANDS];
    struct trial x[TRIALS];
    trials_of(2, 3, 5, x);
    arena_open(&a);
    rig_open(&g, DEV_CPU, 1);
    trial_tensors(&x[bad[way].kind], DTYPE_F32, 0, 0, &a, t);
    put(&t[bad[way].operand], 1, 2, bad[way].id);
    CHECK_OK(trial_call(&x[bad[way].kind], &g, t));
    CHECK_ERR(rig_sync(&g), ERR_NUMERIC);
    CHECK_TEXT_HAS(err_text(), bad[way].text);
    rig_close(&g);
    arena_close(&a);
  }
}

/* A token of the vocabulary that another part has is no error; one beyond it is, whatever rows this part has. */
static void a_part_knows_the_whole_vocabulary(void)
{
  for (int beyond = 0; beyond < 2; beyond++) {
    struct arena a;
    struct rig g;
    struct tensor t[TRIAL_OPERANDS];
    struct trial x = fwd(2, 3, 5);
    x.number = 100;
    x.first = 95; /* 95 .. 103, of which 100 .. are padding */
    arena_open(&a);
    rig_open(&g, DEV_CPU, 1);
    trial_tensors(&x, DTYPE_F32, 0, 0, &a, t);
    fill_values(&t[2], (const double[]){0, 94, 95, 99, 12, beyond ? 100 : 98});
    CHECK_OK(trial_call(&x, &g, t));
    CHECK_ERR(rig_sync(&g), beyond ? ERR_NUMERIC : ERR_OK);
    if (beyond) CHECK_TEXT_HAS(err_text(), "token 100 at [1, 2] is outside 0..99");
    for (int c = 0; c < 5 && !beyond; c++) {
      CHECK(get(&t[0], 0, c) == 0 && get(&t[0], 1, c) == 0 && get(&t[0], 4, c) == 0);
      CHECK(get(&t[0], 2, c) == get(&t[1], 0, c) && get(&t[0], 3, c) == get(&t[1], 4, c) &&
            get(&t[0], 5, c) == get(&t[1], 3, c));
    }
    rig_close(&g);
    arena_close(&a);
  }
}

/* A position that no row of the shard asks for is not looked at. */
static void positions_of_other_shards_do_not_matter(void)
{
  struct arena a;
  struct tensor t[TRIAL_OPERANDS];
  const struct trial x = position_fwd(2, 3, 5, 2, 2);
  arena_open(&a);
  trial_tensors(&x, DTYPE_F32, 0, 0, &a, t);
  fill_values(&t[2], (const double[]){P, -1, 0, P - 1, P, -1});
  trial_run(&x, DEV_CPU, 1, t);
  CHECK(all_finite(&t[0]));
  arena_close(&a);
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
    differs = !same_bits(&t[2], &clean[2]);
    CHECK_NEAR(distance(&t[2], &clean[2]), 0, 35 * 35 * 0x1p-24);
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
      TEST(parts_outside_the_whole_are_refused),
      TEST(a_small_case_by_hand),
      TEST(gradients_add_rows_in_index_order),
      TEST(backward_matches_central_differences),
      TEST(parts_of_the_table_make_the_whole),
      TEST(shards_of_positions_make_the_whole),
      TEST(an_id_outside_the_table_is_named),
      TEST(a_part_knows_the_whole_vocabulary),
      TEST(positions_of_other_shards_do_not_matter),
      TEST(the_planted_order_changes_bits_but_not_values),
  };
  return test_main("embedding", tests, sizeof tests / sizeof *tests);
}
