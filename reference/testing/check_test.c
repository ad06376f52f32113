/* check_test.c - a check that does not hold ends its program with 1: each is run to fail. */
#include "testing/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- what must fail, each a run of this program of its own ------------------ */

static void says_false(void) { CHECK(1 + 1 == 3); }
static void expects_another_code(void) { CHECK_ERR(ERR_IO, ERR_CONFIG); }
static void expects_success(void) { CHECK_OK(ERR_IO); }
static void is_not_near(void) { CHECK_NEAR(1.0, 1.1, 0.05); }
static void nan_is_near_nothing(void) { CHECK_NEAR(NAN, NAN, 1e300); }
static void infinity_is_near_nothing(void) { CHECK_NEAR(INFINITY, INFINITY, 1); }
static void differs_in_its_last_bit(void)
{
  const double a = 1.0, b = nextafter(1.0, 2.0);
  CHECK_SAME_BITS(&a, &b, sizeof a);
}
static void lacks_a_word(void) { CHECK_TEXT_HAS("a b", "c"); }
static void has_no_text(void) { CHECK_TEXT_HAS(NULL, "c"); }
static void checks_nothing(void) {}
static void fails_after_a_pass(void)
{
  CHECK(true);
  CHECK(false);
  CHECK(true);
}

static const struct test failing[] = {
  TEST(says_false), TEST(expects_another_code), TEST(expects_success), TEST(is_not_near), TEST(nan_is_near_nothing),
  TEST(infinity_is_near_nothing), TEST(differs_in_its_last_bit), TEST(lacks_a_word), TEST(has_no_text), TEST(checks_nothing),
  TEST(fails_after_a_pass),
};
enum { FAILING = sizeof failing / sizeof *failing };

/* Exit status of this program with only that test, and what it said. */
static int run_alone(const char *name, char *said, size_t bytes)
{
  char self[1024], command[2048];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return -1;
  self[n] = '\0';
  snprintf(command, sizeof command, "'%s' %s 2>&1", self, name);
  FILE *out = popen(command, "r");
  if (out == NULL) return -1;
  const size_t used = fread(said, 1, bytes - 1, out);
  said[used] = '\0';
  const int status = pclose(out);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void each_check_that_does_not_hold_ends_with_1(void)
{
  for (int i = 0; i < FAILING; i++) {
    char said[8192];
    CHECK(run_alone(failing[i].name, said, sizeof said) == 1);
    CHECK_TEXT_HAS(said, strcmp(failing[i].name, "checks_nothing") == 0 ? "checked nothing" : "rank 0: ");
  }
}

static void each_check_that_holds_is_true(void)
{
  const float a[2] = {1, 2}, b[2] = {1, 2};
  CHECK(CHECK_NEAR(1.0, 1.05, 0.06));
  CHECK(CHECK_SAME_BITS(a, b, sizeof a));
  CHECK(CHECK_TEXT_HAS("a b", "b"));
  CHECK(CHECK_ERR(ERR_IO, ERR_IO));
  CHECK(CHECK_OK(ERR_OK));
}

static void the_allocation_that_was_named_fails(void)
{
  check_fail_allocation(2);
  void *first = malloc(8), *second = malloc(8), *third = calloc(1, 8);
  CHECK(first != NULL && second == NULL && third != NULL);
  CHECK(check_allocation_failed());
  check_fail_allocation(0);
  void *fourth = malloc(8);
  CHECK(fourth != NULL && !check_allocation_failed());
  free(first);
  free(third);
  free(fourth);
}

int main(int argc, char **argv)
{
  static const struct test tests[] = {
    TEST(each_check_that_does_not_hold_ends_with_1),
    TEST(each_check_that_holds_is_true),
    TEST(the_allocation_that_was_named_fails),
  };
  for (int i = 0; argc > 1 && i < FAILING; i++)
    if (strcmp(failing[i].name, argv[1]) == 0) return test_main("failing", &failing[i], 1);
  return test_main("check", tests, sizeof tests / sizeof *tests);
}
