/* judge_test.c - the table of checks and how verdicts combine. */
#include "checks.h"
#include "testing/check.h"

#include <math.h>
#include <string.h>

static void every_check_is_found_by_its_name_and_says_what_it_means(void)
{
  CHECK(judge_checks_count > 10);
  for (int i = 0; i < judge_checks_count; i++) {
    CHECK(judge_find(judge_checks[i].name) == &judge_checks[i]);
    CHECK(judge_checks[i].observable[0] == 'O');
    CHECK(strlen(judge_checks[i].meaning) > 20);
  }
  CHECK(judge_find("no such check") == NULL);
}

static void failure_outweighs_invalid_outweighs_inconclusive_outweighs_pass(void)
{
  const enum outcome all[] = {OUTCOME_SKIPPED, OUTCOME_PASS, OUTCOME_INCONCLUSIVE, OUTCOME_INVALID, OUTCOME_FAIL};
  const enum outcome worst[] = {OUTCOME_SKIPPED, OUTCOME_PASS, OUTCOME_INCONCLUSIVE, OUTCOME_INVALID, OUTCOME_FAIL};
  for (int n = 1; n <= 5; n++) CHECK(judge_worst(all, n) == worst[n - 1]);
  CHECK(judge_worst(all, 0) == OUTCOME_SKIPPED);
}

static void outcomes_have_their_names(void)
{
  CHECK(strcmp(outcome_name(OUTCOME_PASS), "PASS") == 0);
  CHECK(strcmp(outcome_name(OUTCOME_SKIPPED), "SKIPPED") == 0);
}

static void only_a_failure_of_a_named_observable_catches(void)
{
  struct verdict list[2] = {{.outcome = OUTCOME_FAIL, .observable = "O1"}, {.outcome = OUTCOME_PASS, .observable = "O4"}};
  CHECK(!judge_caught("O3 O4", list, 2));
  CHECK(!judge_caught("O16 O11", list, 2)); /* O1 is no part of O16 */
  CHECK(judge_caught("O4 O1", list, 2));
  list[1].outcome = OUTCOME_FAIL;
  CHECK(judge_caught("O3 O4", list, 2));
  list[0].outcome = list[1].outcome = OUTCOME_INVALID;
  CHECK(!judge_caught("O4 O1", list, 2));
}

static void a_check_with_no_evidence_at_all_never_passes(void)
{
  struct run_data nothing = {.end = "exited"};
  config_default(&nothing.config);
  nothing.config.dp = 2;
  nothing.config.reduce = REDUCE_ORDERED;
  nothing.config.delay = DELAY_ALL;
  nothing.config.recompute = RECOMPUTE_FULL;
  nothing.config.loss_scale = 1024;
  nothing.config.offload = OFFLOAD_OPTIMIZER;
  json_t *none = json_array();
  nothing.records = none;
  for (int i = 0; i < judge_checks_count; i++) {
    struct companion wanted[JUDGE_COMPANIONS_MAX];
    const struct run_data *companions[JUDGE_COMPANIONS_MAX] = {NULL};
    struct verdict v;
    const int n = judge_checks[i].companions ? judge_checks[i].companions(&nothing.config, wanted, JUDGE_COMPANIONS_MAX) : 0;
    judge_checks[i].judge(&nothing, wanted, companions, n, &v);
    if (!CHECK(v.outcome == OUTCOME_FAIL || v.outcome == OUTCOME_INVALID || v.outcome == OUTCOME_SKIPPED)) CHECK_TEXT_HAS(v.sentence, judge_checks[i].name);
    if (!CHECK(v.outcome != OUTCOME_SKIPPED)) fprintf(stderr, "%s\n", judge_checks[i].name);
    CHECK(v.sentence[0] != '\0');
    for (int k = 0; k < n; k++) companions[k] = &nothing; /* companions that say nothing either */
    judge_checks[i].judge(&nothing, wanted, companions, n, &v);
    CHECK(v.outcome == OUTCOME_FAIL || v.outcome == OUTCOME_INVALID || v.outcome == OUTCOME_SKIPPED);
    json_decref(v.details);
  }
  json_decref(none);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(every_check_is_found_by_its_name_and_says_what_it_means),
    TEST(failure_outweighs_invalid_outweighs_inconclusive_outweighs_pass),
    TEST(outcomes_have_their_names),
    TEST(only_a_failure_of_a_named_observable_catches),
    TEST(a_check_with_no_evidence_at_all_never_passes),
  };
  return test_main("judge", tests, sizeof tests / sizeof *tests);
}
