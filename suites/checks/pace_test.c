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

enum what { COST, GAIN, TRACING };

/* Own steps take ms[repeat], those beside them 100. */
static void setup(enum what what, const double ms[PACE_REPEATS])
{
  static int (*const companions_of[])(const struct run_config *, struct companion *, int) = {cost_companions, gain_companions, tracing_companions};
  struct run_config c;
  config_default(&c);
  c.dp = 2;
  c.steps = MADE_STEPS;
  c.zero = what == COST ? 2 : 0;
  c.precision = what == GAIN ? PRECISION_BF16 : PRECISION_F32;
  c.trace_spans = what == TRACING;
  n = companions_of[what](&c, wanted, JUDGE_COMPANIONS_MAX);
  make(&made[RUNS - 1], &c, ms[0]);
  CHECK(n == RUNS - 1);
  for (int i = 0; i < n; i++) {
    int repeat = -1;
    CHECK(sscanf(wanted[i].role, "rerun%d-", &repeat) == 1);
    const bool own = strstr(wanted[i].role, "-own") != NULL;
    CHECK(wanted[i].config.zero == (what == COST && own ? 2 : 0));
    CHECK(wanted[i].config.precision == (what == GAIN && own ? PRECISION_BF16 : PRECISION_F32));
    CHECK(wanted[i].config.trace_spans == (what == TRACING && own));
    make(&made[i], &wanted[i].config, own ? ms[repeat] : 100);
    companions[i] = &made[i].data;
  }
}
static void teardown(void)
{
  for (int i = 0; i < RUNS; i++) json_decref(made[i].records);
}

static enum outcome judged(enum what what, struct verdict *v)
{
  static void (*const judges[])(const struct run_data *, const struct companion *, const struct run_data *const *, int, struct verdict *) = {
      cost_judge, gain_judge, tracing_judge};
  judges[what](&made[RUNS - 1].data, wanted, companions, n, v);
  return v->outcome;
}

static void runs_are_made_in_turn(void)
{
  setup(COST, (const double[]){1, 1, 1, 1, 1});
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
    setup(COST, all[i].ms);
    CHECK(judged(COST, &v) == all[i].want);
    CHECK_NEAR(v.value, all[i].want == OUTCOME_PASS ? 1.03 : 1.07, 1e-12);
    teardown();
  }
}

static void a_cost_of_spans_is_held_to_a_hundredth(void)
{
  static const struct {
    double ms[PACE_REPEATS];
    enum outcome want;
  } all[] = {{{100.9, 101.5, 100, 103, 100.5}, OUTCOME_PASS}, {{101.5, 102, 100.5, 103, 101.2}, OUTCOME_INCONCLUSIVE}, {{101.5, 102, 101.1, 103, 101.2}, OUTCOME_FAIL}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    struct verdict v;
    setup(TRACING, all[i].ms);
    CHECK(judged(TRACING, &v) == all[i].want);
    CHECK_NEAR(v.value, all[i].want == OUTCOME_PASS ? 1.009 : 1.015, 1e-12);
    made[RUNS - 1].data.config.trace_spans = false;
    CHECK(judged(TRACING, &v) == OUTCOME_INVALID);
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
    setup(GAIN, all[i].ms);
    CHECK(judged(GAIN, &v) == all[i].want);
    CHECK_NEAR(v.value, 100 / (i == 0 ? 70.0 : 80.0), 1e-12);
    teardown();
  }
}

static void without_a_unit_there_is_no_gain_to_judge(void)
{
  struct verdict v;
  setup(GAIN, (const double[]){100, 100, 100, 100, 100});
  json_object_set_new(json_array_get(made[RUNS - 1].records, 0), "env.matmul", json_string("oneDNN 2.6.3; bf16 widened, multiplied as float32"));
  CHECK(judged(GAIN, &v) == OUTCOME_SKIPPED);
  made[RUNS - 1].data.config.precision = PRECISION_F32;
  CHECK(judged(GAIN, &v) == OUTCOME_INVALID);
  teardown();
}

static void what_is_missing_is_said(void)
{
  struct verdict v;
  setup(COST, (const double[]){100, 100, 100, 100, 100});
  companions[3] = NULL;
  CHECK(judged(COST, &v) == OUTCOME_INVALID);
  CHECK_TEXT_HAS(v.sentence, "did not run to its end");
  companions[3] = &made[3].data;
  json_array_remove(made[3].records, json_array_size(made[3].records) - 1);
  CHECK(judged(COST, &v) == OUTCOME_INVALID);
  CHECK_TEXT_HAS(v.sentence, "not every rank");
  teardown();
}

int main(void)
{
  static const struct test tests[] = {
      TEST(runs_are_made_in_turn),
      TEST(a_cost_fails_when_all_of_its_range_is_above),
      TEST(a_cost_of_spans_is_held_to_a_hundredth),
      TEST(a_gain_fails_when_all_of_its_range_is_below),
      TEST(without_a_unit_there_is_no_gain_to_judge),
      TEST(what_is_missing_is_said),
  };
  return test_main("pace", tests, sizeof tests / sizeof *tests);
}
