/* trace.c - O11: the list of collectives: the same on all ranks of a stage in every step, and on every rank what the
 * plan (traffic.h) says, group by group, call by call.  A list that differs between ranks hangs sooner or later.
 */
#include "evidence.h"
#include "foreign.h"
#include "traffic.h"
#include "verdict.h"

#include <stdio.h>
#include <string.h>

struct call {
  long long sequence, count, bytes, microbatch;
  char op[32], group[32], stream[32], type[32];
};

static bool parse(const json_t *text, struct call *c)
{
  const char *s = json_string_value(text);
  return s != NULL && sscanf(s, "%lld %31s %31s %31s %31s %lld %lld %lld", &c->sequence, c->op, c->group, c->stream,
                             c->type, &c->count, &c->bytes, &c->microbatch) == 8;
}

/* Equal but for the micro-batch's global number: that of the same one of another replica.  With narrow this one may be
 * of another width, and what it sends is the plan's to say. */
static bool same_call(const struct run_config *c, int replicas_apart, const json_t *a, const json_t *b)
{
  struct call x, y;
  if (!parse(a, &x) || !parse(b, &y)) return false;
  const bool same_count = (x.count == y.count && x.bytes == y.bytes) || (c->narrow && x.microbatch >= 0);
  return x.sequence == y.sequence && same_count && strcmp(x.op, y.op) == 0 &&
         strcmp(x.group, y.group) == 0 && strcmp(x.stream, y.stream) == 0 && strcmp(x.type, y.type) == 0 &&
         y.microbatch == (x.microbatch < 0 ? x.microbatch : x.microbatch + replicas_apart * layout_each(c));
}

static const json_t *calls_of(const struct run_data *run, int rank, int64_t step)
{
  return json_object_get(evidence_record(run, "trace", rank, step, -1), "got.calls");
}

static const char *text_of(const json_t *call) { return call ? json_string_value(call) : "nothing"; }

/* With those of the stage's first rank. */
static bool same_in_stage(const struct run_data *run, int rank, int64_t step, struct verdict *out)
{
  const struct layout at = layout_of(&run->config, rank);
  const int first = layout_rank(&run->config, (struct layout){.pp = at.pp});
  const json_t *calls = calls_of(run, first, step), *other = calls_of(run, rank, step);
  for (size_t i = 0; i < json_array_size(calls) || i < json_array_size(other); i++) {
    const json_t *a = json_array_get(calls, i), *b = json_array_get(other, i);
    if (same_call(&run->config, at.dp, a, b)) continue;
    snprintf(out->worst, sizeof out->worst, "order of call %zu of step %lld", i, (long long)step);
    verdict_say(out, OUTCOME_FAIL, "call %zu of step %lld: rank %d queued '%s', rank %d '%s'", i, (long long)step,
                first, text_of(a), rank, text_of(b));
    return false;
  }
  return true;
}

/* Elements, of those positions that the micro-batch says it looked at; 0: it does not say. */
static int64_t count_of(const struct run_data *run, int rank, int64_t step, const struct traffic_call *plan)
{
  if (!run->config.narrow || !plan->by_width) return plan->count;
  const double width = evidence_value(run, "batch", rank, step, plan->microbatch, "got.width");
  return width >= 1 && width <= (double)run->config.sequence ? plan->count / run->config.sequence * (int64_t)width : 0;
}

static bool as_planned(const struct run_config *c, enum traffic_group g, const struct call *call, const struct traffic_call *plan,
                       int64_t count)
{
  const int64_t bytes = traffic_bytes(plan->op, count * (int64_t)dtype_bytes(plan->type), traffic_ranks(c, g));
  return strcmp(call->op, plan->op) == 0 && strcmp(call->stream, traffic_stream(g)) == 0 &&
         strcmp(call->type, dtype_name(plan->type)) == 0 && call->count == count && call->bytes == bytes &&
         (plan->microbatch < 0 || call->microbatch == plan->microbatch);
}

/* The next call of group g at or behind *i; NULL: none. */
static const json_t *next_of(const json_t *calls, enum traffic_group g, size_t *i, struct call *call)
{
  for (; *i < json_array_size(calls); ++*i) {
    const json_t *text = json_array_get(calls, *i);
    if (parse(text, call) && strcmp(call->group, traffic_name(g)) == 0) {
      ++*i;
      return text;
    }
  }
  return NULL;
}

static bool judge_group(const struct run_data *run, int rank, int64_t step, enum traffic_group g,
                        const struct traffic *plan, struct verdict *out)
{
  const json_t *calls = calls_of(run, rank, step), *text = NULL;
  struct call call;
  size_t at = 0;
  long long before = -1;
  for (int k = 0;; k++) {
    text = next_of(calls, g, &at, &call);
    if (text == NULL && k == plan->n) return true;
    const bool in_order = text && (before < 0 || call.sequence == before + 1);
    if (text && k < plan->n && in_order && as_planned(&run->config, g, &call, &plan->calls[k], count_of(run, rank, step, &plan->calls[k]))) {
      before = call.sequence;
      continue;
    }
    snprintf(out->worst, sizeof out->worst, "plan of group %s at step %lld", traffic_name(g), (long long)step);
    if (k < plan->n)
      verdict_say(out, OUTCOME_FAIL,
                  "call %d of %d in group %s of rank %d at step %lld is '%s', planned %s of %lld %s (micro-batch %lld)",
                  k, plan->n, traffic_name(g), rank, (long long)step, text_of(text), plan->calls[k].op,
                  (long long)count_of(run, rank, step, &plan->calls[k]), dtype_name(plan->calls[k].type),
                  (long long)plan->calls[k].microbatch);
    else
      verdict_say(out, OUTCOME_FAIL, "group %s of rank %d at step %lld has '%s' behind the %d calls that were planned",
                  traffic_name(g), rank, (long long)step, text_of(text), plan->n);
    return false;
  }
}

/* Every call can be read and is of a group that the plan knows. */
static bool readable(const struct run_data *run, int rank, int64_t step, struct verdict *out)
{
  const json_t *calls = calls_of(run, rank, step);
  if (!json_is_array(calls)) {
    verdict_say(out, OUTCOME_INVALID, "rank %d left no trace of step %lld", rank, (long long)step);
    return false;
  }
  for (size_t i = 0; i < json_array_size(calls); i++) {
    struct call call;
    bool known = false;
    const bool read = parse(json_array_get(calls, i), &call);
    for (int g = 0; read && g < TRAFFIC_GROUPS; g++)
      known = known || strcmp(call.group, traffic_name((enum traffic_group)g)) == 0;
    if (known) continue;
    snprintf(out->worst, sizeof out->worst, "call %zu of step %lld", i, (long long)step);
    verdict_say(out, read ? OUTCOME_FAIL : OUTCOME_INVALID, "call %zu of step %lld on rank %d %s: '%s'", i,
                (long long)step, rank, read ? "is in a group that no plan knows" : "cannot be read",
                text_of(json_array_get(calls, i)));
    return false;
  }
  return true;
}

static bool judge_rank(const struct run_data *run, int rank, struct verdict *out)
{
  const struct layout at = layout_of(&run->config, rank);
  for (int g = 0; g < TRAFFIC_GROUPS; g++) {
    struct traffic plan;
    bool ok = true;
    if (traffic_expect(&run->config, &at, (enum traffic_group)g, &plan) != ERR_OK) {
      verdict_say(out, OUTCOME_INVALID, "there is no plan: %s", err_text());
      return false;
    }
    for (int64_t step = 0; ok && step < evidence_steps(run); step++)
      ok = judge_group(run, rank, step, (enum traffic_group)g, &plan, out);
    traffic_free(&plan);
    if (!ok) return false;
  }
  return true;
}

void trace_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions,
                 int n, struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "trace", "O11");
  const int ranks = evidence_ranks(run);
  if (run->foreign) {
    foreign_trace(run, out);
    return;
  }
  if (ranks == 1) {
    verdict_say(out, OUTCOME_SKIPPED, "one rank has no collectives");
    return;
  }
  const int64_t steps = evidence_steps(run);
  for (int64_t step = 0; step < steps; step++)
    for (int rank = 0; rank < ranks; rank++)
      if (!readable(run, rank, step, out)) return;
  for (int64_t step = 0; step < steps; step++)
    for (int rank = 0; rank < ranks; rank++)
      if (!same_in_stage(run, rank, step, out)) return;
  for (int rank = 0; rank < ranks; rank++)
    if (!judge_rank(run, rank, out)) return;
  out->worst[0] = '\0';
  if (steps < run->config.steps || steps == 0)
    verdict_say(out, OUTCOME_INVALID, "only %lld of %lld steps left evidence", (long long)steps,
                (long long)run->config.steps);
  else
    verdict_say(out, OUTCOME_PASS, "%d ranks queued the same collectives at %lld steps, %zu on rank 0 as planned",
                ranks, (long long)steps, json_array_size(calls_of(run, 0, 0)));
}
