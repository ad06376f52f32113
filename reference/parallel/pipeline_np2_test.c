/* pipeline_np2_test.c - schedules over 2 ranks: sums, forgotten waits, planted faults. */
#include "parallel/pipeline_cases.h"

static void every_schedule_gives_the_sums_of_one_rank(void)
{
  for (int kind = 0; kind < SCHEDULES; kind++)
    for (int device = DEV_CPU; device < mirror_kinds(); device++)
      for (int m = 1; m <= 6; m++) {
        const bool chunked = kind == SCHEDULE_INTERLEAVED;
        if (chunked && m % 2 != 0) continue;
        for (int v = chunked ? 2 : 1; v <= (chunked ? 4 : kind == SCHEDULE_FORWARD ? 2 : 1); v++) {
          const struct setting set = {(enum dev_kind)device, (uint64_t)(10 * m + v), (enum schedule_kind)kind, 2, m, v, (m + v) % 2 == 0, false, false};
          check_runs(&set);
        }
      }
}

static void one_rank_needs_no_comm(void)
{
  for (int kind = 0; kind < SCHEDULES; kind++) {
    const struct setting set = {mirror_cuda() ? DEV_CPU : DEV_LAZY, 2, (enum schedule_kind)kind, 1, 3, 1, false, false, false};
    if (kind != SCHEDULE_INTERLEAVED) check_runs(&set);
  }
  struct play p;
  struct pipeline *none = NULL;
  const struct setting alone = {.device = DEV_CPU, .kind = SCHEDULE_1F1B, .p = 1, .m = 2, .v = 1};
  open_play(&p, &alone);
  CHECK_ERR(pipeline_create(p.s, 1, true, p.compute, NULL, NULL, &none), ERR_ARG);
  CHECK_ERR(pipeline_create(p.s, -1, true, p.compute, NULL, NULL, &none), ERR_ARG);
  CHECK(none == NULL);
  close_play(&p);
}

/* --- order ------------------------------------------------------------------------------- */

/* Two runs without this rank's wait `left_out`; whether lazy named it. */
static bool named_without(struct play *p, int left_out)
{
  struct pipeline *x = p->pipeline;
  memmove(&x->steps[left_out], &x->steps[left_out + 1], (size_t)(x->n_steps - left_out - 1) * sizeof *x->steps);
  x->n_steps--;
  CHECK_OK(queue_run(p));
  CHECK_OK(queue_run(p));
  const bool named = strcmp(dev_findings(p->d), "") != 0;
  CHECK_ERR(dev_sync(p->d), ERR_DEVICE);
  return named;
}

/* Findings are made when work is queued, on each rank by itself, so one rank's forgotten wait is
 * looked for on both and nothing need be done between them. */
static void every_forgotten_wait_is_named(void)
{
  int tried = 0;
  if (mirror_cuda()) return; /* what lazy finds is the same whatever else is tested */
  for (int kind = 0; kind < SCHEDULES; kind++) {
    const bool chunked = kind == SCHEDULE_INTERLEAVED;
    const struct setting set = {DEV_LAZY, 4, (enum schedule_kind)kind, 2, 4, chunked ? 2 : 1, true, false, false};
    int most = 0;
    for (int i = 0;; i++) {
      struct play p;
      open_play(&p, &set);
      const int mine = p.pipeline->n_steps;
      int both[2] = {mine, mine};
      CHECK_OK(comm_host_gather(world, &mine, sizeof mine, both));
      CHECK_OK(comm_host_bcast(world, both, sizeof both, 0));
      most = both[0] > both[1] ? both[0] : both[1];
      const struct pipeline_step *step = i < mine ? &p.pipeline->steps[i] : NULL;
      if (step != NULL && step->kind == PIPELINE_WAIT) {
        tried++;
        const struct pipeline_step kept = *step;
        if (!CHECK(named_without(&p, i)))
          printf("rank %d: %s: step %d, action %d waits for %d\n", p.stage, schedule_name(p.s->kind), i, kept.action, kept.event);
      } else {
        CHECK_OK(queue_run(&p));
        CHECK_OK(queue_run(&p));
        CHECK_OK(dev_sync(p.d));
      }
      close_play(&p);
      if (i + 1 >= most) break;
    }
  }
  CHECK(tried > 30);
}

static void each_record_has_its_wait(void)
{
  for (int kind = 0; kind < SCHEDULES; kind++) {
    struct play p;
    const struct setting set = {.device = DEV_CPU, .kind = (enum schedule_kind)kind, .p = 2, .m = 4, .v = 1 + (kind == SCHEDULE_INTERLEAVED)};
    open_play(&p, &set);
    const struct pipeline_step *steps = p.pipeline->steps;
    for (int i = 0; i < p.pipeline->n_steps; i++) {
      bool waited = false;
      for (int j = i + 1; j < p.pipeline->n_steps; j++)
        waited = waited || (steps[j].kind == PIPELINE_WAIT && steps[j].event == steps[i].event);
      CHECK(steps[i].kind != PIPELINE_RECORD || waited);
    }
    close_play(&p);
  }
}

/* The host's intervals say which action they were. */
static void intervals_carry_their_action(void)
{
  struct play p;
  const struct setting set = {DEV_CPU, 1, SCHEDULE_ZB_H1, 2, 3, 1, true, false, false};
  const struct dev_interval *rows = NULL;
  int64_t n = 0, lost = 0;
  open_play(&p, &set);
  CHECK_OK(dev_trace(p.d, 1000));
  CHECK_OK(queue_run(&p));
  CHECK_OK(dev_sync(p.d));
  CHECK_OK(dev_trace_take(p.d, &rows, &n, &lost));
  int seen[64] = {0};
  for (int64_t i = 0; i < n; i++) {
    const bool outside = strcmp(rows[i].kernel, "begin") == 0 || strcmp(rows[i].kernel, "zero") == 0;
    CHECK((rows[i].action < 0) == outside);
    if (rows[i].action >= 0) seen[rows[i].action]++;
    if (strcmp(rows[i].kernel, "send") == 0)
      CHECK(p.s->list[p.stage][rows[i].action].pass == (p.stage == 0 ? PASS_SEND_OUTPUT : PASS_SEND_GRADIENT));
  }
  for (int i = 0; i < p.s->n[p.stage]; i++) CHECK(seen[i] > 0);
  CHECK(lost == 0);
  close_play(&p);
}

static void each_failed_allocation_is_reported(void)
{
  struct play p;
  const struct setting set = {DEV_CPU, 1, SCHEDULE_1F1B, 2, 3, 1, true, false, false};
  open_play(&p, &set);
  for (long n = 1;; n++) {
    struct pipeline *made = NULL;
    check_fail_allocation(n);
    const enum err e = pipeline_create(p.s, p.stage, true, p.compute, p.comms[0], p.comms[1], &made);
    const bool failed = check_allocation_failed();
    check_fail_allocation(0);
    CHECK(e == (failed ? ERR_MEMORY : ERR_OK));
    pipeline_destroy(made);
    if (!failed) break;
  }
  pipeline_destroy(NULL);
  close_play(&p);
}

/* --- planted ------------------------------------------------------------------------------- */

/* What is planted is a race, which ThreadSanitizer would name at the cpu's own threads: lazy has one thread. */
#ifdef SHARDMARK_TSAN
enum { PLANTED_FROM = DEV_LAZY };
#else
enum { PLANTED_FROM = DEV_CPU };
#endif

static void a_send_buffer_freed_early_is_seen(void)
{
  for (int device = PLANTED_FROM; device < mirror_kinds(); device++) {
    struct play p;
    const struct setting set = {(enum dev_kind)device, 3, SCHEDULE_INTERLEAVED, 2, 2, 2, false, false, false};
    CHECK_OK(fault_plant("pp-send-buffer-freed-early", 1, 0));
    open_play(&p, &set);
    CHECK_OK(queue_run(&p));
    if (device == DEV_LAZY) {
      CHECK_ERR(dev_sync(p.d), ERR_DEVICE);
      CHECK_TEXT_HAS(dev_findings(p.d), "'begin' on compute");
      CHECK_TEXT_HAS(dev_findings(p.d), "'send' on outputs");
    } else {
      CHECK_OK(dev_sync(p.d));
      CHECK(!correct(&p));
    }
    CHECK_OK(fault_plant("", 1, 0));
    close_play(&p);
  }
}

/* The lists as this pipeline queues them, of both ranks. */
static void as_queued(struct play *p, struct schedule *s)
{
  struct schedule_action all[2][64], mine[64] = {{0}};
  int n = 0;
  for (int i = 0; i < p->pipeline->n_steps; i++)
    if (p->pipeline->steps[i].kind == PIPELINE_ACTION) mine[n++] = p->s->list[p->stage][p->pipeline->steps[i].action];
  CHECK(n == s->n[p->stage]);
  CHECK_OK(comm_host_gather(world, mine, sizeof mine, all));
  CHECK_OK(comm_host_bcast(world, all, sizeof all, 0));
  for (int stage = 0; stage < 2; stage++) memcpy(s->list[stage], all[stage], (size_t)s->n[stage] * sizeof **all);
}

/* With sends that are buffered the run comes to its end, in the order that the verifier then refuses.  NCCL's need
 * not be. */
static void crossed_sends_are_posted_and_refused(void)
{
  struct play p;
  struct schedule *queued = NULL;
  struct schedule_facts facts;
  const struct setting set = {DEV_CPU, 1, SCHEDULE_INTERLEAVED, 2, 4, 2, false, false, false};
  CHECK_OK(schedule_create(set.kind, set.p, set.m, set.v, &queued));
  open_play(&p, &set);
  as_queued(&p, queued);
  CHECK_OK(schedule_verify(queued, &facts));
  close_play(&p);
  CHECK_OK(fault_plant("pp-interleaved-p2p-deadlock", 1, 0));
  open_play(&p, &set);
  as_queued(&p, queued);
  CHECK_ERR(schedule_verify(queued, &facts), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "deadlock with rendezvous sends");
  if (!test_nccl()) {
    CHECK_OK(queue_run(&p));
    CHECK_OK(dev_sync(p.d));
    CHECK(correct(&p));
  }
  CHECK_OK(fault_plant("", 1, 0));
  close_play(&p);
  schedule_destroy(queued);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(every_schedule_gives_the_sums_of_one_rank),
    TEST(one_rank_needs_no_comm),
    TEST(every_forgotten_wait_is_named),
    TEST(each_record_has_its_wait),
    TEST(intervals_carry_their_action),
    TEST(each_failed_allocation_is_reported),
    TEST(a_send_buffer_freed_early_is_seen),
    TEST(crossed_sends_are_posted_and_refused),
  };
  return run_all("pipeline over 2 ranks", tests, sizeof tests / sizeof *tests);
}
