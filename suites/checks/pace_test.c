/* pace_test.c - ratios of steps made in turn, and on which side of their limits they are. */
#include "checks.h"
#include "testing/check.h"

#include <stdio.h>
#include <string.h>

enum { RUNS = 2 * PACE_REPEATS, MADE_STEPS = 5 };

struct made {
  struct run_data data;
  json_t *records;
};
static struct made made[RUNS]; /* the last: the case's own */
static struct companion wanted[JUDGE_COMPANIONS_MAX];
static const struct run_data *companions[JUDGE_COMPANIONS_MAX];
static int n;

static void put(json_t *records, const char *kind, int rank, int step, const char *key, json_t *value)
{
  json_t *r = json_pack("{s:s, s:i, s:i}", "kind", kind, "rank", rank, "step", step);
  json_object_set_new(r, key, value);
  json_array_append_new(records, r);
}

/* Steps of `ms`, on rank 1; rank 0 is faster.  The first two are far off, one of the others too. */
static void make(struct made *m, const struct run_config *c, double ms)
{
  *m = (struct made){.records = json_array()};
  m->data = (struct run_data){.config = *c, .records = m->records, .end = "exited"};
  put(m->records, "run", 0, -1, "env.matmul", json_string("oneDNN 2.6.3; bf16 multiplied as bf16; fp16 widened"));
  for (int step = 0; step < MADE_STEPS; step++) {
    const double far = step < 2 ? 1000 : step == 3 ? 77 : 0;
    for (int rank = 0; rank < 2; rank++) put(m->records, "time", rank, step, "got.step_ms", json_real(rank ? ms + far : 1));
  }
}

/* Own steps take ms[repeat], those beside them 100. */
static void setup(bool gain, const double ms[PACE_REPEATS])
{
  struct run_config c;
  config_default(&c);
  c.dp = 2;
  c.steps = MADE_STEPS;
  c.zero = gain ? 0 : 2;
  c.precision = gain ? PRECISION_BF16 : PRECISION_F32;
  n = (gain ? gain_companions : cost_companions)(&c, wanted, JUDGE_COMPANIONS_MAX);
  make(&made[RUNS - 1], &c, ms[0]);
  CHECK(n == RUNS - 1);
  for (int i = 0; i < n; i++) {
    int repeat = -1;
    CHECK(sscanf(wanted[i].role, "rerun%d-", &repeat) == 1);
    const bool own = strstr(wanted[i].role, "-own") != NULL;
    CHECK(wanted[i].config.zero == (gain || !own ? 0 : 2));
    CHECK(wanted[i].config.precision == (gain && own ? PRECISION_BF16 : PRECISION_F32));
    make(&made[i], &wanted[i].config, own ? ms[repeat] : 100);
    companions[i] = &made[i].data;
  }
}
static void teardown(void)
{
  for (int i = 0; i < RUNS; i++) json_decref(made[i].records);
}

static enum outcome judged(bool gain, struct verdict *v)
{
  (gain ? gain_judge : cost_judge)(&made[RUNS - 1].data, wanted, companions, n, v);
  return v->outcome;
}

static void runs_are_made_in_turn(void)
{
  setup(false, (const double[]){1, 1, 1, 1, 1});
  static const char *const order[] = {"0-beside", "1-beside", "1-own", "2-own", "2-beside"};
  for (int i = 0; i < 5; i++) CHECK_TEXT_HAS(wanted[i].role, order[i]);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < i; k++) CHECK(strcmp(wanted[i].role, wanted[k].role) != 0);
  teardown();
}

static void a_cost_fails_when_all_of_its_range_is_above(void)
{
  static const struct {
    double ms[PACE_REPEATS];
    enum outcome want;
  } all[] = {{{101, 104, 99, 120, 103}, OUTCOME_PASS},
             {{106, 107, 104, 120, 111}, OUTCOME_INCONCLUSIVE},
             {{106, 107, 105.1, 120, 111}, OUTCOME_FAIL}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    struct verdict v;
    setup(false, all[i].ms);
    CHECK(judged(false, &v) == all[i].want);
    CHECK_NEAR(v.value, all[i].want == OUTCOME_PASS ? 1.03 : 1.07, 1e-12);
    teardown();
  }
}

static void a_gain_fails_when_all_of_its_range_is_below(void)
{
  static const struct {
    double ms[PACE_REPEATS];
    enum outcome want;
  } all[] = {{{50, 70, 75, 60, 71}, OUTCOME_PASS}, {{72, 80, 70, 90, 80}, OUTCOME_INCONCLUSIVE}, {{72, 80, 75, 90, 80}, OUTCOME_FAIL}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    struct verdict v;
    setup(true, all[i].ms);
    CHECK(judged(true, &v) == all[i].want);
    CHECK_NEAR(v.value, 100 / (i == 0 ? 70.0 : 80.0), 1e-12);
    teardown();
  }
}

static void without_a_unit_there_is_no_gain_to_judge(void)
{
  struct verdict v;
  setup(true, (const double[]){100, 100, 100, 100, 100});
  json_object_set_new(json_array_get(made[RUNS - 1].records, 0), "env.matmul", json_string("oneDNN 2.6.3; bf16 widened, multiplied as float32"));
  CHECK(judged(true, &v) == OUTCOME_SKIPPED);
  made[RUNS - 1].data.config.precision = PRECISION_F32;
  CHECK(judged(true, &v) == OUTCOME_INVALID);
  teardown();
}

static void what_is_missing_is_said(void)
{
  struct verdict v;
  setup(false, (const double[]){100, 100, 100, 100, 100});
  companions[3] = NULL;
  CHECK(judged(false, &v) == OUTCOME_INVALID);
  CHECK_TEXT_HAS(v.sentence, "did not run to its end");
  companions[3] = &made[3].data;
  json_array_remove(made[3].records, json_array_size(made[3].records) - 1);
  CHECK(judged(false, &v) == OUTCOME_INVALID);
  CHECK_TEXT_HAS(v.sentence, "not every rank");
  teardown();
}

int main(void)
{
  static const struct test tests[] = {
      TEST(runs_are_made_in_turn),
      TEST(a_cost_fails_when_all_of_its_range_is_above),
      TEST(a_gain_fails_when_all_of_its_range_is_below),
      TEST(without_a_unit_there_is_no_gain_to_judge),
      TEST(what_is_missing_is_said),
  };
  return test_main("pace", tests, sizeof tests / sizeof *tests);
}
