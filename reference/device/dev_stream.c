/* dev_stream.c - streams, events and the host's waiting, over any backend. */
#include "device/dev_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum err dev_stream_open(struct dev *d, const char *name, enum dev_role role, struct dev_stream **out)
{
  *out = NULL;
  if (name == NULL || (role != DEV_COMPUTE && role != DEV_TRANSFER)) FAIL(ERR_ARG, "stream: no name or role");
  int i = 0;
  while (i < DEV_STREAMS_MAX && d->streams[i].open) i++;
  if (i == DEV_STREAMS_MAX) FAIL(ERR_ARG, "stream '%s': %d streams are open already", name, i);

  struct dev_stream *s = &d->streams[i];
  s->queue = malloc(DEV_QUEUE_SLOTS * sizeof *s->queue);
  if (s->queue == NULL) FAIL(ERR_MEMORY, "stream '%s': queue of %d pieces", name, (int)DEV_QUEUE_SLOTS);
  s->name = name;
  s->role = role;
  s->next = s->submitted + 1; /* counts go on where the last stream in this place ended, so old points stay past */
  s->in_flight = s->trails = false;
  s->wait_since_ms = s->waited_ms = s->longest_ms = 0;
  s->waited_for = NULL;
  memset(s->edges, 0, sizeof s->edges);
  const enum err e = d->backend->stream_open(s);
  if (e) {
    free(s->queue);
    s->queue = NULL;
    return err_trace(e, __FILE__, __LINE__);
  }
  s->open = true;
  *out = s;
  return ERR_OK;
}

void dev_stream_trails(struct dev_stream *s) { s->trails = true; }

static void await(struct dev_stream *s, int64_t count)
{
  const struct dev_point point = {s, count};
  s->dev->backend->await(s->dev, &point, 1);
}

static int all_points(struct dev *d, struct dev_point out[DEV_STREAMS_MAX])
{
  int n = 0;
  for (int i = 0; i < DEV_STREAMS_MAX; i++)
    if (d->streams[i].open) out[n++] = (struct dev_point){&d->streams[i], d->streams[i].submitted};
  return n;
}

static void host_after_stream(struct dev_stream *s)
{
  if (s->dev->clocks == NULL) return;
  int64_t clock[DEV_CLOCKS];
  dev_clocks_record(s->dev->clocks, 1 + s->index, clock);
  dev_clocks_wait(s->dev->clocks, 0, clock);
}

void dev_await_all(struct dev *d)
{
  struct dev_point all[DEV_STREAMS_MAX];
  d->backend->await(d, all, all_points(d, all));
}

void dev_stream_close(struct dev_stream *s)
{
  if (s == NULL) return;
  struct dev *d = s->dev;
  await(s, s->submitted);
  host_after_stream(s);
  if (dev_stream_stopped(s)) {
    /* Whoever waits for this stream must hear of the failure before its place is used again. */
    dev_await_all(d);
    if (!s->surfaced && d->orphan.code == ERR_OK) d->orphan = s->failure;
    atomic_store_explicit(&s->failed_at, INT64_MAX, memory_order_relaxed);
    s->surfaced = false;
  }
  d->backend->stream_close(s);
  s->open = false;
  free(s->queue);
  s->queue = NULL;
}

struct dev *dev_of(const struct dev_stream *s) { return s->dev; }
const char *dev_stream_name(const struct dev_stream *s) { return s->name; }

/* --- pieces ----------------------------------------------------------------- */

struct dev_work *dev_stream_slot(struct dev_stream *s)
{
  if (s->submitted - s->completed_seen >= DEV_QUEUE_SLOTS) {
    await(s, s->submitted - DEV_QUEUE_SLOTS + 1);
    s->completed_seen = dev_gate_value(&s->completed);
  }
  return dev_stream_piece(s, s->submitted + 1);
}

void dev_stream_push(struct dev_stream *s)
{
  s->submitted++;
  s->dev->backend->publish(s);
}

void dev_stream_stop(struct dev_stream *s, int64_t number, const char *kernel, enum err code)
{
  err_save(&s->failure, code);
  char text[sizeof s->failure.text];
  snprintf(text, sizeof text, "'%s' on stream %s: %.900s", kernel, s->name, s->failure.text);
  memcpy(s->failure.text, text, sizeof text);
  atomic_store_explicit(&s->failed_at, number, memory_order_release);
}

void dev_stream_stop_as(struct dev_stream *s, int64_t number, const struct err_saved *failure)
{
  s->failure = *failure;
  atomic_store_explicit(&s->failed_at, number, memory_order_release);
}

void dev_stream_stop_with(struct dev_stream *s, int64_t number, struct dev_stream *origin)
{
  dev_stream_stop_as(s, number, &origin->failure);
}

enum err dev_stream_thread(struct dev_stream *s, void *(*work)(void *stream))
{
  sigset_t all, before; /* signals are for the host's thread */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(&s->thread, NULL, work, s);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) FAIL(failed == EAGAIN ? ERR_MEMORY : ERR_DEVICE, "stream '%s': no thread: %s", s->name, strerror(failed));
  char name[16]; /* the system's limit */
  snprintf(name, sizeof name, "%.15s", s->name);
  pthread_setname_np(s->thread, name);
  return ERR_OK;
}

/* --- events ------------------------------------------------------------------- */

enum err dev_event_create(struct dev *d, struct dev_event **out)
{
  *out = calloc(1, sizeof **out);
  if (*out == NULL) FAIL(ERR_MEMORY, "event: %zu bytes", sizeof **out);
  (*out)->dev = d;
  (*out)->backend = d->backend;
  const enum err e = d->backend->event_create(*out);
  if (e) {
    free(*out);
    *out = NULL;
    return err_trace(e, __FILE__, __LINE__);
  }
  return ERR_OK;
}

void dev_event_destroy(struct dev_event *e)
{
  if (e == NULL) return;
  e->backend->event_destroy(e);
  free(e);
}

enum err dev_record(struct dev_event *e, struct dev_stream *s)
{
  if (e->dev != s->dev) FAIL(ERR_ARG, "event recorded on stream '%s' of another device", s->name);
  e->point = (struct dev_point){s, s->submitted};
  TRY(s->dev->backend->record(e));
  if (s->dev->clocks) dev_clocks_record(s->dev->clocks, 1 + s->index, e->clock);
  return ERR_OK;
}

enum err dev_wait(struct dev_stream *s, struct dev_event *e)
{
  if (e->point.stream == NULL) FAIL(ERR_ARG, "stream '%s' waits for an event that was never recorded", s->name);
  if (e->dev != s->dev) FAIL(ERR_ARG, "stream '%s' waits for an event of another device", s->name);
  if (e->point.stream == s) return ERR_OK; /* a stream is in order anyway */
  struct dev_work *w = dev_stream_slot(s);
  w->kind = DEV_WORK_WAIT;
  w->point = e->point;
  w->event = e;
  dev_stream_push(s);
  if (s->dev->clocks) dev_clocks_wait(s->dev->clocks, 1 + s->index, e->clock);
  return ERR_OK;
}

/* --- the host waits -------------------------------------------------------------- */

static enum err outcome(struct dev_stream *s, int64_t count)
{
  if (!dev_stream_failed(s, count)) return ERR_OK;
  s->surfaced = true;
  return err_restore(&s->failure);
}

enum err dev_sync_event(struct dev_event *e)
{
  if (e->point.stream == NULL) FAIL(ERR_ARG, "the host waits for an event that was never recorded");
  e->dev->backend->await_event(e);
  if (e->dev->clocks) {
    dev_clocks_wait(e->dev->clocks, 0, e->clock);
    TRY(dev_clocks_new(e->dev->clocks));
  }
  return outcome(e->point.stream, e->point.count);
}

enum err dev_sync_stream(struct dev_stream *s)
{
  await(s, s->submitted);
  host_after_stream(s);
  if (s->dev->clocks) TRY(dev_clocks_new(s->dev->clocks));
  return outcome(s, s->submitted);
}

enum err dev_sync(struct dev *d)
{
  dev_await_all(d);
  for (int i = 0; i < DEV_STREAMS_MAX; i++)
    if (d->streams[i].open) host_after_stream(&d->streams[i]);
  if (d->clocks) TRY(dev_clocks_new(d->clocks));
  enum err worst = ERR_OK;
  for (int i = DEV_STREAMS_MAX - 1; i >= 0; i--) { /* the text is that of the first stream */
    struct dev_stream *s = &d->streams[i];
    const enum err e = s->open ? outcome(s, s->submitted) : ERR_OK;
    if (e) worst = e;
  }
  if (worst == ERR_OK && d->orphan.code != ERR_OK) {
    worst = err_restore(&d->orphan);
    d->orphan.code = ERR_OK;
  }
  return worst;
}
