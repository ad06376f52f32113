/* lateness_test.c - who is named for steps made by hand, at what cost, and what each rank's time is split into. */
#include "made_steps_test.h"

#include "lateness.h"

static struct made made;
static struct lateness found;

static struct run_config config_of(int64_t dp, int64_t tp, int64_t pp)
{
  struct run_config c;
  config_default(&c);
  c.layers = 4;
  c.dp = dp;
  c.tp = tp;
  c.pp = pp;
  c.global_batch = 4 * dp;
  c.micro_batch = 1;
  c.steps = 14;
  c.trace_spans = true;
  c.compute = COMPUTE_SLEEP;
  c.sleep_forward_ms = 5;
  c.sleep_input_ms = c.sleep_weight_ms = 5;
  return c;
}

static const struct lateness_cost *measure(void)
{
  lateness_free(&found);
  if (!CHECK_OK(lateness_measure(&made.data, &found))) return NULL;
  return lateness_named(&made.data, &found);
}

static const struct lateness_cost *cost_of(int rank, enum graph_phase phase)
{
  for (int i = 0; i < found.n_costs; i++)
    if (found.costs[i].rank == rank && found.costs[i].phase == phase) return &found.costs[i];
  static const struct lateness_cost none;
  return &none;
}

static bool adds_up(void)
{
  bool all = true;
  for (int r = 0; r < found.ranks; r++) {
    const struct lateness_parts *x = &found.parts[r];
    const double sum = x->data_ms + x->forward_ms + x->backward_ms + x->optimizer_ms + x->other_ms + x->transfer_ms + x->waiting_ms + x->bubble_ms + x->between_ms;
    all = fabs(sum - x->step_ms) < 1e-6 && all;
  }
  char why[300];
  all = lateness_able(&made.data, &found, why, sizeof why) && all;
  const double product = found.load_balance * found.serialisation * found.transfer;
  return all && fabs(found.charged_ms - found.lost_ms) < 1e-4 && fabs(product - found.busy) < 1e-9 && fabs(found.busy - found.measured_busy) < 1e-9;
}

static bool sentence_has(const struct lateness_cost *c, const char *part)
{
  char text[300];
  lateness_sentence(&found, c, text, sizeof text);
  return strstr(text, part) != NULL;
}

/* --- replicas: forward 20, backward 40 with the first bucket ready half way, update 5 ------------------------------ */

static double extra(const struct more *m, int rank, double ms) { return m->rank == rank ? ms : 0; }

static void two_replicas(struct made_step *s, int64_t step, const struct more *m)
{
  (void)step;
  for (int r = 0; r < 2; r++) {
    meet(s, r, SCALAR, "allreduce sums", 1, 0.5, -1);
    task(s, r, COMPUTE, "forward", 20 + extra(m, r, m->forward), -1);
    const int half = task(s, r, COMPUTE, "backward", 20, 0), rest = task(s, r, COMPUTE, "backward", 20 + extra(m, r, m->backward), -1);
    meet(s, r, TRANSFER, "allreduce dp", 2, 6 + extra(m, r, m->link), half);
    const int last = meet(s, r, TRANSFER, "allreduce dp", 3, 4, rest);
    const int update = task(s, r, COMPUTE, "optimizer", 5 + extra(m, r, m->update), last);
    meet(s, r, SCALAR, "allreduce sums", 4, 0.5, update);
  }
}

static void equal_ranks_are_not_blamed(void)
{
  const struct run_config c = config_of(2, 1, 1);
  const struct more none = {.rank = -1};
  make_steps(&made, &c, two_replicas, &none, 0);
  CHECK(measure() == NULL);
  CHECK(adds_up());
  CHECK_NEAR(found.step_ms, 1 + 20 + 40 + 4 + 5 + 0.5, 1e-9);
  for (int r = 0; r < 2; r++) {
    CHECK(found.parts[r].waiting_ms == 0 && found.parts[r].bubble_ms == 0);
    CHECK_NEAR(found.parts[r].transfer_ms, 4.5, 1e-9);
    CHECK_NEAR(found.parts[r].between_ms, 1, 1e-9);
  }
  CHECK(found.lost_ms == 0);
  CHECK_NEAR(found.load_balance, 1, 1e-12);
  CHECK_NEAR(found.serialisation, 65 / 66.0, 1e-9); /* of the ideal network's step the host has 1 ms */
  CHECK_NEAR(found.transfer, 66 / 70.5, 1e-9);
}

static void the_slow_rank_is_named_with_its_phase_and_cost(void)
{
  static const struct {
    struct more more;
    enum graph_phase phase;
    double cost_ms;
  } all[] = {{{.rank = 1, .forward = 12}, GRAPH_FORWARD, 12},   {{.rank = 0, .forward = 12}, GRAPH_FORWARD, 12},
             {{.rank = 1, .backward = 8}, GRAPH_BACKWARD, 8},   {{.rank = 0, .update = 9}, GRAPH_OPTIMIZER, 9},
             {{.rank = 1, .data = 6}, GRAPH_DATA, 6},           {{.rank = 0, .between = 7}, GRAPH_BETWEEN, 7},
             {{.rank = 1, .link = 30}, GRAPH_LINK, 30 - (20 - 6)}}; /* 14 of it are beside backward */
  const struct run_config c = config_of(2, 1, 1);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    make_steps(&made, &c, two_replicas, &all[i].more, 0);
    const struct lateness_cost *who = measure();
    if (!CHECK(who != NULL)) continue;
    CHECK(who->rank == all[i].more.rank && who->phase == all[i].phase && who->period == 1);
    CHECK_NEAR(who->cost_ms, all[i].cost_ms, 1e-6);
    CHECK_NEAR(who->charge_ms, all[i].cost_ms, 1e-6);
    CHECK_NEAR(who->waits, 1, 1e-9);
    CHECK(adds_up());
    CHECK_NEAR(found.parts[1 - who->rank].waiting_ms, all[i].cost_ms, 1e-6);
    CHECK_NEAR(found.parts[who->rank].waiting_ms, 0, 1e-6);
  }
}

/* What is hidden behind compute costs nothing, however long it takes. */
static void a_slow_transfer_beside_compute_costs_nothing(void)
{
  const struct run_config c = config_of(2, 1, 1);
  const struct more hidden = {.rank = 1, .link = 13};
  make_steps(&made, &c, two_replicas, &hidden, 0);
  CHECK(measure() == NULL);
  CHECK_NEAR(cost_of(1, GRAPH_LINK)->cost_ms, 0, 1e-9);
  CHECK(adds_up());
}

static void a_sentence_says_who_and_how_much(void)
{
  const struct run_config c = config_of(2, 1, 1);
  const struct more slow = {.rank = 1, .forward = 12};
  make_steps(&made, &c, two_replicas, &slow, 0);
  const struct lateness_cost *who = measure();
  if (CHECK(who != NULL)) CHECK(sentence_has(who, "rank 1 was last in 100 % of the waits, out of its forward; that costs 14.5 % of the step"));
}

static void stalls_are_named_by_their_period(void)
{
  static const struct {
    uint32_t pauses;
    int period;
  } all[] = {{1 << 1 | 1 << 4 | 1 << 7 | 1 << 10 | 1 << 13, 3},
             {1 << 2 | 1 << 11, 0},                     /* two show none */
             {1 << 4 | 1 << 6 | 1 << 8, 0},             /* they end */
             {1 << 10 | 1 << 12 | 1 << 14, 0},           /* they begin late */
             {1 << 3 | 1 << 5 | 1 << 9 | 1 << 11 | 1 << 13, 0}};  /* at no one distance */
  struct run_config c = config_of(2, 1, 1);
  c.steps = 15; /* 13 count: no whole number of periods */
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const struct more stalls = {.rank = 0, .between = 60, .pauses = all[i].pauses};
    make_steps(&made, &c, two_replicas, &stalls, 0);
    const struct lateness_cost *who = measure();
    CHECK(found.costs[0].rank == 0 && found.costs[0].phase == GRAPH_BETWEEN && found.costs[0].period == all[i].period);
    if (all[i].period == 0) continue;
    CHECK(who == &found.costs[0] && sentence_has(who, "every 3 steps"));
    CHECK_NEAR(found.costs[0].cost_ms, 20, 1e-6);
  }
}

/* --- chance: one rank is later than the other in each step, but not always the same one ------------------------------ */

static void two_restless_replicas(struct made_step *s, int64_t step, const struct more *m)
{
  static const double late[] = {0, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3, 8, 3, 2, 7, 9, 5, 0};
  struct more by_chance = *m;
  for (int r = 0; r < 2; r++) {
    by_chance.forward = (m->rank == r ? m->forward : 0) + late[(2 * step + 5 * r) % 34];
    by_chance.rank = r;
    struct made_step one = {0};
    two_replicas(&one, step, &by_chance);
    memcpy(s->tasks[r], one.tasks[r], sizeof s->tasks[r]);
    s->n[r] = one.n[r];
  }
}

static void who_is_late_by_chance_is_not_blamed(void)
{
  struct run_config c = config_of(2, 1, 1);
  const struct more none = {.rank = -1}, slow = {.rank = 1, .forward = 15};
  c.steps = 19;
  make_steps(&made, &c, two_restless_replicas, &none, 0);
  CHECK(measure() == NULL);
  CHECK(found.parts[0].waiting_ms > 1 && found.parts[1].waiting_ms > 1);
  make_steps(&made, &c, two_restless_replicas, &slow, 0);
  const struct lateness_cost *who = measure();
  if (CHECK(who != NULL)) {
    CHECK(who->rank == 1 && who->phase == GRAPH_FORWARD);
    CHECK(who->low_ms < 15 && who->high_ms > 10 && fabs(who->cost_ms - 15) < 3); /* the other is sometimes later than it would be alone */
  }
}

/* Rank 1 is later at the first meeting, rank 0 at the second: each wait goes back to where the two were together last. */
static void two_meetings(struct made_step *s, int64_t step, const struct more *m)
{
  (void)step, (void)m;
  for (int r = 0; r < 2; r++) {
    task(s, r, COMPUTE, "forward", 20 + (r == 1 ? 3 : 0), -1);
    meet(s, r, COMPUTE, "allreduce dp", 1, 1, -1);
    task(s, r, COMPUTE, "backward", 40 + (r == 0 ? 2 : 0), -1);
    meet(s, r, COMPUTE, "allreduce dp", 2, 1, -1);
    meet(s, r, SCALAR, "allreduce sums", 3, r == 0 ? 0.5 : 2.5, 3);
  }
}
static void a_wait_goes_back_to_the_last_common_meeting(void)
{
  const struct run_config c = config_of(2, 1, 1);
  const struct more none = {.rank = -1};
  make_steps(&made, &c, two_meetings, &none, 0);
  measure();
  /* rank 1 begins 2 ms after rank 0, whose last sum was shorter: rank 0 waits 5 ms, and what lies before the step is nobody's */
  const double waits_ms = 5 + 2;
  CHECK_NEAR(found.parts[0].waiting_ms, 5, 1e-6);
  CHECK_NEAR(found.parts[1].waiting_ms, 2, 1e-6);
  CHECK_NEAR(cost_of(1, GRAPH_FORWARD)->waits, 5 / waits_ms, 1e-6);
  CHECK_NEAR(cost_of(0, GRAPH_BACKWARD)->waits, 2 / waits_ms, 1e-6);
  CHECK(adds_up());
}

/* The end of a step is its last rank's. */
static void the_last_rank_ends_the_step(void)
{
  const struct run_config c = config_of(2, 1, 1);
  const struct more none = {.rank = -1};
  make_steps(&made, &c, two_meetings, &none, 0);
  measure();
  CHECK_NEAR(found.step_ms, 1 + 23 + 1 + 42 + 1 + 2.5, 1e-6);
}

/* What was on its way before the step moves with nothing in it. */
static void what_the_step_before_began_does_not_move(void)
{
  const struct run_config c = config_of(2, 1, 1);
  const struct more slow = {.rank = 1, .forward = 20};
  make_steps(&made, &c, two_replicas, &slow, 0);
  for (int64_t step = 0; step < c.steps; step++)
    for (int r = 0; r < 2; r++) { /* the first bucket */
      const json_t *span = evidence_record(&made.data, "span", r, step, -1);
      json_t *calls = json_object_get(span, "got.call"), *end = json_object_get(span, "got.end_ms");
      for (size_t i = 0; i < json_array_size(calls); i++) {
        if (json_integer_value(json_array_get(calls, i)) != 0) continue;
        json_array_set_new(calls, i, json_integer(-2));
        const double ready_ms = json_number_value(json_array_get(json_object_get(span, "got.ready_ms"), i));
        if (r == 0) json_array_set_new(end, i, json_real(ready_ms + 6)); /* with which rank 0 was through early */
      }
    }
  measure();
  CHECK_NEAR(cost_of(1, GRAPH_FORWARD)->cost_ms, 20 - 6, 1e-6);
}

/* --- two groups: tensor ranks meet after forward, replicas after backward ------------------------------------------ */

static void tensors_and_replicas(struct made_step *s, int64_t step, const struct more *m)
{
  (void)step;
  for (int r = 0; r < 4; r++) { /* tp, then dp: 0 1 | 2 3 */
    task(s, r, COMPUTE, "forward", 20 + extra(m, r, m->forward), -1);
    meet(s, r, COMPUTE, "allreduce tp", 1 + r / 2, 1, -1);
    const int back = task(s, r, COMPUTE, "backward", 40 + extra(m, r, m->backward), -1);
    const int sum = meet(s, r, TRANSFER, "allreduce dp", 3 + r % 2, 2, back);
    const int update = task(s, r, COMPUTE, "optimizer", 5, sum);
    meet(s, r, COMPUTE, "allreduce norm", 5 + r / 2, 1, -1);
    meet(s, r, SCALAR, "allreduce sums", 7 + r % 2, 0.5, update);
  }
}

/* Rank 3 waits for rank 1, which waited for rank 0: rank 0 pays for both. */
static void lateness_is_followed_through_two_groups(void)
{
  const struct run_config c = config_of(2, 2, 1);
  const struct more slow = {.rank = 0, .forward = 20};
  make_steps(&made, &c, tensors_and_replicas, &slow, 0);
  const struct lateness_cost *who = measure();
  if (CHECK(who != NULL)) {
    CHECK(who->rank == 0 && who->phase == GRAPH_FORWARD);
    CHECK_NEAR(who->cost_ms, 20, 1e-6);
    CHECK_NEAR(who->waits, 1, 1e-9);
  }
  CHECK(adds_up());
  for (int r = 1; r < 4; r++) CHECK_NEAR(found.parts[r].waiting_ms, 20, 1e-6);
}

/* Each is charged for what it made last, together all that is lost. */
static void two_slow_phases_share_the_loss(void)
{
  const struct run_config c = config_of(2, 2, 1);
  const struct more both = {.rank = 3, .forward = 8, .backward = 10};
  make_steps(&made, &c, tensors_and_replicas, &both, 0);
  measure();
  CHECK(adds_up());
  CHECK_NEAR(found.lost_ms, 18, 1e-6);
  CHECK_NEAR(cost_of(3, GRAPH_FORWARD)->charge_ms, 8, 1e-6);
  CHECK_NEAR(cost_of(3, GRAPH_BACKWARD)->charge_ms, 10, 1e-6);
}

/* --- who takes part: members of groups are found from the layout alone ------------------------------------------------- */

/* Four replicas share in twos, and each of two is a replica of another. */
static void pairs_that_share(struct made_step *s, int64_t step, const struct more *m)
{
  (void)step, (void)m;
  for (int r = 0; r < 4; r++) {
    const int back = task(s, r, COMPUTE, "backward", 10, -1);
    const int part = meet(s, r, TRANSFER, "reduce_scatter dp", 1 + r / 2, 1, back);
    meet(s, r, TRANSFER, "allreduce replicas", 3 + r % 2, 1, part);
    meet(s, r, SCALAR, "allreduce sums", 5, 1, back);
  }
}
/* Three stages in a row, each sends on what it got. */
static void a_row_of_stages(struct made_step *s, int64_t step, const struct more *m)
{
  (void)step, (void)m;
  for (int r = 0; r < 3; r++) {
    const int in = r > 0 ? meet(s, r, OUTPUTS, "recv outputs", r, 1, -1) : -1, out = task(s, r, COMPUTE, "forward", 10, in);
    if (r < 2) meet(s, r, OUTPUTS, "send outputs", r + 1, 1, out);
    meet(s, r, SCALAR, "allreduce sums", 9, 1, out);
  }
}

/* Each group as the ranks in it, "01 23 0123". */
static void groups_of(char *out)
{
  struct graph g;
  *out = '\0';
  if (!CHECK_OK(graph_read(&made.data, 3, &g))) return;
  for (int i = 0; i < g.n_groups; i++) {
    for (int k = 0; k < g.groups[i].n; k++) *out++ = (char)('0' + g.nodes[g.members[g.groups[i].first + k]].rank);
    *out++ = ' ';
  }
  *out = '\0';
  graph_free(&g);
}

static void who_takes_part_follows_from_the_layout(void)
{
  struct run_config shares = config_of(4, 1, 1), row = config_of(1, 1, 3);
  const struct more none = {.rank = -1};
  char groups[128];
  shares.zero = 1;
  shares.shard = 2;
  make_steps(&made, &shares, pairs_that_share, &none, 0);
  groups_of(groups);
  CHECK(strcmp(groups, "01 23 02 13 0123 ") == 0);
  make_steps(&made, &row, a_row_of_stages, &none, 0);
  groups_of(groups);
  CHECK(strcmp(groups, "012 01 12 ") == 0);
}

/* --- two stages, two micro-batches: F0 F1 B0 B1 behind each other's messages ---------------------------------------- */

static void two_stages(struct made_step *s, int64_t step, const struct more *m)
{
  (void)step;
  const double f = 10, b = 20;
  int out[2], in[2], grad[2], back[2];
  for (int i = 0; i < 2; i++) {
    out[i] = task(s, 0, COMPUTE, "forward", f + extra(m, 0, m->forward), -1);
    meet(s, 0, OUTPUTS, "send outputs", 1 + i, 0.5, out[i]);
  }
  for (int i = 0; i < 2; i++) in[i] = meet(s, 1, OUTPUTS, "recv outputs", 1 + i, 0.5, -1);
  for (int i = 0; i < 2; i++) {
    task(s, 1, COMPUTE, "forward", f + extra(m, 1, m->forward), in[i]);
    back[i] = task(s, 1, COMPUTE, "backward", b + extra(m, 1, m->backward), -1);
    meet(s, 1, INPUT_GRADIENTS, "send gradients", 3 + i, 0.5, back[i]);
  }
  for (int i = 0; i < 2; i++) grad[i] = meet(s, 0, INPUT_GRADIENTS, "recv gradients", 3 + i, 0.5, -1);
  for (int i = 0; i < 2; i++) task(s, 0, COMPUTE, "backward", b + extra(m, 0, m->backward), grad[i]);
  for (int r = 0; r < 2; r++) {
    meet(s, r, COMPUTE, "allreduce norm", 5, 0.5, -1);
    const int update = task(s, r, COMPUTE, "optimizer", 5, -1);
    meet(s, r, SCALAR, "allreduce sums", 6, 0.5, update);
  }
}

static void a_pipelines_own_waits_are_its_bubble(void)
{
  struct run_config c = config_of(1, 1, 2);
  const struct more none = {.rank = -1}, slow = {.rank = 1, .forward = 6};
  c.global_batch = 2;
  make_steps(&made, &c, two_stages, &none, 0);
  CHECK(measure() == NULL);
  CHECK(adds_up() && found.modelled);
  for (int r = 0; r < 2; r++) CHECK(found.parts[r].bubble_ms > 10 && found.parts[r].waiting_ms < 1e-9);
  const double even_ms = found.step_ms, own_ms = found.parts[0].bubble_ms;
  make_steps(&made, &c, two_stages, &slow, 0);
  const struct lateness_cost *who = measure();
  if (CHECK(who != NULL)) {
    CHECK(who->rank == 1 && who->phase == GRAPH_FORWARD);
    CHECK_NEAR(who->cost_ms, found.step_ms - even_ms, 1e-6);
  }
  CHECK_NEAR(found.parts[0].bubble_ms, own_ms, 1e-6);
  CHECK_NEAR(found.parts[0].waiting_ms, who ? who->cost_ms : 0, 1e-6);
  CHECK(adds_up());
}

/* The second message takes 25 ms, beside the first micro-batch's passes that rank 1 is slow in; sooner needed it would take 0.5. */
static void one_lazy_message(struct made_step *s, int64_t step, const struct more *m)
{
  two_stages(s, step, m);
  for (int r = 0; r < 2; r++)
    for (int t = 0; t < s->n[r]; t++)
      if (s->tasks[r][t].meet == 2) s->tasks[r][t].ms = 25;
}
static void a_transfer_that_nobody_waits_for_may_take_its_time(void)
{
  struct run_config c = config_of(1, 1, 2);
  const struct more slow = {.rank = 1, .forward = 6};
  c.global_batch = 2;
  make_steps(&made, &c, two_stages, &slow, 0);
  measure();
  const double step_ms = found.step_ms, cost_ms = cost_of(1, GRAPH_FORWARD)->cost_ms;
  make_steps(&made, &c, one_lazy_message, &slow, 0);
  measure();
  CHECK_NEAR(found.step_ms, step_ms, 1e-6);
  CHECK_NEAR(cost_of(1, GRAPH_FORWARD)->cost_ms, cost_ms, 1e-6);
  CHECK(adds_up());
}

/* The stages have 3 and 1 layers: what is longer by as much is no lateness. */
static void stages_are_compared_by_their_layers(void)
{
  struct run_config c = config_of(1, 1, 2);
  const struct more none = {.rank = -1}, deep = {.rank = 0, .forward = 20, .backward = 40};
  c.global_batch = 2;
  make_steps(&made, &c, two_stages, &none, 0);
  snprintf(c.stages, sizeof c.stages, "3,1");
  make_steps(&made, &c, two_stages, &deep, 0);
  CHECK(measure() == NULL);
  CHECK(found.lost_ms < 1e-6);
}

/* --- what cannot be judged ---------------------------------------------------------------------------------------- */

static void one_rank_has_nobody_to_blame(void)
{
  const struct run_config c = config_of(1, 1, 1);
  const struct more none = {.rank = -1};
  make_steps(&made, &c, two_replicas, &none, 0);
  for (size_t i = 0; i < json_array_size(made.records);) /* only rank 0's */
    if (record_get_int(json_array_get(made.records, i), "rank", -1) != 0) json_array_remove(made.records, i);
    else i++;
  CHECK(measure() == NULL);
  CHECK(found.ranks == 1 && found.lost_ms == 0 && found.parts[0].waiting_ms == 0);
}

static json_t *record_of(const char *kind, int64_t rank, int64_t step)
{
  return (json_t *)(uintptr_t)evidence_record(&made.data, kind, rank, step, -1);
}

static void drift_between_clocks_is_taken_out(void)
{
  const struct run_config c = config_of(2, 1, 1);
  const struct more slow = {.rank = 1, .forward = 12};
  make_steps(&made, &c, two_replicas, &slow, 20); /* ms a second */
  const struct lateness_cost *who = measure();
  if (CHECK(who != NULL)) CHECK(who->rank == 1 && who->phase == GRAPH_FORWARD && fabs(who->cost_ms - 12) < 0.5);
}

static void clocks_that_may_be_off_decide_nothing(void)
{
  const struct run_config c = config_of(2, 1, 1);
  const struct more slow = {.rank = 1, .forward = 12};
  char why[300];
  make_steps(&made, &c, two_replicas, &slow, 0);
  json_object_set_new(record_of("clock", 1, -1), "got.error_ms", json_real(1.3));
  measure();
  CHECK(!lateness_able(&made.data, &found, why, sizeof why) && strstr(why, "clocks may be 1.3 ms off, more than a tenth of the 12 ms"));
  json_object_set_new(record_of("clock", 1, -1), "got.error_ms", json_real(1.1));
  measure();
  CHECK(lateness_able(&made.data, &found, why, sizeof why));
}

/* Rank 1's pieces begin 10 ms after all that they waited for. */
static void a_step_that_nothing_explains_decides_nothing(void)
{
  const struct run_config c = config_of(2, 1, 1);
  const struct more none = {.rank = -1};
  char why[300];
  make_steps(&made, &c, two_replicas, &none, 0);
  for (int r = 0; r < 2; r++)
    for (int64_t step = 0; step < c.steps; step++) {
      json_t *ready = json_object_get(record_of("span", r, step), "got.ready_ms");
      const double forward_ms = json_number_value(json_array_get(ready, 3));
      json_array_set_new(ready, 3, json_real(forward_ms + 10));
    }
  measure();
  CHECK(!lateness_able(&made.data, &found, why, sizeof why) && strstr(why, "in no work and no transfer"));
  CHECK_NEAR(found.parts[0].other_ms, 10, 1e-6);
}

static void missing_or_contradicting_records_are_errors(void)
{
  const struct run_config c = config_of(2, 1, 1);
  const struct more none = {.rank = -1};
  lateness_free(&found);
  make_steps(&made, &c, two_replicas, &none, 0);
  json_object_set_new(record_of("span", 1, 7), "kind", json_string("other"));
  CHECK_ERR(lateness_measure(&made.data, &found), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "rank 1 told no spans of step 7");
  make_steps(&made, &c, two_replicas, &none, 0);
  json_array_set_new(json_object_get(record_of("trace", 1, 5), "got.calls"), 0, json_string("509 allreduce dp x float32 1 4 0"));
  CHECK_ERR(lateness_measure(&made.data, &found), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "1 of 2 ranks told of call");
  make_steps(&made, &c, two_replicas, &none, 0);
  json_array_set_new(json_object_get(record_of("trace", 0, 5), "got.calls"), 0, json_string("509 allreduce pals x float32 1 4 0"));
  CHECK_ERR(lateness_measure(&made.data, &found), ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "group 'pals'");
  make_steps(&made, &c, two_replicas, &none, 0);
  made_edge(record_of("span", 0, 5), 3, 5); /* forward after what comes after it */
  CHECK_ERR(lateness_measure(&made.data, &found), ERR_FORMAT);
  CHECK_TEXT_HAS(err_text(), "in a circle");
  struct run_config few = c;
  few.steps = 7;
  make_steps(&made, &few, two_replicas, &none, 0);
  CHECK_ERR(lateness_measure(&made.data, &found), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "5 steps count after the warm-up");
}

/* A message that was gone before its receiver asked holds its sender up no more than it took. */
static void two_stages_in_haste(struct made_step *s, int64_t step, const struct more *m)
{
  (void)step, (void)m;
  const int out = task(s, 0, COMPUTE, "forward", 10, -1), send = meet(s, 0, OUTPUTS, "send outputs", 1, 0.5, out);
  const int busy = task(s, 1, COMPUTE, "forward", 50, -1), recv = meet(s, 1, OUTPUTS, "recv outputs", 1, 0.5, busy);
  s->tasks[0][send].leaves = true;
  task(s, 0, COMPUTE, "backward", 20, send);
  task(s, 1, COMPUTE, "backward", 20, recv);
  for (int r = 0; r < 2; r++) meet(s, r, COMPUTE, "allreduce norm", 2, 0.5, -1);
}
static void a_sender_that_left_waits_for_nobody(void)
{
  struct run_config c = config_of(1, 1, 2);
  const struct more none = {.rank = -1};
  struct graph g;
  make_steps(&made, &c, two_stages_in_haste, &none, 0);
  if (!CHECK_OK(graph_read(&made.data, 3, &g))) return;
  int left = 0, waiting = 0;
  for (int i = 0; i < g.n; i++)
    if (g.nodes[i].group >= 0) left += !g.nodes[i].waits, waiting += g.nodes[i].waits;
  CHECK(left == 1 && waiting == 3);
  graph_free(&g);
  measure();
  CHECK_NEAR(found.parts[0].waiting_ms + found.parts[0].bubble_ms, 40, 1e-6); /* of the norm alone */
  CHECK(adds_up());
}

/* --- the check beside what was planted ------------------------------------------------------------------------------ */

static enum outcome outcome_of(struct verdict *v)
{
  blame_judge(&made.data, NULL, NULL, 0, v);
  json_decref(v->details);
  v->details = NULL;
  return v->outcome;
}

/* What the run was asked for, and what happened in it. */
static enum outcome judged(int64_t rank, enum slow_phase phase, double asked_ms, struct more more, struct verdict *v)
{
  struct run_config c = config_of(2, 1, 1);
  c.slow_rank = rank;
  c.slow_phase = phase;
  c.slow_ms = asked_ms;
  make_steps(&made, &c, two_replicas, &more, 0);
  return outcome_of(v);
}

static void the_check_holds_names_and_costs_against_what_was_planted(void)
{
  const struct more slow = {.rank = 1, .forward = 12}, none = {.rank = -1}, little = {.rank = 1, .forward = 1};
  struct verdict v;
  CHECK(judged(1, SLOW_FORWARD, 12, slow, &v) == OUTCOME_PASS);
  CHECK_TEXT_HAS(v.sentence, "planted: 12 ms");
  CHECK(judged(1, SLOW_FORWARD, 14.9, slow, &v) == OUTCOME_PASS);
  CHECK(judged(1, SLOW_FORWARD, 15.1, slow, &v) == OUTCOME_FAIL);
  CHECK_TEXT_HAS(v.sentence, "off, at most 20 %");
  CHECK(judged(0, SLOW_FORWARD, 12, slow, &v) == OUTCOME_FAIL);
  CHECK_TEXT_HAS(v.sentence, "but rank 0's forward was made slower");
  CHECK(judged(1, SLOW_BACKWARD, 12, slow, &v) == OUTCOME_FAIL);
  CHECK(judged(1, SLOW_FORWARD, 12, none, &v) == OUTCOME_FAIL);
  CHECK_TEXT_HAS(v.sentence, "nobody is named");
  CHECK(judged(1, SLOW_FORWARD, 1, little, &v) == OUTCOME_INCONCLUSIVE);
  CHECK(judged(1, SLOW_FORWARD, 0, slow, &v) == OUTCOME_FAIL);
  CHECK_TEXT_HAS(v.sentence, "nothing was planted, but rank 1");
  CHECK(judged(1, SLOW_FORWARD, 0, none, &v) == OUTCOME_PASS);
  CHECK_TEXT_HAS(v.sentence, "nobody is to blame");
}

/* Real compute that varies, and rank 1's forward slower by so much a step, as was asked. */
static void make_restless(double slow_ms)
{
  struct run_config c = config_of(2, 1, 1);
  const struct more slow = {.rank = 1, .forward = slow_ms};
  c.steps = 19;
  c.slow_rank = 1;
  c.slow_phase = SLOW_FORWARD;
  c.slow_ms = slow_ms;
  c.compute = COMPUTE_REAL;
  make_steps(&made, &c, two_restless_replicas, &slow, 0);
}

/* With work that varies the interval is wide: a cost that may be right is no failure. */
static void a_cost_that_may_be_right_does_not_fail(void)
{
  struct verdict v;
  make_restless(15);
  measure();
  const struct lateness_cost *who = cost_of(1, GRAPH_FORWARD);
  const double cost_ms = who->cost_ms, high_ms = who->high_ms, low_ms = who->low_ms;
  CHECK(outcome_of(&v) == OUTCOME_PASS);
  made.data.config.slow_ms = cost_ms / 0.79;
  CHECK(high_ms > cost_ms * 1.02 && outcome_of(&v) == OUTCOME_INCONCLUSIVE);
  made.data.config.slow_ms = high_ms / 0.79;
  CHECK(outcome_of(&v) == OUTCOME_FAIL);
  made.data.config.slow_ms = cost_ms / 1.21;
  CHECK(low_ms < cost_ms * 0.98 && outcome_of(&v) == OUTCOME_INCONCLUSIVE);
  made.data.config.slow_ms = low_ms / 1.21;
  CHECK(outcome_of(&v) == OUTCOME_FAIL);
}

/* Nor one that could be nothing: its rank is not named, and the planted cost lies in its interval. */
static void a_cost_that_may_be_nothing_does_not_fail(void)
{
  struct verdict v;
  make_restless(5);
  CHECK(measure() == NULL);
  const double high_ms = found.costs[0].high_ms;
  CHECK(found.costs[0].rank == 1 && found.costs[0].phase == GRAPH_FORWARD && high_ms > 0.09 * found.step_ms);
  made.data.config.slow_ms = high_ms / 0.82;
  CHECK(outcome_of(&v) == OUTCOME_INCONCLUSIVE);
  CHECK_TEXT_HAS(v.sentence, "nobody is named");
  made.data.config.slow_rank = 0;
  CHECK(outcome_of(&v) == OUTCOME_FAIL);
  made.data.config.slow_rank = 1;
  made.data.config.slow_ms = high_ms / 0.79;
  CHECK(outcome_of(&v) == OUTCOME_FAIL);
}

static void the_check_wants_the_right_period(void)
{
  struct run_config c = config_of(2, 1, 1);
  const struct more stalls = {.rank = 0, .between = 60, .pauses = 1 << 1 | 1 << 4 | 1 << 7 | 1 << 10 | 1 << 13};
  struct verdict v;
  c.slow_ms = 60;
  c.slow_phase = SLOW_LOG;
  c.slow_every = 3;
  make_steps(&made, &c, two_replicas, &stalls, 0);
  CHECK(outcome_of(&v) == OUTCOME_PASS);
  c.slow_ms = 80;
  c.slow_every = 4;
  make_steps(&made, &c, two_replicas, &stalls, 0);
  CHECK(outcome_of(&v) == OUTCOME_FAIL);
  CHECK_TEXT_HAS(v.sentence, "planted was a stall every 4 steps");
}

/* Forward sleeps 30 ms longer than it was asked to, on both ranks: what is found then says nothing against the trainer. */
static void on_a_busy_machine_nothing_fails(void)
{
  struct run_config c = config_of(2, 1, 1);
  const struct more slow = {.rank = 1, .forward = 12};
  struct verdict v;
  c.global_batch = 2;
  c.sleep_forward_ms = 1;
  make_steps(&made, &c, two_replicas, &slow, 0);
  CHECK(outcome_of(&v) == OUTCOME_INCONCLUSIVE);
  CHECK_TEXT_HAS(v.sentence, "the machine had other things to do");
}

static void every_allocation_may_fail(void)
{
  const struct run_config c = config_of(2, 1, 1);
  const struct more slow = {.rank = 1, .forward = 12};
  bool failed = true;
  make_steps(&made, &c, two_replicas, &slow, 0);
  lateness_free(&found);
  for (long n = 1; failed && n < 2000; n++) {
    check_fail_allocation(n);
    const enum err err = lateness_measure(&made.data, &found);
    failed = check_allocation_failed();
    check_fail_allocation(0);
    CHECK(failed ? err == ERR_MEMORY && found.costs == NULL : err == ERR_OK);
    lateness_free(&found);
  }
  CHECK(!failed);
}

static void records_that_lack_or_contradict_are_told_apart(void)
{
  const struct run_config c = config_of(2, 1, 1);
  const struct more none = {.rank = -1};
  struct verdict v;
  make_steps(&made, &c, two_replicas, &none, 0);
  made_edge(record_of("span", 0, 5), 3, 5);
  CHECK(outcome_of(&v) == OUTCOME_FAIL);
  json_object_set_new(record_of("span", 1, 4), "kind", json_string("other"));
  CHECK(outcome_of(&v) == OUTCOME_INVALID);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(equal_ranks_are_not_blamed),
    TEST(the_slow_rank_is_named_with_its_phase_and_cost),
    TEST(a_slow_transfer_beside_compute_costs_nothing),
    TEST(a_sentence_says_who_and_how_much),
    TEST(stalls_are_named_by_their_period),
    TEST(who_is_late_by_chance_is_not_blamed),
    TEST(a_wait_goes_back_to_the_last_common_meeting),
    TEST(the_last_rank_ends_the_step),
    TEST(what_the_step_before_began_does_not_move),
    TEST(lateness_is_followed_through_two_groups),
    TEST(who_takes_part_follows_from_the_layout),
    TEST(two_slow_phases_share_the_loss),
    TEST(a_pipelines_own_waits_are_its_bubble),
    TEST(a_transfer_that_nobody_waits_for_may_take_its_time),
    TEST(stages_are_compared_by_their_layers),
    TEST(one_rank_has_nobody_to_blame),
    TEST(drift_between_clocks_is_taken_out),
    TEST(clocks_that_may_be_off_decide_nothing),
    TEST(a_step_that_nothing_explains_decides_nothing),
    TEST(missing_or_contradicting_records_are_errors),
    TEST(a_sender_that_left_waits_for_nobody),
    TEST(the_check_holds_names_and_costs_against_what_was_planted),
    TEST(a_cost_that_may_be_right_does_not_fail),
    TEST(a_cost_that_may_be_nothing_does_not_fail),
    TEST(the_check_wants_the_right_period),
    TEST(on_a_busy_machine_nothing_fails),
    TEST(every_allocation_may_fail),
    TEST(records_that_lack_or_contradict_are_told_apart),
  };
  return test_main("lateness", tests, sizeof tests / sizeof *tests);
}
