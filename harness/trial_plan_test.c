/* trial_plan_test.c - plan.c: which runs are one run, and in what order they are wanted. */
#include "harness/plan.h"
#include "suites/checks/hidden.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static bool read_suite(const char *cases, struct suite **s)
{
  FILE *f = fopen(path, "w");
  if (f == NULL || fprintf(f, "question: x\nkind: conformance\nevery_case: {model: tiny, steps: 2}\n%s", cases) < 0 || fclose(f) != 0) abort();
  return CHECK_OK(suite_read(path, SUITE_FULL, s));
}

static bool planned(const struct asked *a, const struct suite *s, struct plan *p)
{
  *p = (struct plan){.cases_dir = "/tmp/x/cases"};
  return CHECK_OK(plan_add_cases(p, a, s, PART_CASE)) && CHECK_OK(plan_companions(p));
}

static void equal_settings_are_one_run(void)
{
  struct suite *s;
  struct plan p;
  if (!read_suite("cases:\n  a: {quick: true, checks: [loss, gradients]}\n  b: {quick: true, dp: 2, checks: [loss]}\n"
                  "  c: {quick: true, dp: 2, checks: [ends]}\n", &s)) return;
  if (planned(&(struct asked){0}, s, &p)) {
    CHECK(p.n_trials == 3);
    CHECK(p.trials[1].run == p.trials[2].run && p.trials[0].run != p.trials[1].run);
    /* loss and gradients of one case ask for the same truth; so does loss of the other. */
    int truths = 0;
    for (int i = 0; i < p.n_runs; i++) truths += strncmp(p.runs[i].name, "truth-", 6) == 0;
    CHECK(truths == 1);
  }
  plan_free(&p);
  suite_free(s);
}

static void a_rerun_is_a_run_of_its_own(void)
{
  struct suite *s;
  struct plan p;
  if (!read_suite("cases:\n  a: {quick: true, checks: [rerun]}\n", &s)) return;
  if (planned(&(struct asked){0}, s, &p)) {
    CHECK(p.n_runs == 2 && plan_same(&p.runs[0].config, &p.runs[1].config));
    CHECK(p.runs[0].key != p.runs[1].key);
  }
  plan_free(&p);
  suite_free(s);
}

/* Two checks of one case share them; no two roles do. */
static void each_role_of_a_rerun_is_a_run_of_its_own(void)
{
  struct suite *s;
  struct plan p;
  int with = 0, silent = 0, needed[SUITE_CHECKS_MAX * JUDGE_COMPANIONS_MAX];
  if (!read_suite("cases:\n  a: {quick: true, dp: 2, checks: [overlap, bare]}\n", &s)) return;
  if (planned(&(struct asked){0}, s, &p)) {
    for (int i = 0; i < p.n_runs; i++) {
      with += plan_same(&p.runs[i].config, &p.runs[0].config);
      silent += !p.runs[i].config.communicate;
    }
    CHECK(p.n_runs == 4 * HIDDEN_REPEATS && with == HIDDEN_REPEATS && silent == HIDDEN_REPEATS);
    CHECK(plan_runs_of(&p.trials[0], needed, (int)(sizeof needed / sizeof *needed)) == p.n_runs);
    for (int i = 0; i < p.n_runs; i++) CHECK(needed[i] == i); /* in the order in which they are asked for */
  }
  plan_free(&p);
  suite_free(s);
}

static void forms_names_and_ranks_choose_cases(void)
{
  struct suite *s;
  struct plan p;
  if (!read_suite("cases:\n  a: {quick: true}\n  b: {dp: 2}\n  ab: {dp: 3}\n", &s)) return;
  if (planned(&(struct asked){0}, s, &p)) CHECK(p.n_trials == 1);
  plan_free(&p);
  if (planned(&(struct asked){.full = true}, s, &p)) CHECK(p.n_trials == 3);
  plan_free(&p);
  if (planned(&(struct asked){.full = true, .only = "b"}, s, &p)) CHECK(p.n_trials == 2);
  plan_free(&p);
  if (planned(&(struct asked){.full = true, .ranks = {2}, .n_ranks = 1}, s, &p)) CHECK(p.n_trials == 1 && p.runs[p.trials[0].run].ranks == 2);
  plan_free(&p);
  suite_free(s);
}

static void a_case_that_cannot_be_is_named_with_its_place(void)
{
  struct suite *s;
  struct plan p = {0};
  if (!read_suite("cases:\n  a: {quick: true, dp: 5}\n", &s)) return;
  CHECK_ERR(plan_add_cases(&p, &(struct asked){0}, s, PART_CASE), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), ":5:3: case 'a': global_batch");
  plan_free(&p);
  /* As an override of a person it is that case only which cannot be had. */
  if (planned(&(struct asked){.layout = "dp=5"}, s, &p)) CHECK(p.trials[0].outcome == OUTCOME_SKIPPED);
  plan_free(&p);
  suite_free(s);
}

static void an_override_does_not_judge_one_case_twice(void)
{
  struct suite *s;
  struct plan p;
  if (!read_suite("cases:\n  a: {quick: true, dp: 2}\n  b: {quick: true, dp: 3}\n", &s)) return;
  if (planned(&(struct asked){.layout = "dp=4"}, s, &p)) CHECK(p.n_trials == 1);
  plan_free(&p);
  suite_free(s);
}

static void a_hang_is_alone_and_its_companions_wait_for_it(void)
{
  struct suite *s;
  struct plan p;
  if (!read_suite("cases:\n  a: {quick: true, dp: 2, seconds: 20, checks: [ends, rerun, loss]}\n", &s)) return;
  if (planned(&(struct asked){.fault = "hg-uneven-steps"}, s, &p)) {
    const int own = p.trials[0].run;
    CHECK(p.runs[own].alone && p.runs[own].seconds < 20);
    for (int i = 0; i < p.n_runs; i++) {
      if (strncmp(p.runs[i].name, "rerun", 5) == 0) CHECK(p.runs[i].alone && p.runs[i].after == own);
      if (strncmp(p.runs[i].name, "truth", 5) == 0) CHECK(!p.runs[i].alone && p.runs[i].after == -1);
    }
  }
  plan_free(&p);
  suite_free(s);
}

static void runs_are_wanted_in_the_order_of_their_trials(void)
{
  struct suite *s;
  struct plan p;
  int order[64], n;
  if (!read_suite("cases:\n  late: {quick: true, priority: 9, dp: 2}\n  early: {quick: true, priority: 1, checks: [rerun]}\n", &s)) return;
  if (planned(&(struct asked){0}, s, &p) && CHECK_OK(plan_order(&p, order, &n))) {
    CHECK(n == 3 && order[0] == p.trials[1].run && order[2] == p.trials[0].run);
    p.trials[1].state = TRIAL_JUDGED;
    CHECK_OK(plan_order(&p, order, &n));
    CHECK(n == 1);
  }
  plan_free(&p);
  suite_free(s);
}

static void the_key_covers_every_setting_but_labels(void)
{
  struct run_config a, b;
  config_default(&a);
  for (int i = 0; i < run_options_count; i++) {
    char text[CONFIG_PATH];
    const struct opt *o = &run_options[i];
    b = a;
    opt_text(o, &a, text, sizeof text);
    const char *other = o->type == OPT_BOOL ? (strcmp(text, "true") == 0 ? "false" : "true") : o->type == OPT_TEXT ? "other" : NULL;
    char number[32];
    if (o->type == OPT_INT) snprintf(number, sizeof number, "%lld", atoll(text) + 1), other = number;
    if (o->type == OPT_REAL) snprintf(number, sizeof number, "%.17g", atof(text) * 0.5 + 0.25), other = number;
    if (o->type == OPT_NAME) {
      const char *second = strchr(o->allowed, '|');
      const size_t first = strcspn(o->allowed, "|");
      snprintf(number, sizeof number, "%.*s", (int)strcspn(second + 1, "|"), second + 1);
      if (strcmp(number, text) == 0) snprintf(number, sizeof number, "%.*s", (int)first, o->allowed);
      other = number;
    }
    if (!CHECK_OK(config_set(&b, o->key, other))) continue;
    const bool label = strcmp(o->key, "name") == 0 || strcmp(o->key, "out") == 0;
    if (!CHECK((plan_key(&a) == plan_key(&b)) == label)) fprintf(stderr, "  key %s\n", o->key);
    CHECK(plan_same(&a, &b) == label);
  }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(equal_settings_are_one_run),
    TEST(a_rerun_is_a_run_of_its_own),
    TEST(each_role_of_a_rerun_is_a_run_of_its_own),
    TEST(forms_names_and_ranks_choose_cases),
    TEST(a_case_that_cannot_be_is_named_with_its_place),
    TEST(an_override_does_not_judge_one_case_twice),
    TEST(a_hang_is_alone_and_its_companions_wait_for_it),
    TEST(runs_are_wanted_in_the_order_of_their_trials),
    TEST(the_key_covers_every_setting_but_labels),
  };
  snprintf(path, sizeof path, "/tmp/trial_plan_test.%d.yaml", (int)getpid());
  const int status = test_main("trial plan", tests, sizeof tests / sizeof *tests);
  unlink(path);
  return status;
}
