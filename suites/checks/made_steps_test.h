/* made_steps_test.h - steps made by hand: tasks on streams of ranks become the records that a run with those lengths would
 * leave.  Threads wake at once; times are exact.
 */
#ifndef CHECKS_MADE_STEPS_TEST_H
#define CHECKS_MADE_STEPS_TEST_H

#include "fabricate_test.h"

enum { TASKS = 64, MADE_RANKS = 8, AFTER = 4 };
enum made_stream { HOST, COMPUTE, TRANSFER, SCALAR, OUTPUTS, INPUT_GRADIENTS, MADE_STREAMS };
static const char *const made_streams[MADE_STREAMS] = {"host", "compute", "transfer", "scalar", "outputs", "gradients"};
static const char *const made_phases[] = {"data", "forward", "backward", "optimizer", "eval", "other"};

struct made_task {
  enum made_stream stream;
  int phase;          /* in made_phases */
  const char *kernel;
  double ms;          /* of a collective: its transfer */
  const char *call;   /* "allreduce dp", NULL: work    */
  int meet;           /* equal for all that take part; 0: none */
  bool leaves;        /* a sender that waits for nobody */
  int after[AFTER];   /* tasks of this rank, by number + 1; 0: none */
  double ready, end;
  bool done;
};

/* One step of all ranks. */
struct made_step {
  struct made_task tasks[MADE_RANKS][TASKS];
  int n[MADE_RANKS];
};

/* Adds a task; returns its number. */
static inline int task(struct made_step *s, int rank, enum made_stream stream, const char *phase, double ms, int after)
{
  int p = 0;
  while (strcmp(made_phases[p], phase) != 0) p++;
  BUG_IF(s->n[rank] == TASKS);
  s->tasks[rank][s->n[rank]] = (struct made_task){.stream = stream, .phase = p, .kernel = phase, .ms = ms, .after = {after + 1}};
  return s->n[rank]++;
}
static inline int meet(struct made_step *s, int rank, enum made_stream stream, const char *call, int number, double ms, int after)
{
  const int t = task(s, rank, stream, "other", ms, after);
  s->tasks[rank][t].call = call;
  s->tasks[rank][t].meet = number;
  return t;
}

/* The task of this rank on its stream before t; -1: none. */
static inline int made_before(const struct made_step *s, int rank, int t)
{
  for (int i = t - 1; i >= 0; i--)
    if (s->tasks[rank][i].stream == s->tasks[rank][t].stream) return i;
  return -1;
}

/* Ready once all before it are done. */
static inline bool made_ready(struct made_step *s, int rank, int t, double begin_ms)
{
  struct made_task *x = &s->tasks[rank][t];
  const int before = made_before(s, rank, t);
  double ready = begin_ms;
  if (before >= 0 && !s->tasks[rank][before].done) return false;
  if (before >= 0) ready = fmax(ready, s->tasks[rank][before].end);
  for (int k = 0; k < AFTER; k++) {
    if (x->after[k] == 0) continue;
    const struct made_task *a = &s->tasks[rank][x->after[k] - 1];
    if (!a->done) return false;
    ready = fmax(ready, a->end);
  }
  x->ready = ready;
  return true;
}

static inline bool made_all_ready(struct made_step *s, int ranks, int number, const double *begin_ms, double *last)
{
  for (int r = 0; r < ranks; r++)
    for (int t = 0; t < s->n[r]; t++) {
      if (s->tasks[r][t].meet != number) continue;
      if (!s->tasks[r][t].done && !made_ready(s, r, t, begin_ms[r])) return false;
      *last = fmax(*last, s->tasks[r][t].ready);
    }
  return true;
}

static inline void made_play(struct made_step *s, int ranks, const double *begin_ms)
{
  bool changed = true;
  while (changed) {
    changed = false;
    for (int r = 0; r < ranks; r++)
      for (int t = 0; t < s->n[r]; t++) {
        struct made_task *x = &s->tasks[r][t];
        if (x->done || !made_ready(s, r, t, begin_ms[r])) continue;
        double last = x->ready;
        if (x->meet && !x->leaves && !made_all_ready(s, ranks, x->meet, begin_ms, &last)) continue;
        x->end = last + x->ms;
        x->done = changed = true;
      }
  }
}

static inline void made_append(json_t *record, const char *key, json_t *value)
{
  if (json_object_get(record, key) == NULL) json_object_set_new(record, key, json_array());
  json_array_append_new(json_object_get(record, key), value);
}

static inline void made_span(json_t *span, int stream, const char *kernel, int phase, int call, double ready, double end)
{
  made_append(span, "got.kernel", json_integer((json_int_t)json_array_size(json_object_get(span, "got.kernels"))));
  made_append(span, "got.kernels", json_string(kernel));
  made_append(span, "got.stream", json_integer(stream));
  made_append(span, "got.phase", json_integer(phase));
  made_append(span, "got.call", json_integer(call));
  made_append(span, "got.ready_ms", json_real(ready));
  made_append(span, "got.start_ms", json_real(ready));
  made_append(span, "got.end_ms", json_real(end));
  made_append(span, "got.busy_ms", json_real(end - ready));
}

static inline void made_edge(json_t *span, int64_t from, int64_t to)
{
  made_append(span, "got.edges", json_integer(from));
  made_append(span, "got.edges", json_integer(to));
}

/* What this rank tells of the step, with times moved by what its clock is off; stream by stream.  Returns its end. */
static inline double made_tell(struct made *m, const struct made_step *s, int rank, int64_t step, double from_ms, double between_ms, double data_ms, double off_ms)
{
  json_t *span = made_record(m, "span", rank, step, -1), *trace = made_record(m, "trace", rank, step, -1), *time = made_record(m, "time", rank, step, -1);
  int number[TASKS], at = 3, calls = 0;
  double end = from_ms + between_ms + data_ms, spent[6] = {0};
  json_object_set_new(span, "got.edges", json_array());
  json_object_set_new(trace, "got.calls", json_array());
  for (int k = 0; k < MADE_STREAMS; k++) made_append(span, "got.streams", json_string(made_streams[k]));
  for (int k = 0; k < 6; k++) made_append(span, "got.phases", json_string(made_phases[k]));
  for (int t = 0; t < s->n[rank]; t++) end = fmax(end, s->tasks[rank][t].end);
  made_span(span, HOST, "log", 5, -1, from_ms - off_ms, from_ms + between_ms - off_ms);
  made_span(span, HOST, "data", 0, -1, from_ms + between_ms - off_ms, from_ms + between_ms + data_ms - off_ms);
  made_span(span, HOST, "end", 5, -1, end - off_ms, end - off_ms);
  for (int stream = COMPUTE; stream < MADE_STREAMS; stream++) {
    int last = -1;
    for (int t = 0; t < s->n[rank]; t++) {
      const struct made_task *x = &s->tasks[rank][t];
      if (x->stream != (enum made_stream)stream) continue;
      if (last < 0) made_edge(span, at, 1);
      last = number[t] = at++;
      made_span(span, stream, x->kernel, x->phase, x->call ? calls++ : -1, x->ready - off_ms, x->end - off_ms);
      if (x->call) json_array_append_new(json_object_get(trace, "got.calls"), json_sprintf("%lld %s x float32 1 4 0", (long long)(100 * step + x->meet), x->call));
      if (stream == COMPUTE && !x->call) spent[x->phase] += x->ms;
    }
    if (last >= 0) made_edge(span, 2, last);
  }
  for (int t = 0; t < s->n[rank]; t++)
    for (int k = 0; k < AFTER; k++)
      if (s->tasks[rank][t].after[k]) made_edge(span, number[t], number[s->tasks[rank][t].after[k] - 1]);
  json_object_set_new(time, "got.forward_ms", json_real(spent[1]));
  json_object_set_new(time, "got.backward_ms", json_real(spent[2]));
  json_object_set_new(time, "got.optimizer_ms", json_real(spent[3]));
  json_object_set_new(time, "got.other_ms", json_real(spent[5]));
  return end;
}

/* What is made longer, in ms. */
struct more {
  int rank;
  double forward, backward, update, link, data, between;
  uint32_t pauses; /* steps in which the host pauses, a bit each; 0: all */
};

/* Plays what `fill` makes of each step; clocks drift by drift ms over the run, ranks above 0. */
static inline void make_steps(struct made *m, const struct run_config *c, void (*fill)(struct made_step *, int64_t step, const struct more *), const struct more *more, double drift)
{
  const int ranks = (int)(c->dp * c->tp * c->pp);
  double end[MADE_RANKS] = {0}, begin[MADE_RANKS];
  json_decref(m->records);
  *m = (struct made){.records = json_array()};
  m->data = (struct run_data){.config = *c, .records = m->records, .end = "exited"};
  for (int64_t step = 0; step < c->steps; step++) {
    static struct made_step s;
    double between[MADE_RANKS], data[MADE_RANKS];
    memset(&s, 0, sizeof s);
    fill(&s, step, more);
    for (int r = 0; r < ranks; r++) {
      const bool now = more->pauses == 0 || (more->pauses >> step & 1);
      between[r] = 1 + (r == more->rank && now ? more->between : 0);
      data[r] = r == more->rank ? more->data : 0;
      begin[r] = end[r] + between[r] + data[r];
    }
    made_play(&s, ranks, begin);
    for (int r = 0; r < ranks; r++) {
      for (int t = 0; t < s.n[r]; t++) CHECK(s.tasks[r][t].done);
      end[r] = made_tell(m, &s, r, step, end[r], between[r], data[r], r > 0 ? drift * end[0] / 1000 : 0);
    }
  }
  for (int r = 0; r < ranks; r++) { /* told as if all had the first offset, 0 */
    json_t *clock = made_record(m, "clock", r, -1, -1);
    const double late = r > 0 ? drift * end[0] / 1000 : 0;
    json_object_set_new(clock, "got.start_ms", json_real(0));
    json_object_set_new(clock, "got.start_offset_ms", json_real(0));
    json_object_set_new(clock, "got.end_ms", json_real(end[0] - late));
    json_object_set_new(clock, "got.end_offset_ms", json_real(late));
    json_object_set_new(clock, "got.error_ms", json_real(0));
  }
}

#endif
