/* members_test.c - which ranks may share a NCCL communicator. */
#include "comm/members.h"
#include "testing/check.h"

#include <stdio.h>

static struct member member_of(int version, const char *library, const char *uuid)
{
  struct member m = {.version = version};
  snprintf(m.library, sizeof m.library, "%s", library);
  snprintf(m.uuid, sizeof m.uuid, "%s", uuid);
  return m;
}

static void one_version_and_a_device_each_is_fine(void)
{
  const struct member m[] = {member_of(22809, "2.28.9", "GPU-a"), member_of(22809, "2.28.9", "GPU-b"), member_of(22809, "2.28.9", "GPU-c")};
  CHECK_OK(members_judge(m, 3, NULL));
  CHECK_OK(members_judge(m, 1, NULL));
}

static void two_ranks_on_one_device_are_named_with_the_way_out(void)
{
  const struct member m[] = {member_of(22809, "2.28.9", "GPU-a"), member_of(22809, "2.28.9", "GPU-b"), member_of(22809, "2.28.9", "GPU-b")};
  const int ranks[] = {1, 3, 5};
  CHECK_ERR(members_judge(m, 3, ranks), ERR_INVALID);
  CHECK_TEXT_HAS(err_text(), "ranks 3 and 5 share the device GPU-b");
  CHECK_TEXT_HAS(err_text(), "transport: staged");
  CHECK_ERR(members_judge(m, 3, NULL), ERR_INVALID);
  CHECK_TEXT_HAS(err_text(), "ranks 1 and 2");
  CHECK_OK(members_judge(m, 2, ranks));
}

static void other_versions_are_named(void)
{
  const struct member m[] = {member_of(22809, "2.28.9", "GPU-a"), member_of(22809, "2.28.9", "GPU-b"), member_of(22602, "2.26.2", "GPU-c")};
  const int ranks[] = {0, 2, 4};
  CHECK_ERR(members_judge(m, 3, ranks), ERR_INVALID);
  CHECK_TEXT_HAS(err_text(), "2.28.9 on rank 0 and 2.26.2 on rank 4");
}

static void a_rank_without_nccl_says_why(void)
{
  struct member m[] = {member_of(22809, "2.28.9", "GPU-a"), member_of(0, "", "GPU-b")};
  snprintf(m[1].why, sizeof m[1].why, "NCCL is missing (no such file)");
  CHECK_ERR(members_judge(m, 2, NULL), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "rank 1: NCCL is missing (no such file)");
}

int main(void)
{
  static const struct test tests[] = {
    TEST(one_version_and_a_device_each_is_fine),
    TEST(two_ranks_on_one_device_are_named_with_the_way_out),
    TEST(other_versions_are_named),
    TEST(a_rank_without_nccl_says_why),
  };
  return test_main("members", tests, sizeof tests / sizeof *tests);
}
