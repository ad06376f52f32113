/* schedule_verify_test.c - lists with one thing wrong, each refused with its reason. */
#include "base/schedule.h"
#include "testing/check.h"

#include <string.h>

static struct schedule *schedule_of(enum schedule_kind kind, int p, int m, int v)
{
  struct schedule *s = NULL;
  CHECK_OK(schedule_create(kind, p, m, v, &s));
  return s;
}

static struct schedule_action *find(struct schedule *s, int stage, enum pass pass, int microbatch, int chunk)
{
  for (int i = 0; i < s->n[stage]; i++) {
    struct schedule_action *a = &s->list[stage][i];
    if (a->pass == pass && a->microbatch == microbatch && a->chunk == chunk) return a;
  }
  CHECK(!"no such action");
  return &s->list[stage][0];
}

static void swap(struct schedule_action *a, struct schedule_action *b)
{
  const struct schedule_action kept = *a;
  *a = *b;
  *b = kept;
}

static void leave_out(struct schedule *s, int stage, const struct schedule_action *a)
{
  const int i = (int)(a - s->list[stage]);
  memmove(&s->list[stage][i], &s->list[stage][i + 1], (size_t)(s->n[stage] - i - 1) * sizeof *a);
  s->n[stage]--;
}

static void refused(struct schedule *s, const char *says)
{
  struct schedule_facts facts;
  CHECK_ERR(schedule_verify(s, &facts), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), says);
  schedule_destroy(s);
}

static void missing_actions_are_named(void)
{
  struct schedule *s = schedule_of(SCHEDULE_1F1B, 2, 3, 1);
  leave_out(s, 1, find(s, 1, PASS_BACKWARD, 2, 0));
  refused(s, "schedule 1f1b: stage 1: send-gradient of micro-batch 2 in chunk 0 comes before the B of micro-batch 2");
  s = schedule_of(SCHEDULE_1F1B, 2, 3, 1);
  leave_out(s, 0, find(s, 0, PASS_BACKWARD, 2, 0));
  refused(s, "stage 0: B of micro-batch 2 in chunk 0 is missing");
  s = schedule_of(SCHEDULE_ZB_H1, 3, 4, 1);
  leave_out(s, 1, find(s, 1, PASS_BACKWARD_WEIGHT, 3, 0));
  refused(s, "stage 1: W of micro-batch 3 in chunk 0 is missing");
  s = schedule_of(SCHEDULE_1F1B, 2, 3, 1);
  leave_out(s, 0, find(s, 0, PASS_SEND_OUTPUT, 1, 0));
  refused(s, "recv-gradient of micro-batch 1 in chunk 0 comes before the send-output of micro-batch 1");
  s = schedule_of(SCHEDULE_FORWARD, 2, 3, 1);
  leave_out(s, 0, find(s, 0, PASS_SEND_OUTPUT, 2, 0));
  refused(s, "stage 0: send-output of micro-batch 2 in chunk 0 is missing");
  s = schedule_of(SCHEDULE_FORWARD, 2, 3, 1);
  leave_out(s, 1, find(s, 1, PASS_FORWARD, 2, 0));
  refused(s, "stage 1: F of micro-batch 2 in chunk 0 is missing");
}

static void what_is_too_much_is_named(void)
{
  struct schedule *s = schedule_of(SCHEDULE_1F1B, 1, 2, 1);
  *find(s, 0, PASS_BACKWARD, 1, 0) = *find(s, 0, PASS_BACKWARD, 0, 0);
  refused(s, "B of micro-batch 0 in chunk 0 is there twice");
  s = schedule_of(SCHEDULE_1F1B, 1, 2, 1);
  find(s, 0, PASS_BACKWARD, 1, 0)->pass = PASS_BACKWARD_INPUT;
  refused(s, "I of micro-batch 1 in chunk 0 does not belong here");
  s = schedule_of(SCHEDULE_1F1B, 2, 2, 1);
  find(s, 0, PASS_SEND_OUTPUT, 1, 0)->peer = 0;
  refused(s, "send-output of micro-batch 1 in chunk 0 has the wrong peer");
  s = schedule_of(SCHEDULE_1F1B, 1, 2, 1);
  find(s, 0, PASS_FORWARD, 1, 0)->microbatch = 2;
  refused(s, "action 2 is pass 0 of micro-batch 2 in chunk 0");
}

static void wrong_order_is_named(void)
{
  struct schedule *s = schedule_of(SCHEDULE_1F1B, 1, 2, 1);
  swap(&s->list[0][0], &s->list[0][1]);
  refused(s, "stage 0: B of micro-batch 0 in chunk 0 comes before what it needs");
  s = schedule_of(SCHEDULE_ZB_H1, 1, 2, 1);
  swap(find(s, 0, PASS_BACKWARD_INPUT, 1, 0), find(s, 0, PASS_BACKWARD_WEIGHT, 1, 0));
  refused(s, "W of micro-batch 1 in chunk 0 comes before what it needs");
  s = schedule_of(SCHEDULE_GPIPE, 1, 3, 1);
  swap(find(s, 0, PASS_BACKWARD, 1, 0), find(s, 0, PASS_BACKWARD, 2, 0));
  refused(s, "B of micro-batch 2 in chunk 0 is not in micro-batch order");
  s = schedule_of(SCHEDULE_ZB_H1, 3, 4, 1);
  swap(find(s, 2, PASS_BACKWARD_WEIGHT, 2, 0), find(s, 2, PASS_BACKWARD_WEIGHT, 3, 0));
  refused(s, "W of micro-batch 3 in chunk 0 is not in micro-batch order");
  s = schedule_of(SCHEDULE_1F1B, 2, 2, 1);
  swap(find(s, 1, PASS_RECV_INPUT, 0, 0), find(s, 1, PASS_FORWARD, 0, 0));
  refused(s, "stage 1: F of micro-batch 0 in chunk 0 comes before the recv-input of micro-batch 0 in chunk 0");
}

static void shared_places_are_named(void)
{
  struct schedule *s = schedule_of(SCHEDULE_GPIPE, 1, 2, 1);
  find(s, 0, PASS_FORWARD, 1, 0)->slot = 0;
  refused(s, "F of micro-batch 1 in chunk 0 has a place that another one holds");
  s = schedule_of(SCHEDULE_1F1B, 2, 3, 1);
  find(s, 1, PASS_RECV_INPUT, 1, 0)->input = 0;
  refused(s, "recv-input of micro-batch 1 in chunk 0 comes before the send-gradient of micro-batch 0 in chunk 0");
  s = schedule_of(SCHEDULE_ZB_H1, 2, 3, 1);
  find(s, 1, PASS_FORWARD, 1, 0)->weight_slot = 0;
  refused(s, "F of micro-batch 1 in chunk 0 has a place that another one holds");
  s = schedule_of(SCHEDULE_GPIPE, 2, 2, 1);
  find(s, 1, PASS_FORWARD, 1, 0)->input = 0;
  refused(s, "F of micro-batch 1 in chunk 0 has a place that another one holds");
  s = schedule_of(SCHEDULE_GPIPE, 2, 2, 1);
  find(s, 1, PASS_BACKWARD, 1, 0)->slot = 0;
  refused(s, "B of micro-batch 1 in chunk 0 has a place that another one holds");
  s = schedule_of(SCHEDULE_ZB_H1, 2, 3, 1);
  find(s, 1, PASS_BACKWARD_WEIGHT, 1, 0)->weight_slot = 0;
  refused(s, "W of micro-batch 1 in chunk 0 has a place that another one holds");
  s = schedule_of(SCHEDULE_GPIPE, 1, 2, 1);
  find(s, 0, PASS_FORWARD, 1, 0)->slot = 2;
  refused(s, "F of micro-batch 1 in chunk 0 has slot 2, weight slot -1, input -1");
  s = schedule_of(SCHEDULE_ZB_H1, 2, 3, 1);
  find(s, 1, PASS_BACKWARD_WEIGHT, 1, 0)->weight_slot = s->weight_slots[1];
  refused(s, "W of micro-batch 1 in chunk 0 has slot 0, weight slot 2, input 1");
  s = schedule_of(SCHEDULE_ZB_H1, 2, 3, 1);
  find(s, 0, PASS_FORWARD, 1, 0)->weight_slot = -1;
  refused(s, "F of micro-batch 1 in chunk 0 has slot 1, weight slot -1, input -1");
  s = schedule_of(SCHEDULE_1F1B, 2, 3, 1);
  find(s, 1, PASS_FORWARD, 1, 0)->input = s->inputs[1];
  refused(s, "F of micro-batch 1 in chunk 0 has slot 0, weight slot -1, input 2");
  s = schedule_of(SCHEDULE_1F1B, 2, 3, 1);
  find(s, 0, PASS_FORWARD, 1, 0)->input = 0;
  refused(s, "F of micro-batch 1 in chunk 0 has slot 1, weight slot -1, input 0");
}

/* Each rank's order is one that it can run by itself; together they wait for each other. */
static void crossed_sends_deadlock(void)
{
  struct schedule *s = schedule_of(SCHEDULE_INTERLEAVED, 2, 2, 2);
  /* stage 1 sends micro-batch 0 before it receives 1; stage 0 is made to send 1 before it receives 0 */
  struct schedule_action *recv = find(s, 0, PASS_RECV_INPUT, 0, 1), *send = find(s, 0, PASS_SEND_OUTPUT, 1, 0);
  CHECK(send - recv == 1);
  CHECK(find(s, 1, PASS_SEND_OUTPUT, 0, 0) < find(s, 1, PASS_RECV_INPUT, 1, 0));
  swap(send, recv);
  refused(s, "deadlock with rendezvous sends (pass, micro-batch, chunk): stage 0 at F 0 1, stage 0 at send-output 1 0");
}

/* Both ends of each transfer are there, in orders that do not fit. */
static void what_arrives_as_another_is_named(void)
{
  struct schedule *s = schedule_of(SCHEDULE_GPIPE, 2, 3, 1);
  swap(find(s, 1, PASS_RECV_INPUT, 1, 0), find(s, 1, PASS_RECV_INPUT, 2, 0));
  swap(find(s, 1, PASS_FORWARD, 1, 0), find(s, 1, PASS_FORWARD, 2, 0));
  refused(s, "stage 0 sends micro-batch 1 of chunk 0 by send-output, stage 1 receives it as micro-batch 2 of chunk 0");
}

static void waits_are_all_that_the_rules_say(void)
{
  struct schedule *s = schedule_of(SCHEDULE_1F1B, 2, 3, 1);
  struct schedule_waits waits[32];
  CHECK_OK(schedule_waits(s, 1, waits)); /* >F0 F0 >F1 B0 B<0 F1 B1 B<1 >F2 F2 B2 B<2 */
  const int want[][2] = {{-1, -1}, {0, -1}, {-1, -1}, {-1, -1}, {3, -1}, {2, -1}, {-1, -1}, {6, -1}, {4, -1}, {8, -1}, {-1, -1}, {10, -1}};
  for (int i = 0; i < 12; i++) CHECK(waits[i].on[0] == want[i][0] && waits[i].on[1] == want[i][1]);
  CHECK_OK(schedule_waits(s, 0, waits)); /* F0 F>0 F1 F>1 <B0 B0 F2 <B1 F>2 B1 <B2 B2 */
  const int first[][2] = {{-1, -1}, {0, -1}, {-1, -1}, {2, -1}, {1, -1}, {4, -1}, {-1, 1}, {3, -1}, {6, -1}, {7, -1}, {8, -1}, {10, -1}};
  for (int i = 0; i < 12; i++) CHECK(waits[i].on[0] == first[i][0] && waits[i].on[1] == first[i][1]);
  schedule_destroy(s);
  s = schedule_of(SCHEDULE_FORWARD, 3, 3, 1);
  CHECK_OK(schedule_waits(s, 1, waits)); /* >F0 F0 F>0 ...: a place is free when its F is done */
  const struct schedule_action *third = find(s, 1, PASS_RECV_INPUT, 2, 0);
  CHECK(waits[third - s->list[1]].on[0] == (int)(find(s, 1, PASS_FORWARD, 0, 0) - s->list[1]));
  const struct schedule_action *f = find(s, 1, PASS_FORWARD, 1, 0);
  CHECK(waits[f - s->list[1]].on[1] == (int)(find(s, 1, PASS_SEND_OUTPUT, 0, 0) - s->list[1]));
  schedule_destroy(s);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(missing_actions_are_named),
    TEST(what_is_too_much_is_named),
    TEST(wrong_order_is_named),
    TEST(shared_places_are_named),
    TEST(crossed_sends_deadlock),
    TEST(what_arrives_as_another_is_named),
    TEST(waits_are_all_that_the_rules_say),
  };
  return test_main("schedule_verify", tests, sizeof tests / sizeof *tests);
}
