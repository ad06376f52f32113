/* timeline.c - spans of all ranks as trace events. */
#include "harness/timeline.h"

#include "base/record.h"
#include "suites/checks/evidence.h"
#include "suites/checks/graph.h"
#include "suites/checks/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Numbers of processes and threads begin above 0, which stands for the idle process in Perfetto; those of threads are no two ranks'. */
enum { STREAMS_MAX = 64, THREADS_A_RANK = 100 };

struct rank_clock {
  double drift, from_ms; /* what is added to a time t: drift * (t - from_ms) */
};

struct writer {
  const struct run_data *run;
  FILE *file;
  bool failed;              /* a write or an allocation did */
  int64_t events, flows, left_out;
  int ranks;
  struct rank_clock *clocks; /* [ranks] */
  double base_ms;
  const char *streams[STREAMS_MAX]; /* in the order in which they were met: a thread of each rank */
  int n_streams;
  bool *named;              /* [ranks * STREAMS_MAX] */
  char why[256];            /* why a step has no flows; "": all have */
};

/* --- events ------------------------------------------------------------------------- */

static void put(struct writer *w, json_t *event)
{
  if (event == NULL) w->failed = true;
  if (w->failed) return;
  w->failed = fputs(w->events++ ? ",\n" : "", w->file) == EOF || json_dumpf(event, w->file, JSON_COMPACT | JSON_REAL_PRECISION(17)) != 0;
  json_decref(event);
}

/* Whole nanoseconds, so that what follows on a thread begins where the one before ended, not before. */
static int64_t ns_at(const struct writer *w, int rank, double ms)
{
  const struct rank_clock *c = &w->clocks[rank];
  return llround((ms + c->drift * (ms - c->from_ms) - w->base_ms) * 1e6);
}
static json_t *us(int64_t ns) { return json_real((double)ns / 1e3); }

static int pid_of(int rank) { return rank + 1; }
static int tid_of(int rank, int stream) { return pid_of(rank) * THREADS_A_RANK + stream; }

static void name_it(struct writer *w, const char *what, int rank, int stream, json_t *value, const char *key)
{
  put(w, json_pack("{s:s,s:s,s:i,s:i,s:{s:o}}", "ph", "M", "name", what, "pid", pid_of(rank), "tid", tid_of(rank, stream), "args", key, value));
}

static void name_rank(struct writer *w, int rank)
{
  const struct layout at = layout_of(&w->run->config, rank);
  const char *host = evidence_text(evidence_record(w->run, "rank", rank, -1, -1), "got.host");
  name_it(w, "process_name", rank, 0, json_sprintf("rank %d%s%s: dp %d, tp %d, pp %d", rank, *host ? " on " : "", host, at.dp, at.tp, at.pp), "name");
  name_it(w, "process_sort_index", rank, 0, json_integer(rank), "sort_index");
}

/* The thread of a stream; -1: there are too many. */
static int stream_number(struct writer *w, int rank, const char *name)
{
  int i = 0;
  while (i < w->n_streams && strcmp(w->streams[i], name) != 0) i++;
  if (i == STREAMS_MAX) return -1;
  if (i == w->n_streams) w->streams[w->n_streams++] = name;
  if (w->named[rank * STREAMS_MAX + i]) return i;
  w->named[rank * STREAMS_MAX + i] = true;
  name_it(w, "thread_name", rank, i, json_string(name), "name");
  name_it(w, "thread_sort_index", rank, i, json_integer(i), "sort_index");
  return i;
}

/* --- slices ------------------------------------------------------------------------------ */

/* One rank's record of a step; where its spans stand in time. */
struct told {
  const json_t *span, *calls;
  size_t n;
};

static size_t length(const json_t *record, const char *key) { return json_array_size(json_object_get(record, key)); }
static int64_t whole(const json_t *record, const char *key, size_t i)
{
  const json_t *value = json_array_get(json_object_get(record, key), i);
  return json_is_integer(value) ? json_integer_value(value) : -1;
}
static double real(const json_t *record, const char *key, size_t i) { return json_number_value(json_array_get(json_object_get(record, key), i)); }
static const char *text_in(const json_t *record, const char *list, int64_t i)
{
  const char *text = i < 0 ? NULL : json_string_value(json_array_get(json_object_get(record, list), (size_t)i));
  return text ? text : "";
}

static struct told told_of(const struct writer *w, int rank, int64_t step)
{
  struct told t = {.span = evidence_record(w->run, "span", rank, step, -1)};
  t.calls = json_object_get(evidence_record(w->run, "trace", rank, step, -1), "got.calls");
  t.n = length(t.span, "got.stream");
  if (length(t.span, "got.start_ms") != t.n || length(t.span, "got.end_ms") != t.n) t.n = 0;
  return t;
}

/* "13 allreduce dp transfer float32 1152 4608 0" -> args, and "allreduce dp". */
static void say_call(const struct told *t, int64_t call, json_t *args, char *name, size_t bytes)
{
  char op[32], group[32], type[32];
  long long sequence, count, sent;
  const char *text = json_string_value(json_array_get(t->calls, (size_t)call));
  if (text == NULL || sscanf(text, "%lld %31s %31s %*s %31s %lld %lld", &sequence, op, group, type, &count, &sent) != 6) return;
  snprintf(name, bytes, "%s %s", op, group);
  json_object_set_new(args, "op", json_string(op));
  json_object_set_new(args, "group", json_string(group));
  json_object_set_new(args, "sequence", json_integer(sequence));
  json_object_set_new(args, "type", json_string(type));
  json_object_set_new(args, "count", json_integer(count));
  json_object_set_new(args, "bytes", json_integer(sent));
}

/* Phases; what is none of the step's own, and the host's, by the kernel. */
static void say_span(const struct told *t, size_t i, json_t *args, char *name, size_t bytes)
{
  const char *phase = text_in(t->span, "got.phases", whole(t->span, "got.phase", i)), *kernel = text_in(t->span, "got.kernels", whole(t->span, "got.kernel", i));
  const int64_t m = whole(t->span, "got.microbatch", i), action = whole(t->span, "got.action", i), call = whole(t->span, "got.call", i);
  const bool by_kernel = whole(t->span, "got.stream", i) == 0 || strcmp(phase, "other") == 0;
  snprintf(name, bytes, m >= 0 ? "%s %" PRId64 : "%s", by_kernel ? kernel : phase, m);
  json_object_set_new(args, "kernel", json_string(kernel));
  if (m >= 0) json_object_set_new(args, "microbatch", json_integer(m));
  if (action >= 0) json_object_set_new(args, "action", json_integer(action));
  if (call >= 0) say_call(t, call, args, name, bytes);
}

static void put_slice(struct writer *w, int rank, int64_t step, const struct told *t, size_t i)
{
  char name[80];
  const int64_t from = ns_at(w, rank, real(t->span, "got.start_ms", i)), to = ns_at(w, rank, real(t->span, "got.end_ms", i));
  const int stream = stream_number(w, rank, text_in(t->span, "got.streams", whole(t->span, "got.stream", i)));
  json_t *args = json_pack("{s:I}", "step", (json_int_t)step);
  if (stream < 0 || args == NULL) {
    w->failed = w->failed || args == NULL;
    w->left_out++;
    json_decref(args);
    return;
  }
  say_span(t, i, args, name, sizeof name);
  const char *phase = text_in(t->span, "got.phases", whole(t->span, "got.phase", i));
  json_t *e = json_pack("{s:s,s:s,s:s,s:i,s:i,s:o,s:o}", "ph", to > from ? "X" : "i", "name", name, "cat", *phase ? phase : "none", "pid", pid_of(rank),
                        "tid", tid_of(rank, stream), "ts", us(from), "args", args);
  if (to > from) json_object_set_new(e, "dur", us(to - from));
  else json_object_set_new(e, "s", json_string("t"));
  put(w, e);
}

/* --- flows ------------------------------------------------------------------------------- */

struct flow_end {
  int rank, tid;
  int64_t from, to; /* its slice, ns */
};

static struct flow_end flow_end(struct writer *w, const struct told *told, const struct graph *g, int node)
{
  const int rank = g->nodes[node].rank;
  const size_t i = (size_t)(node - g->first[rank]);
  const struct told *t = &told[rank];
  const int stream = stream_number(w, rank, text_in(t->span, "got.streams", whole(t->span, "got.stream", i)));
  return (struct flow_end){rank, tid_of(rank, stream), ns_at(w, rank, real(t->span, "got.start_ms", i)), ns_at(w, rank, real(t->span, "got.end_ms", i))};
}

/* From the beginning of a to where b's own part begins, which was waiting before: a slice inside b's, so that b has one that begins
 * after a's, by which Perfetto tells from where to where.  The clocks of two hosts may be wrong by as much as a short message takes:
 * such a one is left out, not bent. */
static void put_flow(struct writer *w, const char *name, int64_t step, struct flow_end a, struct flow_end b)
{
  const int64_t begin = b.from > a.from ? b.from : a.from + 1;
  if (a.to <= a.from || b.to <= begin) {
    w->left_out++;
    return;
  }
  const json_int_t id = ++w->flows;
  if (begin > b.from)
    put(w, json_pack("{s:s,s:s,s:s,s:i,s:i,s:o,s:o,s:{s:I}}", "ph", "X", "name", "transfer", "cat", "transfer", "pid", pid_of(b.rank), "tid", b.tid, "ts",
                     us(begin), "dur", us(b.to - begin), "args", "step", (json_int_t)step));
  put(w, json_pack("{s:s,s:s,s:s,s:I,s:i,s:i,s:o}", "ph", "s", "name", name, "cat", "flow", "id", id, "pid", pid_of(a.rank), "tid", a.tid, "ts", us(a.from)));
  put(w, json_pack("{s:s,s:s,s:s,s:s,s:I,s:i,s:i,s:o}", "ph", "f", "bp", "e", "name", name, "cat", "flow", "id", id, "pid", pid_of(b.rank), "tid", b.tid, "ts",
                   us(begin)));
}

/* Of a message from its sender, else from whoever came last. */
static int source_of(const struct graph *g, const struct graph_group *group, const struct told *told)
{
  int last = g->members[group->first];
  for (int k = 0; k < group->n; k++) {
    const int node = g->members[group->first + k];
    const char *call = json_string_value(json_array_get(told[g->nodes[node].rank].calls, (size_t)g->nodes[node].call));
    if (group->message && call && strstr(call, " send ")) return node;
    if (g->ready[node] > g->ready[last]) last = node;
  }
  return last;
}

static void put_flows(struct writer *w, int64_t step, const struct told *told, const struct graph *g)
{
  for (int i = 0; i < g->n_groups; i++) {
    const struct graph_group *group = &g->groups[i];
    const int from = source_of(g, group, told);
    for (int k = 0; k < group->n; k++) {
      const int to = g->members[group->first + k];
      if (to != from) put_flow(w, group->message ? "message" : "last to come", step, flow_end(w, told, g, from), flow_end(w, told, g, to));
    }
  }
}

/* --- a file ------------------------------------------------------------------------------- */

static enum err put_step(struct writer *w, int64_t step, struct told *told)
{
  struct graph g;
  bool any = false;
  for (int rank = 0; rank < w->ranks; rank++) {
    told[rank] = told_of(w, rank, step);
    any = any || told[rank].n > 0;
    for (size_t i = 0; i < told[rank].n; i++) put_slice(w, rank, step, &told[rank], i);
  }
  if (!any) return ERR_OK;
  const enum err err = graph_read(w->run, step, &g);
  if (err == ERR_MEMORY) return err_trace(err, __FILE__, __LINE__);
  if (err) {
    if (!*w->why) snprintf(w->why, sizeof w->why, "step %" PRId64 " has no flows: %.200s", step, err_text());
    return ERR_OK;
  }
  put_flows(w, step, told, &g);
  graph_free(&g);
  return ERR_OK;
}

static void read_clocks(struct writer *w)
{
  for (int rank = 0; rank < w->ranks; rank++) {
    const json_t *clock = evidence_record(w->run, "clock", rank, -1, -1);
    const double from = evidence_real(clock, "got.start_ms"), ms = evidence_real(clock, "got.end_ms") - from;
    const double drift = (evidence_real(clock, "got.end_offset_ms") - evidence_real(clock, "got.start_offset_ms")) / ms;
    if (clock != NULL && ms > 0 && isfinite(drift)) w->clocks[rank] = (struct rank_clock){drift, from};
  }
}

/* The earliest time of all; false: nothing has one. */
static bool find_base(struct writer *w)
{
  double base = INFINITY;
  size_t i, k;
  const json_t *record, *value;
  json_array_foreach((json_t *)w->run->records, i, record)
  {
    if (!evidence_is(record, "span")) continue;
    json_array_foreach(json_object_get(record, "got.start_ms"), k, value) base = fmin(base, json_number_value(value));
  }
  w->base_ms = base;
  return isfinite(base);
}

static enum err put_all(struct writer *w)
{
  enum err err = ERR_OK;
  struct told *told = calloc((size_t)w->ranks, sizeof *told);
  if (told == NULL) FAIL(ERR_MEMORY, "timeline of %d ranks", w->ranks);
  fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", w->file);
  for (int rank = 0; rank < w->ranks; rank++) name_rank(w, rank);
  for (int64_t step = 0; step < w->run->config.steps && !err; step++) err = put_step(w, step, told);
  free(told);
  if (err) return err_trace(err, __FILE__, __LINE__);
  json_t *about = json_pack("{s:s,s:s,s:I,s:s}", "case", w->run->config.name, "clock", "rank 0, since the first event", "left_out", (json_int_t)w->left_out, "flows", w->why);
  fputs("\n],\"otherData\":", w->file);
  if (about == NULL || json_dumpf(about, w->file, JSON_COMPACT) != 0) w->failed = true;
  fputs("}\n", w->file);
  json_decref(about);
  return ERR_OK;
}

static enum err write_to(struct writer *w, const char *path)
{
  w->file = fopen(path, "we");
  if (w->file == NULL) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  errno = 0;
  const enum err err = put_all(w);
  const bool lost = ferror(w->file) != 0 || w->failed;
  const int reason = errno;
  if (fclose(w->file) != 0 || lost) FAIL(ERR_IO, "%s: %s", path, strerror(reason ? reason : ENOSPC));
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

enum err timeline_write(const struct run_data *run)
{
  char path[CONFIG_PATH + 32], temporary[CONFIG_PATH + 32];
  enum err err = ERR_OK;
  struct writer w = {.run = run, .ranks = evidence_ranks(run)};
  snprintf(path, sizeof path, "%s/trace.json", run->dir);
  snprintf(temporary, sizeof temporary, "%s/trace.json.tmp", run->dir);
  w.clocks = calloc((size_t)w.ranks, sizeof *w.clocks);
  w.named = calloc((size_t)w.ranks * STREAMS_MAX, sizeof *w.named);
  if (w.clocks == NULL || w.named == NULL) FAIL_TO(done, ERR_MEMORY, "timeline of %d ranks", w.ranks);
  if (!find_base(&w)) goto done;
  read_clocks(&w);
  TRY_TO(drop, write_to(&w, temporary));
  if (rename(temporary, path) != 0) FAIL_TO(drop, ERR_IO, "%s: %s", path, strerror(errno));
  goto done;

drop:
  unlink(temporary);
done:
  free(w.named);
  free(w.clocks);
  return err;
}
