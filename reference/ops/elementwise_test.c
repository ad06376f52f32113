/* elementwise_test.c - the contracts of fill, copy, add, accumulate and scale. */
#include "base/fault.h"
#include "ops/op_trial.h"

#include <sys/mman.h>

static enum err call_fill(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  return op_fill(s, &t[0], x->number);
}
static enum err call_copy(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_copy(s, &t[0], &t[1]);
}
static enum err call_add(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_add(s, &t[0], &t[1], &t[2]);
}
static enum err call_accumulate(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_accumulate(s, &t[0], &t[1]);
}
static enum err call_scale(struct dev_stream *s, const struct tensor *t, const struct trial *x)
{
  (void)x;
  return op_scale(s, &t[0], &t[1], &t[2]);
}

enum {
  FILL,
  COPY,
  COPY_NARROW,
  COPY_WIDEN,
  COPY_ROUND,
  COPY_RAISE,
  COPY_NARROW_BF16,
  COPY_WIDEN_BF16,
  COPY_NARROW_F16,
  COPY_WIDEN_F16,
  COPY_ACROSS,
  COPY_INT,
  ADD,
  ACCUMULATE,
  SCALE,
  SCALE_F64,
  KINDS
};

static const struct {
  enum dtype to, from;
} copies[] = {{DTYPE_F32, DTYPE_F64},  {DTYPE_F64, DTYPE_F32},  {DTYPE_BF16, DTYPE_F32}, {DTYPE_F32, DTYPE_BF16},
              {DTYPE_BF16, DTYPE_F64}, {DTYPE_F64, DTYPE_BF16}, {DTYPE_F16, DTYPE_F64},  {DTYPE_F32, DTYPE_F16},
              {DTYPE_F16, DTYPE_BF16}, {DTYPE_I32, DTYPE_I32}};

static struct trial trial_of(int kind, int64_t N, int64_t C)
{
  const struct trial_operand out = {.name = "y", .role = TRIAL_OUT, .type = TRIAL_REAL, .rows = N, .cols = C};
  struct trial_operand y = out, x = out, b = out;
  x.role = b.role = TRIAL_IN;
  x.name = "x", b.name = "b";
  switch (kind) {
  case FILL:
    y.any_rows = y.any_cols = y.any_type = true;
    return (struct trial){.name = "fill", .call = call_fill, .number = 3, .n = 1, .operand = {y}};
  case COPY:
    x.any_type = y.any_type = true; /* to and from the other real type */
    return (struct trial){.name = "copy", .call = call_copy, .n = 2, .operand = {y, x}};
  case COPY_NARROW:
  case COPY_WIDEN:
  case COPY_ROUND:
  case COPY_RAISE:
  case COPY_NARROW_BF16:
  case COPY_WIDEN_BF16:
  case COPY_NARROW_F16:
  case COPY_WIDEN_F16:
  case COPY_ACROSS:
  case COPY_INT:
    y.type = copies[kind - COPY_NARROW].to;
    x.type = copies[kind - COPY_NARROW].from;
    x.any_type = y.any_type = true;
    return (struct trial){.name = "copy", .call = call_copy, .n = 2, .operand = {y, x}};
  case ADD: return (struct trial){.name = "add", .call = call_add, .n = 3, .operand = {y, x, b}};
  case ACCUMULATE:
    y.role = TRIAL_INOUT;
    return (struct trial){.name = "accumulate", .call = call_accumulate, .n = 2, .operand = {y, x}};
  default:
    b = (struct trial_operand){
        .name = "factor", .role = TRIAL_IN, .type = kind == SCALE ? TRIAL_STATE : DTYPE_F64, .rows = 1, .cols = 1};
    b.any_type = kind == SCALE;
    return (struct trial){.name = "scale", .call = call_scale, .n = 3, .operand = {y, x, b}};
  }
}

static const int64_t sizes[][2] = {{1, 1}, {1, 3}, {3, 17}, {17, 33}, {33, 1}, {3, 8200}, {1, 20000}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void bits_depend_on_the_inputs_alone(void)
{
  for (int kind = 0; kind < KINDS; kind++)
    for (int i = 0; i < SIZES; i++) {
      const struct trial x = trial_of(kind, sizes[i][0], sizes[i][1]);
      trial_same_bits(&x);
    }
}
static void what_it_touches_is_declared(void)
{
  for (int kind = 0; kind < KINDS; kind++) {
    const struct trial x = trial_of(kind, 3, 5);
    trial_declares(&x);
  }
}
static void wrong_shapes_are_refused(void)
{
  for (int kind = 0; kind < KINDS; kind++) {
    const struct trial x = trial_of(kind, 3, 5);
    trial_refuses(&x);
  }
}

static void copies_between_other_types_are_refused(void)
{
  struct rig g;
  rig_open(&g, DEV_CPU, 1);
  double room[4] = {0};
  for (int a = 0; a < DTYPE_COUNT; a++)
    for (int b = 0; b < DTYPE_COUNT; b++) {
      const struct tensor y = tensor_at(room, (enum dtype)a, 1, 1), x = tensor_at(room + 2, (enum dtype)b, 1, 1);
      const bool real = a <= DTYPE_F16 && b <= DTYPE_F16; /* the four of them come first */
      CHECK_ERR(op_copy(g.compute, rig_at(&g, &y), rig_at(&g, &x)), a == b || real ? ERR_OK : ERR_ARG);
    }
  const struct tensor words = tensor_at(room, DTYPE_I32, 1, 1);
  CHECK_ERR(op_fill(g.compute, rig_at(&g, &words), 1), ERR_ARG);
  CHECK_OK(rig_sync(&g));
  rig_close(&g);
}

static void values_are_those_of_the_formula(void)
{
  for (int kind = 0; kind < KINDS; kind++)
    for (int type = 0; type < REALS; type++) {
      struct arena a;
      struct tensor t[TRIAL_OPERANDS];
      const struct trial x = trial_of(kind, 3, 17);
      arena_open(&a);
      trial_tensors(&x, reals[type], 0, 0, &a, t);
      if (kind == COPY_NARROW) put(&t[1], 1, 1, 1 + 0x1.8p-24);             /* rounds up to 1 + 2^-23 */
      if (kind == COPY_ROUND) put(&t[1], 1, 1, 1 + 0x1.01p-8);              /* rounds up to 1 + 2^-7 */
      if (kind == COPY_NARROW_BF16) put(&t[1], 1, 1, 1 + 0x1p-8 + 0x1p-40); /* float32's nearest is a tie */
      if (kind == COPY_NARROW_F16) put(&t[1], 1, 1, 1 + 0x1p-11 + 0x1p-40);
      const struct tensor y0 = arena_tensor(&a, t[0].type, 3, 17, 0, 0);
      fill_seeded(&y0, 100); /* as trial_tensors() fills y when it is added to */
      trial_run(&x, DEV_CPU, 1, t);
      for (int i = 0; i < 51; i++) {
        const int r = i / 17, c = i % 17;
        double want = kind == FILL ? 3 : get(&t[1], r, c);
        if (kind == ADD) want += get(&t[2], r, c);
        if (kind == ACCUMULATE) want += get(&y0, r, c);
        if (kind >= SCALE) want *= reals[type] == DTYPE_F64 ? get(&t[2], 0, 0) : (double)(float)get(&t[2], 0, 0);
        if (kind == COPY_NARROW_BF16) want = (double)bf16_widen(bf16_round_f64(want)); /* at once */
        if (kind == COPY_NARROW_F16) want = (double)f16_widen(f16_round_f64(want));
        CHECK_NEAR(get(&t[0], r, c), stored(t[0].type, want), 0);
      }
      arena_close(&a);
    }
}

/* add: y may be a or b; scale: y may be x. */
static void outputs_may_be_inputs(void)
{
  static const struct {
    int kind, same;
  } aliases[] = {{ADD, 1}, {ADD, 2}, {SCALE, 1}, {SCALE_F64, 1}};
  for (int i = 0; i < 4; i++)
    for (int type = 0; type < REALS; type++) {
      struct arena a;
      struct tensor t[TRIAL_OPERANDS];
      const struct trial x = trial_of(aliases[i].kind, 17, 33);
      arena_open(&a);
      trial_tensors(&x, reals[type], 0, 0, &a, t);
      const struct tensor apart = t[0];
      trial_run(&x, DEV_CPU, 1, t);
      t[0] = t[aliases[i].same];
      trial_run(&x, DEV_CPU, 1, t);
      CHECK(same_bits(&t[0], &apart));
      arena_close(&a);
    }
}

/* Two rows 2^31 + 5 elements apart, in address space that is reserved and never filled. */
static void rows_beyond_2_31_elements_are_found(void)
{
  if (rig_on_cuda()) return; /* a device has no address space to spare */
  const int64_t stride = (1LL << 31) + 5;
  const size_t page = 4096, reach = (size_t)stride, bytes = 2 * reach + 2 * page;
  unsigned char *space = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!CHECK(space != MAP_FAILED)) return;
  /* x stands in the middle: with its offset cut to 32 bits, row 1 is before row 0, still inside the reservation. */
  unsigned char *middle = space + (reach + page - 1) / page * page;
  unsigned char *const pages[] = {middle, middle + reach / page * page,
                                  middle + (int32_t)(uint32_t)stride / (int64_t)page * (int64_t)page - page};
  for (int i = 0; i < 3; i++) CHECK(mprotect(pages[i], 2 * page, PROT_READ | PROT_WRITE) == 0);
  unsigned char got[2][3];
  const struct tensor x = {middle, DTYPE_U8, 2, 3, stride}, y = tensor_at(got, DTYPE_U8, 2, 3);
  for (int i = 0; i < 3; i++) middle[i] = (unsigned char)(i + 1), middle[stride + i] = (unsigned char)(i + 11);

  for (int planted = 0; planted < 2; planted++) {
    struct rig g;
    rig_open(&g, DEV_CPU, 1);
    CHECK_OK(fault_plant(planted ? "mm-int32-index-overflow" : "none", 1, 0));
    memset(got, 0xFF, sizeof got);
    CHECK_OK(op_copy(g.compute, rig_at(&g, &y), rig_at(&g, &x)));
    CHECK_OK(rig_sync(&g));
    CHECK_OK(fault_plant("none", 1, 0));
    for (int i = 0; i < 3; i++) CHECK(got[0][i] == i + 1 && got[1][i] == (planted ? 0 : i + 11));
    rig_close(&g);
  }
  munmap(space, bytes);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(bits_depend_on_the_inputs_alone),
      TEST(what_it_touches_is_declared),
      TEST(wrong_shapes_are_refused),
      TEST(copies_between_other_types_are_refused),
      TEST(values_are_those_of_the_formula),
      TEST(outputs_may_be_inputs),
      TEST(rows_beyond_2_31_elements_are_found),
  };
  return test_main("elementwise", tests, sizeof tests / sizeof *tests);
}
