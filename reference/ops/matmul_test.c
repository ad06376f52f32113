/* matmul_test.c - products in every transpose, stride and size, and which of their bits are fixed. */
#include "ops/op_trial.h"

/* STATE: bf16 or f16 into float32. */
enum { TRANSPOSE_A = 1, TRANSPOSE_B = 2, ACCUMULATE = 4, STATE = 8, FORMS = 16 };

static enum err call(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_matmul(s, &t[0], &t[1], x->number & TRANSPOSE_A, &t[2], x->number & TRANSPOSE_B, x->number & ACCUMULATE);
}

static struct trial product(int form, int64_t M, int64_t N, int64_t K)
{
  struct trial x = {.name = "matmul",
                    .call = call,
                    .number = form,
                    .narrow_only = (form & STATE) != 0,
                    .by_cublas = true,
                    .n = 3,
                    .operand = {{"c", form & ACCUMULATE ? TRIAL_INOUT : TRIAL_OUT,
                                 form & STATE ? TRIAL_STATE : TRIAL_REAL, M, N, NULL, .any_type = (form & STATE) != 0},
                                {"a", TRIAL_IN, TRIAL_REAL, M, K},
                                {"b", TRIAL_IN, TRIAL_REAL, K, N}}};
  if (form & TRANSPOSE_A) x.operand[1].rows = K, x.operand[1].cols = M;
  if (form & TRANSPOSE_B) x.operand[2].rows = N, x.operand[2].cols = K;
  return x;
}

static const int64_t sizes[][3] = {{1, 1, 1},     {3, 1, 17},   {1, 33, 3},    {17, 3, 33},
                                   {33, 17, 1},   {4, 16, 128}, {70, 65, 130}, {129, 35, 257},
                                   {2, 300, 129}, {65, 257, 5}, {515, 21, 70}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void bits_depend_on_the_inputs_alone(void)
{
  for (int form = 0; form < FORMS; form++)
    for (int i = 0; i < SIZES; i++) {
      const struct trial x = product(form, sizes[i][0], sizes[i][1], sizes[i][2]);
      trial_same_bits(&x);
    }
}

static void what_it_touches_is_declared(void)
{
  for (int form = 0; form < FORMS; form++) {
    const struct trial x = product(form, 3, 4, 5);
    trial_declares(&x);
  }
}

static void wrong_shapes_are_refused(void)
{
  for (int form = 0; form < FORMS; form++) {
    const struct trial x = product(form, 3, 4, 5);
    trial_refuses(&x);
  }
}

static void a_small_case_by_hand(void)
{
  static const double a[] = {1, 2, 3, 4, 5, 6}, at[] = {1, 4, 2, 5, 3, 6}, b[] = {1, 0, 2, -1, 1, 3},
                      bt[] = {1, 2, 1, 0, -1, 3};
  for (int form = 0; form < FORMS; form++)
    for (int type = 0; type < REALS; type++) {
      struct arena arena;
      struct tensor t[TRIAL_OPERANDS];
      const struct trial x = product(form, 2, 2, 3);
      if (x.narrow_only && !is_narrow(reals[type])) continue;
      arena_open(&arena);
      trial_tensors(&x, reals[type], 1, 0, &arena, t);
      if (form & ACCUMULATE) fill_values(&t[0], (const double[]){100, 200, 300, 400});
      fill_values(&t[1], form & TRANSPOSE_A ? at : a);
      fill_values(&t[2], form & TRANSPOSE_B ? bt : b);
      trial_run(&x, DEV_CPU, 1, t);
      const double add = form & ACCUMULATE ? 100 : 0, want[] = {8 + add, 7 + 2 * add, 20 + 3 * add, 13 + 4 * add};
      for (int i = 0; i < 4; i++) CHECK_NEAR(get(&t[0], i / 2, i % 2), stored(t[0].type, want[i]), 0);
      arena_close(&arena);
    }
}

/* The contract in so many words: K terms in index order, each product rounded, starting from c or 0.  cuBLAS has an
 * order of its own: each of K roundings may cost 2^-53 of a sum below K. */
static void float64_adds_in_index_order(void)
{
  for (int form = 0; form < STATE; form++)
    for (int i = 0; i < SIZES; i++) {
      struct arena a;
      struct tensor t[TRIAL_OPERANDS];
      const struct trial x = product(form, sizes[i][0], sizes[i][1], sizes[i][2]);
      arena_open(&a);
      trial_tensors(&x, DTYPE_F64, 3, 0, &a, t);
      const struct tensor want = arena_tensor(&a, DTYPE_F64, t[0].rows, t[0].cols, 0, 0);
      for (int64_t m = 0; m < want.rows; m++)
        for (int64_t n = 0; n < want.cols; n++) {
          double sum = form & ACCUMULATE ? get(&t[0], m, n) : 0;
          for (int64_t k = 0; k < sizes[i][2]; k++)
            sum += (form & TRANSPOSE_A ? get(&t[1], k, m) : get(&t[1], m, k)) *
                   (form & TRANSPOSE_B ? get(&t[2], n, k) : get(&t[2], k, n));
          put(&want, m, n, sum);
        }
      trial_run(&x, DEV_CPU, 2, t);
      const double K = (double)sizes[i][2];
      CHECK(rig_on_cuda() ? distance(&t[0], &want) <= K * K * 0x1p-53 : same_bits(&t[0], &want));
      arena_close(&a);
    }
}

/* A product of two bf16 or two f16 is exact in float32.  |error| <= K 2^-24 sum |a b| <= K^2 2^-24; random signs leave sqrt(K) of
 * one K, and c is of size sqrt(K). */
static void float32_is_as_near_as_its_roundings(void)
{
  for (int form = 0; form < FORMS; form++)
    for (int i = 0; i < SIZES; i++) {
      const struct trial x = product(form, sizes[i][0], sizes[i][1], sizes[i][2]);
      trial_rounding(&x, 4 + (double)sizes[i][2] / 4);
    }
}

static void an_empty_sum_is_zero(void)
{
  for (int type = 0; type < REALS; type++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    const struct trial x = product(0, 2, 3, 0);
    arena_open(&a);
    trial_tensors(&x, reals[type], 0, 0, &a, t);
    trial_run(&x, DEV_CPU, 1, t);
    for (int i = 0; i < 6; i++) CHECK_NEAR(get(&t[0], i / 3, i % 3), 0, 0);
    arena_close(&a);
  }
}

static void fewer_threads_than_asked_for_are_refused(void)
{
  const struct trial x = product(0, 70, 65, 130);
  trial_needs_its_threads(&x);
}

/* (1 + 2^-12) * 1, 64 times: TF32 has 10 bits after the point, so that 1 is left.  A GPU's library may use it. */
static void tf32_rounds_operands_only_if_asked_for(void)
{
  enum { N = 64 };
  static float a[N * N], b[N * N], c[N * N];
  for (int tf32 = 0; tf32 < 2 && rig_on_cuda(); tf32++) {
    const struct dev_config config = {.kind = DEV_CUDA, .threads = 1, .tf32 = tf32};
    struct dev *d;
    struct dev_stream *s;
    void *at[3];
    CHECK_OK(dev_open(&config, &d));
    CHECK_OK(dev_stream_open(d, "compute", DEV_COMPUTE, &s));
    for (int i = 0; i < 3; i++) CHECK_OK(dev_alloc(d, sizeof a, DEV_OTHER, "matrix", &at[i]));
    for (int i = 0; i < N * N; i++) a[i] = 1 + 0x1p-12f, b[i] = 1;
    CHECK_OK(dev_copy_in(s, at[0], a, sizeof a));
    CHECK_OK(dev_copy_in(s, at[1], b, sizeof b));
    const struct tensor t[] = {tensor_at(at[0], DTYPE_F32, N, N), tensor_at(at[1], DTYPE_F32, N, N),
                               tensor_at(at[2], DTYPE_F32, N, N)};
    CHECK_OK(op_matmul(s, &t[2], &t[0], false, &t[1], false, false));
    CHECK_OK(dev_copy_out(s, c, at[2], sizeof c));
    CHECK_OK(dev_sync(d));
    const double exact = N + N * 0x1p-12;
    for (int i = 0; i < N * N; i++)
      CHECK((tf32 && c[i] == N) || ((!tf32 || rig_on_gpu()) && fabs(c[i] - exact) <= 0x1p-17));
    for (int i = 0; i < 3; i++) dev_free(d, at[i]);
    dev_stream_close(s);
    dev_close(d);
  }
}

static void the_library_is_named_with_its_version(void)
{
  int major = 0, minor = -1, patch = -1, end = 0;
  CHECK(sscanf(op_matmul_library(DEV_CPU), "oneDNN %d.%d.%d; bf16 %n", &major, &minor, &patch, &end) == 3);
  CHECK(major >= 2 && minor >= 0 && patch >= 0 && end > 0);
#ifdef SHARDMARK_HAS_CUDA
  CHECK(sscanf(op_matmul_library(DEV_CUDA), "cuBLASLt %d.%d.%d%n", &major, &minor, &patch, &end) == 3);
  CHECK(major >= 12 && op_matmul_library(DEV_CUDA)[end] == '\0');
#endif
}

int main(void)
{
  static const struct test tests[] = {
      TEST(bits_depend_on_the_inputs_alone),
      TEST(what_it_touches_is_declared),
      TEST(wrong_shapes_are_refused),
      TEST(a_small_case_by_hand),
      TEST(float64_adds_in_index_order),
      TEST(float32_is_as_near_as_its_roundings),
      TEST(an_empty_sum_is_zero),
      TEST(the_library_is_named_with_its_version),
      TEST(tf32_rounds_operands_only_if_asked_for),
      TEST(fewer_threads_than_asked_for_are_refused),
  };
  return test_main("matmul", tests, sizeof tests / sizeof *tests);
}
