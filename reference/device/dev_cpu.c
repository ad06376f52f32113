/* dev_cpu.c - a stream is a thread that takes pieces of work from its ring.
 *
 * A thread with nothing to do sleeps on a gate.  A piece with start and test (MPI)
 * is polled: while a compute stream of the device is at work the poller naps longer
 * and longer, because each look costs that stream its core for a moment; it is woken
 * early when the compute stream runs out of work.  While none is at work, or while
 * its looks move data, it looks often.
 */
#include "base/clock.h"
#include "device/dev_internal.h"

#include <omp.h>
#include <sched.h>
#include <sys/prctl.h>

enum { NAP_FIRST_US = 20, NAP_LAST_US = 1000, NAP_IDLE_US = 20, YIELDS = 16 };

/* A look that finds nothing takes 1 to 4 us of processor time, after a long nap and on cold caches up to 12;
 * one that moves fragments of 32 KiB 6 us each.  Without single copies MPI moves little at each look: while it
 * does, look often, and be done. */
long dev_cpu_nap_us(long napped_us, double look_us)
{
  const bool moved = look_us >= (napped_us > 2 * NAP_FIRST_US ? 15.0 : 5.0);
  if (moved || napped_us == 0) return NAP_FIRST_US;
  return napped_us * 2 < NAP_LAST_US ? napped_us * 2 : NAP_LAST_US;
}

/* --- who is at work -------------------------------------------------------------- */

/* The counter orders nothing, so everything here is relaxed. */
static void compute_begins(struct dev_stream *s)
{
  if (s->role == DEV_COMPUTE) atomic_fetch_add_explicit(&s->dev->activity, 2, memory_order_relaxed);
}

static void compute_ends(struct dev_stream *s)
{
  if (s->role != DEV_COMPUTE) return;
  const uint32_t before = atomic_fetch_sub_explicit(&s->dev->activity, 2, memory_order_relaxed);
  if ((before & 1) == 0) return;
  atomic_fetch_and_explicit(&s->dev->activity, ~1u, memory_order_relaxed);
  dev_futex_wake(&s->dev->activity);
}

/* After a look that took look_us.  *us: the last nap beside compute, 0 before the first. */
static void nap(struct dev *d, int *yields, long *us, double look_us)
{
  const uint32_t activity = atomic_load_explicit(&d->activity, memory_order_relaxed);
  if (activity > 1) {
    const uint32_t seen = atomic_fetch_or_explicit(&d->activity, 1, memory_order_relaxed) | 1;
    *us = dev_cpu_nap_us(*us, look_us);
    if (seen > 1) dev_futex_wait(&d->activity, seen, *us);
    *yields = 0;
  } else if (*yields < YIELDS) {
    sched_yield();
    ++*yields;
  } else {
    *us = 0;
    clock_sleep_ms(NAP_IDLE_US * 1e-3);
  }
}

/* --- the thread ------------------------------------------------------------------ */

static void sleep_until(struct dev_stream *s, struct dev_gate *gate, int64_t value)
{
  if (dev_gate_value(gate) >= value) return;
  compute_ends(s);
  dev_gate_await(gate, value);
  compute_begins(s);
}

static enum err start_and_poll(struct dev_stream *s, struct dev_work *w)
{
  compute_ends(s); /* polling is not work, also on a compute stream */
  bool done = false;
  enum err e = w->kernel.start(w->args);
  long us = 0;
  int yields = 0;
  while (!e && !done) {
    const double before_ms = clock_thread_ms();
    e = w->kernel.test(w->args, &done);
    if (e || done) break;
    nap(s->dev, &yields, &us, 1e3 * (clock_thread_ms() - before_ms));
  }
  compute_begins(s);
  return e;
}

static bool is_open(const struct dev_point *p) { return dev_gate_value(&p->stream->completed) < p->count; }

/* What is so when a piece has ended.  The thread that its end wakes may take the processor before the next piece is looked at: a pause
 * of this stream's work as any other, or the beginning of its wait. */
static void look_ahead(struct dev_stream *s)
{
  s->held = false;
  if (dev_gate_value(&s->published) <= s->next) s->free_ms = 0;
  else {
    const struct dev_work *w = dev_stream_piece(s, s->next + 1);
    s->held = w->kind == DEV_WORK_WAIT && is_open(&w->point);
  }
}

static void do_piece(struct dev_stream *s, struct dev_work *w, int64_t number)
{
  if (dev_stream_stopped(s)) return; /* what follows an error is dropped */
  const double ready_ms = s->free_ms > 0 ? s->free_ms : dev_trace_now(s->dev);
  if (w->kind == DEV_WORK_WAIT) {
    struct dev_point *p = &w->point;
    const bool waits = s->held || is_open(p);
    sleep_until(s, &p->stream->completed, p->count);
    const double end_ms = waits ? dev_trace_now(s->dev) : ready_ms;
    dev_trace_waited(s, end_ms - ready_ms, p);
    s->free_ms = end_ms;
    if (dev_stream_failed(p->stream, p->count)) dev_stream_stop_with(s, number, p->stream);
    return;
  }
  dev_work_declare(w);
  err_clear();
  const enum err e = w->kernel.run ? w->kernel.run(w->args) : start_and_poll(s, w);
  if (w->kernel.start) dev_work_declare(w); /* its accesses last until now */
  s->free_ms = dev_trace_now(s->dev);
  dev_trace_done(s, w, ready_ms, ready_ms, s->free_ms);
  if (e) dev_stream_stop(s, number, w->kernel.name, e);
}

static void *work(void *at)
{
  struct dev_stream *s = at;
  omp_set_num_threads(s->role == DEV_COMPUTE ? s->dev->config.threads : 1);
  if (s->role == DEV_TRANSFER) prctl(PR_SET_TIMERSLACK, 1000UL); /* ns: naps are short */
  compute_begins(s);
  for (bool stop = false; !stop; s->next++) {
    sleep_until(s, &s->published, s->next);
    struct dev_work *w = dev_stream_piece(s, s->next);
    stop = w->kind == DEV_WORK_STOP;
    if (!stop) do_piece(s, w, s->next);
    look_ahead(s);
    dev_gate_advance(&s->completed, s->next);
  }
  compute_ends(s);
  return NULL;
}

/* --- the backend ------------------------------------------------------------------- */

static enum err cpu_stream_open(struct dev_stream *s) { return dev_stream_thread(s, work); }

static void cpu_stream_close(struct dev_stream *s)
{
  dev_stream_slot(s)->kind = DEV_WORK_STOP;
  dev_stream_push(s);
  pthread_join(s->thread, NULL);
}

static void cpu_publish(struct dev_stream *s) { dev_gate_advance(&s->published, s->submitted); }

static void cpu_await(struct dev *d, const struct dev_point *points, int n)
{
  (void)d;
  for (int i = 0; i < n; i++) dev_gate_await(&points[i].stream->completed, points[i].count);
}

const struct dev_backend dev_cpu_backend = {.stream_open = cpu_stream_open,
                                            .stream_close = cpu_stream_close,
                                            .publish = cpu_publish,
                                            .await = cpu_await,
                                            DEV_HOST};
