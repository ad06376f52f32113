/* imbalance_record_test.c - what the report gets of uneven work, from runs made by hand. */
#include "harness/imbalance.h"

#include "suites/checks/checks.h"
#include "suites/checks/made_policies_test.h"

#include <stdlib.h>
#include <unistd.h>

static struct run runs[RUNS];
static struct suite suite = {.name = "made"};
static struct trial trials[2] = {{.name = "proof", .suite = &suite, .run = -1}};
static struct plan plan = {.runs = runs, .trials = trials, .n_runs = RUNS, .n_trials = 2};

/* A timed trial of the case's own run with this check; the other runs are the check's companions. */
static void plan_it(const char *check)
{
  struct trial *t = &trials[1];
  for (int i = 0; i < RUNS; i++) runs[i] = (struct run){.config = made[i].data.config, .data = made[i].data, .ended = true};
  *t = (struct trial){.name = "case", .suite = &suite, .part = PART_TIMED, .run = RUNS - 1, .twin = 0, .state = TRIAL_JUDGED, .n_checks = 2};
  t->checks[0] = judge_find("ends");
  t->checks[1] = judge_find(check);
  if (strcmp(check, "imbalance") != 0) return;
  t->n_companions[1] = n;
  for (int i = 0; i < n; i++) t->companions[1][i] = i;
}

static json_t *told;

static void tell(void)
{
  struct results r = {.dir = "."};
  char path[] = "/tmp/imbalance_record_XXXXXX";
  const int fd = mkstemp(path);
  int cut;
  if (!CHECK(fd >= 0)) return;
  close(fd);
  snprintf(r.records, sizeof r.records, "%s", path);
  told = NULL;
  CHECK_OK(imbalance_record(&plan, &trials[1], &r));
  CHECK_OK(record_read(path, &told, &cut));
  unlink(path);
}
static void forget(void)
{
  json_decref(told);
  teardown();
}

/* The only record of this kind with this policy ("": any) and, unless < 0, of_rank; NULL: none, or more. */
static const json_t *record_of(const char *kind, const char *policy, int rank)
{
  const json_t *found = NULL;
  for (size_t i = 0; i < json_array_size(told); i++) {
    const json_t *r = json_array_get(told, i);
    if (strcmp(json_string_value(json_object_get(r, "kind")), kind) != 0) continue;
    if (*policy && strcmp(json_string_value(json_object_get(r, "got.policy")), policy) != 0) continue;
    if (rank >= 0 && json_integer_value(json_object_get(r, "got.of_rank")) != rank) continue;
    if (found) return NULL;
    found = r;
  }
  return found;
}
static double value(const json_t *r, const char *key) { return json_number_value(json_object_get(r, key)); }
static double item(const json_t *r, const char *key, size_t i) { return json_number_value(json_array_get(json_object_get(r, key), i)); }
static size_t items(const json_t *r, const char *key) { return json_array_size(json_object_get(r, key)); }
static bool says(const json_t *r, const char *key, const char *want)
{
  const char *text = json_string_value(json_object_get(r, key));
  return CHECK(text != NULL) && strcmp(text, want) == 0;
}

/* --- a case of policies ---------------------------------------------------------------------- */

static void each_policy_is_told_with_its_repeats(void)
{
  struct policies p;
  setup(POLICIES_PACKED, 3, 30);
  plan_it("imbalance");
  tell();
  CHECK_OK(policies_measure(&made[RUNS - 1].data, wanted, companions, n, &p));
  for (int k = 0; k < POLICIES_KINDS; k++) {
    const struct policies_one *one = &p.of[k];
    const json_t *r = record_of("imbalance", policies_name((enum policies_kind)k), -1);
    if (!CHECK(r != NULL)) continue;
    CHECK(says(r, "got.evidence", "proof") && says(r, "got.suite", "made") && says(r, "got.layout", "dp2"));
    CHECK(value(r, "got.ranks") == 2 && value(r, "got.repeats") == POLICIES_REPEATS && value(r, "got.accumulation") == EACH);
    CHECK(value(r, "got.steps") == STEPS - 2);
    CHECK(value(r, "got.lost") == one->lost.value && value(r, "got.step_ms") == one->step_ms.value);
    CHECK(value(r, "got.balance") == one->balance.value && value(r, "got.busy_ms") == one->busy_ms.value);
    CHECK(value(r, "got.persistent_ms") == one->persistent_ms.value && value(r, "got.jitter_ms") == one->jitter_ms.value);
    CHECK(value(r, "got.tokens_per_s") == one->tokens_per_s.value && value(r, "got.computed_per_s") == one->computed_per_s.value);
    CHECK(items(r, "got.lost_repeats") == POLICIES_REPEATS);
    for (size_t i = 0; i < POLICIES_REPEATS; i++) CHECK(item(r, "got.lost_repeats", i) == one->lost.each[i]);
    CHECK((json_object_get(r, "got.predicted_lost") != NULL) == (k != POLICIES_FIXED));
    CHECK_NEAR(value(r, "got.cost_b"), 0.1, 1e-8);
  }
  const json_t *packed = record_of("imbalance", "packed", -1);
  CHECK(item(packed, "got.lost_repeats", 4) > item(packed, "got.lost_repeats", 0) + 0.05); /* from the fourth on */
  forget();
}

static void busy_times_are_each_ranks_own(void)
{
  setup(POLICIES_BALANCED, 0, 12); /* rank 1, 12 ms more */
  plan_it("imbalance");
  tell();
  const json_t *of[2] = {record_of("busy", "balanced", 0), record_of("busy", "balanced", 1)};
  if (CHECK(of[0] != NULL && of[1] != NULL && items(of[0], "got.busy_ms") == STEPS - 2)) {
    for (size_t k = 0; k < STEPS - 2; k++) {
      double ms = 0, tokens = 0;
      for (int i = 0; i < EACH; i++) {
        ms += cost(tokens_of(POLICIES_BALANCED, 0, (int64_t)k + 2, i));
        tokens += tokens_of(POLICIES_BALANCED, 0, (int64_t)k + 2, i) - 1;
      }
      CHECK_NEAR(item(of[0], "got.busy_ms", k), ms, 1e-9);
      CHECK_NEAR(item(of[1], "got.busy_ms", k), ms + 12, 1e-9);
      CHECK(item(of[0], "got.valid_tokens", k) == tokens && item(of[1], "got.valid_tokens", k) == tokens);
    }
    CHECK_NEAR(value(of[1], "got.forward_ms") - value(of[0], "got.forward_ms"), 3, 1e-9);
    CHECK_NEAR(value(of[1], "got.backward_ms") - value(of[0], "got.backward_ms"), 9, 1e-9);
  }
  forget();
}

static void lengths_are_counted_in_classes(void)
{
  setup(POLICIES_FIXED, 9, 0);
  plan_it("imbalance");
  tell();
  const json_t *r = record_of("lengths", "", -1);
  if (CHECK(r != NULL && items(r, "got.from") == 16 && items(r, "got.sequences") == 16 && items(r, "got.batch_least") == STEPS)) {
    double count[16] = {0};
    for (int64_t step = 0; step < STEPS; step++) {
      double least = INFINITY, most = 0;
      for (int i = 0; i < 2 * EACH; i++) {
        const double fixed = tokens_of(POLICIES_FIXED, i / EACH, step, i % EACH), bucketed = tokens_of(POLICIES_BUCKETED, i / EACH, step, i % EACH);
        count[((int)fixed - 1) / 8]++;
        least = fmin(least, bucketed);
        most = fmax(most, bucketed);
      }
      CHECK(item(r, "got.batch_least", (size_t)step) == least && item(r, "got.batch_most", (size_t)step) == most);
    }
    for (size_t i = 0; i < 16; i++) CHECK(item(r, "got.from", i) == (double)(8 * i + 1) && item(r, "got.sequences", i) == count[i]);
  }
  forget();
}

static void a_run_that_is_missing_leaves_no_figures(void)
{
  setup(POLICIES_FIXED, 9, 0);
  plan_it("imbalance");
  runs[5].ended = false;
  tell();
  CHECK(json_array_size(told) == 0);
  json_decref(told);
  runs[5].ended = true;
  trials[1].state = TRIAL_WAITING;
  tell();
  CHECK(json_array_size(told) == 0);
  forget();
}

/* --- a case of one run ------------------------------------------------------------------------ */

static void the_busiest_rank_of_one_run_is_told(void)
{
  setup(POLICIES_FIXED, 0, 12);
  plan_it("heaviest");
  tell();
  const json_t *r = record_of("imbalance", "", -1);
  if (CHECK(r != NULL)) {
    CHECK(says(r, "got.policy", "chunked") && says(r, "got.worst_phase", "backward"));
    CHECK(value(r, "got.worst_rank") == 1 && value(r, "got.worst_share") == 1 && value(r, "got.repeats") == 1);
    CHECK_NEAR(value(r, "got.persistent_ms"), 6, 1e-9);
    CHECK_NEAR(value(r, "got.step_ms"), EACH * cost(128) + 22, 1e-9);
    CHECK(json_object_get(r, "got.memory_rank") == NULL); /* nobody told of memory */
  }
  CHECK(record_of("busy", "chunked", 0) != NULL && record_of("busy", "chunked", 1) != NULL && record_of("lengths", "", -1) == NULL);
  forget();
}

int main(void)
{
  static const struct test tests[] = {
    TEST(each_policy_is_told_with_its_repeats),
    TEST(busy_times_are_each_ranks_own),
    TEST(lengths_are_counted_in_classes),
    TEST(a_run_that_is_missing_leaves_no_figures),
    TEST(the_busiest_rank_of_one_run_is_told),
  };
  return test_main("imbalance_record", tests, sizeof tests / sizeof *tests);
}
