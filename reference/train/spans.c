/* spans.c - intervals sorted by stream, cut where the graph has a knot, merged between. */
#include "train/spans.h"

#include <stdlib.h>
#include <string.h>

void spans_mark(struct span_marks *m, const char *kernel, double now_ms)
{
  const bool joins = m->n > 0 && strcmp(m->list[m->n - 1].kernel, kernel) == 0;
  BUG_IF(!joins && m->n == SPANS_MARKS);
  if (!joins) {
    m->list[m->n].kernel = kernel;
    m->list[m->n++].start_ms = m->since_ms;
  }
  m->list[m->n - 1].end_ms = m->since_ms = now_ms;
}

void spans_restart(struct span_marks *m, double end_ms)
{
  m->n = 0;
  m->since_ms = end_ms;
}

/* What is made on the way; pieces are the intervals by stream and number. */
struct maker {
  const struct spans_of *of;
  struct spans *out;
  const struct dev_interval **pieces; /* [n]                                                     */
  int *call, *span;                   /* [n] of each piece                                       */
  bool *cut;                          /* [n + 1] a span begins here                              */
  int64_t *from, *to;                 /* edges between pieces                                    */
  int64_t n_edges;
  int64_t first[SPANS_STREAMS + 1];   /* pieces of stream i: first[i] .. first[i + 1]; the host has none */
};

/* --- pieces ------------------------------------------------------------------------------ */

static int by_stream_and_number(const void *a, const void *b)
{
  const struct dev_interval *x = *(const struct dev_interval *const *)a, *y = *(const struct dev_interval *const *)b;
  const int order = strcmp(x->stream, y->stream);
  return order ? order : (x->number > y->number) - (x->number < y->number);
}

static enum err sort_pieces(struct maker *m)
{
  struct spans *s = m->out;
  for (int64_t i = 0; i < m->of->n; i++) m->pieces[i] = &m->of->list[i];
  if (m->of->n > 0) qsort(m->pieces, (size_t)m->of->n, sizeof(const struct dev_interval *), by_stream_and_number);
  s->streams[s->n_streams++] = "host";
  for (int64_t i = 0; i < m->of->n; i++) {
    if (i > 0 && strcmp(m->pieces[i]->stream, m->pieces[i - 1]->stream) == 0) continue;
    if (s->n_streams == SPANS_STREAMS) FAIL(ERR_ARG, "spans of more than %d streams", SPANS_STREAMS - 1);
    m->first[s->n_streams] = i;
    s->streams[s->n_streams++] = m->pieces[i]->stream;
  }
  m->first[s->n_streams] = m->of->n;
  return ERR_OK;
}

static bool earlier(const struct maker *m, int64_t piece) { return m->pieces[piece]->step != m->of->step; }

static int stream_named(const struct spans *s, const char *name)
{
  for (int i = 1; i < s->n_streams; i++)
    if (strcmp(s->streams[i], name) == 0) return i;
  return -1;
}

static bool is_awaited(const struct maker *m, const char *stream)
{
  for (int i = 0; i < m->of->n_awaited; i++)
    if (strcmp(m->of->awaited[i], stream) == 0) return true;
  return false;
}

/* Calls of one stream are done in the order in which they were queued, each as one piece of its name. */
static enum err match_calls(struct maker *m)
{
  int64_t next[SPANS_STREAMS];
  memcpy(next, m->first, sizeof next);
  for (int64_t i = 0; i < m->of->n; i++) m->call[i] = earlier(m, i) ? SPAN_EARLIER : SPAN_WORK;
  for (int64_t c = 0; c < m->of->n_calls; c++) {
    const struct comm_call *call = &m->of->calls[c];
    const int stream = stream_named(m->out, call->stream);
    int64_t i = stream < 0 ? 0 : next[stream];
    const int64_t end = stream < 0 ? 0 : m->first[stream + 1];
    while (i < end && (earlier(m, i) || strcmp(m->pieces[i]->kernel, call->op) != 0)) i++;
    if (i == end && is_awaited(m, call->stream))
      FAIL(ERR_ARG, "%s #%d of %s left no interval on stream %s", call->op, call->sequence, call->group, call->stream);
    if (i == end) continue; /* goes on into the next step */
    m->call[i] = (int)c;
    next[stream] = i + 1;
  }
  return ERR_OK;
}

/* --- edges and cuts ---------------------------------------------------------------------- */

/* The last piece of that stream among its first `count`; -1: it is of an earlier step. */
static int64_t last_of(const struct maker *m, const struct dev_edge *e)
{
  const int stream = stream_named(m->out, e->stream);
  if (stream < 0) return -1;
  int64_t low = m->first[stream], high = m->first[stream + 1]; /* the first with a larger number is in low .. high */
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (m->pieces[middle]->number <= e->count) low = middle + 1;
    else high = middle;
  }
  return low > m->first[stream] ? low - 1 : -1;
}

static void find_edges(struct maker *m)
{
  for (int64_t i = 0; i < m->of->n; i++)
    for (int k = 0; k < m->pieces[i]->n_edges; k++) {
      const int64_t before = last_of(m, &m->pieces[i]->edges[k]);
      if (before < 0) continue;
      m->cut[i] = m->cut[before + 1] = true;
      m->from[m->n_edges] = i;
      m->to[m->n_edges++] = before;
    }
}

static bool alike(const struct maker *m, int64_t a, int64_t b)
{
  const struct dev_interval *x = m->pieces[a], *y = m->pieces[b];
  return m->call[a] < 0 && m->call[a] == m->call[b] && x->phase == y->phase && x->microbatch == y->microbatch && x->action == y->action;
}

/* What holds a collective's end back is the end of it. */
static bool is_hold(const struct maker *m, int64_t i)
{
  return i > 0 && m->call[i - 1] >= 0 && strcmp(m->pieces[i]->kernel, COMM_HOLD) == 0;
}

static void find_cuts(struct maker *m)
{
  for (int64_t i = 1; i < m->of->n; i++) {
    if (is_hold(m, i)) m->call[i] = m->call[i - 1];
    else if (!alike(m, i - 1, i)) m->cut[i] = true;
  }
  for (int s = 1; s <= m->out->n_streams; s++) m->cut[m->first[s]] = true;
}

/* --- spans ------------------------------------------------------------------------------- */

static int add(struct spans *s, const struct span *x)
{
  s->list[s->n] = *x;
  return s->n++;
}

static void add_edge(struct spans *s, int64_t span, int64_t before)
{
  s->edges[2 * s->n_edges] = span;
  s->edges[2 * s->n_edges++ + 1] = before;
}

/* Returns the span of the data. */
static int add_host(struct maker *m)
{
  const struct step_clock *c = m->of->clock;
  struct span x = {.phase = DEV_PHASE_OTHER, .microbatch = -1, .action = -1, .call = SPAN_WORK};
  for (int i = 0; i < m->of->marks->n; i++) {
    x.kernel = m->of->marks->list[i].kernel;
    x.ready_ms = x.start_ms = m->of->marks->list[i].start_ms;
    x.end_ms = m->of->marks->list[i].end_ms;
    x.busy_ms = x.end_ms - x.start_ms;
    add(m->out, &x);
  }
  x.kernel = "data";
  x.phase = DEV_PHASE_DATA;
  x.ready_ms = x.start_ms = c->begin_ms;
  x.end_ms = c->begin_ms + c->data_ms;
  x.busy_ms = c->data_ms;
  const int data = add(m->out, &x);
  x.kernel = "end";
  x.phase = DEV_PHASE_OTHER;
  x.ready_ms = x.start_ms = x.end_ms = c->end_ms;
  x.busy_ms = 0;
  add(m->out, &x);
  return data;
}

static void add_pieces(struct maker *m)
{
  int stream = 0;
  double longest_ms = 0;
  for (int64_t i = 0; i < m->of->n; i++) {
    const struct dev_interval *p = m->pieces[i];
    const double ms = p->end_ms - p->start_ms;
    if (strcmp(m->out->streams[stream], p->stream) != 0) stream++;
    if (m->cut[i]) {
      const struct span x = {.stream = stream, .kernel = p->kernel, .phase = p->phase, .microbatch = p->microbatch, .action = p->action,
                             .call = m->call[i], .ready_ms = p->ready_ms, .start_ms = p->start_ms};
      add(m->out, &x);
      longest_ms = ms;
    }
    struct span *at = &m->out->list[m->out->n - 1];
    if (ms > longest_ms && !is_hold(m, i)) {
      longest_ms = ms;
      at->kernel = p->kernel;
    }
    at->end_ms = p->end_ms;
    at->busy_ms += ms;
    m->span[i] = m->out->n - 1;
  }
}

static void add_edges(struct maker *m, int data)
{
  struct spans *s = m->out;
  const int end = data + 1;
  for (int i = 1; i < s->n_streams; i++) {
    int64_t first = m->first[i];
    while (first < m->first[i + 1] && earlier(m, first)) first++; /* was there before the data */
    if (first < m->first[i + 1]) add_edge(s, m->span[first], data);
    if (is_awaited(m, s->streams[i])) add_edge(s, end, m->span[m->first[i + 1] - 1]);
  }
  for (int64_t e = 0; e < m->n_edges; e++) {
    const int64_t from = m->span[m->from[e]], to = m->span[m->to[e]];
    const int64_t *last = s->n_edges ? &s->edges[2 * s->n_edges - 2] : NULL;
    if (last == NULL || last[0] != from || last[1] != to) add_edge(s, from, to);
  }
}

enum err spans_make(const struct spans_of *of, struct spans *out)
{
  enum err err = ERR_OK;
  struct maker m = {.of = of, .out = out};
  size_t n = (size_t)of->n, waits = 0;
  for (int64_t i = 0; i < of->n; i++) waits += (size_t)of->list[i].n_edges;
  *out = (struct spans){0};
  out->list = malloc((n + SPANS_MARKS + 2) * sizeof *out->list);
  out->edges = malloc(2 * (waits + 2 * SPANS_STREAMS) * sizeof *out->edges);
  m.pieces = malloc((n + 1) * sizeof(const struct dev_interval *));
  m.call = malloc((2 * n + 1) * sizeof *m.call);
  m.cut = calloc(n + 1, sizeof *m.cut);
  m.from = malloc((2 * waits + 1) * sizeof *m.from);
  if (!out->list || !out->edges || !m.pieces || !m.call || !m.cut || !m.from)
    FAIL_TO(done, ERR_MEMORY, "spans of %lld intervals", (long long)of->n);
  m.span = m.call + n;
  m.to = m.from + waits;
  TRY_TO(done, sort_pieces(&m));
  TRY_TO(done, match_calls(&m));
  find_edges(&m);
  find_cuts(&m);
  const int data = add_host(&m);
  add_pieces(&m);
  add_edges(&m, data);

done:
  free(m.from);
  free(m.cut);
  free(m.call);
  free(m.pieces);
  if (err) spans_free(out);
  return err;
}

void spans_free(struct spans *s)
{
  free(s->list);
  free(s->edges);
  *s = (struct spans){0};
}
