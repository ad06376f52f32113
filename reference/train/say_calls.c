/* say_calls.c - records of collectives and of where a step's time went. */
#include "train/say.h"

#include "comm/pmpi_shim.h"
#include "train/meters.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHIM_ROWS = 32 };

static enum err say_trace(const struct trainer *t, const struct output *o, int64_t step)
{
  int64_t n;
  const struct comm_call *calls = comm_trace(t->world, &n);
  json_t *list = json_array();
  for (int64_t i = 0; i < n; i++) {
    const struct comm_call *c = &calls[i];
    char text[256];
    snprintf(text, sizeof text, "%d %s %s %s %s %" PRId64 " %" PRId64 " %d", c->sequence, c->op, c->group, c->stream,
             dtype_name(c->type), c->count, c->bytes, c->microbatch);
    json_array_append_new(list, json_string(text));
  }
  record_begin(o->records, "trace", step, -1);
  record_json(o->records, "got.calls", list);
  TRY(record_end(o->records));
  return ERR_OK;
}

static enum err say_shim(const struct output *o, int64_t step)
{
  struct pmpi_count rows[SHIM_ROWS];
  const int n = pmpi_counts(rows, SHIM_ROWS);
  for (int i = 0; i < n; i++) {
    record_begin(o->records, "shim", step, -1);
    record_text(o->records, "got.call", rows[i].call);
    record_int(o->records, "got.calls", rows[i].calls);
    record_int(o->records, "got.bytes", rows[i].bytes);
    TRY(record_end(o->records));
  }
  return ERR_OK;
}

enum err say_calls(const struct trainer *t, const struct output *o, int64_t step)
{
  const bool some_later = trainer_shares(t) && t->run.dump == DUMP_NONE; /* gathers may not have begun yet */
  TRY(say_trace(t, o, step));
  if (!some_later) TRY(say_shim(o, step));
  return ERR_OK;
}

static enum err say_call_times(const struct trainer *t, const struct output *o, const struct dev_interval *list, int64_t n)
{
  enum err err;
  int64_t n_calls;
  const struct comm_call *calls = comm_trace(t->world, &n_calls);
  double *ms = malloc((size_t)(2 * n_calls + 1) * sizeof *ms);
  if (ms == NULL) FAIL(ERR_MEMORY, "times of %" PRId64 " collectives", n_calls);
  TRY_TO(free_ms, meters_calls(list, n, calls, n_calls, o->clock_offset_ms, ms, ms + n_calls));
  record_reals(o->records, "got.calls_ready_ms", ms, n_calls);
  record_reals(o->records, "got.calls_end_ms", ms + n_calls, n_calls);
free_ms:
  free(ms);
  return err;
}

/* From the first to the last interval of each action. */
struct action_times {
  double *ready, *start, *end;
};
static void spread(const struct dev_interval *list, int64_t n, double offset_ms, int n_actions, struct action_times *at)
{
  for (int i = 0; i < n_actions; i++) at->start[i] = INFINITY, at->ready[i] = INFINITY, at->end[i] = -INFINITY;
  for (int64_t k = 0; k < n; k++) {
    const struct dev_interval *x = &list[k];
    if (x->action < 0 || x->action >= n_actions) continue;
    at->ready[x->action] = fmin(at->ready[x->action], x->ready_ms + offset_ms);
    at->start[x->action] = fmin(at->start[x->action], x->start_ms + offset_ms);
    at->end[x->action] = fmax(at->end[x->action], x->end_ms + offset_ms);
  }
}

/* What the pipeline did, action by action. */
static enum err say_actions(const struct trainer *t, const struct output *o, int64_t step, const struct dev_interval *list, int64_t n)
{
  struct record_file *f = o->records;
  const int stage = t->mesh.pp_rank, n_actions = t->training->n[stage];
  double *ms = malloc((size_t)(3 * n_actions + 1) * sizeof *ms);
  json_t *passes = json_array();
  if (ms == NULL) {
    json_decref(passes);
    FAIL(ERR_MEMORY, "times of %d actions", n_actions);
  }
  struct action_times at = {ms, ms + n_actions, ms + 2 * n_actions};
  spread(list, n, o->clock_offset_ms, n_actions, &at);
  for (int i = 0; i < n_actions; i++) {
    const struct schedule_action *a = &t->training->list[stage][i];
    char text[64];
    snprintf(text, sizeof text, "%s %d %d", schedule_pass_name(a->pass), a->microbatch, a->chunk);
    json_array_append_new(passes, json_string(text));
  }
  record_begin(f, "action", step, -1);
  record_int(f, "got.stage", stage);
  record_json(f, "got.passes", passes);
  record_reals(f, "got.ready_ms", at.ready, n_actions);
  record_reals(f, "got.start_ms", at.start, n_actions);
  record_reals(f, "got.end_ms", at.end, n_actions);
  free(ms);
  TRY(record_end(f));
  return ERR_OK;
}

static enum err say_microbatches(const struct trainer *t, const struct output *o, const struct dev_interval *list, int64_t n)
{
  double *ms = malloc((size_t)t->n_micro * sizeof *ms);
  if (ms == NULL) FAIL(ERR_MEMORY, "times of %" PRId64 " micro-batches", t->n_micro);
  meters_microbatches(list, n, t->mesh.dp_rank * t->n_micro, t->n_micro, ms);
  record_reals(o->records, "got.microbatches_ms", ms, t->n_micro);
  free(ms);
  return ERR_OK;
}

enum err say_time(const struct trainer *t, const struct output *o, int64_t step, const struct step_clock *clock, const struct span_marks *marks)
{
  struct record_file *f = o->records;
  const struct dev_interval *list;
  int64_t n, lost;
  TRY(dev_trace_take(t->dev, &list, &n, &lost));
  if (lost > 0) FAIL(ERR_ARG, "step %" PRId64 ": %" PRId64 " intervals lost, there was room for %" PRId64, step, lost, n);
  const struct meters_time m = meters_split(list, n);
  record_begin(f, "time", step, -1);
  record_real(f, "got.step_ms", clock->end_ms - clock->begin_ms);
  record_real(f, "got.data_ms", clock->data_ms);
  record_real(f, "got.forward_ms", m.forward_ms);
  record_real(f, "got.backward_ms", m.backward_ms);
  record_real(f, "got.optimizer_ms", m.optimizer_ms);
  record_real(f, "got.other_ms", m.other_ms);
  record_real(f, "got.exposed_ms", m.exposed_ms);
  record_real(f, "got.exposed_replicas_ms", m.replicas_ms);
  record_real(f, "got.comm_ms", m.comm_ms);
  if (t->run.trace_time) record_real(f, "got.backward_end_ms", m.backward_end_ms + o->clock_offset_ms);
  if (t->run.trace_time) TRY(say_call_times(t, o, list, n));
  if (t->run.trace_time) TRY(say_microbatches(t, o, list, n));
  record_real(f, "got.matmul_flops", meters_matmul_flops(&t->run, &t->place, (double)t->n_valid));
  TRY(record_end(f));
  if (t->run.trace_time && t->mesh.pp > 1) TRY(say_actions(t, o, step, list, n));
  if (t->run.trace_spans) TRY(say_spans(t, o, step, clock, marks, list, n));
  return ERR_OK;
}
