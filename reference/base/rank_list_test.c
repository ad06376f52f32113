/* rank_list_test.c - lists of ranks: what they hold, and what is refused. */
#include "base/rank_list.h"
#include "testing/check.h"

static void a_list_holds_what_it_names(void)
{
  CHECK_OK(rank_list_check("k", "all", 1));
  CHECK(rank_list_has("all", 0) && rank_list_has("all", 7));
  CHECK_OK(rank_list_check("k", "0,2,15", 16));
  for (int rank = 0; rank < 20; rank++) CHECK(rank_list_has("0,2,15", rank) == (rank == 0 || rank == 2 || rank == 15));
  CHECK_OK(rank_list_check("k", "3", 4));
  CHECK(rank_list_has("3", 3) && !rank_list_has("3", 0));
}

static void what_is_no_list_is_refused(void)
{
  static const char *const bad[] = {"", ",", "1,", ",1", "1,,2", "1 ,2", "-1", "+1", "one", "0x1", "1,all", "1234567890"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    CHECK_ERR(rank_list_check("read_ranks", bad[i], 8), ERR_CONFIG);
    CHECK_TEXT_HAS(err_text(), "is no list of ranks; valid: all, or numbers such as 0,2");
  }
  CHECK_ERR(rank_list_check("read_ranks", "0,8", 8), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "read_ranks: 8 is not in the job; valid: 0..7");
}

int main(void)
{
  static const struct test tests[] = {
    TEST(a_list_holds_what_it_names),
    TEST(what_is_no_list_is_refused),
  };
  return test_main("rank_list", tests, sizeof tests / sizeof *tests);
}
