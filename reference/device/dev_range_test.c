/* dev_range_test.c - overlap and cover of strided ranges, against bytes counted one by one. */
#include "base/rng.h"
#include "device/dev_internal.h"
#include "testing/check.h"

#include <string.h>

enum { ROOM = 128, CASES = 20000 };
static char memory[ROOM];

static struct dev_range draw(uint64_t *at)
{
  const struct rng_key key = {11, RNG_TEST, 0};
  struct dev_range r;
  r.row_bytes = rng_below(key, (*at)++, 9);
  r.stride_bytes = r.row_bytes + rng_below(key, (*at)++, 8);
  r.rows = (int64_t)rng_below(key, (*at)++, 7);
  r.write = false;
  r.at = memory + rng_below(key, (*at)++, 20);
  return r; /* at most 19 + 6 * 15 + 8 < ROOM */
}

static void paint(const struct dev_range *r, bool bytes[ROOM])
{
  memset(bytes, 0, ROOM * sizeof *bytes);
  for (int64_t i = 0; i < r->rows; i++)
    for (size_t k = 0; k < r->row_bytes; k++)
      bytes[(size_t)((const char *)r->at - memory) + (size_t)i * r->stride_bytes + k] = true;
}

static void ranges_meet_exactly_where_their_bytes_do(void)
{
  uint64_t at = 0;
  int wrong = 0, met = 0, misplaced = 0;
  for (int i = 0; i < CASES; i++) {
    struct dev_range a = draw(&at), b = draw(&at);
    if (i % 2) b.stride_bytes = a.stride_bytes = a.stride_bytes > b.stride_bytes ? a.stride_bytes : b.stride_bytes;
    bool in_a[ROOM], in_b[ROOM], shared = false;
    paint(&a, in_a);
    paint(&b, in_b);
    for (int k = 0; k < ROOM; k++) shared = shared || (in_a[k] && in_b[k]);
    const struct dev_range x = dev_range_normal(a), y = dev_range_normal(b);
    uintptr_t byte = 0;
    const bool said = dev_range_overlap(&x, &y, &byte);
    wrong += said != shared;
    met += shared;
    if (said && shared) misplaced += !in_a[byte - (uintptr_t)memory] || !in_b[byte - (uintptr_t)memory];
  }
  CHECK(wrong == 0);
  CHECK(misplaced == 0);
  CHECK(met > CASES / 10 && met < CASES * 9 / 10);
}

static void what_covers_holds_every_byte(void)
{
  uint64_t at = 1000000;
  int wrong = 0, covered = 0;
  for (int i = 0; i < CASES; i++) {
    struct dev_range a = draw(&at), b = i % 5 ? draw(&at) : a;
    bool in_a[ROOM], in_b[ROOM], all = true;
    paint(&a, in_a);
    paint(&b, in_b);
    for (int k = 0; k < ROOM; k++) all = all && (!in_a[k] || in_b[k]);
    const struct dev_range x = dev_range_normal(a), y = dev_range_normal(b);
    if (x.rows == 0 || y.rows == 0) continue;
    const bool said = dev_range_covers(&y, &x);
    wrong += said && !all;
    covered += said;
  }
  CHECK(wrong == 0);
  CHECK(covered > CASES / 10);
}

static void a_tensor_declares_its_rows(void)
{
  const struct tensor t = {memory, DTYPE_F64, 3, 2, 5};
  const struct dev_range r = dev_reads(&t), w = dev_writes(&t);
  CHECK(r.at == memory && r.rows == 3 && r.row_bytes == 16 && r.stride_bytes == 40 && !r.write);
  CHECK(w.at == memory && w.rows == 3 && w.row_bytes == 16 && w.stride_bytes == 40 && w.write);
  const struct dev_range n = dev_range_normal((struct dev_range){memory, 8, 8, 4, true});
  CHECK(n.rows == 1 && n.row_bytes == 32 && n.write);
}

static void rows_may_touch_but_not_overlap(void)
{
  const struct dev_range touching = {memory, 8, 8, 2, false}, one = {memory, 8, 0, 1, false};
  const struct dev_range overlapping = {memory, 8, 7, 2, false}, empty = {NULL, 0, 0, 3, false};
  CHECK_OK(dev_range_check(&touching));
  CHECK_OK(dev_range_check(&one)); /* the stride of one row means nothing */
  CHECK_OK(dev_range_check(&empty));
  CHECK_ERR(dev_range_check(&overlapping), ERR_ARG);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(ranges_meet_exactly_where_their_bytes_do),
      TEST(what_covers_holds_every_byte),
      TEST(a_tensor_declares_its_rows),
      TEST(rows_may_touch_but_not_overlap),
  };
  return test_main("dev_range", tests, sizeof tests / sizeof *tests);
}
