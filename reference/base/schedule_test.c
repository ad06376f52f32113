/* schedule_test.c - lists of passes, their places, and their times against published formulas. */
#include "base/rng.h"
#include "base/schedule.h"
#include "testing/check.h"

#include <stdio.h>
#include <string.h>

static struct schedule *schedule_of(enum schedule_kind kind, int p, int m, int v)
{
  struct schedule *s = NULL;
  CHECK_OK(schedule_create(kind, p, m, v, &s));
  return s;
}

/* Every kind that trains, p 1..8, m 1..24, v 2..4 with chunks (else 1), as far as they are valid. */
#define EACH_SCHEDULE(s)                                                                      \
  for (int k_ = 0; k_ < SCHEDULE_FORWARD; k_++)                                               \
    for (int c_ = k_ == SCHEDULE_INTERLEAVED, v_ = 1 + c_; v_ <= (c_ ? 4 : 1); v_++)          \
      for (int p_ = 1 + c_; p_ <= 8; p_++)                                                    \
        for (int m_ = c_ ? p_ : 1; m_ <= 24; m_ += c_ ? p_ : 1)                               \
          for (struct schedule *s = schedule_of((enum schedule_kind)k_, p_, m_, v_); s != NULL; schedule_destroy(s), s = NULL)

/* --- the formulas, once more and as their sources print them ---------------------- */

/* Narayanan et al. 2021, sec. 2.2; Qi et al. 2023, table 2.  Of one rank: f, b, w of a micro-batch. */
static double bubble_time(const struct schedule *s, double f, double b, double w)
{
  const double p = s->p;
  switch (s->kind) {
  case SCHEDULE_INTERLEAVED: return (p - 1) * (f + (b + w)) / s->v;
  case SCHEDULE_ZB_H1: return (p - 1) * (f + b - w);
  default: return (p - 1) * (f + (b + w));
  }
}

static double bubble_of_ideal(const struct schedule *s)
{
  const double p = s->p, m = s->m, v = s->v;
  return s->kind == SCHEDULE_INTERLEAVED ? (p - 1) / (v * m) : s->kind == SCHEDULE_ZB_H1 ? (p - 1) / (3 * m) : (p - 1) / m;
}

/* In units of one chunk's activations.  Stage i = s + 1 of Qi et al. holds (p - i + 1) MB + (i - 1) MW; the
 * first of interleaved ones v (1 + (p-1)/(p v)) of p each (Korthikanti et al. 2022); each later stage runs two
 * forwards fewer before its first backward. */
static int live(const struct schedule *s, int stage)
{
  switch (s->kind) {
  case SCHEDULE_GPIPE: return s->m;
  case SCHEDULE_INTERLEAVED: return s->p * s->v + (s->p - 1) - 2 * stage;
  default: return s->p - stage;
  }
}

static void bubbles_equal_their_formulas(void)
{
  EACH_SCHEDULE(s)
  {
    struct schedule_facts facts;
    if (!CHECK_OK(schedule_verify(s, &facts))) continue;
    const double want = bubble_of_ideal(s);
    CHECK_NEAR(schedule_bubble_of_ideal(s->kind, s->p, s->m, s->v), want, 1e-15);
    CHECK_NEAR(schedule_bubble_of_total(s->kind, s->p, s->m, s->v), want / (1 + want), 1e-15);
    if (s->kind == SCHEDULE_ZB_H1 && s->m < s->p) continue; /* the source assumes m >= p */
    CHECK(facts.ideal == 3.0 * s->m * s->v);
    CHECK(facts.total - facts.ideal == bubble_time(s, s->v, s->v, s->v));
    CHECK_NEAR(facts.bubble_of_ideal, want, 1e-15);
    CHECK_NEAR(facts.bubble_of_total, want / (1 + want), 1e-15);
  }
}

static void both_bases_are_those_of_their_names(void)
{
  CHECK_NEAR(schedule_bubble_of_ideal(SCHEDULE_1F1B, 4, 6, 1), 3.0 / 6, 1e-15);
  CHECK_NEAR(schedule_bubble_of_total(SCHEDULE_1F1B, 4, 6, 1), 3.0 / (6 + 3), 1e-15);
  CHECK_NEAR(schedule_bubble_of_total(SCHEDULE_GPIPE, 8, 1, 1), 7.0 / 8, 1e-15);
  CHECK_NEAR(schedule_bubble_of_ideal(SCHEDULE_INTERLEAVED, 4, 8, 2), 3.0 / 16, 1e-15);
  CHECK_NEAR(schedule_bubble_of_ideal(SCHEDULE_ZB_H1, 4, 8, 1), 3.0 / 24, 1e-15);
  CHECK_NEAR(schedule_bubble_of_ideal(SCHEDULE_FORWARD, 4, 8, 2), 3.0 / 16, 1e-15);
}

static void live_activations_equal_their_formulas(void)
{
  EACH_SCHEDULE(s)
  {
    struct schedule_facts facts;
    if (s->m < (s->v > 1 ? 2 : 1) * s->p || !CHECK_OK(schedule_verify(s, &facts))) continue;
    for (int stage = 0; stage < s->p; stage++) {
      const int pending = s->kind == SCHEDULE_ZB_H1 ? stage : 0;
      CHECK(facts.live[stage] == live(s, stage));
      CHECK(facts.pending[stage] == pending);
      CHECK(schedule_live(s->kind, s->p, s->m, s->v, stage) == live(s, stage));
      CHECK(schedule_pending(s->kind, s->p, s->m, s->v, stage) == pending);
      CHECK(schedule_peak(s, stage, 66, 32) == 66 * live(s, stage) + 32 * pending); /* MB and MW of s b h at 5as/h = 32 */
    }
  }
}

/* A whole number in 1..most. */
static double whole(struct rng_key key, uint64_t i, int most) { return 1 + (int)(rng_uniform(key, i) * most); }

static double simulated(const struct schedule *s, double f, double b, double w, double transfer)
{
  double each[3][32];
  for (int k = 0; k < s->p * s->v; k++) {
    each[0][k] = f;
    each[1][k] = b;
    each[2][k] = w;
  }
  const struct schedule_costs costs = {each[0], each[1], each[2], transfer};
  struct schedule_times *times = NULL;
  if (!CHECK_OK(schedule_simulate(s, &costs, &times))) return -1;
  const double total = times->total;
  for (int stage = 0; stage < s->p; stage++) {
    CHECK(times->busy[stage] == s->m * s->v * (f + (s->kind == SCHEDULE_FORWARD ? 0 : b + w)));
    CHECK(times->busy[stage] + times->idle[stage] == total);
  }
  schedule_times_destroy(times);
  return total;
}

static void times_equal_their_formulas_at_any_costs(void)
{
  EACH_SCHEDULE(s)
  for (int round = 0; round < 8; round++) {
    const struct rng_key key = {5, RNG_TEST, (uint32_t)(((s->kind * 10 + s->p) * 100 + s->m) * 10 + s->v)};
    const int most = round < 6 ? 9 : 500; /* all ratios near one, and some far from it */
    const double f = whole(key, 3 * (uint64_t)round, most), b = whole(key, 3 * (uint64_t)round + 1, most);
    double w = whole(key, 3 * (uint64_t)round + 2, most);
    if (s->kind == SCHEDULE_ZB_H1) { /* holds for w <= min(f, b) */
      if (s->m < s->p) break;
      const int least = (int)(f < b ? f : b);
      w = whole(key, 3 * (uint64_t)round + 2, least);
    }
    const double bubble = bubble_time(s, s->v * f, s->v * b, s->v * w);
    CHECK(schedule_bubble_time(s->kind, s->p, s->m, s->v, s->v * f, s->v * b, s->v * w) == bubble);
    CHECK(simulated(s, f, b, w, 0) == s->m * s->v * (f + b + w) + bubble);
  }
}

static void forwards_alone_take_their_time_for_any_number(void)
{
  for (int v = 1; v <= 4; v++)
    for (int p = v > 1 ? 2 : 1; p <= 8; p++)
      for (int m = 1; m <= 24; m++) {
        struct schedule *s = schedule_of(SCHEDULE_FORWARD, p, m, v);
        struct schedule_facts facts;
        if (s == NULL || !CHECK_OK(schedule_verify(s, &facts))) continue;
        if (v == 1 || m % p == 0) {
          CHECK(facts.total == m * v + p - 1);
          CHECK(simulated(s, 7, 100, 100, 0) == 7 * (m * v + p - 1));
          CHECK(schedule_bubble_time(SCHEDULE_FORWARD, p, m, v, 7 * v, 1, 1) == 7 * (p - 1));
        }
        for (int stage = 0; stage < p; stage++) {
          CHECK(facts.live[stage] == 1 && s->slots[stage] == 1);
          CHECK(s->inputs[stage] <= 2 && s->weight_slots[stage] == 0);
        }
        schedule_destroy(s);
      }
}

/* --- the lists -------------------------------------------------------------------- */

/* "F0 F1 B0 ...": passes, with the chunk after a dot where there are several; transfers as < and >. */
static void check_list(const struct schedule *s, int stage, bool transfers, const char *want)
{
  char got[4096] = "";
  for (int i = 0; i < s->n[stage]; i++) {
    const struct schedule_action *a = &s->list[stage][i];
    static const char *const names[PASSES] = {"F", "B", "I", "W", "F>", ">F", "B<", "<B"};
    if (!transfers && schedule_stream_of(a->pass) != SCHEDULE_COMPUTE) continue;
    const size_t used = strlen(got);
    if (s->v > 1)
      snprintf(got + used, sizeof got - used, "%s%s%d.%d", used ? " " : "", names[a->pass], a->microbatch, a->chunk);
    else
      snprintf(got + used, sizeof got - used, "%s%s%d", used ? " " : "", names[a->pass], a->microbatch);
  }
  if (strcmp(got, want) != 0) printf("%s stage %d: %s\n", schedule_name(s->kind), stage, got);
  CHECK(strcmp(got, want) == 0);
}

static void small_lists_are_those_of_the_papers(void)
{
  struct schedule *s = schedule_of(SCHEDULE_GPIPE, 2, 3, 1);
  check_list(s, 0, false, "F0 F1 F2 B0 B1 B2");
  check_list(s, 1, false, "F0 F1 F2 B0 B1 B2");
  schedule_destroy(s);
  s = schedule_of(SCHEDULE_1F1B, 3, 4, 1);
  check_list(s, 0, false, "F0 F1 F2 B0 F3 B1 B2 B3");
  check_list(s, 1, false, "F0 F1 B0 F2 B1 F3 B2 B3");
  check_list(s, 2, false, "F0 B0 F1 B1 F2 B2 F3 B3");
  schedule_destroy(s);
  s = schedule_of(SCHEDULE_INTERLEAVED, 2, 4, 2);
  check_list(s, 0, false, "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  check_list(s, 1, false, "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
  schedule_destroy(s);
  s = schedule_of(SCHEDULE_ZB_H1, 3, 4, 1);
  check_list(s, 0, false, "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  check_list(s, 1, false, "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3");
  check_list(s, 2, false, "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
  schedule_destroy(s);
  s = schedule_of(SCHEDULE_FORWARD, 2, 3, 2);
  check_list(s, 0, false, "F0.0 F1.0 F0.1 F1.1 F2.0 F2.1");
  schedule_destroy(s);
  s = schedule_of(SCHEDULE_1F1B, 1, 2, 1);
  check_list(s, 0, true, "F0 B0 F1 B1");
  schedule_destroy(s);
}

static void transfers_stand_where_they_can_happen(void)
{
  struct schedule *s = schedule_of(SCHEDULE_1F1B, 2, 3, 1);
  check_list(s, 0, true, "F0 F>0 F1 F>1 <B0 B0 F2 <B1 F>2 B1 <B2 B2");
  check_list(s, 1, true, ">F0 F0 >F1 B0 B<0 F1 B1 B<1 >F2 F2 B2 B<2");
  schedule_destroy(s);
}

static void places_are_no_more_than_are_needed(void)
{
  EACH_SCHEDULE(s)
  {
    struct schedule_facts facts;
    if (!CHECK_OK(schedule_verify(s, &facts))) continue;
    for (int stage = 0; stage < s->p; stage++) {
      CHECK(s->slots[stage] == facts.live[stage]);
      CHECK(s->inputs[stage] <= facts.live[stage] + 1);
      if (s->v == 1 && stage == 0) CHECK(s->inputs[stage] == 0);
      CHECK(s->splits == (s->kind == SCHEDULE_ZB_H1));
      if (!s->splits) CHECK(s->weight_slots[stage] == 0);
      if (s->splits && s->m >= s->p) CHECK(s->weight_slots[stage] == s->p); /* live and pending together */
      const int late = s->splits ? (stage + 1 < s->m ? stage + 1 : s->m) : 0; /* one more than are held back */
      CHECK(schedule_pending_places(s, stage) == late);
    }
  }
}

static void uneven_stages_and_messages_take_their_time(void)
{
  struct schedule *s = schedule_of(SCHEDULE_1F1B, 2, 1, 1);
  CHECK(simulated(s, 3, 4, 5, 2) == 2 * (3 + 9) + 2 * 2);
  schedule_destroy(s);
  s = schedule_of(SCHEDULE_1F1B, 2, 3, 1);
  double f[] = {1, 3}, b[] = {1, 4}, w[] = {1, 2};
  const struct schedule_costs costs = {f, b, w, 0};
  struct schedule_times *times = NULL;
  CHECK_OK(schedule_simulate(s, &costs, &times));
  if (times != NULL) {
    CHECK(times->total == 1 + 3 * 9 + 2); /* the slow last stage never waits after its first input */
    CHECK(times->busy[0] == 9 && times->idle[0] == 21 && times->busy[1] == 27 && times->idle[1] == 3);
  }
  schedule_times_destroy(times);
  schedule_destroy(s);
}

static void refused(int kind, int p, int m, int v, const char *says)
{
  struct schedule *s = NULL;
  CHECK_ERR(schedule_create((enum schedule_kind)kind, p, m, v, &s), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), says);
  CHECK(s == NULL);
}

static void impossible_shapes_are_refused(void)
{
  refused(SCHEDULE_INTERLEAVED, 4, 6, 2, "interleaved with 6 micro-batches on 4 ranks; nearest valid: 4, 8");
  refused(SCHEDULE_INTERLEAVED, 4, 3, 2, "nearest valid: 4");
  refused(SCHEDULE_INTERLEAVED, 1, 4, 2, "2 or more of each");
  refused(SCHEDULE_INTERLEAVED, 2, 4, 1, "2 or more of each");
  refused(SCHEDULE_1F1B, 2, 4, 2, "1f1b with 2 chunks; valid: 1");
  refused(SCHEDULE_FORWARD, 1, 4, 2, "2 chunks on one rank");
  refused(SCHEDULE_GPIPE, 0, 4, 1, "valid: 1 or more");
  refused(SCHEDULE_GPIPE, 2, 0, 1, "valid: 1 or more");
  refused(SCHEDULE_GPIPE, 513, 1, 1, "at most 512");
  refused(SCHEDULE_INTERLEAVED, 256, 256, 3, "at most 512");
}

static void each_failed_allocation_is_reported(void)
{
  for (long n = 1;; n++) {
    struct schedule *s = NULL;
    struct schedule_facts facts;
    check_fail_allocation(n);
    enum err e = schedule_create(SCHEDULE_ZB_H1, 3, 4, 1, &s);
    if (!e) e = schedule_verify(s, &facts);
    const bool failed = check_allocation_failed();
    check_fail_allocation(0);
    CHECK(failed == (e == ERR_MEMORY));
    schedule_destroy(s);
    if (!failed) break;
  }
  schedule_destroy(NULL);
  schedule_times_destroy(NULL);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(bubbles_equal_their_formulas),
    TEST(both_bases_are_those_of_their_names),
    TEST(live_activations_equal_their_formulas),
    TEST(times_equal_their_formulas_at_any_costs),
    TEST(forwards_alone_take_their_time_for_any_number),
    TEST(small_lists_are_those_of_the_papers),
    TEST(transfers_stand_where_they_can_happen),
    TEST(places_are_no_more_than_are_needed),
    TEST(uneven_stages_and_messages_take_their_time),
    TEST(impossible_shapes_are_refused),
    TEST(each_failed_allocation_is_reported),
  };
  return test_main("schedule", tests, sizeof tests / sizeof *tests);
}
