/* trace.c - O11: the list of collectives: the same on every rank of a step, and what the plan predicts.
 * A list that differs between ranks hangs sooner or later.
 *
 * The plan: each gradient reduction is the buckets of predict_buckets, in order, of the run's precision, in
 * group dp, each with the ring's bytes; once a step, or once a micro-batch.
 */
#include "evidence.h"
#include "predict.h"
#include "verdict.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct call {
  long long sequence, count, bytes, microbatch;
  char op[32], group[32], stream[32], type[32];
};

static bool parse(const json_t *text, struct call *c)
{
  const char *s = json_string_value(text);
  return s != NULL && sscanf(s, "%lld %31s %31s %31s %31s %lld %lld %lld", &c->sequence, c->op, c->group, c->stream, c->type, &c->count,
                             &c->bytes, &c->microbatch) == 8;
}

/* Sums of losses and counts have a group of their own. */
static bool is_gradient(const struct call *call) { return strcmp(call->group, "dp") == 0; }

/* Equal but for the micro-batch's global number, which is each rank's own: the same in its own list. */
static bool same_call(const struct run_config *c, int rank, const json_t *a, const json_t *b)
{
  struct call x, y;
  const long long each = evidence_microbatches(c) / c->dp;
  if (!parse(a, &x) || !parse(b, &y)) return false;
  return x.sequence == y.sequence && x.count == y.count && x.bytes == y.bytes && strcmp(x.op, y.op) == 0 &&
         strcmp(x.group, y.group) == 0 && strcmp(x.stream, y.stream) == 0 && strcmp(x.type, y.type) == 0 &&
         y.microbatch == (x.microbatch < 0 ? x.microbatch : x.microbatch + rank * each);
}

static bool same_on_all_ranks(const struct run_data *run, int64_t step, const json_t *calls, struct verdict *out)
{
  for (int rank = 1; rank < evidence_ranks(run); rank++) {
    const json_t *record = evidence_record(run, "trace", rank, step, -1), *other = json_object_get(record, "got.calls");
    if (record == NULL) {
      verdict_say(out, OUTCOME_INVALID, "rank %d left no trace of step %lld", rank, (long long)step);
      return false;
    }
    for (size_t i = 0; i < json_array_size(calls) || i < json_array_size(other); i++) {
      const json_t *a = json_array_get(calls, i), *b = json_array_get(other, i);
      if (same_call(&run->config, rank, a, b)) continue;
      snprintf(out->worst, sizeof out->worst, "order of call %zu of step %lld", i, (long long)step);
      verdict_say(out, OUTCOME_FAIL, "call %zu of step %lld: rank 0 queued '%s', rank %d '%s'", i, (long long)step,
                  a ? json_string_value(a) : "nothing", rank, b ? json_string_value(b) : "nothing");
      return false;
    }
  }
  return true;
}

/* The gradient reductions of one step against the plan. */
static bool as_planned(const struct run_data *run, int64_t step, const json_t *calls, const int64_t *counts, int64_t buckets,
                       struct verdict *out)
{
  const struct run_config *c = &run->config;
  const int64_t times = c->reduce_each == REDUCE_MICROBATCH ? evidence_microbatches(c) / c->dp : 1;
  int64_t k = 0;
  snprintf(out->worst, sizeof out->worst, "step %lld", (long long)step);
  for (size_t i = 0; i < json_array_size(calls); i++) {
    struct call call;
    if (!parse(json_array_get(calls, i), &call)) {
      verdict_say(out, OUTCOME_INVALID, "call %zu of step %lld cannot be read: '%s'", i, (long long)step,
                  json_string_value(json_array_get(calls, i)));
      return false;
    }
    if (!is_gradient(&call)) continue;
    const int64_t want = counts[k % buckets], ring = want * (int64_t)dtype_bytes((enum dtype)c->precision) * 2 * (c->dp - 1) / c->dp;
    const bool right = strcmp(call.op, "allreduce") == 0 && strcmp(call.type, dtype_name((enum dtype)c->precision)) == 0;
    if (!right || k >= buckets * times || call.count != want || call.bytes != ring) {
      verdict_say(out, OUTCOME_FAIL, "gradient reduction %" PRId64 " of step %lld is %s of %lld %s and %lld bytes, planned allreduce of %" PRId64 " and %" PRId64,
                  k, (long long)step, call.op, call.count, call.type, call.bytes, k < buckets * times ? want : 0, k < buckets * times ? ring : 0);
      return false;
    }
    k++;
  }
  if (k != buckets * times) {
    verdict_say(out, OUTCOME_FAIL, "step %lld has %" PRId64 " gradient reductions, planned %" PRId64, (long long)step, k, buckets * times);
    return false;
  }
  return true;
}

static bool judge_step(const struct run_data *run, int64_t step, const int64_t *counts, int64_t buckets, struct verdict *out)
{
  const json_t *record = evidence_record(run, "trace", 0, step, -1), *calls = json_object_get(record, "got.calls");
  if (!json_is_array(calls)) {
    verdict_say(out, OUTCOME_INVALID, "rank 0 left no trace of step %lld", (long long)step);
    return false;
  }
  return same_on_all_ranks(run, step, calls, out) && as_planned(run, step, calls, counts, buckets, out);
}

void trace_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                 struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "trace", "O11");
  if (run->config.dp == 1) {
    verdict_say(out, OUTCOME_SKIPPED, "one rank has no collectives");
    return;
  }
  const int64_t buckets = predict_buckets(&run->config, NULL, 0), steps = evidence_steps(run);
  int64_t *counts = malloc((size_t)buckets * sizeof *counts);
  if (counts == NULL) {
    verdict_say(out, OUTCOME_INVALID, "no memory for the plan of %" PRId64 " buckets", buckets);
    return;
  }
  predict_buckets(&run->config, counts, buckets);
  bool ok = true;
  for (int64_t step = 0; ok && step < steps; step++) ok = judge_step(run, step, counts, buckets, out);
  free(counts);
  if (!ok) return;
  out->worst[0] = '\0';
  if (steps < run->config.steps || steps == 0)
    verdict_say(out, OUTCOME_INVALID, "only %lld of %lld steps left evidence", (long long)steps, (long long)run->config.steps);
  else
    verdict_say(out, OUTCOME_PASS, "%d ranks queued the same collectives at %lld steps, %" PRId64 " buckets a reduction as planned",
                evidence_ranks(run), (long long)steps, buckets);
}
