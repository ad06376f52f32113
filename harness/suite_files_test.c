/* suite_files_test.c - the suites of this checkout hold what they promise: the grid, and a case for every fault. */
#include "base/fault.h"
#include "harness/place.h"
#include "harness/plan.h"
#include "suites/checks/policies.h"
#include "testing/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct suite *conformance;

/* What makes a base layout. */
struct base {
  int64_t dp, tp, pp, schedule;
  bool sequence;
};

static bool is_grid(const struct suite_case *c) { return strncmp(c->name, "g-dp", 4) == 0; }

static struct base base_of(const struct run_config *c)
{
  return (struct base){c->dp, c->tp, c->pp, c->schedule, c->sequence_parallel};
}

static bool same_base(struct base a, struct base b)
{
  return a.dp == b.dp && a.tp == b.tp && a.pp == b.pp && a.schedule == b.schedule && a.sequence == b.sequence;
}

/* Every layout of at most 8 ranks with 1, 2, 3, 4 or 6 tensor ranks; 118 of them. */
static int list_bases(struct base *out)
{
  static const int tensor[] = {1, 2, 3, 4, 6};
  int n = 0;
  for (int dp = 1; dp <= 8; dp++)
    for (int t = 0; t < 5; t++)
      for (int pp = 1; dp * tensor[t] * pp <= 8; pp++)
        for (int schedule = 0; schedule < SCHEDULE_FORWARD; schedule++)
          for (int sequence = 0; sequence <= (tensor[t] > 1); sequence++) {
            if (pp == 1 && schedule != SCHEDULE_1F1B) continue;
            if (schedule == SCHEDULE_INTERLEAVED && 2 * pp > 8) continue;
            out[n++] = (struct base){dp, tensor[t], pp, schedule, sequence};
          }
  return n;
}

static void the_grid_has_every_layout_in_at_least_300_cases(void)
{
  struct base list[256];
  const int n = list_bases(list);
  int cases = 0;
  CHECK(n == 118);
  for (int b = 0; b < n; b++) {
    int with = 0;
    for (int i = 0; i < conformance->n; i++)
      with += is_grid(&conformance->cases[i]) && same_base(base_of(&conformance->cases[i].config), list[b]);
    if (!CHECK(with >= 3))
      fprintf(stderr, "dp%d tp%d pp%d: %d cases\n", (int)list[b].dp, (int)list[b].tp, (int)list[b].pp, with);
    cases += with;
  }
  CHECK(cases >= 300);
}

/* Each base layout with each value of each other setting that it can have. */
static void every_layout_meets_every_setting(void)
{
  struct base list[256];
  const int n = list_bases(list);
  for (int b = 0; b < n; b++) {
    bool tied[2] = {false}, dropout[2] = {false}, precision[2] = {false}, reduce[2] = {false}, clip[3] = {false},
         even = false, uneven = false;
    for (int i = 0; i < conformance->n; i++) {
      const struct run_config *c = &conformance->cases[i].config;
      if (!is_grid(&conformance->cases[i]) || !same_base(base_of(c), list[b])) continue;
      tied[c->tied] = dropout[c->dropout > 0.0] = precision[c->precision] = reduce[c->reduce] = true;
      clip[c->clip == 0.0 ? 0 : c->clip < 1.0 ? 1 : 2] = true;
      even = even || strcmp(c->stages, "even") == 0;
      uneven = uneven || strcmp(c->stages, "even") != 0;
    }
    CHECK(tied[0] && tied[1] && dropout[0] && dropout[1] && precision[0] && precision[1] && reduce[0] && reduce[1] &&
          clip[0] && clip[1] && clip[2]);
    const int64_t stages = list[b].pp * (list[b].schedule == SCHEDULE_INTERLEAVED ? 2 : 1);
    CHECK(even && uneven == (stages > 1 && stages < 8)); /* eight stages of eight layers can be cut in one way only */
  }
}

static void cases_are_long_enough_and_none_repeats_another(void)
{
  const int n = conformance->n;
  uint64_t *keys = calloc((size_t)n + 1, sizeof *keys);
  if (!CHECK(keys != NULL)) return;
  for (int i = 0; i < n; i++) {
    struct run_config c = conformance->cases[i].config;
    if (!CHECK_OK(config_finish(&c))) fprintf(stderr, "%s: %s\n", conformance->cases[i].name, err_text());
    if (is_grid(&conformance->cases[i])) CHECK(c.steps >= 2 && config_accumulation(&c) >= 3);
    keys[i] = plan_key(&c);
    for (int k = 0; k < i; k++)
      if (!CHECK(keys[k] != keys[i]))
        fprintf(stderr, "%s repeats %s\n", conformance->cases[i].name, conformance->cases[k].name);
  }
  free(keys);
}

static void every_planted_fault_has_its_case_in_the_quick_form(void)
{
  for (int i = 1; i < FAULT_COUNT; i++) {
    const struct fault_row *row = &fault_rows[i];
    if (row->status != FAULT_PLANTED || strcmp(row->suite, "conformance") != 0) continue;
    const struct suite_case *c = suite_find(conformance, row->smallest);
    if (!CHECK(c != NULL && c->quick)) fprintf(stderr, "%s: %s\n", row->name, row->smallest);
    bool checked = false; /* a check of one of its observables is there; an O14 needs none */
    for (int k = 0; c && k < c->n_checks; k++)
      checked = checked || strstr(row->observable, c->checks[k]->observable) != NULL;
    CHECK(checked || strstr(row->observable, "O14") != NULL);
  }
}

/* Every run that a case of imbalance makes can be made; the line is drawn in the quick form; the sweep keeps the global batch. */
static void imbalance_compares_what_can_be_compared(void)
{
  struct suite *s;
  char path[CONFIG_PATH];
  struct companion wanted[JUDGE_COMPANIONS_MAX];
  bool lengths[LENGTHS_ADVERSARIAL + 1] = {false}, shapes[5] = {false}, head = false;
  if (!CHECK_OK(suite_path("imbalance", path, sizeof path)) || !CHECK_OK(suite_read(path, SUITE_FULL, &s))) return;
  for (int i = 0; i < s->n; i++) {
    struct run_config c = s->cases[i].config;
    if (!CHECK_OK(config_finish(&c))) continue;
    head = head || (c.compute == COMPUTE_SLEEP && c.sleep_head_ms > 0);
    if (c.compute == COMPUTE_SLEEP) continue;
    lengths[c.lengths] = true;
    if (c.dp == 2 && c.global_batch == 16 && c.micro_batch <= 4) shapes[c.micro_batch] = true;
    CHECK(c.policy == POLICY_CHUNKED && !c.narrow && c.trace_time && c.steps > UNEVEN_WARM);
    for (int k = policies_companions(&c, wanted, JUDGE_COMPANIONS_MAX) - 1; k >= 0; k--) {
      snprintf(wanted[k].config.name, sizeof wanted[k].config.name, "run");
      if (!CHECK_OK(config_finish(&wanted[k].config))) fprintf(stderr, "%s, %s: %s\n", s->cases[i].name, wanted[k].role, err_text());
    }
  }
  const struct suite_case *line = suite_find(s, "wikipedia-dp2");
  CHECK(line && line->quick && line->config.lengths == LENGTHS_OF_WIKIPEDIA && line->config.dp == 2);
  CHECK(lengths[LENGTHS_OF_WIKIPEDIA] && lengths[LENGTHS_OF_SQUAD] && lengths[LENGTHS_LOGNORMAL] && lengths[LENGTHS_BIMODAL] && lengths[LENGTHS_ADVERSARIAL]);
  CHECK(shapes[1] && shapes[2] && shapes[4] && head);
  suite_free(s);
}

/* A row that has to go red shows nothing unless the same adapter is green without its fault, with the same settings. */
static void every_row_of_frameworks_that_has_to_go_red_has_its_clean_twin(void)
{
  char path[CONFIG_PATH];
  struct suite *s;
  int quick_red = 0, quick_green = 0;
  if (!CHECK_OK(suite_path("frameworks", path, sizeof path)) || !CHECK_OK(suite_read(path, SUITE_FULL, &s))) return;
  for (int i = 0; i < s->n; i++) {
    const struct suite_case *c = &s->cases[i];
    bool twin = *c->cause == '\0';
    for (int k = 0; !twin && k < s->n; k++)
      twin = *s->cases[k].cause == '\0' && strcmp(s->cases[k].adapter, c->adapter) == 0 && plan_same(&s->cases[k].config, &c->config) &&
             (s->cases[k].quick || !c->quick);
    if (!CHECK(twin)) fprintf(stderr, "%s has no clean twin\n", c->name);
    quick_green += c->quick && *c->cause == '\0';
    quick_red += c->quick && *c->cause != '\0';
  }
  CHECK(quick_green >= 3 && quick_red >= 3);
  suite_free(s);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(the_grid_has_every_layout_in_at_least_300_cases),
    TEST(every_layout_meets_every_setting),
    TEST(cases_are_long_enough_and_none_repeats_another),
    TEST(every_planted_fault_has_its_case_in_the_quick_form),
    TEST(imbalance_compares_what_can_be_compared),
    TEST(every_row_of_frameworks_that_has_to_go_red_has_its_clean_twin),
  };
  char path[CONFIG_PATH];
  if (suite_path("conformance", path, sizeof path) != ERR_OK || suite_read(path, SUITE_FULL, &conformance) != ERR_OK) {
    fprintf(stderr, "%s\n", err_text());
    return 1;
  }
  const int status = test_main("suite_files", tests, sizeof tests / sizeof *tests);
  suite_free(conformance);
  return status;
}
