/* imbalance_test.c - uneven ranks, costs of lengths and the line of the policies, from runs made by hand. */
#include "checks.h"
#include "made_policies_test.h"

static enum outcome judged(struct verdict *v)
{
  imbalance_judge(&made[RUNS - 1].data, wanted, companions, n, v);
  return v->outcome;
}

/* --- policies ---------------------------------------------------------------------------------------- */

static void policies_are_made_in_turn_and_each_as_it_says(void)
{
  setup(POLICIES_FIXED, 9, 0);
  static const char *const order[] = {"0-padded", "0-bucketed", "0-packed", "0-balanced", "1-balanced",
                                      "1-packed", "1-bucketed", "1-padded", "1-fixed",    "2-fixed"};
  for (int i = 0; i < 10; i++) CHECK_TEXT_HAS(wanted[i].role, order[i]);
  CHECK(wanted[0].config.policy == POLICY_PADDED && wanted[0].config.documents_each == 1 && wanted[0].config.narrow);
  CHECK(wanted[1].config.policy == POLICY_BUCKETED && wanted[1].config.tail == TAIL_RESHAPE);
  CHECK(wanted[2].config.policy == POLICY_PACKED && wanted[2].config.tail == TAIL_WRAP);
  CHECK(wanted[3].config.policy == POLICY_BALANCED && wanted[3].config.deal == 2);
  CHECK(wanted[8].config.policy == POLICY_CHUNKED && !wanted[8].config.narrow);
  teardown();
}

static void the_cost_of_lengths_is_found_and_predicts_what_was_lost(void)
{
  struct policies p;
  setup(POLICIES_FIXED, 9, 0);
  if (CHECK_OK(policies_measure(&made[RUNS - 1].data, wanted, companions, n, &p))) {
    CHECK(p.has_costs && p.costs.explained > 1 - 1e-9);
    CHECK_NEAR(p.costs.a, 0.5, 1e-6);
    CHECK_NEAR(p.costs.b, 0.1, 1e-8);
    CHECK_NEAR(p.costs.c, 0.001, 1e-10);
    for (int k = POLICIES_PADDED; k < POLICIES_KINDS; k++) CHECK_NEAR(p.of[k].predicted, p.of[k].lost.value, 1e-9);
    CHECK(isnan(p.of[POLICIES_FIXED].predicted));
    CHECK(p.of[POLICIES_PADDED].lost.value > 0.1 && p.of[POLICIES_BALANCED].lost.value < 1e-12);
    CHECK_NEAR(p.of[POLICIES_PADDED].excess.value, p.of[POLICIES_PADDED].lost.value, 1e-12);
    /* 128 computed for each sequence: its tokens alone are none of it */
    double tokens = 0;
    for (int64_t step = 2; step < STEPS; step++)
      for (int i = 0; i < 2 * EACH; i++) tokens += tokens_of(POLICIES_FIXED, i / EACH, step, i % EACH);
    CHECK_NEAR(p.of[POLICIES_FIXED].padding, 1 - tokens / (6.0 * 2 * EACH * 128), 1e-12);
    CHECK_NEAR(p.of[POLICIES_FIXED].step_ms.value, EACH * cost(128) + 10, 1e-9);
    CHECK_NEAR(p.of[POLICIES_FIXED].computed_per_s.value, 2e3 * EACH * 128 / (EACH * cost(128) + 10), 1e-6);
  }
  teardown();
}

static void on_which_side_of_the_line_a_policy_is(void)
{
  static const struct {
    enum policies_kind k;
    int first;
    double more;
    enum outcome want;
    const char *worst;
  } all[] = {{POLICIES_FIXED, 9, 0, OUTCOME_PASS, ""},
             {POLICIES_PACKED, 0, 3, OUTCOME_PASS, "packed"},       /* 1.2 points of 123 ms */
             {POLICIES_PACKED, 0, 30, OUTCOME_FAIL, "packed"},
             {POLICIES_BALANCED, 0, 30, OUTCOME_FAIL, "balanced"},
             {POLICIES_BALANCED, 3, 30, OUTCOME_INCONCLUSIVE, ""},  /* in two repeats of five */
             {POLICIES_PADDED, 9, 0, OUTCOME_PASS, ""}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    struct verdict v;
    setup(all[i].k, all[i].first, all[i].more);
    if (!CHECK(judged(&v) == all[i].want)) fprintf(stderr, "case %zu: %s\n", i, v.sentence);
    CHECK_TEXT_HAS(v.worst, all[i].worst);
    teardown();
  }
}

/* Everything even: padded loses no more than the others, and that is against the line, too. */
static void padded_has_to_lose(void)
{
  struct verdict v;
  setup(POLICIES_FIXED, 9, 0);
  for (int i = 0; i < n; i++)
    if (strstr(wanted[i].role, "-padded")) {
      const struct run_config c = wanted[i].config;
      json_decref(made[i].records);
      make(&made[i], &c, POLICIES_BALANCED, 0);
    } else if (strstr(wanted[i].role, "-packed")) {
      const struct run_config c = wanted[i].config;
      json_decref(made[i].records);
      make(&made[i], &c, POLICIES_PACKED, 1);
    }
  CHECK(judged(&v) == OUTCOME_FAIL);
  CHECK_TEXT_HAS(v.sentence, "padded 0.0 times");
  teardown();
}

static void without_a_line_figures_are_shown(void)
{
  struct verdict v;
  setup(POLICIES_BALANCED, 0, 30);
  made[RUNS - 1].data.config.lengths = LENGTHS_OF_SQUAD;
  CHECK(judged(&v) == OUTCOME_PASS);
  CHECK_TEXT_HAS(v.sentence, "no line is drawn");
  made[RUNS - 1].data.config.narrow = true;
  CHECK(judged(&v) == OUTCOME_INVALID);
  CHECK_TEXT_HAS(v.sentence, "not of fixed length");
  teardown();
  setup(POLICIES_BALANCED, 0, 30);
  CHECK(judged(&v) == OUTCOME_FAIL);
  made[RUNS - 1].data.config.global_batch = 4 * EACH; /* of the settings alone: twice as many a rank */
  CHECK(judged(&v) == OUTCOME_PASS);
  CHECK_TEXT_HAS(v.sentence, "no line is drawn");
  teardown();
}

static void what_is_missing_never_passes(void)
{
  struct verdict v;
  setup(POLICIES_FIXED, 9, 0);
  companions[7] = NULL;
  CHECK(judged(&v) == OUTCOME_INVALID);
  companions[7] = &made[7].data;
  CHECK(judged(&v) == OUTCOME_PASS);
  json_array_remove(made[7].records, json_array_size(made[7].records) - 1); /* a time */
  CHECK(judged(&v) == OUTCOME_INVALID);
  CHECK_TEXT_HAS(v.sentence, "rank 1 told no times");
  teardown();
  setup(POLICIES_FIXED, 9, 0);
  for (size_t i = 0; i < json_array_size(made[0].records); i++) json_object_del(json_array_get(made[0].records, i), "got.width");
  CHECK(judged(&v) == OUTCOME_INVALID);
  teardown();
}

/* --- costs -------------------------------------------------------------------------------------------- */

static void costs_are_never_below_nothing(void)
{
  enum { N = 20 };
  double ms[N], tokens[N], pairs[N];
  struct costs c;
  for (int i = 0; i < N; i++) {
    tokens[i] = 10 + 5 * i;
    pairs[i] = tokens[i] * tokens[i];
    ms[i] = 0.2 * tokens[i] - 0.0001 * pairs[i]; /* the best c would be negative */
  }
  CHECK_OK(costs_fit(ms, tokens, pairs, N, &c));
  CHECK(c.a >= 0 && c.b > 0 && c.c == 0 && c.residual_ms > 0 && c.explained > 0.95 && c.n == N);
  for (int i = 0; i < N; i++) ms[i] = 3;
  CHECK_OK(costs_fit(ms, tokens, pairs, N, &c));
  CHECK_NEAR(c.a, 3, 1e-9);
  CHECK(c.explained == 0);
  CHECK_ERR(costs_fit(ms, tokens, pairs, 7, &c), ERR_UNAVAILABLE);
  for (int i = 0; i < N; i++) tokens[i] = 4, pairs[i] = 16;
  CHECK_ERR(costs_fit(ms, tokens, pairs, N, &c), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "of 4 to 4 tokens");
}

/* --- uneven ranks --------------------------------------------------------------------------------------- */

static void persistent_and_jitter_add_up_to_what_is_lost(void)
{
  struct uneven u;
  setup(POLICIES_FIXED, 0, 12); /* rank 1 of the case's own run, in every step */
  if (CHECK_OK(uneven_measure(&made[RUNS - 1].data, &u))) {
    CHECK(u.worst == 1 && u.last == 1 && u.phase == UNEVEN_BACKWARD && u.steps == STEPS - UNEVEN_WARM);
    CHECK_NEAR(u.persistent_ms, 6, 1e-9);
    CHECK_NEAR(u.jitter_ms, 0, 1e-9);
    CHECK_NEAR(u.lost, 6 / u.step_ms, 1e-12);
    CHECK_NEAR(u.balance, u.mean_ms / u.largest_ms, 1e-12);
  }
  const struct made *padded = &made[0]; /* now this rank, now the other */
  if (CHECK_OK(uneven_measure(&padded->data, &u))) {
    CHECK(u.jitter_ms > 5 && u.last == 0.5);
    CHECK_NEAR(u.largest_ms - u.mean_ms, u.persistent_ms + u.jitter_ms, 1e-9);
    CHECK_NEAR(u.rest_ms, 10, 1e-9);
    CHECK(u.token_balance < 0.9);
  }
  teardown();
}

/* Four ranks asleep in stages, two micro-batches each, blocks of 6 ms; the head takes head_ms more in each of its passes. */
static struct made asleep(int64_t dp, int64_t pp, double head_ms)
{
  struct made m = {.records = json_array()};
  struct run_config c;
  config_default(&c);
  c.layers = 8;
  c.sequence = 24;
  c.dp = dp;
  c.pp = pp;
  c.global_batch = 2 * dp;
  c.steps = 5;
  c.compute = COMPUTE_SLEEP;
  c.sleep_forward_ms = c.sleep_input_ms = c.sleep_weight_ms = 2;
  c.sleep_head_ms = head_ms;
  m.data = (struct run_data){.config = c, .records = m.records, .end = "exited"};
  return m;
}
static void slept(struct made *m, int rank, double forward_ms, double backward_ms)
{
  for (int64_t step = 0; step < m->data.config.steps; step++) {
    json_t *t = put(m, "time", rank, step, -1), *b = put(m, "batch", rank, step, 0);
    real(t, "got.forward_ms", forward_ms);
    real(t, "got.backward_ms", backward_ms);
    real(t, "got.optimizer_ms", 0.1);
    real(t, "got.other_ms", 0);
    real(t, "got.step_ms", 90);
    real(b, "got.tokens", 9);
    real(b, "got.valid_tokens", 8);
    real(b, "got.pairs", 81);
  }
  real(put(m, "memory", rank, -1, -1), "got.peak_bytes", 1e6 * (4 - rank));
}

static void a_heavy_stage_is_named(void)
{
  for (int bent = 0; bent < 4; bent++) {
    struct verdict v;
    struct made m = asleep(1, 4, bent == 3 ? 0 : 3);
    for (int rank = 0; rank < 4; rank++) {
      const double head = bent == 3 ? 0 : (rank == (bent == 1 ? 1 : 3)) ? 18 : 0, factor = bent == 2 ? 0.5 : 1;
      slept(&m, rank, 8, 16 + factor * head);
    }
    heaviest_judge(&m.data, NULL, NULL, 0, &v);
    CHECK(v.outcome == (bent == 1 || bent == 2 ? OUTCOME_FAIL : OUTCOME_PASS));
    if (bent == 0) CHECK_TEXT_HAS(v.sentence, "rank 3 is busiest in 100 % of the steps, most in its backward");
    if (bent == 0) CHECK_TEXT_HAS(v.sentence, "rank 0 has 4.00 times the least");
    m.data.config.compute = COMPUTE_REAL;
    heaviest_judge(&m.data, NULL, NULL, 0, &v);
    CHECK(v.outcome == OUTCOME_INVALID);
    json_decref(m.records);
  }
}

/* Two replicas of two stages; ranks 2 and 3 have the head.  Which of them is busiest, by how little, is chance; 0 or 1 is not. */
static void replicas_of_a_heavy_stage_are_as_heavy(void)
{
  for (int busiest = 0; busiest < 4; busiest++) {
    struct verdict v;
    struct made m = asleep(2, 2, 3);
    for (int rank = 0; rank < 4; rank++) {
      const bool heavy = busiest > 1 ? rank > 1 : rank == busiest || rank == 3;
      slept(&m, rank, 16, 32 + (heavy ? 18 : 0) + (rank == busiest ? 0.01 : 0));
    }
    heaviest_judge(&m.data, NULL, NULL, 0, &v);
    if (!CHECK(v.outcome == (busiest > 1 ? OUTCOME_PASS : OUTCOME_FAIL))) fprintf(stderr, "rank %d: %s\n", busiest, v.sentence);
    CHECK_TEXT_HAS(v.sentence, "planned: rank 2 or 3, 15.");
    json_decref(m.records);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(policies_are_made_in_turn_and_each_as_it_says),
      TEST(the_cost_of_lengths_is_found_and_predicts_what_was_lost),
      TEST(on_which_side_of_the_line_a_policy_is),
      TEST(padded_has_to_lose),
      TEST(without_a_line_figures_are_shown),
      TEST(what_is_missing_never_passes),
      TEST(costs_are_never_below_nothing),
      TEST(persistent_and_jitter_add_up_to_what_is_lost),
      TEST(a_heavy_stage_is_named),
      TEST(replicas_of_a_heavy_stage_are_as_heavy),
  };
  return test_main("imbalance", tests, sizeof tests / sizeof *tests);
}
