/* dev_trace_test.c - intervals: what they carry, their order, what does not fit. */
#include "device/dev_testing.h"

#include <sched.h>
#include <stdatomic.h>

struct pair {
  struct dev *d;
  struct dev_stream *compute, *comm;
  struct dev_event *e;
};

static struct pair pair_open(enum dev_kind kind)
{
  struct pair p = {0};
  const struct dev_config config = {.kind = kind, .threads = 1};
  CHECK_OK(dev_open(&config, &p.d));
  CHECK_OK(dev_stream_open(p.d, "compute", DEV_COMPUTE, &p.compute));
  CHECK_OK(dev_stream_open(p.d, "comm", DEV_TRANSFER, &p.comm));
  CHECK_OK(dev_event_create(p.d, &p.e));
  return p;
}

static void pair_close(struct pair *p)
{
  dev_event_destroy(p->e);
  dev_close(p->d);
}

static void an_interval_carries_what_the_host_was_doing(void)
{
  for (size_t k = 0; k < kind_count(); k++) {
    struct pair p = pair_open(kind_at(k));
    const struct dev_interval *rows;
    int64_t n, lost;
    CHECK_OK(dev_trace(p.d, 10));
    dev_set_phase(p.d, DEV_PHASE_BACKWARD, 4, 2);
    CHECK_OK(submit_sleep(p.compute, 1));
    dev_set_action(p.d, 6);
    dev_set_phase(p.d, DEV_PHASE_OPTIMIZER, 5, -1);
    CHECK_OK(submit_sleep(p.compute, 0));
    CHECK_OK(dev_sync(p.d));
    CHECK_OK(dev_trace_take(p.d, &rows, &n, &lost));
    if (CHECK(n == 2 && lost == 0)) {
      CHECK(strcmp(rows[0].stream, "compute") == 0 && strcmp(rows[0].kernel, "sleep") == 0);
      CHECK(rows[0].phase == DEV_PHASE_BACKWARD && rows[0].step == 4 && rows[0].microbatch == 2);
      CHECK(rows[1].phase == DEV_PHASE_OPTIMIZER && rows[1].step == 5 && rows[1].microbatch == -1);
      CHECK(rows[0].action == -1 && rows[1].action == 6);
      CHECK(rows[0].end_ms - rows[0].start_ms >= 1);
      CHECK(rows[0].ready_ms <= rows[0].start_ms && rows[1].start_ms >= rows[0].end_ms);
      CHECK(rows[0].waited_ms == 0 && rows[0].waited_for == NULL);
    }
    pair_close(&p);
  }
}

/* Whether the wait was seen is the machine's choice, so it gets several chances. */
static void waiting_is_charged_to_the_stream_waited_for(void)
{
  for (size_t k = 0; k < kind_count(); k++) {
    struct pair p = pair_open(kind_at(k));
    CHECK_OK(dev_trace(p.d, 10));
    bool waited = false;
    for (int i = 0; i < 100 && !waited; i++) {
      const struct dev_interval *rows;
      int64_t n, lost;
      const double start_ms = clock_ms();
      CHECK_OK(submit_sleep(p.comm, 2));
      CHECK_OK(dev_record(p.e, p.comm));
      CHECK_OK(dev_wait(p.compute, p.e));
      CHECK_OK(submit_sleep(p.compute, 0));
      CHECK_OK(submit_sleep(p.compute, 0));
      CHECK_OK(dev_sync(p.d));
      CHECK_OK(dev_trace_take(p.d, &rows, &n, &lost));
      if (!CHECK(n == 3) || rows[1].waited_ms == 0) continue;
      waited = true;
      CHECK(strcmp(rows[0].stream, "comm") == 0 && rows[0].waited_ms == 0);
      CHECK(rows[1].waited_for != NULL && strcmp(rows[1].waited_for, "comm") == 0);
      CHECK(rows[1].ready_ms >= rows[0].end_ms);
      CHECK(rows[1].waited_ms <= rows[1].ready_ms - start_ms);
      CHECK(rows[2].waited_ms == 0 && rows[2].waited_for == NULL);
    }
    CHECK(waited);
    pair_close(&p);
  }
}

static enum err until_told_run(void *args)
{
  while (!atomic_load(*(atomic_bool **)args)) clock_sleep_ms(0.1);
  return ERR_OK;
}
static enum err burn_run(void *args)
{
  const double until_ms = clock_ms() + *(double *)args;
  while (clock_ms() < until_ms) {}
  return ERR_OK;
}

/* One processor for all: what a piece's end wakes takes it, and the stream comes to its next piece late. */
static void a_wait_begins_when_the_piece_before_ends(void)
{
  cpu_set_t before, one;
  CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  struct pair p = pair_open(DEV_CPU);
  struct dev_event *done;
  CHECK_OK(dev_event_create(p.d, &done));
  CHECK_OK(dev_trace(p.d, 10));
  for (int i = 0; i < 30; i++) {
    const struct dev_interval *rows;
    int64_t n, lost;
    atomic_bool told = false, *at = &told; /* all is given before the first piece ends */
    double ms = 4;
    CHECK_OK(submit(p.compute, &(const struct dev_kernel){.name = "until_told", .run = until_told_run}, &at, sizeof at, NULL, 0));
    CHECK_OK(dev_record(done, p.compute));
    CHECK_OK(dev_wait(p.comm, done));
    CHECK_OK(submit(p.comm, &(const struct dev_kernel){.name = "burn", .run = burn_run}, &ms, sizeof ms, NULL, 0));
    CHECK_OK(dev_record(p.e, p.comm));
    CHECK_OK(dev_wait(p.compute, p.e));
    CHECK_OK(submit_sleep(p.compute, 0));
    atomic_store(&told, true);
    CHECK_OK(dev_sync(p.d));
    CHECK_OK(dev_trace_take(p.d, &rows, &n, &lost));
    if (!CHECK(n == 3)) break;
    const struct dev_interval *first = NULL, *burnt = NULL, *last = NULL;
    for (int k = 0; k < n; k++) {
      if (strcmp(rows[k].stream, "comm") == 0) burnt = &rows[k];
      else if (first == NULL) first = &rows[k];
      else last = &rows[k];
    }
    if (last->waited_ms == 0) continue; /* the burning was over when compute came to look */
    CHECK(last->waited_ms >= burnt->end_ms - first->end_ms);
    CHECK(last->waited_ms <= last->ready_ms - first->end_ms);
  }
  dev_event_destroy(done);
  pair_close(&p);
  CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
}

/* compute waits 5 ms for comm, then 1 ms for copy; a loaded machine may blur that, so it
 * gets several chances. */
static void of_two_waits_the_longer_one_is_named(void)
{
  for (size_t k = 0; k < kind_count(); k++) {
    struct pair p = pair_open(kind_at(k));
    struct dev_stream *copy;
    struct dev_event *second;
    CHECK_OK(dev_stream_open(p.d, "copy", DEV_TRANSFER, &copy));
    CHECK_OK(dev_event_create(p.d, &second));
    CHECK_OK(dev_trace(p.d, 10));
    bool named = false;
    for (int i = 0; i < 100 && !named; i++) {
      const struct dev_interval *rows;
      int64_t n, lost;
      CHECK_OK(submit_sleep(p.comm, 5));
      CHECK_OK(dev_record(p.e, p.comm));
      CHECK_OK(dev_wait(copy, p.e));
      CHECK_OK(submit_sleep(copy, 1));
      CHECK_OK(dev_record(second, copy));
      CHECK_OK(dev_wait(p.compute, p.e));
      CHECK_OK(dev_wait(p.compute, second));
      CHECK_OK(submit_sleep(p.compute, 0));
      CHECK_OK(dev_sync(p.d));
      CHECK_OK(dev_trace_take(p.d, &rows, &n, &lost));
      named = CHECK(n == 3) && rows[2].waited_for != NULL && strcmp(rows[2].waited_for, "comm") == 0;
    }
    CHECK(named);
    dev_event_destroy(second);
    pair_close(&p);
  }
}

static bool has_edge(const struct dev_interval *x, const char *stream, int64_t count)
{
  for (int i = 0; i < x->n_edges; i++)
    if (strcmp(x->edges[i].stream, stream) == 0) return x->edges[i].count == count;
  return false;
}

/* comm: pieces 1, 2; copy: wait 1, piece 2; compute: waits 1 to 4, pieces 5, 6, and after the trace was taken wait 7, piece 8. */
static void what_a_piece_waited_for_is_kept_also_where_it_was_past(void)
{
  for (size_t k = 0; k < kind_count(); k++) {
    struct pair p = pair_open(kind_at(k));
    struct dev_stream *copy;
    struct dev_event *second, *third;
    const struct dev_interval *rows, *of[3] = {NULL};
    int64_t n, lost;
    CHECK_OK(dev_stream_open(p.d, "copy", DEV_TRANSFER, &copy));
    CHECK_OK(dev_event_create(p.d, &second));
    CHECK_OK(dev_event_create(p.d, &third));
    CHECK_OK(dev_trace(p.d, 10));
    CHECK_OK(submit_sleep(p.comm, 0));
    CHECK_OK(dev_record(p.e, p.comm));
    CHECK_OK(dev_wait(copy, p.e));
    CHECK_OK(submit_sleep(copy, 0));
    CHECK_OK(dev_record(second, copy));
    CHECK_OK(submit_sleep(p.comm, 0));
    CHECK_OK(dev_record(third, p.comm));
    CHECK_OK(dev_sync(p.d)); /* all of it is past */
    CHECK_OK(dev_wait(p.compute, third));
    CHECK_OK(dev_wait(p.compute, p.e)); /* behind what it waited for before */
    CHECK_OK(dev_wait(p.compute, third));
    CHECK_OK(dev_wait(p.compute, second));
    CHECK_OK(submit_sleep(p.compute, 0));
    CHECK_OK(submit_sleep(p.compute, 0));
    CHECK_OK(dev_sync(p.d));
    CHECK_OK(dev_trace_take(p.d, &rows, &n, &lost));
    if (CHECK(n == 5 && lost == 0)) {
      for (int i = 0; i < 3; i++) of[i] = &rows[2 + i];
      if (strcmp(of[0]->stream, "copy") != 0) of[0] = strcmp(rows[0].stream, "copy") == 0 ? &rows[0] : &rows[1];
      CHECK(of[0]->number == 2 && of[0]->n_edges == 1 && has_edge(of[0], "comm", 1));
      CHECK(of[1]->number == 5 && of[1]->n_edges == 2 && has_edge(of[1], "comm", 2) && has_edge(of[1], "copy", 2));
      CHECK(of[2]->number == 6 && of[2]->n_edges == 0);
    }
    CHECK_OK(dev_wait(p.compute, second));
    CHECK_OK(submit_sleep(p.compute, 0));
    CHECK_OK(dev_sync(p.d));
    CHECK_OK(dev_trace_take(p.d, &rows, &n, &lost));
    if (CHECK(n == 1)) CHECK(rows[0].number == 8 && rows[0].n_edges == 1 && has_edge(&rows[0], "copy", 2));
    dev_event_destroy(third);
    dev_event_destroy(second);
    pair_close(&p);
  }
}

/* The row is lost as a whole: never a piece that seems to have waited for nothing. */
static void edges_that_do_not_fit_are_counted(void)
{
  for (size_t k = 0; k < kind_count(); k++) {
    struct pair p = pair_open(kind_at(k));
    struct dev_stream *copy;
    struct dev_event *second;
    const struct dev_interval *rows;
    int64_t n, lost;
    CHECK_OK(dev_stream_open(p.d, "copy", DEV_TRANSFER, &copy));
    CHECK_OK(dev_event_create(p.d, &second));
    CHECK_OK(submit_sleep(p.comm, 0));
    CHECK_OK(submit_sleep(copy, 0));
    CHECK_OK(dev_record(p.e, p.comm));
    CHECK_OK(dev_record(second, copy));
    CHECK_OK(dev_trace(p.d, 1));
    CHECK_OK(dev_wait(p.compute, p.e));
    CHECK_OK(dev_wait(p.compute, second));
    CHECK_OK(submit_sleep(p.compute, 0));
    CHECK_OK(dev_sync(p.d));
    CHECK_OK(dev_trace_take(p.d, &rows, &n, &lost));
    CHECK(n == 0 && lost == 1);
    dev_event_destroy(second);
    pair_close(&p);
  }
}

static void intervals_come_in_order_of_their_end(void)
{
  for (size_t k = 0; k < kind_count(); k++) {
    struct pair p = pair_open(kind_at(k));
    const struct dev_interval *rows;
    int64_t n, lost;
    CHECK_OK(dev_trace(p.d, 1000));
    for (int i = 0; i < 400; i++) CHECK_OK(submit_sleep(i % 3 ? p.compute : p.comm, 0));
    CHECK_OK(dev_sync(p.d));
    CHECK_OK(dev_trace_take(p.d, &rows, &n, &lost));
    bool ordered = n == 400;
    for (int64_t i = 1; i < n; i++) ordered = ordered && rows[i - 1].end_ms <= rows[i].end_ms;
    CHECK(ordered);
    pair_close(&p);
  }
}

static void what_does_not_fit_is_counted(void)
{
  for (size_t k = 0; k < kind_count(); k++) {
    struct pair p = pair_open(kind_at(k));
    const struct dev_interval *rows, *next;
    int64_t n, lost;
    CHECK_OK(dev_trace(p.d, 3));
    for (int i = 0; i < 8; i++) CHECK_OK(submit_sleep(p.comm, 0));
    CHECK_OK(dev_sync(p.d));
    CHECK_OK(dev_trace_take(p.d, &rows, &n, &lost));
    CHECK(n == 3 && lost == 5);
    const double first_end = rows[0].end_ms;
    CHECK_OK(submit_sleep(p.comm, 0));
    CHECK_OK(dev_sync(p.d));
    CHECK(rows[0].end_ms == first_end); /* theirs until the next call */
    CHECK_OK(dev_trace_take(p.d, &next, &n, &lost));
    CHECK(n == 1 && lost == 0 && next != rows);
    pair_close(&p);
  }
}

static void taking_too_early_or_while_off_is_refused(void)
{
  for (size_t k = 0; k < kind_count(); k++) {
    struct pair p = pair_open(kind_at(k));
    const struct dev_interval *rows;
    int64_t n, lost;
    CHECK_ERR(dev_trace_take(p.d, &rows, &n, &lost), ERR_ARG);
    CHECK_ERR(dev_trace(p.d, -1), ERR_ARG);
    CHECK_OK(dev_trace(p.d, 3));
    CHECK_OK(submit_sleep(p.compute, 100));
    CHECK_ERR(dev_trace_take(p.d, &rows, &n, &lost), ERR_ARG);
    CHECK_TEXT_HAS(err_text(), "'compute' is not done");
    CHECK(rows == NULL);
    CHECK_OK(dev_trace(p.d, 0));
    CHECK_OK(submit_sleep(p.compute, 0));
    CHECK_OK(dev_sync(p.d));
    CHECK_ERR(dev_trace_take(p.d, &rows, &n, &lost), ERR_ARG);
    pair_close(&p);
  }
}

/* What a trailing stream has not done yet comes with a later call, once. */
static void a_trailing_stream_holds_nothing_back(void)
{
  for (size_t k = 0; k < kind_count(); k++) {
    struct pair p = pair_open(kind_at(k));
    const struct dev_interval *rows;
    int64_t n, lost, of_comm = 0;
    dev_stream_trails(p.comm);
    CHECK_OK(dev_trace(p.d, 8));
    CHECK_OK(submit_sleep(p.comm, 100));
    CHECK_OK(submit_sleep(p.compute, 0));
    CHECK_OK(dev_sync_stream(p.compute));
    CHECK_OK(dev_trace_take(p.d, &rows, &n, &lost));
    CHECK(n >= 1 && lost == 0);
    for (int64_t i = 0; i < n; i++) of_comm += strcmp(rows[i].stream, dev_stream_name(p.comm)) == 0;
    CHECK_OK(dev_sync(p.d));
    CHECK_OK(dev_trace_take(p.d, &rows, &n, &lost));
    CHECK(of_comm + n == 1 && lost == 0);
    pair_close(&p);
  }
}

int main(void)
{
  static const struct test tests[] = {
      TEST(an_interval_carries_what_the_host_was_doing),
      TEST(waiting_is_charged_to_the_stream_waited_for),
      TEST(a_wait_begins_when_the_piece_before_ends),
      TEST(of_two_waits_the_longer_one_is_named),
      TEST(what_a_piece_waited_for_is_kept_also_where_it_was_past),
      TEST(edges_that_do_not_fit_are_counted),
      TEST(intervals_come_in_order_of_their_end),
      TEST(what_does_not_fit_is_counted),
      TEST(a_trailing_stream_holds_nothing_back),
      TEST(taking_too_early_or_while_off_is_refused),
  };
  return test_main("dev_trace", tests, sizeof tests / sizeof *tests);
}
