/* deal_test.c - dealing sequences to ranks by cost. */
#include "data/deal.h"
#include "testing/check.h"

static void each_rank_has_as_many_and_every_sequence_is_dealt(void)
{
  double cost[24];
  int32_t order[24];
  int seen[24] = {0};
  for (int i = 0; i < 24; i++) cost[i] = (double)(i * 7 % 24);
  CHECK_OK(deal(cost, 24, 4, order));
  for (int i = 0; i < 24; i++) seen[order[i]]++;
  for (int i = 0; i < 24; i++) CHECK(seen[i] == 1);
  for (int i = 1; i < 24; i++) CHECK(i % 6 == 0 || order[i] > order[i - 1]); /* a rank's in their order */
}

/* By hand: 9 to 0, 8 to 1, 5 to 1, 4 to 0, 3 to 0 (13 each, the first), 2 to 1. */
static void the_most_expensive_goes_first_to_who_has_least(void)
{
  const double cost[6] = {2, 9, 3, 8, 5, 4};
  int32_t order[6];
  CHECK_OK(deal(cost, 6, 2, order));
  const int32_t want[6] = {1, 2, 5, 0, 3, 4};
  CHECK_SAME_BITS(order, want, sizeof want);
}

static void loads_are_nearer_than_in_order(void)
{
  double cost[64], dealt[4] = {0}, in_order[4] = {0};
  int32_t order[64];
  uint32_t state = 7;
  for (int i = 0; i < 64; i++) {
    state = state * 1664525u + 1013904223u;
    const double n = 2 + (state >> 16) % 511;
    cost[i] = n * n;
  }
  CHECK_OK(deal(cost, 64, 4, order));
  for (int i = 0; i < 64; i++) {
    in_order[i / 16] += cost[i];
    dealt[i / 16] += cost[order[i]];
  }
  double most[2] = {0, 0}, sum = 0;
  for (int r = 0; r < 4; r++) {
    most[0] = in_order[r] > most[0] ? in_order[r] : most[0];
    most[1] = dealt[r] > most[1] ? dealt[r] : most[1];
    sum += dealt[r];
  }
  CHECK(most[1] < 1.01 * sum / 4);
  CHECK(most[0] > 1.05 * sum / 4);
}

static void one_rank_and_equal_costs_change_nothing(void)
{
  const double cost[4] = {1, 4, 2, 3}, equal[4] = {0, 0, 0, 0};
  int32_t order[4];
  CHECK_OK(deal(cost, 4, 1, order));
  for (int i = 0; i < 4; i++) CHECK(order[i] == i);
  CHECK_OK(deal(equal, 4, 2, order));
  for (int i = 0; i < 4; i++) CHECK(order[i] == i); /* of equals the first rank, until it is full */
}

int main(void)
{
  static const struct test tests[] = {
    TEST(each_rank_has_as_many_and_every_sequence_is_dealt),
    TEST(the_most_expensive_goes_first_to_who_has_least),
    TEST(loads_are_nearer_than_in_order),
    TEST(one_rank_and_equal_costs_change_nothing),
  };
  return test_main("deal", tests, sizeof tests / sizeof *tests);
}
