/* hidden_test.c - hidden, exposed and the rest from records made by hand; what contradicts itself or is missing. */
#include "fabricate_test.h"

#include "hidden.h"

/* Runs of two ranks with numbers that come out whole; a repeat's are all larger by its number. */
enum { RUNS = 1 + JUDGE_COMPANIONS_MAX, MADE_STEPS = 5 };
static struct made made[RUNS];
static struct companion wanted[JUDGE_COMPANIONS_MAX];
static const struct run_data *companions[JUDGE_COMPANIONS_MAX];
static int n;

static struct run_config a_case(void)
{
  struct run_config c = made_config(2);
  c.steps = MADE_STEPS;
  c.trace_time = true;
  return c;
}

/* What one kind of run tells, of a step. */
struct numbers {
  double step_ms, busy_ms, waited_ms, ready_ms[2], end_ms[2], backward_end_ms;
};
/* Compute 100 ms, 120 beside transfers of 60 + 30, which alone take 50 + 30; 10 ms are waited for. */
static struct numbers numbers_of(const char *role)
{
  if (strstr(role, "silent")) return (struct numbers){102, 100, 0, {40, 70}, {40, 70}, 95};
  if (strstr(role, "alone")) return (struct numbers){190, 100, 88, {100, 155}, {150, 185}, 95};
  return (struct numbers){132, 120, 10, {45, 105}, {105, 135}, 110};
}

static void tell_step(struct made *m, int rank, int64_t step, const struct numbers *x, double more)
{
  json_t *t = made_record(m, "time", rank, step, -1), *calls = made_record(m, "trace", rank, step, -1);
  const bool late = rank == 1; /* the last to be ready counts, and the last to end */
  json_object_set_new(t, "got.step_ms", json_real(x->step_ms + more - late));
  json_object_set_new(t, "got.forward_ms", json_real(30));
  json_object_set_new(t, "got.backward_ms", json_real(x->busy_ms - 40));
  json_object_set_new(t, "got.optimizer_ms", json_real(10 - late));
  json_object_set_new(t, "got.other_ms", json_real(0));
  json_object_set_new(t, "got.exposed_ms", json_real(x->waited_ms + 3));
  json_object_set_new(t, "got.exposed_replicas_ms", json_real(x->waited_ms));
  json_object_set_new(t, "got.backward_end_ms", json_real(x->backward_end_ms));
  json_object_set_new(t, "got.calls_ready_ms", json_pack("[f,f,f,f]", 1.0, x->ready_ms[0] - !late, 0.0, x->ready_ms[1] - !late));
  json_object_set_new(t, "got.calls_end_ms", json_pack("[f,f,f,f]", 2.0, x->end_ms[0] - late, 0.0, x->end_ms[1] - late));
  json_object_set_new(calls, "got.calls",
                      json_pack("[s,o,s,o]", "1 allreduce sums scalar float64 1 8 -1", json_sprintf("1 allreduce dp transfer float32 66 264 %d", rank),
                                "2 barrier dp transfer uint8 0 0 1", json_sprintf("3 allreduce dp transfer float32 30 120 %d", rank)));
}

static void tell_bare(struct made *m, double more)
{
  static const char *const what[] = {"overlap.both", "overlap.products", "overlap.sums"};
  static const double ms[] = {110, 90, 80}, busy_ms[] = {105, 90, 20};
  for (int rank = 0; rank < 2; rank++)
    for (int i = 0; i < 3; i++) {
      json_t *r = made_record(m, "measure", rank, -1, -1), *seconds = json_array(), *processor = json_array();
      for (int k = 0; k < MADE_STEPS; k++) json_array_append_new(seconds, json_real((ms[i] + (i == 0 ? more : 0) - rank) / 1e3));
      for (int k = 0; k < MADE_STEPS; k++) json_array_append_new(processor, json_real((busy_ms[i] + (i == 0 ? more : 0) - rank) / 1e3));
      json_object_set_new(r, "got.processor_seconds", processor);
      json_object_set_new(r, "got.what", json_string(what[i]));
      json_object_set_new(r, "got.seconds", seconds);
      json_object_set_new(r, "got.wrong", json_integer(0));
    }
}

static void make(struct made *m, const struct run_config *c, const char *role, int repeat)
{
  const struct numbers x = numbers_of(role);
  *m = (struct made){.records = json_array()};
  m->data = (struct run_data){.config = *c, .records = m->records, .end = "exited"};
  if (strstr(role, "bare")) tell_bare(m, repeat);
  for (int rank = 0; rank < 2 && !strstr(role, "bare"); rank++)
    for (int64_t step = 0; step < MADE_STEPS; step++) /* the warm-up is far off */
      tell_step(m, rank, step, &x, (step < 2 ? 1000 : 0) + (strstr(role, "with") ? repeat : 0));
}

static void setup(void)
{
  const struct run_config c = a_case();
  n = hidden_companions(&c, wanted, JUDGE_COMPANIONS_MAX);
  make(&made[RUNS - 1], &c, "with", 0);
  for (int i = 0; i < n; i++) {
    int repeat = 0;
    CHECK(sscanf(wanted[i].role, "rerun%d-", &repeat) == 1);
    make(&made[i], &wanted[i].config, wanted[i].role, repeat);
    companions[i] = &made[i].data;
  }
}

static void teardown(void)
{
  for (int i = 0; i < n; i++) json_decref(made[i].records);
  json_decref(made[RUNS - 1].records);
}

static enum err measure(struct hidden *h) { return hidden_measure(&made[RUNS - 1].data, wanted, companions, n, h); }

static struct made *of_role(const char *role)
{
  for (int i = 0; i < n; i++)
    if (strcmp(wanted[i].role, role) == 0) return &made[i];
  CHECK(false);
  return &made[0];
}

/* --- what is asked for -------------------------------------------------------------------- */

static void every_repeat_asks_for_each_kind_once_and_in_turn(void)
{
  const struct run_config c = a_case();
  const int all = hidden_companions(&c, wanted, JUDGE_COMPANIONS_MAX);
  CHECK(all == 4 * HIDDEN_REPEATS - 1);
  CHECK(strcmp(wanted[0].role, "rerun0-silent") == 0 && strcmp(wanted[3].role, "rerun1-bare") == 0);
  CHECK(strcmp(wanted[6].role, "rerun1-with") == 0 && strcmp(wanted[7].role, "rerun2-with") == 0);
  for (int i = 0; i < all; i++) {
    const struct run_config *x = &wanted[i].config;
    CHECK(x->communicate == (strstr(wanted[i].role, "silent") == NULL));
    CHECK(x->align == (strstr(wanted[i].role, "alone") != NULL) && x->overlap == !x->align && x->overlap_gather == !x->align);
    CHECK((x->task == TASK_OVERLAP) == (strstr(wanted[i].role, "bare") != NULL));
    for (int k = 0; k < i; k++) CHECK(strcmp(wanted[i].role, wanted[k].role) != 0);
  }
  struct run_config other = c;
  other.zero = 3;
  CHECK(hidden_companions(&other, wanted, JUDGE_COMPANIONS_MAX) == 3 * HIDDEN_REPEATS - 1);
  for (int i = 0; i < 3 * HIDDEN_REPEATS - 1; i++) CHECK(wanted[i].config.prefetch == !wanted[i].config.align);
  other.zero = 0;
  other.precision = PRECISION_F64;
  CHECK(hidden_companions(&other, wanted, JUDGE_COMPANIONS_MAX) == 3 * HIDDEN_REPEATS - 1);
}

/* --- figures -------------------------------------------------------------------------------- */

static void figures_are_as_defined(void)
{
  struct hidden h;
  setup();
  if (CHECK_OK(measure(&h))) {
    CHECK(h.repeats == HIDDEN_REPEATS && h.calls == 2 && h.has_bare);
    CHECK(h.step_ms.value == 134 && h.step_ms.low == 132 && h.step_ms.high == 136);
    CHECK(h.silent_ms.value == 102 && h.compute_ms.value == 100);
    CHECK(h.alone_ms.value == 80);
    CHECK(h.exposed_ms.value == 32 && h.exposed_ms.each[0] == 30 && h.exposed_ms.each[4] == 34);
    CHECK(h.traced_ms.value == 30);
    CHECK_NEAR(h.hidden.value, 1 - 32.0 / 80, 1e-12);
    CHECK_NEAR(h.hidden.low, 1 - 34.0 / 80, 1e-12);
    CHECK_NEAR(h.hidden.high, 1 - 30.0 / 80, 1e-12);
    CHECK(h.coverable_ms.value == 56); /* rank 0's first bucket is ready at 39 */
    CHECK_NEAR(h.compute_slowdown.value, 1.2, 1e-12);
    CHECK_NEAR(h.transfer_slowdown.value, 90.0 / 80, 1e-12);
    CHECK_NEAR(h.bare_hidden.value, 1 - 22.0 / 80, 1e-9);
    CHECK_NEAR(h.bare_slowdown.value, 112.0 / 90, 1e-9);
    CHECK_NEAR(h.bare_processor_ms.value, 17, 1e-9);
    CHECK_NEAR(h.bare_most.value, 1 - 17.0 / 80, 1e-9);
    CHECK(hidden_agrees(&h));
  }
  teardown();
}

/* Rank 0 begins 10 ms before rank 1.  With transfers it waits for rank 1 in them, without in the sum of losses. */
static void a_rank_that_begins_early_changes_neither_reading(void)
{
  struct hidden h;
  setup();
  for (int r = 0; r < HIDDEN_REPEATS; r++)
    for (int silent = 0; silent < 2; silent++) {
      char role[32];
      snprintf(role, sizeof role, "rerun%d-%s", r, silent ? "silent" : "with");
      struct made *m = r == 0 && !silent ? &made[RUNS - 1] : of_role(role);
      for (int64_t step = 0; step < MADE_STEPS; step++) {
        made_set(m, "time", 0, step, -1, "got.step_ms", json_real(silent ? 112 : 142 + r));
        made_set(m, "trace", 0, step, -1, "got.calls",
                 json_pack("[s,s,s,s]", "1 allreduce sums scalar float64 1 8 -1", "1 allreduce dp transfer float32 66 264 0",
                           "3 allreduce dp transfer float32 30 120 0", "2 allreduce sums scalar float64 2 16 -1"));
        made_set(m, "trace", 1, step, -1, "got.calls",
                 json_pack("[s,s,s,s]", "1 allreduce sums scalar float64 1 8 -1", "1 allreduce dp transfer float32 66 264 1",
                           "3 allreduce dp transfer float32 30 120 1", "2 allreduce sums scalar float64 2 16 -1"));
        made_set(m, "time", 0, step, -1, "got.exposed_replicas_ms", json_real(silent ? 0 : 20));
        for (int rank = 0; rank < 2; rank++) {
          made_set(m, "time", rank, step, -1, "got.calls_ready_ms", json_pack("[f,f,f,f]", 1.0, 40.0, 70.0, 200.0));
          made_set(m, "time", rank, step, -1, "got.calls_end_ms", json_pack("[f,f,f,f]", 2.0, 80.0, 90.0, silent && rank == 0 ? 211.0 : 201.0));
        }
      }
    }
  for (int r = 0; r < HIDDEN_REPEATS; r++) {
    char role[32];
    snprintf(role, sizeof role, "rerun%d-alone", r);
    for (int64_t step = 0; step < MADE_STEPS; step++)
      for (int rank = 0; rank < 2; rank++) { /* two transfers there, too */
        made_set(of_role(role), "trace", rank, step, -1, "got.calls",
                 json_pack("[s,o,o,s]", "1 allreduce sums scalar float64 1 8 -1", json_sprintf("1 allreduce dp transfer float32 66 264 %d", rank),
                           json_sprintf("3 allreduce dp transfer float32 30 120 %d", rank), "2 allreduce sums scalar float64 2 16 -1"));
        made_set(of_role(role), "time", rank, step, -1, "got.calls_ready_ms", json_pack("[f,f,f,f]", 1.0, 100.0, 155.0, 200.0));
        made_set(of_role(role), "time", rank, step, -1, "got.calls_end_ms", json_pack("[f,f,f,f]", 2.0, 150.0, 185.0, 201.0));
      }
  }
  if (CHECK_OK(measure(&h))) {
    CHECK(h.exposed_ms.value == 32);
    CHECK(h.traced_ms.value == 30); /* 120 + 20 + 1, less 100 + 11; without the sum it would be 40 */
  }
  teardown();
}

static void what_is_covered_is_no_more_than_there_is(void)
{
  struct hidden h;
  setup();
  for (int r = 0; r < HIDDEN_REPEATS; r++) {
    char role[32];
    snprintf(role, sizeof role, "rerun%d-silent", r);
    for (int64_t step = 0; step < MADE_STEPS; step++)
      for (int rank = 0; rank < 2; rank++) made_set(of_role(role), "time", rank, step, -1, "got.backward_end_ms", json_real(500));
  }
  CHECK_OK(measure(&h));
  CHECK(h.coverable_ms.value == h.alone_ms.value);
  teardown();
}

/* ZeRO 1 and 2: the last gathers are done in the next step, beside its forward. */
static void what_goes_on_into_the_next_step_can_be_hidden_there(void)
{
  struct hidden h;
  char role[32];
  setup();
  for (int r = 0; r < HIDDEN_REPEATS; r++)
    for (int silent = 0; silent < 2; silent++) {
      snprintf(role, sizeof role, "rerun%d-%s", r, silent ? "silent" : "with");
      struct made *m = r == 0 && !silent ? &made[RUNS - 1] : of_role(role);
      m->data.config.zero = 1;
      for (int64_t step = 0; step < MADE_STEPS; step++)
        for (int rank = 0; rank < 2; rank++) {
          made_set(m, "time", rank, step, -1, "got.calls_ready_ms", json_pack("[f,f,f,f]", 1.0, 50.0, 0.0, -1.0));
          made_set(m, "time", rank, step, -1, "got.calls_end_ms", json_pack("[f,f,f,f]", 2.0, 50.0, 0.0, -1.0));
        }
    }
  if (CHECK_OK(measure(&h))) {
    CHECK(isnan(h.transfer_slowdown.value) && h.hidden.value == 1 - 32.0 / 80);
    CHECK(h.coverable_ms.value == 95 - 50 + 30);
  }
  snprintf(role, sizeof role, "rerun2-alone"); /* there nothing may be left over */
  made_set(of_role(role), "time", 0, 3, -1, "got.calls_ready_ms", json_pack("[f,f,f,f]", 1.0, 50.0, 0.0, -1.0));
  CHECK_ERR(measure(&h), ERR_UNAVAILABLE);
  teardown();
}

static void clock_and_streams_agree_within_a_tenth_or_a_fiftieth_of_alone(void)
{
  static const struct { double exposed, traced, alone; bool agrees; } cases[] = {
      {100, 91, 200, true}, {100, 89, 200, false}, {91, 100, 200, true}, {3, 1, 100, true}, {3, 0.9, 100, false}, {-1, 1, 100, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct hidden h = {.exposed_ms.value = cases[i].exposed, .traced_ms.value = cases[i].traced, .alone_ms.value = cases[i].alone};
    CHECK(hidden_agrees(&h) == cases[i].agrees);
  }
}

static void what_is_missing_or_contradicts_itself_gives_no_figure(void)
{
  struct hidden h;
  setup();
  companions[2] = NULL;
  CHECK_ERR(measure(&h), ERR_UNAVAILABLE);
  teardown();
  setup();
  made[4].data.status = 1;
  CHECK_ERR(measure(&h), ERR_UNAVAILABLE);
  teardown();
  setup();
  made_set(of_role("rerun3-with"), "trace", 1, 3, -1, "got.calls", json_pack("[s,s]", "1 allreduce sums scalar float64 1 8 -1", "1 allreduce dp transfer float32 67 264 1"));
  CHECK_ERR(measure(&h), ERR_FORMAT);
  teardown();
  setup();
  for (int64_t step = 0; step < MADE_STEPS; step++)
    for (int rank = 0; rank < 2; rank++)
      made_set(of_role("rerun2-alone"), "trace", rank, step, -1, "got.calls", json_pack("[s,s]", "1 allreduce sums scalar float64 1 8 -1", "1 allreduce dp transfer float32 66 264 1"));
  CHECK_ERR(measure(&h), ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "alone 1");
  teardown();
  setup();
  made_set(of_role("rerun1-bare"), "measure", 1, -1, -1, "got.wrong", json_integer(4));
  CHECK_ERR(measure(&h), ERR_FORMAT);
  teardown();
  setup();
  made[RUNS - 1].data.config.tp = 2;
  CHECK_ERR(measure(&h), ERR_UNAVAILABLE);
  teardown();
}

/* --- verdicts ---------------------------------------------------------------------------------- */

static enum outcome judged(const char *check, struct verdict *v)
{
  judge_find(check)->judge(&made[RUNS - 1].data, wanted, companions, n, v);
  return v->outcome;
}

/* All ranks and steps of one kind of run. */
static void set_all(const char *kind, const char *key, double value)
{
  for (int r = 0; r < HIDDEN_REPEATS; r++) {
    char role[32];
    snprintf(role, sizeof role, "rerun%d-%s", r, kind);
    struct made *m = r == 0 && strcmp(kind, "with") == 0 ? &made[RUNS - 1] : of_role(role);
    for (int64_t step = 0; step < MADE_STEPS; step++)
      for (int rank = 0; rank < 2; rank++) made_set(m, "time", rank, step, -1, key, json_real(value));
  }
}

/* Two transfers of 80 ms in all, each from one clock to another: 2 ms each way are a tenth. */
static void clocks_that_may_be_off_decide_nothing(void)
{
  for (int off = 0; off < 2; off++) {
    struct verdict v;
    setup();
    json_t *clock = made_record(&made[RUNS - 1], "clock", 1, -1, -1);
    json_object_set_new(clock, "got.error_ms", json_real(off ? 2.01 : 1.99));
    overlap_judge(&made[RUNS - 1].data, wanted, companions, n, &v);
    CHECK(v.outcome == (off ? OUTCOME_INCONCLUSIVE : OUTCOME_PASS));
    if (off) CHECK_TEXT_HAS(v.sentence, "clocks are known to 2.01 ms");
    teardown();
  }
}

static void a_figure_passes_only_if_clock_and_streams_agree(void)
{
  struct verdict v;
  setup();
  CHECK(judged("overlap", &v) == OUTCOME_PASS);
  CHECK_TEXT_HAS(v.sentence, "hidden 60 %");
  CHECK(v.value == 2);
  set_all("with", "got.step_ms", 139);
  CHECK(judged("overlap", &v) == OUTCOME_INCONCLUSIVE);
  companions[0] = NULL;
  CHECK(judged("overlap", &v) == OUTCOME_INVALID);
  teardown();
}

static void less_than_nine_tenths_of_the_bare_program_fails(void)
{
  struct verdict v;
  setup();
  CHECK(judged("bare", &v) == OUTCOME_FAIL); /* 0.6 of 0.722 */
  set_all("with", "got.step_ms", 129);       /* 1 - 27 / 80, of which 0.9 * (1 - 22 / 80) is wanted */
  set_all("with", "got.exposed_replicas_ms", 7);
  CHECK(judged("bare", &v) == OUTCOME_PASS);
  CHECK_NEAR(v.value, 0.6625, 1e-9);
  CHECK_NEAR(v.bound, 0.9 * (1 - 22.0 / 80), 1e-9);
  set_all("with", "got.step_ms", 131);
  CHECK(judged("bare", &v) == OUTCOME_FAIL);
  set_all("with", "got.exposed_replicas_ms", 0);
  CHECK(judged("bare", &v) == OUTCOME_INCONCLUSIVE);
  teardown();
}

static void a_bare_program_that_hides_nothing_decides_nothing(void)
{
  struct verdict v;
  setup();
  set_all("with", "got.step_ms", 132);
  for (int r = 0; r < HIDDEN_REPEATS; r++)
    for (int rank = 0; rank < 2; rank++) {
      char role[32];
      snprintf(role, sizeof role, "rerun%d-bare", r);
      json_t *seconds = json_array();
      for (int k = 0; k < MADE_STEPS; k++) json_array_append_new(seconds, json_real(0.200));
      made_set(of_role(role), "measure", rank, -1, -1, "got.seconds", seconds); /* of the first record: both */
    }
  CHECK(judged("bare", &v) == OUTCOME_INCONCLUSIVE);
  CHECK_TEXT_HAS(v.sentence, "hides nothing (-38 %)");
  CHECK_TEXT_HAS(v.sentence, "the trainer hides 62 %");
  CHECK_TEXT_HAS(v.sentence, "at most 79 %");
  teardown();
}

static void a_probe_tells_the_ratio_that_is_judged(void)
{
  const struct run_config c = a_case();
  struct run_config silent, alone;
  double percent;
  hidden_probe(&c, &silent, &alone);
  CHECK(!silent.communicate && !silent.align && alone.communicate && alone.align && !alone.overlap);
  setup();
  CHECK_OK(hidden_ratio(&of_role("rerun1-silent")->data, &of_role("rerun1-alone")->data, &percent));
  CHECK_NEAR(percent, 80, 1e-9);
  json_array_clear(of_role("rerun1-alone")->records);
  CHECK_ERR(hidden_ratio(&of_role("rerun1-silent")->data, &of_role("rerun1-alone")->data, &percent), ERR_UNAVAILABLE);
  teardown();
}

static void a_comparison_needs_about_as_much_to_hide_as_to_hide_it_behind(void)
{
  static const double backward[] = {28, 49, 93, 95}; /* of which 40 more are compute: 80 ms are 118, 90, 60 and 59 % */
  static const enum outcome want[] = {OUTCOME_INVALID, OUTCOME_FAIL, OUTCOME_FAIL, OUTCOME_INVALID};
  struct verdict v;
  for (int i = 0; i < 4; i++) {
    setup();
    set_all("silent", "got.backward_ms", backward[i]);
    set_all("with", "got.backward_ms", backward[i] + 20);
    CHECK(judged("bare", &v) == want[i]);
    teardown();
  }
}

int main(void)
{
  static const struct test tests[] = {
    TEST(every_repeat_asks_for_each_kind_once_and_in_turn),
    TEST(figures_are_as_defined),
    TEST(a_rank_that_begins_early_changes_neither_reading),
    TEST(what_is_covered_is_no_more_than_there_is),
    TEST(what_goes_on_into_the_next_step_can_be_hidden_there),
    TEST(clock_and_streams_agree_within_a_tenth_or_a_fiftieth_of_alone),
    TEST(what_is_missing_or_contradicts_itself_gives_no_figure),
    TEST(clocks_that_may_be_off_decide_nothing),
    TEST(a_figure_passes_only_if_clock_and_streams_agree),
    TEST(less_than_nine_tenths_of_the_bare_program_fails),
    TEST(a_bare_program_that_hides_nothing_decides_nothing),
    TEST(a_probe_tells_the_ratio_that_is_judged),
    TEST(a_comparison_needs_about_as_much_to_hide_as_to_hide_it_behind),
  };
  return test_main("hidden communication", tests, sizeof tests / sizeof *tests);
}
