/* reduce_test.c - whole-tensor sums, the largest magnitude, and the hash. */
#include "ops/op_trial.h"

enum { SUM, SQUARES, MAX_ABS, HASH, KINDS };
static enum err call(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  switch (x->number) {
  case SUM: return op_sum(s, &t[0], &t[1]);
  case SQUARES: return op_sum_squares(s, &t[0], &t[1]);
  case MAX_ABS: return op_max_abs(s, &t[0], &t[1]);
  default: return op_hash(s, &t[0], &t[1]);
  }
}
static struct trial reduce(int kind, int64_t N, int64_t C)
{
  static const char *const names[] = {"sum", "sum_squares", "max_abs", "hash"};
  struct trial x = {
      .name = names[kind],
      .call = call,
      .number = kind,
      .n = 2,
      .operand = {{"out", TRIAL_OUT, DTYPE_F64, 1, 1}, {"x", TRIAL_IN, TRIAL_REAL, N, C, NULL, true, true, true}}};
  if (kind == HASH) x.operand[0].type = DTYPE_I64;
  return x;
}

static const int64_t sizes[][2] = {{1, 1}, {3, 1}, {1, 17}, {33, 17}, {3, 1365}, {1, 4096}, {7, 5000}, {2, 33000}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void bits_depend_on_the_inputs_alone(void)
{
  for (int kind = 0; kind < KINDS; kind++)
    for (int i = 0; i < SIZES; i++) {
      const struct trial x = reduce(kind, sizes[i][0], sizes[i][1]);
      trial_same_bits(&x);
    }
}
static void what_it_touches_is_declared(void)
{
  for (int kind = 0; kind < KINDS; kind++) {
    const struct trial x = reduce(kind, 3, 5);
    trial_declares(&x);
  }
}
static void wrong_shapes_are_refused(void)
{
  for (int kind = 0; kind < KINDS; kind++) {
    const struct trial x = reduce(kind, 3, 5);
    trial_refuses(&x);
  }
  struct rig g;
  rig_open(&g, DEV_CPU, 1);
  int64_t room[2] = {0};
  const struct tensor out = tensor_at(room, DTYPE_F64, 1, 1), words = tensor_at(room + 1, DTYPE_I32, 1, 2);
  CHECK_ERR(op_sum(g.compute, rig_at(&g, &out), rig_at(&g, &words)), ERR_ARG);
  CHECK_ERR(op_sum_squares(g.compute, rig_at(&g, &out), rig_at(&g, &words)), ERR_ARG);
  CHECK_ERR(op_max_abs(g.compute, rig_at(&g, &out), rig_at(&g, &words)), ERR_ARG);
  rig_close(&g);
}

static void a_small_case_by_hand(void)
{
  static const double want[] = {3, 55, 5};
  for (int kind = 0; kind < HASH; kind++)
    for (int type = 0; type < REALS; type++) {
      struct arena a;
      struct tensor t[TRIAL_OPERANDS];
      const struct trial x = reduce(kind, 1, 5);
      arena_open(&a);
      trial_tensors(&x, reals[type], 0, 0, &a, t);
      fill_values(&t[1], (const double[]){1, -2, 3, -4, 5});
      trial_run(&x, DEV_CPU, 1, t);
      CHECK_NEAR(get(&t[0], 0, 0), want[kind], 0);
      arena_close(&a);
    }
}

/* n additions in double in lanes and chunks: n 2^-53 sum |x| bounds any order; the long double sum is the truth. */
static void sums_are_those_of_long_doubles(void)
{
  for (int kind = 0; kind < HASH; kind++)
    for (int i = 0; i < SIZES; i++)
      for (int type = 0; type < REALS; type++) {
        struct arena a;
        struct tensor t[TRIAL_OPERANDS];
        const struct trial x = reduce(kind, sizes[i][0], sizes[i][1]);
        arena_open(&a);
        trial_tensors(&x, reals[type], 0, 0, &a, t);
        for (int64_t r = 0; reals[type] == DTYPE_F64 && r < t[1].rows; r++) /* digits that a float does not hold */
          for (int64_t c = 0; c < t[1].cols; c++) put(&t[1], r, c, get(&t[1], r, c) / 3);
        trial_run(&x, DEV_CPU, 2, t);
        long double want = 0, size = 0;
        for (int64_t r = 0; r < t[1].rows; r++)
          for (int64_t c = 0; c < t[1].cols; c++) {
            const long double v = (long double)get(&t[1], r, c);
            want = kind == SUM ? want + v : kind == SQUARES ? want + v * v : fmaxl(want, fabsl(v));
            size += kind == MAX_ABS ? 0 : fabsl(v);
          }
        CHECK_NEAR(get(&t[0], 0, 0), (double)want, (double)size * sqrt((double)tensor_count(&t[1])) * 0x1p-53);
        arena_close(&a);
      }
}

/* More chunks than are summed in one batch: ones, and a last element that the end of the last chunk holds. */
static void long_tensors_are_taken_whole(void)
{
  enum { COUNT = 3 * (1 << 20) + 5 };
  float *x = malloc(COUNT * sizeof *x);
  double out[2] = {NAN, NAN};
  int64_t hash[2] = {0};
  struct rig g;
  rig_open(&g, DEV_CPU, 2);
  const struct tensor t = tensor_at(x, DTYPE_F32, 1, COUNT);
  const struct tensor sum = tensor_at(&out[0], DTYPE_F64, 1, 1), most = tensor_at(&out[1], DTYPE_F64, 1, 1);
  for (int64_t i = 0; i < COUNT; i++) x[i] = 1;
  for (int last = 0; last < 2; last++) {
    const struct tensor h = tensor_at(&hash[last], DTYPE_I64, 1, 1);
    x[COUNT - 1] = last ? -7 : 1;
    CHECK_OK(op_sum(g.compute, rig_at(&g, &sum), rig_at(&g, &t)));
    CHECK_OK(op_max_abs(g.compute, rig_at(&g, &most), rig_at(&g, &t)));
    CHECK_OK(op_hash(g.compute, rig_at(&g, &h), rig_at(&g, &t)));
    CHECK_OK(rig_sync(&g));
    CHECK_NEAR(out[0], last ? COUNT - 8 : COUNT, 0);
    CHECK_NEAR(out[1], last ? 7 : 1, 0);
  }
  CHECK(hash[0] != hash[1]);
  rig_close(&g);
  free(x);
}

static void shape_and_stride_do_not_count(void)
{
  for (int kind = 0; kind < KINDS; kind++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS], flat[TRIAL_OPERANDS];
    const struct trial x = reduce(kind, 33, 400), y = reduce(kind, 1, 13200);
    arena_open(&a);
    trial_tensors(&x, DTYPE_F32, 9, 1, &a, t);
    trial_tensors(&y, DTYPE_F32, 0, 0, &a, flat);
    trial_run(&x, DEV_CPU, 2, t);
    trial_run(&y, DEV_CPU, 1, flat);
    CHECK(same_bits(&t[0], &flat[0]));
    arena_close(&a);
  }
}

static void nothing_sums_to_zero(void)
{
  for (int kind = 0; kind < HASH; kind++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    const struct trial x = reduce(kind, 0, 5);
    arena_open(&a);
    trial_tensors(&x, DTYPE_F32, 0, 0, &a, t);
    trial_run(&x, DEV_CPU, 1, t);
    CHECK_NEAR(get(&t[0], 0, 0), 0, 0);
    arena_close(&a);
  }
}

/* Wherever it stands, before or after an infinity, in a full lane or in the rest. */
static void max_abs_shows_a_nan(void)
{
  for (int at = 0; at < 5000; at += 131)
    for (int type = 0; type < REALS; type++) {
      struct arena a;
      struct tensor t[TRIAL_OPERANDS];
      const struct trial x = reduce(MAX_ABS, 1, 5000);
      arena_open(&a);
      trial_tensors(&x, reals[type], 0, 0, &a, t);
      put(&t[1], 0, 2500, -INFINITY);
      trial_run(&x, DEV_CPU, 1, t);
      CHECK(get(&t[0], 0, 0) == INFINITY);
      put(&t[1], 0, at, at % 2 ? NAN : -NAN);
      trial_run(&x, DEV_CPU, 1, t);
      CHECK(isnan(get(&t[0], 0, 0)));
      arena_close(&a);
    }
}

static int64_t hash_of(const struct tensor *x)
{
  struct rig g;
  int64_t h = 0;
  const struct tensor out = tensor_at(&h, DTYPE_I64, 1, 1);
  rig_open(&g, DEV_CPU, 1);
  CHECK_OK(op_hash(g.compute, rig_at(&g, &out), rig_at(&g, x)));
  CHECK_OK(rig_sync(&g));
  rig_close(&g);
  return h;
}

/* One bit, two elements exchanged, one more zero: each changes it. */
static void the_hash_sees_every_change(void)
{
  struct arena a;
  arena_open(&a);
  const struct tensor x = arena_tensor(&a, DTYPE_F32, 1, 9001, 0, 0);
  fill_seeded(&x, 5);
  put(&x, 0, 9000, 0);
  const int64_t before = hash_of(&x);
  for (int at = 0; at < 9000; at += 257) {
    unsigned char *byte = (unsigned char *)x.at + 4 * at + at % 4;
    *byte ^= (unsigned char)(1 << at % 8);
    CHECK(hash_of(&x) != before);
    *byte ^= (unsigned char)(1 << at % 8);
    const double one = get(&x, 0, at), two = get(&x, 0, at + 32 < 9000 ? at + 32 : 0);
    put(&x, 0, at, two), put(&x, 0, at + 32 < 9000 ? at + 32 : 0, one);
    CHECK(hash_of(&x) != before);
    put(&x, 0, at, one), put(&x, 0, at + 32 < 9000 ? at + 32 : 0, two);
  }
  CHECK(hash_of(&x) == before);
  const struct tensor shorter = tensor_part(&x, 0, 1, 0, 9000);
  CHECK(hash_of(&shorter) != before);
  const struct tensor none = tensor_part(&x, 0, 1, 0, 0), zero = tensor_part(&x, 0, 1, 9000, 1);
  CHECK(hash_of(&none) != hash_of(&zero));
  arena_close(&a);
}

/* Replicas on other machines, and records of other days, must agree: the value is part of the contract. */
static void the_hash_of_known_bytes_is_known(void)
{
  unsigned char bytes[300];
  for (int i = 0; i < 300; i++) bytes[i] = (unsigned char)(7 * i + 1);
  const struct tensor x = tensor_at(bytes, DTYPE_U8, 3, 100);
  uint64_t lane[16], h = 0, all = 0;
  const uint64_t m = 0x9E3779B97F4A7C15u;
  for (unsigned l = 0; l < 16; l++) lane[l] = l + 1;
  for (unsigned w = 0; w < 48; w++) { /* 37 words and a half, padded to three blocks of 16 */
    uint64_t word = 0;
    if (w < 38) memcpy(&word, bytes + 8 * w, w < 37 ? 8 : 4);
    lane[w % 16] = (lane[w % 16] ^ word) * m;
    lane[w % 16] ^= lane[w % 16] >> 32;
  }
  for (int l = 0; l < 16; l++) h = (h ^ lane[l]) * m, h ^= h >> 32;
  all = h * m, all ^= all >> 32;
  all = (all ^ 300) * m, all ^= all >> 32;
  CHECK((uint64_t)hash_of(&x) == all);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(bits_depend_on_the_inputs_alone),
      TEST(what_it_touches_is_declared),
      TEST(wrong_shapes_are_refused),
      TEST(a_small_case_by_hand),
      TEST(sums_are_those_of_long_doubles),
      TEST(shape_and_stride_do_not_count),
      TEST(long_tensors_are_taken_whole),
      TEST(nothing_sums_to_zero),
      TEST(max_abs_shows_a_nan),
      TEST(the_hash_sees_every_change),
      TEST(the_hash_of_known_bytes_is_known),
  };
  return test_main("reduce", tests, sizeof tests / sizeof *tests);
}
