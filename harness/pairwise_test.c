/* pairwise_test.c - every pair that can meet does, in few rows, the same each time. */
#include "harness/pairwise.h"
#include "testing/check.h"

#include <stdlib.h>
#include <string.h>

static bool holds(const struct pairwise *p, int a, int x, int b, int y)
{
  for (int i = 0; i < p->n; i++)
    if (p->rows[i * p->axes + a] == x && p->rows[i * p->axes + b] == y) return true;
  return false;
}

static int missing(const struct pairwise *p)
{
  int n = 0;
  for (int a = 0; a < p->axes; a++)
    for (int b = a + 1; b < p->axes; b++)
      for (int x = 0; x < p->size[a]; x++)
        for (int y = 0; y < p->size[b]; y++) n += !holds(p, a, x, b, y);
  return n;
}

static void all_pairs_meet_in_few_rows(void)
{
  struct pairwise p = {.axes = 5, .size = {3, 3, 3, 3, 2}};
  if (!CHECK_OK(pairwise_make(&p))) return;
  CHECK(missing(&p) == 0);
  CHECK(p.n >= 9 && p.n <= 15); /* 9 is the least there can be; all combinations are 162 */
  free(p.rows);
}

static void each_leading_value_takes_as_many_rows_as_the_longest_axis(void)
{
  struct pairwise p = {.axes = 5, .size = {100, 2, 3, 2, 2}};
  if (!CHECK_OK(pairwise_make(&p))) return;
  CHECK(missing(&p) == 0);
  CHECK(p.n == 300);
  for (int i = 1; i < p.n; i++) CHECK(p.rows[i * 5] >= p.rows[(i - 1) * 5]);
  free(p.rows);
}

/* Value 1 of axis 1 and value 1 of axis 2 never meet; leading value 2 has no row at all. */
static bool legal(void *arg, const int *row)
{
  ++*(int *)arg;
  return row[0] != 2 && !(row[1] == 1 && row[2] == 1);
}

static void what_cannot_meet_is_not_asked_for(void)
{
  int calls = 0;
  struct pairwise p = {.axes = 3, .size = {3, 2, 2}, .legal = legal, .arg = &calls};
  if (!CHECK_OK(pairwise_make(&p))) return;
  CHECK(calls >= 12);
  CHECK(missing(&p) == 1 + 4);
  CHECK(!holds(&p, 1, 1, 2, 1) && holds(&p, 1, 0, 2, 0) && holds(&p, 0, 0, 1, 1) && holds(&p, 0, 1, 2, 1));
  free(p.rows);
}

/* Three leading values each content with two rows: the pairs of axes 1 and 2 that they leave follow. */
static void pairs_that_no_leading_value_needed_follow_at_the_end(void)
{
  struct pairwise p = {.axes = 3, .size = {1, 4, 4}};
  if (!CHECK_OK(pairwise_make(&p))) return;
  CHECK(missing(&p) == 0);
  CHECK(p.n == 16);
  free(p.rows);
}

static void the_same_axes_give_the_same_rows(void)
{
  struct pairwise p = {.axes = 6, .size = {7, 2, 3, 2, 4, 2}}, q = p;
  if (!CHECK_OK(pairwise_make(&p)) || !CHECK_OK(pairwise_make(&q))) return;
  CHECK(p.n == q.n && memcmp(p.rows, q.rows, (size_t)(p.n * p.axes) * sizeof *p.rows) == 0);
  free(p.rows);
  free(q.rows);
}

static void one_axis_gives_its_values(void)
{
  struct pairwise p = {.axes = 1, .size = {3}};
  if (!CHECK_OK(pairwise_make(&p))) return;
  CHECK(p.n == 3 && p.rows[0] == 0 && p.rows[2] == 2);
  free(p.rows);
}

static void senseless_axes_are_refused(void)
{
  struct pairwise none = {.axes = 0}, many = {.axes = PAIRWISE_AXES + 1}, empty = {.axes = 2, .size = {2, 0}};
  CHECK_ERR(pairwise_make(&none), ERR_ARG);
  CHECK_ERR(pairwise_make(&many), ERR_ARG);
  CHECK_ERR(pairwise_make(&empty), ERR_ARG);
}

static void every_allocation_may_fail(void)
{
  bool failed = true;
  for (long n = 1; failed && n < 1000; n++) {
    struct pairwise p = {.axes = 3, .size = {40, 2, 3}};
    check_fail_allocation(n);
    const enum err err = pairwise_make(&p);
    failed = check_allocation_failed();
    check_fail_allocation(0);
    CHECK(failed ? err == ERR_MEMORY && p.rows == NULL : err == ERR_OK);
    free(p.rows);
  }
  CHECK(!failed);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(all_pairs_meet_in_few_rows),
    TEST(each_leading_value_takes_as_many_rows_as_the_longest_axis),
    TEST(what_cannot_meet_is_not_asked_for),
    TEST(pairs_that_no_leading_value_needed_follow_at_the_end),
    TEST(the_same_axes_give_the_same_rows),
    TEST(one_axis_gives_its_values),
    TEST(senseless_axes_are_refused),
    TEST(every_allocation_may_fail),
  };
  return test_main("pairwise", tests, sizeof tests / sizeof *tests);
}
