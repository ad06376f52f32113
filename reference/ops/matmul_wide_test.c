/* matmul_wide_test.c - bf16 and f16 products on a processor that does not multiply bf16: oneDNN is told that this is one. */
#include "ops/op_trial.h"

enum { TRANSPOSE_A = 1, TRANSPOSE_B = 2, ACCUMULATE = 4, STATE = 8, FORMS = 16 };

static enum err call(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_matmul(s, &t[0], &t[1], x->number & TRANSPOSE_A, &t[2], x->number & TRANSPOSE_B, x->number & ACCUMULATE);
}
static struct trial product(int form, int64_t M, int64_t N, int64_t K)
{
  struct trial x = {
      .name = "matmul",
      .call = call,
      .number = form,
      .narrow_only = true,
      .n = 3,
      .operand = {{"c", form & ACCUMULATE ? TRIAL_INOUT : TRIAL_OUT, form & STATE ? TRIAL_STATE : TRIAL_REAL, M, N},
                  {"a", TRIAL_IN, TRIAL_REAL, M, K},
                  {"b", TRIAL_IN, TRIAL_REAL, K, N}}};
  if (form & TRANSPOSE_A) x.operand[1].rows = K, x.operand[1].cols = M;
  if (form & TRANSPOSE_B) x.operand[2].rows = N, x.operand[2].cols = K;
  return x;
}

/* The last ones are wider, higher and deeper than a piece. */
static const int64_t sizes[][3] = {{1, 1, 1},     {3, 1, 17},  {33, 17, 1}, {17, 3, 33}, {70, 65, 130},
                                   {2, 300, 129}, {515, 2, 3}, {3, 514, 5}, {5, 4, 2051}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void the_way_is_named(void)
{
  CHECK_TEXT_HAS(op_matmul_library(DEV_CPU), "bf16 widened, multiplied as float32");
  CHECK_TEXT_HAS(op_matmul_library(DEV_CPU), "fp16 widened, multiplied as float32");
}

static void bits_depend_on_the_inputs_alone(void)
{
  for (int form = 0; form < FORMS; form++)
    for (int i = 0; i < SIZES; i++) {
      const struct trial x = product(form, sizes[i][0], sizes[i][1], sizes[i][2]);
      trial_same_bits(&x);
    }
}

/* The bound of matmul_test.c: pieces add in another order, and no other way. */
static void sums_are_in_float32_and_rounded_once(void)
{
  for (int form = 0; form < FORMS; form++)
    for (int i = 0; i < SIZES; i++) {
      const struct trial x = product(form, sizes[i][0], sizes[i][1], sizes[i][2]);
      trial_rounding(&x, 4 + (double)sizes[i][2] / 4);
    }
}

static void an_empty_sum_is_zero(void)
{
  struct arena a;
  struct tensor t[TRIAL_OPERANDS];
  const struct trial x = product(0, 2, 3, 0);
  arena_open(&a);
  trial_tensors(&x, DTYPE_BF16, 0, 0, &a, t);
  trial_run(&x, DEV_CPU, 1, t);
  for (int i = 0; i < 6; i++) CHECK_NEAR(get(&t[0], i / 3, i % 3), 0, 0);
  arena_close(&a);
}

int main(void)
{
  setenv("DNNL_MAX_CPU_ISA", "AVX2", 1); /* read once, at the first product */
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  static const struct test tests[] = {
      TEST(the_way_is_named),
      TEST(bits_depend_on_the_inputs_alone),
      TEST(sums_are_in_float32_and_rounded_once),
      TEST(an_empty_sum_is_zero),
  };
  return test_main("matmul_wide", tests, sizeof tests / sizeof *tests);
}
