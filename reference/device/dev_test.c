/* dev_test.c - the contract of streams, events and work, over every kind of this build. */
#include "device/dev_internal.h"
#include "device/dev_testing.h"

#include <omp.h>
#include <signal.h>

static struct log seen;
static void log_restart(void) { atomic_store(&seen.n, 0); }

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

static void the_host_waits_only_when_the_queue_is_full(void)
{
  EACH_KIND(d) {
    log_restart();
    struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
    for (int i = 0; i < DEV_QUEUE_SLOTS * 3 / 2; i++) CHECK_OK(submit_log(s, &seen, 0));
    CHECK_OK(dev_sync(d));
    log_restart();
    atomic_store(&gate_open, false);
    CHECK_OK(submit(s, &gate_kernel, NULL, 0, NULL, 0));
    for (int i = 1; i < DEV_QUEUE_SLOTS; i++) CHECK_OK(submit_log(s, &seen, 0));
    CHECK(seen.n == 0); /* and the host is here */
    atomic_store(&gate_open, true);
    CHECK_OK(dev_sync(d));
    CHECK(seen.n == DEV_QUEUE_SLOTS - 1);
  }
}

/* What stands in the way of the newest is the oldest alone (on cuda those up to the next 128th). */
static void a_full_queue_waits_for_the_oldest_alone(void)
{
  for (size_t k = 0; k < kind_count(); k++) {
    if (kind_at(k) == DEV_LAZY) continue; /* it never runs ahead of the host */
    log_restart();
    atomic_store(&gate_open, false);
    struct dev *d = open_kind(kind_at(k));
    struct dev_stream *s = stream(d, "compute", DEV_COMPUTE);
    for (int i = 0; i < 600; i++) CHECK_OK(submit_log(s, &seen, 0));
    CHECK_OK(submit(s, &gate_kernel, NULL, 0, NULL, 0));
    for (int i = 601; i < DEV_QUEUE_SLOTS + 300; i++) CHECK_OK(submit_log(s, &seen, 0));
    CHECK(seen.n >= 300 && seen.n <= 600); /* and the host is here */
    atomic_store(&gate_open, true);
    CHECK_OK(dev_sync(d));
    CHECK(seen.n == DEV_QUEUE_SLOTS + 299);
    dev_close(d);
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

static void an_order_passes_through_streams_that_only_wait(void)
{
  EACH_KIND(d) {
    log_restart();
    struct dev_stream *s[5];
    struct dev_event *e = event(d);
    for (int i = 0; i < 5; i++) s[i] = stream(d, "s", DEV_TRANSFER);
    for (int up = 0; up < 2; up++) {
      struct dev_stream *last = s[up ? 0 : 4];
      CHECK_OK(submit_sleep(last, 1));
      CHECK_OK(submit_log(last, &seen, 1));
      for (int i = 3; i >= 0; i--) {
        CHECK_OK(dev_record(e, last));
        last = s[up ? 4 - i : i];
        CHECK_OK(dev_wait(last, e));
      }
      CHECK_OK(dev_record(e, last));
      CHECK_OK(dev_sync_event(e));
      CHECK(seen.n == 1 + up);
    }
    dev_event_destroy(e);
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
    CHECK_OK(submit(a, &gate_kernel, NULL, 0, NULL, 0));
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
    CHECK_OK(submit(a, &gate_kernel, NULL, 0, NULL, 0));
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
  for (size_t k = 0; k < kind_count(); k++) {
    log_restart();
    struct dev *d = open_kind(kind_at(k));
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
    CHECK_OK(submit(s, &log_kernel, &args, sizeof args, NULL, 0));
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
    CHECK_OK(submit(s, &ok, args, DEV_ARGS_MAX, ranges, DEV_RANGES_MAX));
    CHECK_ERR(submit(s, &ok, args, DEV_ARGS_MAX + 1, NULL, 0), ERR_ARG);
    CHECK_TEXT_HAS(err_text(), "'ok': 769 bytes");
    CHECK_ERR(submit(s, &ok, NULL, 8, NULL, 0), ERR_ARG);
    CHECK_ERR(submit(s, &ok, NULL, 0, ranges, DEV_RANGES_MAX + 1), ERR_ARG);
    CHECK_ERR(submit(s, &ok, NULL, 0, NULL, 1), ERR_ARG);
    const struct dev_kernel wrong[] = {{.name = "none"},
                                       {.name = "both", .run = nothing_run, .start = nothing_run, .test = nothing_test},
                                       {.name = "half", .start = nothing_run},
                                       {.name = "mixed", .run = nothing_run, .test = nothing_test},
                                       {.run = nothing_run}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
      CHECK_ERR(submit(s, &wrong[i], NULL, 0, NULL, 0), ERR_ARG);
    const struct dev_range overlapping = {args, 16, 8, 2, true}, negative = {args, 16, 16, -1, true};
    const struct dev_range nowhere = {NULL, 16, 16, 1, false};
    CHECK_ERR(submit(s, &ok, NULL, 0, &overlapping, 1), ERR_ARG);
    CHECK_ERR(submit(s, &ok, NULL, 0, &negative, 1), ERR_ARG);
    CHECK_ERR(submit(s, &ok, NULL, 0, &nowhere, 1), ERR_ARG);
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
      int *before, after = 0;
      void *pinned, *at;
      CHECK_OK(dev_host_alloc(d, sizeof *before, "pinned", &pinned));
      CHECK_OK(dev_alloc(d, sizeof *before, DEV_OTHER, "between", &at));
      before = pinned;
      const struct late_args args = {.to = before, .value = 41, .polls = 60, .looked = -1};
      CHECK_OK(submit_sleep(busy, 2)); /* the poller naps */
      CHECK_OK(submit(s, &late, &args, sizeof args, NULL, 0));
      CHECK_OK(dev_copy_in(s, at, before, sizeof *before));
      CHECK_OK(dev_copy_out(s, &after, at, sizeof after));
      CHECK_OK(dev_sync(d));
      CHECK(*before == 41 && after == 41);
      dev_free(d, at);
      dev_host_free(d, pinned);
      dev_stream_close(s);
      dev_stream_close(busy);
    }
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
  CHECK_OK(submit(s, &poll, &seen_at_work, sizeof seen_at_work, NULL, 0));
  CHECK_OK(submit(compute, &work, NULL, 0, NULL, 0));
  CHECK_OK(dev_sync(d));
  /* No nap is shorter than 20 us; a few polls may come before the first. */
  CHECK(polls >= 1 && polls <= 50 * worked_ms + 8);
  dev_close(d);
}

static void naps_double_until_a_look_moves_data(void)
{
  static const long naps[] = {20, 40, 80, 160, 320, 640, 1000, 1000};
  long us = 0;
  for (int i = 0; i < 8; i++) {
    us = dev_cpu_nap_us(us, 4.0);
    CHECK(us == naps[i]);
  }
  CHECK(dev_cpu_nap_us(1000, 12.0) == 1000); /* of cold caches */
  CHECK(dev_cpu_nap_us(1000, 15.0) == 20);
  CHECK(dev_cpu_nap_us(40, 5.0) == 20);
  CHECK(dev_cpu_nap_us(80, 5.0) == 160);
}

static void whoever_computes_is_counted_until_it_ends(void)
{
  EACH_KIND(d) {
    const struct dev_kernel poll = {.name = "allreduce", .start = nothing_run, .test = nothing_test};
    const enum dev_role roles[] = {DEV_TRANSFER, DEV_COMPUTE};
    for (int r = 0; r < 2; r++) {
      struct dev_stream *s = stream(d, "s", roles[r]);
      CHECK_OK(submit(s, &poll, NULL, 0, NULL, 0));
      CHECK_OK(submit_sleep(s, 0));
      dev_stream_close(s);
      CHECK(atomic_load(&d->activity) / 2 == 0);
    }
  }
}

static void signals_stay_with_the_host(void)
{
  sigset_t one, after;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  pthread_sigmask(SIG_UNBLOCK, &one, NULL);
  EACH_KIND(d) CHECK(stream(d, "s", DEV_TRANSFER) != NULL);
  sigfillset(&after);
  pthread_sigmask(SIG_SETMASK, NULL, &after);
  CHECK(sigismember(&after, SIGUSR1) == 0);
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
    CHECK_OK(dev_host_touch(d, out, sizeof out, false));
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
    CHECK_OK(submit(a, &kernel, &at[0], sizeof at[0], NULL, 0));
    CHECK_OK(submit(b, &kernel, &at[1], sizeof at[1], NULL, 0));
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
#ifndef SHARDMARK_HAS_CUDA
  CHECK_ERR(dev_open(&cuda, &d), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "no CUDA; available: cpu, lazy");
  CHECK(d == NULL);
#else
  (void)cuda; /* dev_versions_cuda_test.c */
#endif
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
      TEST(the_host_waits_only_when_the_queue_is_full),
      TEST(a_full_queue_waits_for_the_oldest_alone),
      TEST(work_after_a_wait_follows_the_event),
      TEST(an_order_passes_through_streams_that_only_wait),
      TEST(a_wait_holds_the_record_before_it_and_not_a_later_one),
      TEST(an_event_recorded_on_another_stream_leaves_the_first),
      TEST(an_event_of_an_empty_stream_has_happened),
      TEST(waiting_for_what_was_never_recorded_is_refused),
      TEST(events_stay_on_their_device),
      TEST(events_outlive_their_stream),
      TEST(closing_waits_for_queued_work),
      TEST(arguments_are_copied_and_may_be_changed),
      TEST(what_breaks_the_contract_is_refused),
      TEST(asynchronous_work_is_in_order_too),
      TEST(a_poller_naps_while_compute_is_at_work),
      TEST(naps_double_until_a_look_moves_data),
      TEST(whoever_computes_is_counted_until_it_ends),
      TEST(signals_stay_with_the_host),
      TEST(copies_go_both_ways),
      TEST(only_a_compute_stream_has_threads),
      TEST(a_device_that_is_not_here_is_unavailable),
      TEST(more_streams_than_fit_are_refused),
      TEST(steady_work_allocates_nothing_on_the_cpu),
  };
  return test_main("dev", tests, sizeof tests / sizeof *tests);
}
