/* dev_issue_cuda.c - pieces of work: issued to CUDA, waited for, passed over. */
#include "base/clock.h"
#include "device/dev_cuda_state.h"

#include <sched.h>
#include <stdio.h>

enum { LOOKS_YIELDING = 64, NAP_US = 20 };
static const double WAIT_MS = 0.02; /* a wait that is given and found satisfied takes less */

/* --- issuing ------------------------------------------------------------------------ */

/* The clock of a piece is an event behind it: it began when the one before it had ended, or when it was given. */
static enum err mark(struct dev_stream *s, int64_t number)
{
  if (s->dev->trace.capacity == 0) return ERR_OK;
  cudaEvent_t *e = &s->cuda->marks[number % DEV_QUEUE_SLOTS];
  if (*e == NULL) CUDA_TRY(cudaEventCreateWithFlags(e, cudaEventDefault));
  CUDA_TRY(cudaEventRecord(*e, s->cuda->at.stream));
  return ERR_OK;
}

static enum err fence(struct dev_stream *s, cudaEvent_t *out)
{
  struct dev_cuda_fence *f = &s->cuda->fences[s->cuda->fence];
  s->cuda->fence = (s->cuda->fence + 1) % DEV_CUDA_FENCES;
  f->count = 0;
  CUDA_TRY(cudaEventRecord(f->event, s->cuda->at.stream));
  f->count = s->submitted;
  *out = f->event;
  return ERR_OK;
}

static enum err issue(struct dev_stream *s, struct dev_work *w, int64_t number)
{
  struct dev_cuda_stream *c = s->cuda;
  w->given_ms = dev_trace_now(s->dev);
  if (w->kind == DEV_WORK_WAIT) {
    CUDA_TRY(cudaStreamWaitEvent(c->at.stream, w->event->cuda, 0));
  } else if (w->kernel.cuda != NULL) {
    c->at.report = &c->shared->reports[number % DEV_QUEUE_SLOTS];
    c->at.report->claimed = 0;
    TRY(w->kernel.cuda(&c->at, w->args));
  } else {
    return dev_hosted_give(s, number); /* its thread has the host's clock */
  }
  return mark(s, number);
}

static void stop_at(struct dev_stream *s, int64_t number, const struct dev_work *w, enum err code)
{
  if (!dev_stream_failed(s, number)) dev_stream_stop(s, number, w->kind == DEV_WORK_WAIT ? "wait" : w->kernel.name, code);
}

void dev_cuda_publish(struct dev_stream *s)
{
  const int64_t number = s->submitted;
  struct dev_work *w = dev_stream_piece(s, number);
  cudaEvent_t unused;
  if (dev_stream_stopped(s)) return; /* the walk drops it */
  err_clear();
  enum err e = issue(s, w, number);
  if (!e && number % DEV_CUDA_FENCE_EACH == 0) e = fence(s, &unused);
  if (!e) return;
  dev_cuda_lock(s->dev->cuda);
  stop_at(s, number, w, e);
  dev_cuda_unlock(s->dev->cuda);
}

/* --- the walk --------------------------------------------------------------------------- */

static double mark_ms(struct dev_stream *s, int64_t number)
{
  const struct dev_cuda_device *c = s->dev->cuda;
  float ms = 0;
  /* An error here is the device's, and every later call has it too. */
  if (cudaEventElapsedTime(&ms, c->epoch, s->cuda->marks[number % DEV_QUEUE_SLOTS]) != cudaSuccess) return c->epoch_ms;
  return c->epoch_ms + (double)ms;
}

/* When the piece began and ended; from here on the stream is at its end.  The two clocks agree within
 * microseconds: an end before the beginning is none. */
static double pass_time(struct dev_stream *s, const struct dev_work *w, int64_t number, double *begin_ms)
{
  struct dev_cuda_stream *c = s->cuda;
  const double end_ms = mark_ms(s, number), from_ms = c->passed_ms > w->given_ms ? c->passed_ms : w->given_ms;
  *begin_ms = from_ms < end_ms ? from_ms : end_ms;
  c->passed_ms = end_ms;
  return end_ms;
}

static void pass_wait(struct dev_stream *s, const struct dev_work *w, int64_t number)
{
  const struct dev_point *p = &w->point;
  dev_cuda_walk(p->stream, p->count);
  if (dev_stream_failed(p->stream, p->count)) dev_stream_stop_with(s, number, p->stream);
  if (s->dev->trace.capacity == 0) return;
  double begin_ms;
  const double ms = pass_time(s, w, number, &begin_ms) - begin_ms;
  dev_trace_waited(s, ms > WAIT_MS ? ms : 0, p);
}

static void pass_kernel(struct dev_stream *s, const struct dev_work *w, int64_t number)
{
  const struct dev_cuda_report *r = &s->cuda->shared->reports[number % DEV_QUEUE_SLOTS];
  BUG_IF(w->kernel.cuda == NULL); /* hosted work is passed by its thread */
  if (r->claimed) {
    char text[400];
    snprintf(text, sizeof text, r->format, r->a, r->b, r->c, r->d);
    stop_at(s, number, w, err_set(ERR_NUMERIC, __FILE__, __LINE__, "%s", text));
  }
  if (s->dev->trace.capacity == 0) return;
  double begin_ms;
  const double end_ms = pass_time(s, w, number, &begin_ms);
  dev_trace_done(s, w, begin_ms, begin_ms, end_ms);
}

void dev_cuda_walk(struct dev_stream *s, int64_t upto)
{
  while (s->next <= upto) {
    const int64_t number = s->next;
    const struct dev_work *w = dev_stream_piece(s, number);
    const bool dropped = dev_stream_failed(s, number);
    if (!dropped && w->kind == DEV_WORK_WAIT) pass_wait(s, w, number);
    if (!dropped && w->kind == DEV_WORK_KERNEL) pass_kernel(s, w, number);
    if (s->cuda->staging.n > 0) dev_staging_passed(s, w, number, dropped);
    dev_gate_advance(&s->completed, s->next++);
  }
}

/* --- the host waits --------------------------------------------------------------------------- */

void dev_cuda_lose(struct dev *d, enum err code)
{
  struct err_saved saved;
  err_save(&saved, code);
  dev_cuda_lock(d->cuda);
  for (int i = 0; i < DEV_STREAMS_MAX; i++) {
    struct dev_stream *s = &d->streams[i];
    if (s->open && !dev_stream_stopped(s)) dev_stream_stop_as(s, s->next, &saved);
  }
  atomic_store(&d->cuda->lost, true);
  dev_cuda_unlock(d->cuda);
}

static enum err ask_watchers(struct dev *d)
{
  for (int i = 0; i < DEV_WATCHERS; i++)
    if (d->watchers[i].fn != NULL) TRY(d->watchers[i].fn(d->watchers[i].arg));
  return ERR_OK;
}

/* Whether the event has happened; otherwise the device is lost.  Watchers see the end, too. */
static bool poll(struct dev *d, cudaEvent_t event)
{
  for (int looks = 0; !atomic_load(&d->cuda->lost); looks++) {
    const cudaError_t code = cudaEventQuery(event);
    enum err e = ERR_OK;
    if (code == cudaErrorNotReady)
      (void)cudaGetLastError(); /* not ready is remembered as if it were an error */
    else
      e = dev_cuda_check(code, "waiting for the device", __FILE__, __LINE__);
    if (!e) e = ask_watchers(d);
    if (e)
      dev_cuda_lose(d, e);
    else if (code == cudaSuccess)
      return true;
    else if (looks < LOOKS_YIELDING)
      sched_yield();
    else
      clock_sleep_ms(NAP_US * 1e-3);
  }
  return false;
}

/* A fence behind the first `count` pieces: the nearest there is, or a fresh one. */
static enum err fence_behind(struct dev_stream *s, int64_t count, cudaEvent_t *out)
{
  const struct dev_cuda_fence *best = NULL;
  for (int i = 0; i < DEV_CUDA_FENCES; i++) {
    const struct dev_cuda_fence *f = &s->cuda->fences[i];
    if (f->count >= count && (best == NULL || f->count < best->count)) best = f;
  }
  if (best == NULL) return fence(s, out);
  *out = best->event;
  return ERR_OK;
}

static void await_count(struct dev_stream *s, int64_t count)
{
  struct dev_cuda_device *c = s->dev->cuda;
  cudaEvent_t event = NULL;
  if (dev_gate_value(&s->completed) >= count || atomic_load(&c->lost)) return;
  const enum err e = fence_behind(s, count, &event);
  if (e) {
    dev_cuda_lose(s->dev, e);
  } else if (poll(s->dev, event)) {
    dev_cuda_lock(c);
    dev_cuda_walk(s, count);
    dev_cuda_unlock(c);
  }
}

/* The host may be on its way out with an error in hand. */
void dev_cuda_await(struct dev *d, const struct dev_point *points, int n)
{
  struct err_saved saved;
  (void)d;
  err_save(&saved, ERR_OK);
  for (int i = 0; i < n; i++) await_count(points[i].stream, points[i].count);
  err_restore(&saved);
}

void dev_cuda_await_event(struct dev_event *e)
{
  struct dev_cuda_device *c = e->dev->cuda;
  struct dev_stream *s = e->point.stream;
  struct err_saved saved;
  if (dev_gate_value(&s->completed) >= e->point.count) return;
  err_save(&saved, ERR_OK);
  if (poll(e->dev, e->cuda)) {
    dev_cuda_lock(c);
    dev_cuda_walk(s, e->point.count);
    dev_cuda_unlock(c);
  }
  err_restore(&saved);
}
