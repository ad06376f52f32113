/* asked_test.c - values of the command line, and that they survive summary.json. */
#include "harness/asked.h"
#include "testing/check.h"

#include <string.h>

static void ranks_are_a_list_of_whole_numbers(void)
{
  struct asked a = {0};
  CHECK_OK(asked_ranks("1,2,16", &a));
  CHECK(a.n_ranks == 3 && a.ranks[0] == 1 && a.ranks[1] == 2 && a.ranks[2] == 16);
  static const char *const bad[] = {"0", "", "1,,2", "1,2,", "2x", "-1", "1,1", "99999999999999999999", "1;2", "+2", " 2", "1, 2", "0x2"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK_ERR(asked_ranks(bad[i], &a), ERR_CONFIG);
  CHECK_ERR(asked_ranks("0", &a), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "valid: 1..65536");
}

static void budgets_have_units(void)
{
  double s = 0;
  CHECK_OK(asked_budget("30m", &s));
  CHECK_NEAR(s, 1800, 0);
  CHECK_OK(asked_budget("1.5h", &s));
  CHECK_NEAR(s, 5400, 0);
  CHECK_OK(asked_budget("45", &s));
  CHECK_NEAR(s, 45, 0);
  static const char *const bad[] = {"", "m", "0", "-3m", "3d", "nan", "inf", "3m ", "+3m", " 3m", "0x10"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK_ERR(asked_budget(bad[i], &s), ERR_CONFIG);
}

static void overrides_reach_the_settings(void)
{
  struct run_config c;
  struct asked a = {.model = "gpt2-124m", .device = "lazy", .seed = "99", .layout = "dp=4", .fault = "clip-max-for-min"};
  config_default(&c);
  c.layers = 3; /* of the suite's model: not of another */
  CHECK_OK(asked_lay_over(&a, &c));
  CHECK(strcmp(c.model, "gpt2-124m") == 0 && c.layers == 0 && c.device == 1 && c.seed == 99 && c.dp == 4);
  CHECK(strcmp(c.fault, "clip-max-for-min") == 0);
  static const char *const bad[] = {"dp", "dp=x", "zz=2", "dp=2,", "steps=2"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct asked b = {0};
    memcpy(b.layout, bad[i], strlen(bad[i]) + 1);
    CHECK_ERR(asked_lay_over(&b, &c), ERR_CONFIG);
  }
}

static void a_policy_takes_the_place_of_the_default_only(void)
{
  struct run_config c;
  struct asked a = {.policy = "packed"};
  config_default(&c);
  CHECK_OK(asked_lay_over(&a, &c));
  CHECK(c.policy == POLICY_PACKED && asked_overrides(&a));
  c.policy = POLICY_BUCKETED;
  CHECK_OK(asked_lay_over(&a, &c));
  CHECK(c.policy == POLICY_BUCKETED);
  memcpy(a.policy, "stacked", 8);
  CHECK_ERR(asked_lay_over(&a, &c), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "padded|chunked|bucketed|packed|balanced");
}

static void what_was_asked_is_asked_again(void)
{
  struct asked a = {.suites = {"conformance", "scaling"}, .n_suites = 2, .full = true, .ranks = {1, 4}, .n_ranks = 2, .base = 1,
                    .model = "tiny", .policy = "packed", .only = "dp", .fault = "", .out = "somewhere"};
  struct asked b = {.out = "elsewhere"};
  json_t *j = asked_json(&a);
  CHECK_OK(asked_from_json(j, &b));
  json_decref(j);
  CHECK(b.n_suites == 2 && strcmp(b.suites[1], "scaling") == 0 && b.full && b.n_ranks == 2 && b.ranks[1] == 4 && b.base == 1);
  CHECK(strcmp(b.model, "tiny") == 0 && strcmp(b.policy, "packed") == 0 && strcmp(b.only, "dp") == 0 && strcmp(b.out, "elsewhere") == 0);
  j = json_pack("{s:[]}", "suites");
  CHECK_ERR(asked_from_json(j, &b), ERR_FORMAT);
  json_decref(j);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(ranks_are_a_list_of_whole_numbers),
    TEST(budgets_have_units),
    TEST(overrides_reach_the_settings),
    TEST(a_policy_takes_the_place_of_the_default_only),
    TEST(what_was_asked_is_asked_again),
  };
  return test_main("asked", tests, sizeof tests / sizeof *tests);
}
