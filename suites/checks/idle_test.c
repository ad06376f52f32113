/* idle_test.c - idle time of stages and what the check `bubble` says of it, from action records made by playing a list.
 */
#include "idle.h"

#include "evidence.h"
#include "testing/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 8, STEPS = 4, COSTS = 16 };
static const double F = 10, I = 12, W = 8; /* of a layer */

struct made {
  struct run_data data;
  json_t *records;
  struct schedule *schedule;
};

static json_t *add(struct made *m, const char *kind, int rank, int step)
{
  json_t *r = json_pack("{s:s,s:s,s:i}", "kind", kind, "case", "made", "rank", rank);
  if (step >= 0) json_object_set_new(r, "step", json_integer(step));
  json_array_append_new(m->records, r);
  return r;
}

/* What each virtual stage takes: its layers, the last one `head` more in each pass; everything `slower` times as long.
 */
struct made_costs {
  struct schedule_costs of;
  double forward[COSTS], input[COSTS], weight[COSTS];
};
static void costs_of(const struct run_config *c, double slower, double transfer, struct made_costs *out)
{
  struct partition layers;
  CHECK_OK(partition_make(c, &layers));
  out->of = (struct schedule_costs){
      .forward = out->forward, .input = out->input, .weight = out->weight, .transfer = transfer};
  for (int k = 0; k < layers.stages; k++) {
    const double n = (double)(layers.first[k + 1] - layers.first[k]),
                 head = k == layers.stages - 1 ? c->sleep_head_ms : 0;
    out->forward[k] = slower * (n * F + head);
    out->input[k] = slower * (n * I + head);
    out->weight[k] = slower * (n * W + head);
  }
}

/* One step from the list played with these costs; the last action of stage 0, a backward, comes late_ms later. */
static void add_step(struct made *m, int step, const struct made_costs *costs, double late_ms)
{
  struct schedule_times *t;
  const struct schedule *s = m->schedule;
  if (!CHECK_OK(schedule_simulate(s, &costs->of, &t))) return;
  for (int stage = 0; stage < s->p; stage++) {
    json_t *r = add(m, "action", stage, step), *passes = json_array(), *start = json_array(), *end = json_array();
    for (int a = 0; a < s->n[stage]; a++) {
      const struct schedule_action *x = &s->list[stage][a];
      const double at = 1000.0 * step + 7 + (stage == 0 && a == s->n[0] - 1 ? late_ms : 0);
      json_array_append_new(passes, json_sprintf("%s %d %d", schedule_pass_name(x->pass), x->microbatch, x->chunk));
      json_array_append_new(start, json_real(t->start[stage][a] + at));
      json_array_append_new(end, json_real(t->end[stage][a] + at));
    }
    json_object_set_new(r, "got.stage", json_integer(stage));
    json_object_set_new(r, "got.passes", passes);
    json_object_set_new(r, "got.start_ms", start);
    json_object_set_new(r, "got.end_ms", end);
  }
  schedule_times_destroy(t);
}

static void made_setup(struct made *m, enum schedule_kind kind, int p, int microbatches, int v, const char *stages,
                       double head)
{
  *m = (struct made){.records = json_array()};
  struct run_config *c = &m->data.config;
  config_default(c);
  c->layers = LAYERS;
  c->pp = p;
  c->schedule = kind;
  c->chunks = v;
  c->global_batch = microbatches;
  c->steps = STEPS;
  c->compute = COMPUTE_SLEEP;
  c->sleep_forward_ms = F;
  c->sleep_input_ms = I;
  c->sleep_weight_ms = W;
  c->sleep_head_ms = head;
  snprintf(c->stages, sizeof c->stages, "%s", stages);
  m->data.records = m->records;
  snprintf(m->data.end, sizeof m->data.end, "exited");
  CHECK_OK(schedule_create(kind, p, microbatches, v, &m->schedule));
  for (int stage = 0; stage < p; stage++) {
    json_t *r = add(m, "rank", stage, -1);
    json_object_set_new(r, "got.pp_rank", json_integer(stage));
    json_object_set_new(r, "got.dp_rank", json_integer(0));
    json_object_set_new(r, "got.tp_rank", json_integer(0));
  }
}

/* All steps alike. */
static void made_run(struct made *m, enum schedule_kind kind, int p, int microbatches, int v, const char *stages,
                     double head, double slower, double transfer, double late_ms)
{
  struct made_costs costs;
  made_setup(m, kind, p, microbatches, v, stages, head);
  costs_of(&m->data.config, slower, transfer, &costs);
  for (int step = 0; step < STEPS; step++) add_step(m, step, &costs, late_ms);
}

static void made_free(struct made *m)
{
  json_decref(m->records);
  schedule_destroy(m->schedule);
}

static struct verdict judged(struct made *m)
{
  struct verdict v;
  judge_find("bubble")->judge(&m->data, NULL, NULL, 0, &v);
  json_decref(v.details);
  v.details = NULL;
  return v;
}

/* (p-1) times what a stage takes for one micro-batch, less what a schedule fills. */
static void equal_stages_idle_for_the_schedule_alone(void)
{
  static const struct {
    enum schedule_kind kind;
    int p, m, v;
    double bubble;
  } rows[] = {{SCHEDULE_GPIPE, 2, 4, 1, 1 * 4 * 30},
              {SCHEDULE_1F1B, 4, 8, 1, 3 * 2 * 30},
              {SCHEDULE_INTERLEAVED, 2, 4, 2, 1 * 2 * 30},
              {SCHEDULE_ZB_H1, 4, 8, 1, 3 * 2 * (10 + 12 - 8)}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct made m;
    struct idle x;
    made_run(&m, rows[i].kind, rows[i].p, rows[i].m, rows[i].v, "even", 0, 1, 0, 0);
    if (CHECK_OK(idle_measure(&m.data, 0, 0, &x))) {
      CHECK_NEAR(x.bubble_ms, rows[i].bubble, 1e-6);
      CHECK_NEAR(x.simulated_bubble_ms, rows[i].bubble, 1e-6);
      CHECK_NEAR(x.busy_ms, rows[i].m * 30.0 * LAYERS / rows[i].p, 1e-6);
      for (int s = 0; s < x.stages; s++) {
        CHECK_NEAR(x.stage[s].schedule_ms, rows[i].bubble, 1e-6);
        CHECK_NEAR(x.stage[s].imbalance_ms, 0, 1e-6);
        CHECK_NEAR(x.stage[s].transfer_ms, 0, 1e-6);
      }
      CHECK_NEAR(x.late_ms, 0, 1e-6);
      CHECK(x.steps == STEPS - 1 && x.stage[0].n == m.schedule->n[0]);
      idle_free(&x);
    }
    const struct verdict v = judged(&m);
    CHECK(v.outcome == OUTCOME_PASS);
    CHECK_TEXT_HAS(v.sentence, "mostly the schedule");
    made_free(&m);
  }
}

/* Two stages of 6 and 2 layers, one micro-batch after the other: the first never waits but at the ends, the second
 * does. */
static void uneven_stages_idle_for_imbalance(void)
{
  struct made m;
  struct idle x;
  made_run(&m, SCHEDULE_GPIPE, 2, 4, 1, "6,2", 0, 1, 0, 0);
  if (CHECK_OK(idle_measure(&m.data, 0, 0, &x))) {
    const double total =
        4 * 60 + 20 + 40 + 4 * 120; /* forwards of stage 0, stage 1's last there and first back, backwards of stage 0 */
    CHECK_NEAR(x.total_ms, total, 1e-6);
    CHECK_NEAR(x.stage[0].idle_ms, total - 4 * 180, 1e-6);
    CHECK_NEAR(x.stage[1].idle_ms, total - 4 * 60, 1e-6);
    for (int s = 0; s < 2; s++) {
      CHECK_NEAR(x.stage[s].schedule_ms, 4 * 30, 1e-6); /* of two equal stages with four layers each */
      CHECK_NEAR(x.stage[s].imbalance_ms, x.stage[s].idle_ms - 4 * 30, 1e-6);
      CHECK_NEAR(x.stage[s].transfer_ms, 0, 1e-6);
    }
    idle_free(&x);
  }
  const struct verdict v = judged(&m);
  CHECK(v.outcome == OUTCOME_PASS);
  CHECK_TEXT_HAS(v.sentence, "mostly stage imbalance");
  made_free(&m);
}

static void a_slower_head_is_imbalance_too(void)
{
  struct made m;
  struct idle x;
  made_run(&m, SCHEDULE_1F1B, 4, 8, 1, "even", 9, 1, 0, 0);
  if (CHECK_OK(idle_measure(&m.data, 0, 0, &x))) {
    CHECK_NEAR(x.late_ms, 0, 1e-6); /* what the head was asked to take is no lateness */
    CHECK(x.stage[0].imbalance_ms > 7 * 9 && x.stage[3].imbalance_ms < 0);
    idle_free(&x);
  }
  made_free(&m);
}

static void transfers_that_are_waited_for_are_exposed(void)
{
  struct made m;
  struct idle x;
  made_run(&m, SCHEDULE_GPIPE, 4, 4, 1, "even", 0, 1, 25, 0);
  if (CHECK_OK(idle_measure(&m.data, 0, 0, &x))) {
    CHECK_NEAR(x.transfer_ms, 25, 1e-6);
    CHECK_NEAR(x.bubble_ms, x.simulated_bubble_ms, 1e-6);
    for (int s = 0; s < 4; s++) {
      CHECK_NEAR(x.stage[s].schedule_ms, 3 * 60, 1e-6);
      CHECK(x.stage[s].transfer_ms >= 3 * 2 * 25 - 1e-6);
    }
    idle_free(&x);
  }
  CHECK(judged(&m).outcome == OUTCOME_PASS);
  made_free(&m);
}

static void a_wait_that_is_not_in_the_list_fails(void)
{
  struct made m;
  made_run(&m, SCHEDULE_1F1B, 4, 8, 1, "even", 0, 1, 0, 20);
  const struct verdict v = judged(&m);
  CHECK(v.outcome == OUTCOME_FAIL);
  CHECK_TEXT_HAS(v.sentence, "200 ms measured, 180 ms simulated");
  CHECK_TEXT_HAS(v.sentence, "14.6 ms are in every step");
  made_free(&m);
  made_run(&m, SCHEDULE_1F1B, 4, 8, 1, "even", 0, 1, 0, 5); /* within 3 % of 180 ms */
  CHECK(judged(&m).outcome == OUTCOME_PASS);
  made_free(&m);
}

/* The same 20 ms where sleeps take half a millisecond longer than asked: such threads may be so late. */
static void what_a_late_machine_explains_decides_nothing(void)
{
  struct made m;
  struct made_costs costs;
  made_setup(&m, SCHEDULE_1F1B, 4, 8, 1, "even", 0);
  costs_of(&m.data.config, 1, 0, &costs);
  for (int k = 0; k < 4; k++) costs.forward[k] += 0.5, costs.input[k] += 0.5;
  for (int step = 0; step < STEPS; step++) add_step(&m, step, &costs, 20);
  CHECK(judged(&m).outcome == OUTCOME_INCONCLUSIVE);
  made_free(&m);
}

static void one_good_step_makes_it_noise(void)
{
  struct made m;
  struct made_costs costs;
  made_setup(&m, SCHEDULE_1F1B, 4, 8, 1, "even", 0);
  costs_of(&m.data.config, 1, 0, &costs);
  for (int step = 0; step < STEPS; step++) add_step(&m, step, &costs, step == 2 ? 4 : 20);
  CHECK(judged(&m).outcome == OUTCOME_INCONCLUSIVE);
  made_free(&m);
}

static void real_passes_vary_instead(void)
{
  struct made m;
  struct made_costs costs;
  made_setup(&m, SCHEDULE_1F1B, 2, 8, 1, "even", 0);
  m.data.config.compute = COMPUTE_REAL;
  for (int step = 0; step < STEPS; step++) {
    costs_of(&m.data.config, 1 + 0.2 * (step % 2), 0, &costs);
    add_step(&m, step, &costs, 16);
  }
  struct idle x;
  if (CHECK_OK(idle_measure(&m.data, 0, 0, &x))) {
    CHECK_NEAR(x.late_ms, 2 * sqrt(18.0 * (64 + 256) / 6), 1e-6); /* a step of three is 8 or 16 ms off */
    idle_free(&x);
  }
  CHECK(judged(&m).outcome == OUTCOME_INCONCLUSIVE);
  made_free(&m);
}

static void the_step_that_is_shown_is_the_usual_one(void)
{
  struct made m;
  struct made_costs costs;
  struct idle x;
  made_setup(&m, SCHEDULE_1F1B, 2, 4, 1, "even", 0);
  for (int step = 0; step < STEPS; step++) {
    static const double slower[STEPS] = {9, 1.5, 1.1, 1}; /* the first is warm-up */
    costs_of(&m.data.config, slower[step], 0, &costs);
    add_step(&m, step, &costs, 0);
  }
  if (CHECK_OK(idle_measure(&m.data, 0, 0, &x))) {
    CHECK(x.shown == 2);
    CHECK_NEAR(x.total_ms, 1.1 * 5 * 120, 1e-6);
    CHECK_NEAR(x.stage[0].start_ms[0], 0, 1e-9);
    CHECK_NEAR(x.stage[0].simulated_start_ms[0], 0, 1e-9);
    CHECK_NEAR(x.stage[1].end_ms[0], x.stage[1].simulated_end_ms[0], 1e-6);
    idle_free(&x);
  }
  made_free(&m);
}

static json_t *first_action(struct made *m, int rank, int step)
{
  return (json_t *)evidence_record(&m->data, "action", rank, step, -1);
}

static void other_passes_than_the_list_fail(void)
{
  struct made m;
  made_run(&m, SCHEDULE_1F1B, 2, 4, 1, "even", 0, 1, 0, 0);
  json_t *passes = json_object_get(first_action(&m, 1, 2), "got.passes");
  json_array_set_new(passes, 1, json_string("F 3 0"));
  struct verdict v = judged(&m);
  CHECK(v.outcome == OUTCOME_FAIL);
  CHECK_TEXT_HAS(v.sentence, "stage 1, step 2, action 1 is 'F 3 0', its list says 'F 0 0'");
  made_free(&m);
  made_run(&m, SCHEDULE_1F1B, 2, 4, 1, "even", 0, 1, 0, 0);
  json_array_remove(json_object_get(first_action(&m, 0, 1), "got.end_ms"), 3);
  CHECK(judged(&m).outcome == OUTCOME_FAIL);
  made_free(&m);
  made_run(&m, SCHEDULE_1F1B, 2, 4, 1, "even", 0, 1, 0, 0);
  json_t *start = json_object_get(first_action(&m, 0, 1), "got.start_ms"); /* F 0 0, F 1 0 exchanged in time */
  json_array_set_new(start, 0, json_real(1e6));
  CHECK(judged(&m).outcome == OUTCOME_FAIL);
  made_free(&m);
}

static void clocks_that_may_be_off_by_a_tenth_decide_nothing(void)
{
  struct made m;
  made_run(&m, SCHEDULE_GPIPE, 4, 4, 1, "even", 0, 1, 0, 0); /* bubble: 3 * 60 ms */
  json_t *clock = add(&m, "clock", 2, -1);
  json_object_set_new(clock, "got.error_ms", json_real(17.9));
  CHECK(judged(&m).outcome == OUTCOME_PASS);
  json_object_set_new(clock, "got.error_ms", json_real(18.1));
  const struct verdict v = judged(&m);
  CHECK(v.outcome == OUTCOME_INCONCLUSIVE);
  CHECK_TEXT_HAS(v.sentence, "clocks may be 18.1 ms off");
  made_free(&m);
}

static void missing_evidence_is_no_pass(void)
{
  struct made m;
  made_run(&m, SCHEDULE_1F1B, 2, 4, 1, "even", 0, 1, 0, 0);
  json_object_set_new(first_action(&m, 1, 3), "kind", json_string("other"));
  CHECK(judged(&m).outcome == OUTCOME_INVALID);
  m.data.config.tp = 2; /* ranks that never spoke */
  CHECK(judged(&m).outcome == OUTCOME_INVALID);
  m.data.config.pp = 1;
  CHECK(judged(&m).outcome == OUTCOME_INVALID);
  made_free(&m);
}

static void every_allocation_may_fail(void)
{
  struct made m;
  bool failed = true;
  made_run(&m, SCHEDULE_1F1B, 2, 4, 1, "even", 0, 1, 0, 0);
  for (long n = 1; failed && n < 2000; n++) {
    struct idle x;
    check_fail_allocation(n);
    const enum err err = idle_measure(&m.data, 0, 0, &x);
    failed = check_allocation_failed();
    check_fail_allocation(0);
    CHECK(failed ? err == ERR_MEMORY && x.stage == NULL : err == ERR_OK);
    if (err == ERR_OK) idle_free(&x);
  }
  CHECK(!failed);
  made_free(&m);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(equal_stages_idle_for_the_schedule_alone),
      TEST(uneven_stages_idle_for_imbalance),
      TEST(a_slower_head_is_imbalance_too),
      TEST(transfers_that_are_waited_for_are_exposed),
      TEST(a_wait_that_is_not_in_the_list_fails),
      TEST(what_a_late_machine_explains_decides_nothing),
      TEST(one_good_step_makes_it_noise),
      TEST(real_passes_vary_instead),
      TEST(the_step_that_is_shown_is_the_usual_one),
      TEST(other_passes_than_the_list_fail),
      TEST(clocks_that_may_be_off_by_a_tenth_decide_nothing),
      TEST(missing_evidence_is_no_pass),
      TEST(every_allocation_may_fail),
  };
  return test_main("idle", tests, sizeof tests / sizeof *tests);
}
