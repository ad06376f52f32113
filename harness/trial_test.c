/* trial_test.c - how verdicts combine, at every level. */
#include "harness/faults.h"
#include "harness/trial.h"
#include "testing/check.h"

#include <stdio.h>
#include <string.h>

static enum outcome end_of(const char *end, int status, const char *text)
{
  struct verdict v;
  struct run_data d = {.status = status};
  snprintf(d.end, sizeof d.end, "%s", end);
  snprintf(d.text, sizeof d.text, "%s", text);
  trial_of_end(&d, &v);
  CHECK(strcmp(v.observable, "O14") == 0);
  return v.outcome;
}

static void only_a_clean_end_passes(void)
{
  CHECK(end_of("exited", 0, "") == OUTCOME_PASS);
  CHECK(end_of("exited", 0, "before every rank had finished") == OUTCOME_FAIL);
  CHECK(end_of("exited", 1, "x") == OUTCOME_FAIL);
  CHECK(end_of("killed", 9, "x") == OUTCOME_FAIL);
  CHECK(end_of("timeout", 0, "x") == OUTCOME_FAIL);
  CHECK(end_of("unreadable", 0, "x") == OUTCOME_FAIL);
  CHECK(end_of("exited", STATUS_INVALID, "x") == OUTCOME_INVALID);
  CHECK(end_of("exited", STATUS_USAGE, "x") == OUTCOME_INVALID);
  CHECK(end_of("not_started", 127, "x") == OUTCOME_INVALID);
  CHECK(end_of("slow", 0, "x") == OUTCOME_INVALID);
}

static struct trial_count counts(int passed, int failed, int invalid, int inconclusive, int skipped, int not_run)
{
  return (struct trial_count){passed, failed, invalid, inconclusive, skipped, not_run};
}

static void the_whole_is_as_bad_as_its_worst(void)
{
  struct trial_count c;
  c = counts(5, 1, 1, 1, 0, 0);
  CHECK(trial_overall(&c) == OUTCOME_FAIL);
  c = counts(5, 0, 1, 1, 0, 0);
  CHECK(trial_overall(&c) == OUTCOME_INVALID);
  c = counts(5, 0, 0, 1, 0, 0);
  CHECK(trial_overall(&c) == OUTCOME_INCONCLUSIVE);
  c = counts(5, 0, 0, 0, 3, 2);
  CHECK(trial_overall(&c) == OUTCOME_PASS);
  c = counts(0, 0, 0, 0, 3, 2);
  CHECK(trial_overall(&c) == OUTCOME_INVALID); /* nothing was shown */
}

static void outcomes_have_their_exit_status(void)
{
  CHECK(trial_status(OUTCOME_PASS) == 0 && trial_status(OUTCOME_FAIL) == 1 && trial_status(OUTCOME_INVALID) == 3);
  CHECK(trial_status(OUTCOME_INCONCLUSIVE) == 4 && trial_status(OUTCOME_SKIPPED) == 3);
}

static struct verdict says(enum outcome o, const char *observable, const char *sentence)
{
  struct verdict v = {.outcome = o};
  snprintf(v.check, sizeof v.check, "check of %s", observable);
  snprintf(v.observable, sizeof v.observable, "%s", observable);
  snprintf(v.sentence, sizeof v.sentence, "%s", sentence);
  return v;
}

static void the_deciding_check_is_the_reason(void)
{
  struct trial t = {.n_verdicts = 3};
  t.verdicts[0] = says(OUTCOME_INVALID, "O4", "too noisy");
  t.verdicts[1] = says(OUTCOME_PASS, "O3", "fine");
  t.verdicts[2] = says(OUTCOME_FAIL, "O7", "replicas differ");
  trial_settle(&t);
  CHECK(t.outcome == OUTCOME_FAIL && t.state == TRIAL_JUDGED);
  CHECK_TEXT_HAS(t.reason, "O7");
  CHECK_TEXT_HAS(t.sentence, "replicas differ");
}

/* clip-max-for-min is to be seen by O6; a red O3 does not count for it. */
static void a_fault_is_caught_by_its_own_observable_only(void)
{
  struct trial t = {.n_verdicts = 2};
  CHECK_OK(fault_find("clip-max-for-min", &t.fault));
  t.verdicts[0] = says(OUTCOME_FAIL, "O16", "trace differs");
  t.verdicts[1] = says(OUTCOME_PASS, "O6", "");
  trial_settle(&t);
  faults_settle(&t);
  CHECK(t.outcome == OUTCOME_FAIL);
  CHECK_TEXT_HAS(t.sentence, "not caught");
  t.verdicts[1] = says(OUTCOME_FAIL, "O6", "factor is 3");
  trial_settle(&t);
  faults_settle(&t);
  CHECK(t.outcome == OUTCOME_PASS);
  CHECK_TEXT_HAS(t.sentence, "caught by O6");
}

static void a_hang_catches_only_faults_that_hang(void)
{
  struct trial t = {.n_verdicts = 1};
  t.verdicts[0] = says(OUTCOME_FAIL, "O14", "no progress");
  CHECK_OK(fault_find("clip-max-for-min", &t.fault));
  trial_settle(&t);
  faults_settle(&t);
  CHECK(t.outcome == OUTCOME_FAIL);
  CHECK_OK(fault_find("hg-uneven-steps", &t.fault));
  trial_settle(&t);
  faults_settle(&t);
  CHECK(t.outcome == OUTCOME_PASS);
}

static void a_machine_that_spoilt_the_run_catches_nothing(void)
{
  struct trial t = {.n_verdicts = 1};
  t.verdicts[0] = says(OUTCOME_INVALID, "O14", "not started");
  CHECK_OK(fault_find("hg-uneven-steps", &t.fault));
  trial_settle(&t);
  faults_settle(&t);
  CHECK(t.outcome == OUTCOME_INVALID);
}

/* The check finds no companion; the watcher's sentence on that run says why. */
static void how_a_missing_companion_ended_is_said(void)
{
  struct run runs[2] = {0};
  struct trial t = {.n_checks = 1, .n_companions = {1}, .companions = {{1}}};
  struct plan p = {.runs = runs, .n_runs = 2, .trials = &t, .n_trials = 1};
  t.checks[0] = judge_find("rerun");
  for (int i = 0; i < 2; i++) {
    config_default(&runs[i].config);
    runs[i].data.config = runs[i].config;
    runs[i].data.records = json_array();
    runs[i].ended = true;
    snprintf(runs[i].data.end, sizeof runs[i].data.end, "exited");
  }
  snprintf(runs[1].data.end, sizeof runs[1].data.end, "killed");
  snprintf(runs[1].data.text, sizeof runs[1].data.text, "rank 1 was killed by signal 9");
  trial_judge(&p, 0);
  CHECK(t.outcome != OUTCOME_PASS && t.n_verdicts == 2);
  CHECK_TEXT_HAS(t.verdicts[1].sentence, "; companion 'rerun': rank 1 was killed by signal 9");
  trial_release(&t);
  for (int i = 0; i < 2; i++) json_decref((json_t *)(uintptr_t)runs[i].data.records);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(only_a_clean_end_passes),
    TEST(the_whole_is_as_bad_as_its_worst),
    TEST(outcomes_have_their_exit_status),
    TEST(the_deciding_check_is_the_reason),
    TEST(a_fault_is_caught_by_its_own_observable_only),
    TEST(a_hang_catches_only_faults_that_hang),
    TEST(a_machine_that_spoilt_the_run_catches_nothing),
    TEST(how_a_missing_companion_ended_is_said),
  };
  return test_main("trial", tests, sizeof tests / sizeof *tests);
}
