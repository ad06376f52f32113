/* dev_lazy.c - the executor that runs on the thread that synchronises.
 *
 * A sync demands a point of a stream; a wait at the head of a demanded stream demands
 * the point that it waits for; nothing else runs, so each piece comes as late as the
 * events allow.  Where several streams could go on, the seed chooses.  A started piece
 * (MPI) stays in flight while others run; when all that is demanded is in flight and
 * peers keep it waiting, work that nobody here demands is run too, since a peer may.
 */
#include "base/clock.h"
#include "base/rng.h"
#include "device/dev_internal.h"

#include <omp.h>

enum { PATIENCE = 8 }; /* fruitless polls a stream before undemanded work runs */

static int choose(struct dev *d, int n)
{
  const struct rng_key key = {d->config.lazy_seed, RNG_LAZY, 0};
  return n == 1 ? 0 : (int)rng_below(key, d->choices++, (uint64_t)n);
}

static int64_t done_of(struct dev_stream *s) { return s->next - 1; }

static void finish(struct dev_stream *s)
{
  s->in_flight = false;
  s->wait_since_ms = 0;
  dev_gate_advance(&s->completed, s->next++);
}

/* Passes over waits that are satisfied and over what an error dropped.  True when a
 * kernel stands at the head; otherwise *blocked is the wait there, NULL: no work. */
static bool kernel_at_head(struct dev_stream *s, struct dev_point **blocked)
{
  *blocked = NULL;
  while (s->open && s->next <= s->submitted) {
    struct dev_work *w = dev_stream_piece(s, s->next);
    if (!dev_stream_stopped(s)) {
      if (w->kind == DEV_WORK_KERNEL) return true;
      struct dev_point *p = &w->point;
      if (done_of(p->stream) < p->count) {
        if (s->wait_since_ms == 0) s->wait_since_ms = clock_ms();
        *blocked = p;
        return false;
      }
      dev_trace_waited(s, s->wait_since_ms != 0 ? clock_ms() - s->wait_since_ms : 0, p);
      if (dev_stream_failed(p->stream, p->count)) dev_stream_stop_with(s, s->next, p->stream);
    }
    finish(s);
  }
  return false;
}

/* Starts, tests or runs the kernel at the head.  False: a test that found nothing done. */
static bool step(struct dev_stream *s)
{
  struct dev *d = s->dev;
  struct dev_work *w = dev_stream_piece(s, s->next);
  bool done = true;
  enum err e;
  err_clear();
  omp_set_num_threads(s->role == DEV_COMPUTE ? d->config.threads : 1);
  if (!s->in_flight) s->flight_ms = dev_trace_now(d);
  if (w->kernel.run) {
    e = w->kernel.run(w->args);
  } else if (!s->in_flight) {
    e = w->kernel.start(w->args);
    s->in_flight = true;
    if (!e) return true;
  } else {
    done = false;
    e = w->kernel.test(w->args, &done);
  }
  if (!e && !done) return false;
  dev_trace_done(s, w, s->flight_ms, s->flight_ms, dev_trace_now(d));
  if (e) dev_stream_stop(s, s->next, w->kernel.name, e);
  finish(s);
  return true;
}

/* Follows the waits at the heads of demanded streams to the points that they wait for. */
static void spread_demand(struct dev *d, int64_t demand[DEV_STREAMS_MAX])
{
  bool changed;
  do {
    changed = false;
    for (int i = 0; i < DEV_STREAMS_MAX; i++) {
      struct dev_stream *s = &d->streams[i];
      if (done_of(s) >= demand[i]) continue;
      const int64_t before = s->next;
      struct dev_point *blocked;
      kernel_at_head(s, &blocked);
      changed = changed || s->next != before;
      if (blocked && demand[blocked->stream->index] < blocked->count) {
        demand[blocked->stream->index] = blocked->count;
        changed = true;
      }
    }
  } while (changed);
}

/* Streams that can go on towards what is demanded, and those in flight anyway. */
static int candidates(struct dev *d, const int64_t demand[DEV_STREAMS_MAX], struct dev_stream *out[DEV_STREAMS_MAX])
{
  int n = 0;
  struct dev_point *blocked;
  for (int i = 0; i < DEV_STREAMS_MAX; i++) {
    struct dev_stream *s = &d->streams[i];
    if (s->in_flight || (done_of(s) < demand[i] && kernel_at_head(s, &blocked))) out[n++] = s;
  }
  return n;
}

static bool run_something_else(struct dev *d)
{
  struct dev_stream *others[DEV_STREAMS_MAX];
  struct dev_point *blocked;
  int n = 0;
  for (int i = 0; i < DEV_STREAMS_MAX; i++)
    if (!d->streams[i].in_flight && kernel_at_head(&d->streams[i], &blocked)) others[n++] = &d->streams[i];
  return n > 0 && step(others[choose(d, n)]);
}

static bool reached(const struct dev_point *points, int n)
{
  for (int i = 0; i < n; i++)
    if (done_of(points[i].stream) < points[i].count) return false;
  return true;
}

static void run_until(struct dev *d, const struct dev_point *points, int n)
{
  int64_t demand[DEV_STREAMS_MAX] = {0};
  for (int i = 0; i < n; i++)
    if (demand[points[i].stream->index] < points[i].count) demand[points[i].stream->index] = points[i].count;
  int fruitless = 0;
  for (;;) {
    spread_demand(d, demand);
    if (reached(points, n)) return;
    struct dev_stream *ready[DEV_STREAMS_MAX];
    const int n_ready = candidates(d, demand, ready);
    BUG_IF(n_ready == 0); /* a point is always recorded before it is waited for: no circle */
    fruitless = step(ready[choose(d, n_ready)]) ? 0 : fruitless + 1;
    if (fruitless < PATIENCE * n_ready) continue;
    if (!run_something_else(d)) clock_sleep_ms(0.02);
  }
}

/* --- the backend ------------------------------------------------------------------- */

static enum err lazy_stream_open(struct dev_stream *s)
{
  (void)s;
  return ERR_OK;
}
static void lazy_stream_close(struct dev_stream *s) { (void)s; }
static void lazy_publish(struct dev_stream *s) { (void)s; }

/* The host may be on its way out with an error in hand, and has threads set its own way. */
static void lazy_await(struct dev *d, const struct dev_point *points, int n)
{
  if (reached(points, n)) return;
  struct err_saved saved;
  err_save(&saved, ERR_OK);
  const int threads = omp_get_max_threads();
  run_until(d, points, n);
  omp_set_num_threads(threads);
  err_restore(&saved);
}

const struct dev_backend dev_lazy_backend = {.stream_open = lazy_stream_open,
                                             .stream_close = lazy_stream_close,
                                             .publish = lazy_publish,
                                             .await = lazy_await,
                                             DEV_HOST};
