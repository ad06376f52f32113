/* rows_cuda_test.c - quotients by a number that the host knows are exact, on both sides of each border. */
#include "device/dev_testing.h"
#include "ops/rows_testing.h"

static const int64_t most = (INT64_C(1) << 31) - 1; /* of the short way */

static void exact(struct dev *d, struct dev_stream *s, char *memory, int64_t by)
{
  const int64_t last = most / by * by; /* multiples of `by`, the numbers beside them, and beyond the short way */
  const int64_t middle = (last / by / 2 + 1) * by;
  const int64_t of[QUOTIENTS] = {0, 1, by - 1, by, by + 1, 2 * by - 1, 2 * by, middle - 1, middle, middle + 1, last - 1, last,
                                 most - 1, most, most + 1, 3 * most + by};
  int64_t got[QUOTIENTS];
  const struct quotient_args args = {(const int64_t *)(void *)memory, (int64_t *)(void *)(memory + sizeof of), by};
  const struct dev_kernel kernel = {.name = "quotients", .cuda = quotients_cuda};
  CHECK_OK(dev_copy_in(s, memory, of, sizeof of));
  CHECK_OK(dev_submit(s, &kernel, &args, sizeof args, NULL, 0));
  CHECK_OK(dev_copy_out(s, got, memory + sizeof of, sizeof got));
  CHECK_OK(dev_sync(d));
  bool same = true;
  for (int i = 0; i < QUOTIENTS; i++) same = same && got[i] == of[i] / by;
  CHECK(same);
}

static void quotients_are_exact(void)
{
  struct dev *d = open_kind(DEV_CUDA);
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
  void *memory = NULL;
  CHECK_OK(dev_alloc(d, 2 * QUOTIENTS * sizeof(int64_t), DEV_OTHER, "quotients", &memory));
  for (int bits = 0; bits <= 32; bits++) /* powers of two and the numbers beside them */
    for (int64_t by = (INT64_C(1) << bits) - 1; by <= (INT64_C(1) << bits) + 1; by++)
      if (by > 0) exact(d, s, memory, by);
  static const int64_t others[] = {6, 7, 10, 48, 96, 100, 641, 768, 2304, 50257, 6700417, 1000000007, 1431655765, 1999999973};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) exact(d, s, memory, others[i]);
  dev_close(d);
}

/* A group that may be loaded at once is: slower otherwise, and no other test would tell. */
static void what_is_aligned_is_known_to_be(void)
{
  static char memory[4096] __attribute__((aligned(16)));
  static const struct {
    int64_t rows, cols, stride;
    int shift; /* bytes off 16 */
    bool flatten;
    struct walk_of want;
  } all[] = {{6, 8, 8, 0, false, {6, 8, 2, true}},   {6, 8, 8, 0, true, {1, 48, 12, true}},   {6, 8, 8, 4, false, {6, 8, 2, false}},
             {6, 8, 8, 4, true, {1, 48, 12, false}}, {6, 8, 12, 0, true, {6, 8, 2, true}},    {6, 8, 11, 0, true, {6, 8, 2, false}},
             {6, 7, 7, 0, false, {6, 7, 2, false}},  {6, 7, 7, 0, true, {1, 42, 11, true}},   {6, 7, 8, 0, true, {6, 7, 2, true}},
             {0, 8, 8, 0, true, {0, 0, 0, true}}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const struct tensor t = {memory + all[i].shift, DTYPE_F32, all[i].rows, all[i].cols, all[i].stride};
    const struct walk_of got = walk_of_f32(&t, all[i].flatten), *want = &all[i].want;
    CHECK(got.rows == want->rows && got.cols == want->cols && got.groups == want->groups && got.aligned == want->aligned);
  }
}

int main(void)
{
  static const struct test tests[] = {TEST(quotients_are_exact), TEST(what_is_aligned_is_known_to_be)};
  return test_main("rows", tests, sizeof tests / sizeof *tests);
}
