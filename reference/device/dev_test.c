/* dev_test.c - the contract of streams, events and work, over every kind of this build. */
#include "device/dev_internal.h"
#include "device/dev_test_kernels.h"

#include <omp.h>

static const enum dev_kind kinds[] = {DEV_CPU, DEV_LAZY};
#define EACH_KIND(d)                                           \
  for (size_t k_ = 0; k_ < sizeof kinds / sizeof *kinds; k_++) \
    for (struct dev *d = open_kind(kinds[k_]); d != NULL; dev_close(d), d = NULL)

static struct dev *open_kind(enum dev_kind kind)
{
  const struct dev_config config = {.kind = kind, .threads = 2, .lazy_seed = 3};
  struct dev *d = NULL;
  CHECK_OK(dev_open(&config, &d));
  return d;
}

static struct dev_stream *stream(struct dev *d, const char *name, enum dev_role role)
{
  struct dev_stream *s = NULL;
  CHECK_OK(dev_stream_open(d, name, role, &s));
  return s;
}

static struct dev_event *event(struct dev *d)
{
  struct dev_event *e = NULL;
  CHECK_OK(dev_event_create(d, &e));
  return e;
}

static struct log seen;
static void log_restart(void) { atomic_store(&seen.n, 0); }

/* A piece that ends when the host says so. */
static _Atomic bool gate_open;
static enum err gate_run(void *args)
{
  (void)args;
  while (!atomic_load(&gate_open)) clock_sleep_ms(0.05);
  return ERR_OK;
}
static const struct dev_kernel gate_kernel = {.name = "gate", .run = gate_run};

static enum err fail_run(void *args) { FAIL(ERR_NUMERIC, "token %d is none", *(int *)args); }
static const struct dev_kernel fail_kernel = {.name = "embed", .run = fail_run};
static enum err submit_fail(struct dev_stream *s, int token)
{
  return dev_submit(s, &fail_kernel, &token, sizeof token, NULL, 0);
}

static void a_stream_keeps_its_order(void)
{
  EACH_KIND(d) {
    log_restart();
    struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
    for (int i = 0; i < 500; i++) CHECK_OK(submit_log(s, &seen, i));
    CHECK_OK(dev_sync_stream(s));
    CHECK(seen.n == 500);
    bool ordered = true;
    for (int i = 0; i < 500; i++) ordered = ordered && seen.value[i] == i;
    CHECK(ordered);
  }
}

static void a_full_queue_makes_the_host_wait_and_loses_nothing(void)
{
  EACH_KIND(d) {
    log_restart();
    struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
    CHECK_OK(submit_sleep(s, 3));
    const int n = 3 * DEV_QUEUE_SLOTS + 7;
    for (int i = 0; i < n; i++) CHECK_OK(submit_log(s, &seen, i));
    CHECK_OK(dev_sync(d));
    CHECK(seen.n == n);
    bool ordered = true;
    for (int i = 0; i < n; i++) ordered = ordered && seen.value[i] == i;
    CHECK(ordered);
  }
}

static void work_after_a_wait_follows_the_event(void)
{
  EACH_KIND(d) {
    log_restart();
    struct dev_stream *a = stream(d, "a", DEV_COMPUTE), *b = stream(d, "b", DEV_TRANSFER);
    struct dev_event *there = event(d), *back = event(d);
    for (int i = 0; i < 200; i++) {
      if (i % 50 == 0) CHECK_OK(submit_sleep(a, 1));
      CHECK_OK(submit_log(a, &seen, 2 * i));
      CHECK_OK(dev_record(there, a));
      CHECK_OK(dev_wait(b, there));
      CHECK_OK(submit_log(b, &seen, 2 * i + 1));
      CHECK_OK(dev_record(back, b));
      CHECK_OK(dev_wait(a, back));
    }
    CHECK_OK(dev_sync(d));
    bool ordered = seen.n == 400;
    for (int i = 0; i < 400; i++) ordered = ordered && seen.value[i] == i;
    CHECK(ordered);
    dev_event_destroy(there);
    dev_event_destroy(back);
  }
}

static void a_wait_holds_the_record_before_it_and_not_a_later_one(void)
{
  EACH_KIND(d) {
    log_restart();
    atomic_store(&gate_open, false);
    struct dev_stream *a = stream(d, "a", DEV_COMPUTE), *b = stream(d, "b", DEV_TRANSFER);
    struct dev_stream *c = stream(d, "c", DEV_TRANSFER);
    struct dev_event *e = event(d);
    CHECK_OK(submit_log(a, &seen, 1));
    CHECK_OK(dev_record(e, a));
    CHECK_OK(dev_wait(b, e));
    CHECK_OK(submit_log(b, &seen, 2));
    CHECK_OK(dev_submit(a, &gate_kernel, NULL, 0, NULL, 0));
    CHECK_OK(submit_log(a, &seen, 3));
    CHECK_OK(dev_record(e, a));
    CHECK_OK(dev_wait(c, e));
    CHECK_OK(submit_log(c, &seen, 4));
    CHECK_OK(dev_sync_stream(b)); /* would never return if it waited for the gate */
    CHECK(seen.n == 2 && seen.value[0] == 1 && seen.value[1] == 2);
    atomic_store(&gate_open, true);
    CHECK_OK(dev_sync_stream(c));
    CHECK(seen.n == 4 && seen.value[2] == 3 && seen.value[3] == 4);
    dev_event_destroy(e);
  }
}

static void an_event_recorded_on_another_stream_leaves_the_first(void)
{
  EACH_KIND(d) {
    log_restart();
    atomic_store(&gate_open, false);
    struct dev_stream *a = stream(d, "a", DEV_COMPUTE), *b = stream(d, "b", DEV_TRANSFER);
    struct dev_stream *c = stream(d, "c", DEV_TRANSFER);
    struct dev_event *e = event(d);
    CHECK_OK(dev_submit(a, &gate_kernel, NULL, 0, NULL, 0));
    CHECK_OK(dev_record(e, a));
    CHECK_OK(submit_log(b, &seen, 1));
    CHECK_OK(dev_record(e, b));
    CHECK_OK(dev_wait(c, e));
    CHECK_OK(submit_log(c, &seen, 2));
    CHECK_OK(dev_sync_event(e));
    CHECK_OK(dev_sync_stream(c));
    CHECK(seen.n == 2);
    atomic_store(&gate_open, true);
    CHECK_OK(dev_sync(d));
    dev_event_destroy(e);
  }
}

static void an_event_of_an_empty_stream_has_happened(void)
{
  EACH_KIND(d) {
    struct dev_stream *a = stream(d, "a", DEV_COMPUTE), *b = stream(d, "b", DEV_TRANSFER);
    struct dev_event *e = event(d);
    CHECK_OK(dev_record(e, a));
    CHECK_OK(dev_wait(b, e));
    CHECK_OK(dev_sync_event(e));
    CHECK_OK(dev_sync(d));
    dev_event_destroy(e);
  }
}

static void waiting_for_what_was_never_recorded_is_refused(void)
{
  EACH_KIND(d) {
    struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
    struct dev_event *e = event(d);
    CHECK_ERR(dev_wait(s, e), ERR_ARG);
    CHECK_TEXT_HAS(err_text(), "compute");
    CHECK_TEXT_HAS(err_text(), "never recorded");
    CHECK_ERR(dev_sync_event(e), ERR_ARG);
    dev_event_destroy(e);
  }
}

static void events_stay_on_their_device(void)
{
  EACH_KIND(d) {
    struct dev *other = open_kind(DEV_LAZY);
    struct dev_stream *here = stream(d, "here", DEV_COMPUTE), *there = stream(other, "there", DEV_COMPUTE);
    struct dev_event *e = event(d);
    CHECK_ERR(dev_record(e, there), ERR_ARG);
    CHECK_OK(dev_record(e, here));
    CHECK_ERR(dev_wait(there, e), ERR_ARG);
    dev_event_destroy(e);
    dev_close(other);
  }
}

static void an_error_stops_its_stream_and_surfaces_with_its_text(void)
{
  EACH_KIND(d) {
    log_restart();
    struct dev_stream *s = stream(d, "compute", DEV_COMPUTE), *t = stream(d, "other", DEV_TRANSFER);
    struct dev_event *e = event(d);
    CHECK_OK(submit_log(s, &seen, 1));
    CHECK_OK(dev_record(e, s));
    atomic_store(&gate_open, false); /* keeps the failure behind the next calls */
    CHECK_OK(dev_submit(s, &gate_kernel, NULL, 0, NULL, 0));
    CHECK_OK(submit_fail(s, 131));
    CHECK_OK(submit_log(s, &seen, 2));
    CHECK_OK(submit_log(t, &seen, 3));
    atomic_store(&gate_open, true);
    CHECK_ERR(dev_sync_stream(s), ERR_NUMERIC);
    CHECK_TEXT_HAS(err_text(), "token 131 is none");
    CHECK_TEXT_HAS(err_text(), "'embed' on stream compute");
    CHECK_TEXT_HAS(err_trail(), "dev_test.c");
    CHECK_OK(dev_sync_event(e)); /* recorded before the failure */
    CHECK_OK(dev_sync_stream(t));
    CHECK(seen.n == 2 && seen.value[0] + seen.value[1] == 4);
    err_clear();
    CHECK_ERR(submit_log(s, &seen, 4), ERR_NUMERIC);
    CHECK_TEXT_HAS(err_text(), "token 131");
    CHECK_ERR(dev_sync(d), ERR_NUMERIC);
    dev_event_destroy(e);
  }
}

static void an_error_follows_the_events(void)
{
  EACH_KIND(d) {
    log_restart();
    atomic_store(&gate_open, false);
    struct dev_stream *a = stream(d, "a", DEV_COMPUTE), *b = stream(d, "b", DEV_TRANSFER);
    struct dev_stream *c = stream(d, "c", DEV_TRANSFER);
    struct dev_event *early = event(d), *late = event(d);
    CHECK_OK(submit_log(a, &seen, 1));
    CHECK_OK(dev_record(early, a));
    CHECK_OK(dev_submit(a, &gate_kernel, NULL, 0, NULL, 0));
    CHECK_OK(submit_fail(a, 7));
    CHECK_OK(dev_record(late, a));
    CHECK_OK(dev_wait(b, early));
    CHECK_OK(submit_log(b, &seen, 2));
    CHECK_OK(dev_wait(c, late));
    CHECK_OK(submit_log(c, &seen, 3));
    atomic_store(&gate_open, true);
    CHECK_ERR(dev_sync_stream(c), ERR_NUMERIC);
    CHECK_TEXT_HAS(err_text(), "token 7 is none");
    CHECK_OK(dev_sync_stream(b));
    CHECK_ERR(dev_sync_event(late), ERR_NUMERIC);
    CHECK(seen.n == 2);
    dev_event_destroy(early);
    dev_event_destroy(late);
  }
}

static void the_error_of_a_closed_stream_is_not_lost(void)
{
  EACH_KIND(d) {
    log_restart();
    struct dev_stream *s = stream(d, "gone", DEV_TRANSFER);
    CHECK_OK(submit_fail(s, 9));
    dev_stream_close(s);
    struct dev_stream *t = stream(d, "next", DEV_TRANSFER);
    CHECK_OK(submit_log(t, &seen, 1)); /* a new stream starts without it */
    CHECK_ERR(dev_sync(d), ERR_NUMERIC);
    CHECK_TEXT_HAS(err_text(), "'embed' on stream gone");
    CHECK_OK(dev_sync(d));
    CHECK(seen.n == 1);
  }
}

static void events_outlive_their_stream(void)
{
  EACH_KIND(d) {
    log_restart();
    struct dev_event *e = event(d);
    for (int i = 0; i < 40; i++) { /* more than may be open at once */
      struct dev_stream *s = stream(d, "short", DEV_TRANSFER);
      CHECK_OK(submit_log(s, &seen, i));
      CHECK_OK(dev_record(e, s));
      dev_stream_close(s);
      CHECK(seen.n == i + 1);
      CHECK_OK(dev_sync_event(e));
    }
    struct dev_stream *t = stream(d, "compute", DEV_COMPUTE);
    CHECK_OK(dev_wait(t, e));
    CHECK_OK(dev_sync(d));
    dev_event_destroy(e);
  }
}

static void closing_waits_for_queued_work(void)
{
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    log_restart();
    struct dev *d = open_kind(kinds[k]);
    struct dev_stream *a = stream(d, "a", DEV_COMPUTE), *b = stream(d, "b", DEV_TRANSFER);
    struct dev_event *e = event(d);
    CHECK_OK(submit_sleep(b, 2));
    CHECK_OK(submit_log(b, &seen, 1));
    CHECK_OK(dev_record(e, b));
    CHECK_OK(dev_wait(a, e));
    CHECK_OK(submit_log(a, &seen, 2));
    dev_close(d);
    CHECK(seen.n == 2 && seen.value[1] == 2);
    dev_event_destroy(e);
  }
  dev_close(NULL);
  dev_stream_close(NULL);
  dev_event_destroy(NULL);
}

static void arguments_are_copied_and_may_be_changed(void)
{
  EACH_KIND(d) {
    log_restart();
    struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
    struct log_args args = {&seen, 5};
    CHECK_OK(dev_submit(s, &log_kernel, &args, sizeof args, NULL, 0));
    args.value = 6;
    CHECK_OK(dev_sync(d));
    CHECK(seen.n == 1 && seen.value[0] == 5);
  }
}

static void what_breaks_the_contract_is_refused(void)
{
  EACH_KIND(d) {
    struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
    static char args[DEV_ARGS_MAX + 1];
    static struct dev_range ranges[DEV_RANGES_MAX + 1];
    const struct dev_kernel ok = nothing("ok");
    CHECK_OK(dev_submit(s, &ok, args, DEV_ARGS_MAX, ranges, DEV_RANGES_MAX));
    CHECK_ERR(dev_submit(s, &ok, args, DEV_ARGS_MAX + 1, NULL, 0), ERR_ARG);
    CHECK_TEXT_HAS(err_text(), "'ok': 769 bytes");
    CHECK_ERR(dev_submit(s, &ok, NULL, 8, NULL, 0), ERR_ARG);
    CHECK_ERR(dev_submit(s, &ok, NULL, 0, ranges, DEV_RANGES_MAX + 1), ERR_ARG);
    CHECK_ERR(dev_submit(s, &ok, NULL, 0, NULL, 1), ERR_ARG);
    const struct dev_kernel wrong[] = {{.name = "none"},
                                       {.name = "both", .run = nothing_run, .start = nothing_run, .test = nothing_test},
                                       {.name = "half", .start = nothing_run},
                                       {.name = "mixed", .run = nothing_run, .test = nothing_test},
                                       {.run = nothing_run}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
      CHECK_ERR(dev_submit(s, &wrong[i], NULL, 0, NULL, 0), ERR_ARG);
    const struct dev_range overlapping = {args, 16, 8, 2, true}, negative = {args, 16, 16, -1, true};
    const struct dev_range nowhere = {NULL, 16, 16, 1, false};
    CHECK_ERR(dev_submit(s, &ok, NULL, 0, &overlapping, 1), ERR_ARG);
    CHECK_ERR(dev_submit(s, &ok, NULL, 0, &negative, 1), ERR_ARG);
    CHECK_ERR(dev_submit(s, &ok, NULL, 0, &nowhere, 1), ERR_ARG);
    CHECK_OK(dev_sync(d));
  }
}

static void asynchronous_work_is_in_order_too(void)
{
  EACH_KIND(d) {
    log_restart();
    static const struct dev_kernel late = {.name = "allreduce", .start = late_start, .test = late_test};
    const enum dev_role roles[] = {DEV_TRANSFER, DEV_COMPUTE};
    for (int r = 0; r < 2; r++) {
      struct dev_stream *s = stream(d, "comm", roles[r]), *busy = stream(d, "compute", DEV_COMPUTE);
      int before = 0, after = 0;
      const struct late_args args = {.to = &before, .value = 41, .polls = 60, .looked = -1};
      CHECK_OK(submit_sleep(busy, 2)); /* the poller naps */
      CHECK_OK(dev_submit(s, &late, &args, sizeof args, NULL, 0));
      CHECK_OK(dev_copy_out(s, &after, &before, sizeof before));
      CHECK_OK(dev_sync(d));
      CHECK(before == 41 && after == 41);
      dev_stream_close(s);
      dev_stream_close(busy);
    }
  }
}

static enum err test_fails(void *args, bool *done)
{
  (void)args;
  (void)done;
  FAIL(ERR_COMM, "peer 3 is gone");
}

static void asynchronous_work_can_fail_at_start_and_at_test(void)
{
  EACH_KIND(d) {
    const struct dev_kernel at_start = {.name = "send", .start = fail_run, .test = nothing_test};
    const struct dev_kernel at_test = {.name = "recv", .start = nothing_run, .test = test_fails};
    struct dev_stream *a = stream(d, "a", DEV_TRANSFER), *b = stream(d, "b", DEV_TRANSFER);
    const int token = 3;
    CHECK_OK(dev_submit(a, &at_start, &token, sizeof token, NULL, 0));
    CHECK_OK(dev_submit(b, &at_test, NULL, 0, NULL, 0));
    CHECK_ERR(dev_sync_stream(b), ERR_COMM);
    CHECK_TEXT_HAS(err_text(), "peer 3 is gone");
    CHECK_ERR(dev_sync_stream(a), ERR_NUMERIC);
    CHECK_TEXT_HAS(err_text(), "token 3");
  }
}

/* The computing piece says when it is at work; the polled one counts its polls meanwhile. */
static _Atomic bool at_work;
static _Atomic int polls;
static double worked_ms;
static enum err work_run(void *args)
{
  (void)args;
  const double start_ms = clock_ms();
  atomic_store(&at_work, true);
  clock_sleep_ms(40);
  atomic_store(&at_work, false);
  worked_ms = clock_ms() - start_ms;
  return ERR_OK;
}
static enum err poll_test(void *args, bool *done)
{
  bool *seen_at_work = args;
  const bool now = atomic_load(&at_work);
  if (now) atomic_fetch_add(&polls, 1);
  *done = *seen_at_work && !now;
  *seen_at_work = *seen_at_work || now;
  return ERR_OK;
}

static void a_poller_naps_while_compute_is_at_work(void)
{
  struct dev *d = open_kind(DEV_CPU);
  const struct dev_kernel work = {.name = "gemm", .run = work_run};
  const struct dev_kernel poll = {.name = "allreduce", .start = nothing_run, .test = poll_test};
  struct dev_stream *s = stream(d, "comm", DEV_TRANSFER), *compute = stream(d, "compute", DEV_COMPUTE);
  const bool seen_at_work = false;
  CHECK_OK(dev_submit(s, &poll, &seen_at_work, sizeof seen_at_work, NULL, 0));
  CHECK_OK(dev_submit(compute, &work, NULL, 0, NULL, 0));
  CHECK_OK(dev_sync(d));
  /* Six naps lead up to 1 ms; one poll may come before the nap.  Load makes fewer, not more. */
  CHECK(polls >= 1 && polls <= worked_ms + 8);
  dev_close(d);
}

static void copies_go_both_ways(void)
{
  EACH_KIND(d) {
    struct dev_stream *s = stream(d, "copy", DEV_TRANSFER);
    char in[] = "twelve bytes", out[sizeof in] = "";
    void *at;
    CHECK_OK(dev_alloc(d, sizeof in, DEV_OTHER, "text", &at));
    CHECK_OK(dev_copy_in(s, at, in, sizeof in));
    CHECK_OK(dev_copy_out(s, out, at, sizeof in));
    CHECK_OK(dev_copy_in(s, at, NULL, 0));
    CHECK_ERR(dev_copy_in(s, at, NULL, 4), ERR_ARG);
    CHECK_ERR(dev_copy_out(s, out, NULL, 4), ERR_ARG);
    CHECK_OK(dev_sync(d));
    CHECK_SAME_BITS(out, in, sizeof in);
    dev_free(d, at);
  }
}

static enum err threads_run(void *args)
{
  **(int **)args = omp_get_max_threads();
  return ERR_OK;
}

static void only_a_compute_stream_has_threads(void)
{
  const int mine = omp_get_max_threads();
  EACH_KIND(d) {
    const struct dev_kernel kernel = {.name = "threads", .run = threads_run};
    struct dev_stream *a = stream(d, "compute", DEV_COMPUTE), *b = stream(d, "comm", DEV_TRANSFER);
    int compute = 0, transfer = 0, *at[] = {&compute, &transfer};
    CHECK_OK(dev_submit(a, &kernel, &at[0], sizeof at[0], NULL, 0));
    CHECK_OK(dev_submit(b, &kernel, &at[1], sizeof at[1], NULL, 0));
    CHECK_OK(dev_sync(d));
    CHECK(compute == 2 && transfer == 1);
    CHECK(omp_get_max_threads() == mine);
  }
}

static void a_device_that_is_not_here_is_unavailable(void)
{
  struct dev *d = (struct dev *)&seen;
  const struct dev_config cuda = {.kind = DEV_CUDA, .threads = 1}, second = {.kind = DEV_CPU, .index = 1, .threads = 1};
  const struct dev_config idle = {.kind = DEV_CPU};
  CHECK_ERR(dev_open(&cuda, &d), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "no CUDA; available: cpu, lazy");
  CHECK(d == NULL);
  CHECK_ERR(dev_open(&second, &d), ERR_UNAVAILABLE);
  CHECK_ERR(dev_open(&idle, &d), ERR_ARG);
}

static void more_streams_than_fit_are_refused(void)
{
  EACH_KIND(d) {
    struct dev_stream *s;
    for (int i = 0; i < DEV_STREAMS_MAX; i++) CHECK_OK(dev_stream_open(d, "s", DEV_TRANSFER, &s));
    CHECK_ERR(dev_stream_open(d, "one more", DEV_TRANSFER, &s), ERR_ARG);
    CHECK(s == NULL);
  }
}

static enum err create_all(enum dev_kind kind, struct dev **d, struct dev_event **e)
{
  const struct dev_config config = {.kind = kind, .threads = 1};
  struct dev_stream *s;
  const struct dev_kernel kernel = nothing("k");
  TRY(dev_open(&config, d));
  TRY(dev_trace(*d, 4));
  TRY(dev_stream_open(*d, "compute", DEV_COMPUTE, &s));
  TRY(dev_event_create(*d, e));
  void *at;
  TRY(dev_alloc(*d, 8, DEV_OTHER, "block", &at));
  const struct dev_range range = {at, 8, 8, 1, true};
  return dev_submit(s, &kernel, NULL, 0, &range, 1);
}

static void any_allocation_may_fail(void)
{
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    long n = 1;
    for (;; n++) {
      struct dev *d = NULL;
      struct dev_event *e = NULL;
      check_fail_allocation(n);
      const enum err err = create_all(kinds[k], &d, &e);
      const bool failed = check_allocation_failed();
      check_fail_allocation(0);
      CHECK(err == (failed ? ERR_MEMORY : ERR_OK));
      dev_event_destroy(e);
      dev_close(d);
      if (!failed) break;
    }
    CHECK(n > 5);
  }
}

static void steady_work_allocates_nothing_on_the_cpu(void)
{
  struct dev *d = open_kind(DEV_CPU);
  log_restart();
  struct dev_stream *s = stream(d, "compute", DEV_COMPUTE), *t = stream(d, "comm", DEV_TRANSFER);
  struct dev_event *e = event(d);
  CHECK_OK(dev_trace(d, 100));
  check_fail_allocation(1);
  for (int i = 0; i < 50; i++) {
    CHECK_OK(submit_log(s, &seen, i));
    CHECK_OK(dev_record(e, s));
    CHECK_OK(dev_wait(t, e));
    CHECK_OK(submit_log(t, &seen, i));
  }
  CHECK_OK(dev_sync(d));
  const struct dev_interval *rows;
  int64_t n, lost;
  CHECK_OK(dev_trace_take(d, &rows, &n, &lost));
  CHECK(!check_allocation_failed());
  check_fail_allocation(0);
  CHECK(n == 100);
  dev_event_destroy(e);
  dev_close(d);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(a_stream_keeps_its_order),
      TEST(a_full_queue_makes_the_host_wait_and_loses_nothing),
      TEST(work_after_a_wait_follows_the_event),
      TEST(a_wait_holds_the_record_before_it_and_not_a_later_one),
      TEST(an_event_recorded_on_another_stream_leaves_the_first),
      TEST(an_event_of_an_empty_stream_has_happened),
      TEST(waiting_for_what_was_never_recorded_is_refused),
      TEST(events_stay_on_their_device),
      TEST(an_error_stops_its_stream_and_surfaces_with_its_text),
      TEST(an_error_follows_the_events),
      TEST(the_error_of_a_closed_stream_is_not_lost),
      TEST(events_outlive_their_stream),
      TEST(closing_waits_for_queued_work),
      TEST(arguments_are_copied_and_may_be_changed),
      TEST(what_breaks_the_contract_is_refused),
      TEST(asynchronous_work_is_in_order_too),
      TEST(asynchronous_work_can_fail_at_start_and_at_test),
      TEST(a_poller_naps_while_compute_is_at_work),
      TEST(copies_go_both_ways),
      TEST(only_a_compute_stream_has_threads),
      TEST(a_device_that_is_not_here_is_unavailable),
      TEST(more_streams_than_fit_are_refused),
      TEST(any_allocation_may_fail),
      TEST(steady_work_allocates_nothing_on_the_cpu),
  };
  return test_main("dev", tests, sizeof tests / sizeof *tests);
}
