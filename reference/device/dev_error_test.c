/* dev_error_test.c - what goes wrong on a stream stops it, travels along events and is
 * told to the host once it looks; over every kind of this build. */
#include "device/dev_testing.h"

static struct log seen;
static void log_restart(void) { atomic_store(&seen.n, 0); }

static void an_error_stops_its_stream_and_surfaces_with_its_text(void)
{
  EACH_KIND(d) {
    log_restart();
    struct dev_stream *s = stream(d, "compute", DEV_COMPUTE), *t = stream(d, "other", DEV_TRANSFER);
    struct dev_event *e = event(d);
    CHECK_OK(submit_log(s, &seen, 1));
    CHECK_OK(dev_record(e, s));
    atomic_store(&gate_open, false); /* keeps the failure behind the next calls */
    CHECK_OK(submit(s, &gate_kernel, NULL, 0, NULL, 0));
    CHECK_OK(submit_fail(s, 131));
    CHECK_OK(submit_log(s, &seen, 2));
    CHECK_OK(submit_log(t, &seen, 3));
    atomic_store(&gate_open, true);
    CHECK_ERR(dev_sync_stream(s), ERR_NUMERIC);
    CHECK_TEXT_HAS(err_text(), "token 131 is none");
    CHECK_TEXT_HAS(err_text(), "'embed' on stream compute");
    CHECK_TEXT_HAS(err_trail(), "dev_testing.h");
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
    CHECK_OK(submit(a, &gate_kernel, NULL, 0, NULL, 0));
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
    CHECK_OK(submit(a, &at_start, &token, sizeof token, NULL, 0));
    CHECK_OK(submit(b, &at_test, NULL, 0, NULL, 0));
    CHECK_ERR(dev_sync_stream(b), ERR_COMM);
    CHECK_TEXT_HAS(err_text(), "peer 3 is gone");
    CHECK_ERR(dev_sync_stream(a), ERR_NUMERIC);
    CHECK_TEXT_HAS(err_text(), "token 3");
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
  return submit(s, &kernel, NULL, 0, &range, 1);
}

static void any_allocation_may_fail(void)
{
  for (size_t k = 0; k < kind_count(); k++) {
    long n = 1;
    for (;; n++) {
      struct dev *d = NULL;
      struct dev_event *e = NULL;
      check_fail_allocation(n);
      const enum err err = create_all(kind_at(k), &d, &e);
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

static void a_surfaced_error_ends_with_its_stream(void)
{
  EACH_KIND(d) {
    struct dev_stream *s = stream(d, "gone", DEV_TRANSFER), *t = stream(d, "gone too", DEV_TRANSFER);
    CHECK_OK(submit_fail(s, 9));
    CHECK_ERR(dev_sync_stream(s), ERR_NUMERIC);
    dev_stream_close(s);
    CHECK_OK(dev_sync(d)); /* heard once already */
    CHECK_OK(submit_fail(t, 10));
    dev_stream_close(t);
    s = stream(d, "last", DEV_TRANSFER);
    CHECK_OK(submit_fail(s, 11));
    dev_stream_close(s);
    CHECK_ERR(dev_sync(d), ERR_NUMERIC);
    CHECK_TEXT_HAS(err_text(), "token 10 is none"); /* the first is the reason */
    CHECK_OK(dev_sync(d));
    s = stream(d, "once more", DEV_TRANSFER);
    CHECK_OK(submit_fail(s, 12));
    dev_stream_close(s);
    CHECK_ERR(dev_sync(d), ERR_NUMERIC);
    CHECK_TEXT_HAS(err_text(), "token 12 is none");
  }
}

static void a_failed_stream_may_close_before_its_waiters_look(void)
{
  EACH_KIND(d) {
    log_restart();
    struct dev_stream *a = stream(d, "a", DEV_TRANSFER), *b = stream(d, "b", DEV_TRANSFER);
    struct dev_event *e = event(d);
    CHECK_OK(submit_sleep(b, 5));
    CHECK_OK(submit_fail(a, 2));
    CHECK_OK(dev_record(e, a));
    CHECK_OK(dev_wait(b, e));
    CHECK_OK(submit_log(b, &seen, 1));
    dev_stream_close(a);
    a = stream(d, "in its place", DEV_TRANSFER);
    CHECK_ERR(dev_sync_stream(b), ERR_NUMERIC);
    CHECK_OK(dev_sync_stream(a));
    CHECK(seen.n == 0);
    dev_event_destroy(e);
  }
}

static enum err silent_run(void *args)
{
  (void)args;
  return ERR_IO;
}

static void a_failure_without_a_reason_gets_no_old_one(void)
{
  EACH_KIND(d) {
    const struct dev_kernel silent = {.name = "silent", .run = silent_run};
    struct dev_stream *s = stream(d, "s", DEV_TRANSFER);
    CHECK_OK(submit(s, &silent, NULL, 0, NULL, 0));
    CHECK(err_set(ERR_ARG, __FILE__, __LINE__, "an old story") == ERR_ARG);
    CHECK_ERR(dev_sync(d), ERR_IO);
    CHECK(strcmp(err_text(), "'silent' on stream s: ") == 0);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(an_error_stops_its_stream_and_surfaces_with_its_text),
      TEST(an_error_follows_the_events),
      TEST(the_error_of_a_closed_stream_is_not_lost),
      TEST(asynchronous_work_can_fail_at_start_and_at_test),
      TEST(any_allocation_may_fail),
      TEST(a_surfaced_error_ends_with_its_stream),
      TEST(a_failed_stream_may_close_before_its_waiters_look),
      TEST(a_failure_without_a_reason_gets_no_old_one),
  };
  return test_main("dev_error", tests, sizeof tests / sizeof *tests);
}
