/* dev_trace.c - one interval a piece of work, in memory taken beforehand. */
#include "base/clock.h"
#include "device/dev_internal.h"

#include <stdlib.h>
#include <string.h>

double dev_trace_now(struct dev *d) { return d->trace.capacity ? clock_ms() : 0; }

void dev_trace_release(struct dev_trace_log *t)
{
  for (int i = 0; i < 2; i++) {
    free(t->rows[i]);
    free(t->edges[i]);
    t->rows[i] = NULL;
    t->edges[i] = NULL;
  }
  t->capacity = 0;
}

static void forget_edges(struct dev_stream *s)
{
  for (int i = 0; i < DEV_STREAMS_MAX; i++) s->edges[i].count = 0;
}

enum err dev_trace(struct dev *d, int64_t capacity)
{
  struct dev_trace_log *t = &d->trace;
  if (capacity < 0) FAIL(ERR_ARG, "trace: capacity %lld", (long long)capacity);
  dev_await_all(d); /* nobody writes into the rows that go */
  dev_trace_release(t);
  t->kept = t->edged = t->lost = 0;
  t->filled = 0;
  for (int i = 0; i < DEV_STREAMS_MAX; i++) forget_edges(&d->streams[i]);
  if (capacity == 0) return ERR_OK;
  for (int i = 0; i < 2; i++) {
    t->rows[i] = calloc((size_t)capacity, sizeof *t->rows[i]);
    t->edges[i] = malloc((size_t)capacity * sizeof *t->edges[i]);
    if (t->rows[i] == NULL || t->edges[i] == NULL) {
      dev_trace_release(t);
      FAIL(ERR_MEMORY, "trace: %lld intervals", (long long)capacity);
    }
  }
  t->capacity = capacity;
  return d->backend->traced(d);
}

void dev_trace_waited(struct dev_stream *s, double ms, const struct dev_point *point)
{
  if (s->dev->trace.capacity == 0) return;
  struct dev_edge *e = &s->edges[point->stream->index];
  if (e->count < point->count) *e = (struct dev_edge){point->stream->name, point->count};
  s->waited_ms += ms;
  if (ms > s->longest_ms) {
    s->longest_ms = ms;
    s->waited_for = point->stream->name;
  }
}

/* Of the piece at the head of s; NULL: they do not fit. */
static const struct dev_edge *keep_edges(struct dev_trace_log *t, const struct dev_stream *s, int *n)
{
  struct dev_edge *at = t->edges[t->filled] + t->edged;
  *n = 0;
  for (int i = 0; i < DEV_STREAMS_MAX; i++) {
    if (s->edges[i].count == 0) continue;
    if (t->edged + *n == t->capacity) return NULL;
    at[(*n)++] = s->edges[i];
  }
  t->edged += *n;
  return at;
}

void dev_trace_done(struct dev_stream *s, const struct dev_work *w, double ready_ms, double start_ms, double end_ms)
{
  struct dev_trace_log *t = &s->dev->trace;
  if (t->capacity == 0) return;
  pthread_mutex_lock(&t->lock);
  int n_edges;
  const struct dev_edge *edges = keep_edges(t, s, &n_edges);
  if (t->kept < t->capacity && edges != NULL)
    t->rows[t->filled][t->kept++] = (struct dev_interval){.stream = s->name,
                                                    .kernel = w->kernel.name,
                                                    .phase = w->phase,
                                                    .step = w->step,
                                                    .microbatch = w->microbatch,
                                                    .action = w->action,
                                                    .ready_ms = ready_ms,
                                                    .start_ms = start_ms,
                                                    .end_ms = end_ms,
                                                    .waited_ms = s->waited_ms,
                                                    .waited_for = s->waited_for,
                                                    .number = s->next,
                                                    .edges = edges,
                                                    .n_edges = n_edges};
  else
    t->lost++;
  pthread_mutex_unlock(&t->lock);
  forget_edges(s);
  s->waited_ms = s->longest_ms = 0;
  s->waited_for = NULL;
}

/* Merges halves, of which one waits in `room`; what is in order already stays untouched. */
static void sort_by_end(struct dev_interval *rows, int64_t n, struct dev_interval *room)
{
  if (n < 2) return;
  const int64_t half = n / 2;
  sort_by_end(rows, half, room);
  sort_by_end(rows + half, n - half, room);
  if (rows[half - 1].end_ms <= rows[half].end_ms) return;
  memcpy(room, rows, (size_t)half * sizeof *rows);
  for (int64_t to = 0, a = 0, b = half; a < half; to++)
    rows[to] = b < n && rows[b].end_ms < room[a].end_ms ? rows[b++] : room[a++];
}

enum err dev_trace_take(struct dev *d, const struct dev_interval **out, int64_t *n, int64_t *lost)
{
  struct dev_trace_log *t = &d->trace;
  *out = NULL;
  *n = *lost = 0;
  if (t->capacity == 0) FAIL(ERR_ARG, "trace: taken while it is off");
  for (int i = 0; i < DEV_STREAMS_MAX; i++)
    if (d->streams[i].open && !d->streams[i].trails && dev_gate_value(&d->streams[i].completed) < d->streams[i].submitted)
      FAIL(ERR_ARG, "trace: taken while work on '%s' is not done; dev_sync() first", d->streams[i].name);
  pthread_mutex_lock(&t->lock);
  *n = t->kept;
  *lost = t->lost;
  *out = t->rows[t->filled];
  sort_by_end(t->rows[t->filled], *n, t->rows[!t->filled]);
  t->filled = !t->filled;
  t->kept = t->edged = t->lost = 0;
  pthread_mutex_unlock(&t->lock);
  return d->backend->traced(d);
}
