/* shim.c - O16: what a PMPI shim that does not know the trainer counted, beside what the trace implies.
 *
 * The mapping, as comm.h states it, for a group of more than one rank:
 *
 *   allreduce       the library's own sums: MPI_Iallreduce of the buffer; in rank order: MPI_Ialltoallv of the
 *                   buffer and MPI_Iallgatherv of the shares
 *   reduce_scatter  MPI_Ireduce_scatter_block or, in rank order, MPI_Ialltoallv of all parts
 *   allgather       MPI_Iallgather of the own part
 *   broadcast       MPI_Ibcast of the buffer                                     barrier    MPI_Ibarrier of nothing
 *   send, recv      MPI_Isend or MPI_Issend, MPI_Irecv of the buffer
 *
 * A buffer may go in several pieces, which changes the number of calls and no bytes.  What NCCL
 * carries is nothing of MPI's.
 */
#include "base/record.h"
#include "evidence.h"
#include "traffic.h"
#include "verdict.h"

#include <stdio.h>
#include <string.h>

static const struct rule {
  const char *op, *mpi[2]; /* either name */
} rules[] = {
  {"allreduce", {"MPI_Iallreduce", "MPI_Ialltoallv"}}, {"reduce_scatter", {"MPI_Ireduce_scatter_block", NULL}},
  {"allgather", {"MPI_Iallgather", NULL}},             {"broadcast", {"MPI_Ibcast", NULL}},
  {"barrier", {"MPI_Ibarrier", NULL}},                 {"send", {"MPI_Isend", "MPI_Issend"}},
  {"recv", {"MPI_Irecv", NULL}},
};
enum { RULES = sizeof rules / sizeof *rules };

struct total {
  long long calls, bytes;
};

enum { ALLREDUCE, REDUCE_SCATTER, ALLGATHER }; /* rows of rules */

static int rule_of_op(const char *op)
{
  for (int i = 0; i < RULES; i++)
    if (strcmp(rules[i].op, op) == 0) return i;
  return -1;
}
static int rule_of_call(const char *mpi)
{
  for (int i = 0; i < RULES; i++)
    for (int k = 0; k < 2; k++)
      if (rules[i].mpi[k] && strcmp(rules[i].mpi[k], mpi) == 0) return i;
  return -1;
}

/* Of the group of that name; one that the plan does not know counts as several. */
static int64_t ranks_of(const struct run_config *c, const char *group)
{
  for (int g = 0; g < TRAFFIC_GROUPS; g++)
    if (strcmp(group, traffic_name((enum traffic_group)g)) == 0) return traffic_ranks(c, (enum traffic_group)g);
  return config_ranks(c);
}

static bool by_nccl(const struct run_config *c) { return c->device == DEVICE_CUDA && c->transport == TRANSPORT_NCCL; }

static bool traced(const struct run_data *run, int rank, int64_t step, struct total *sum, struct verdict *out)
{
  const json_t *calls = json_object_get(evidence_record(run, "trace", rank, step, -1), "got.calls");
  if (!json_is_array(calls)) {
    verdict_say(out, OUTCOME_INVALID, "rank %d left no trace of step %lld", rank, (long long)step);
    return false;
  }
  for (size_t i = 0; i < json_array_size(calls); i++) {
    char op[32], group[32], type[32];
    long long count;
    enum dtype t;
    const char *text = json_string_value(json_array_get(calls, i));
    if (text == NULL || sscanf(text, "%*s %31s %31s %*s %31s %lld", op, group, type, &count) != 4 ||
        rule_of_op(op) < 0 || dtype_parse(type, &t) != ERR_OK) {
      verdict_say(out, OUTCOME_INVALID, "call %zu of step %lld on rank %d cannot be read: '%s'", i, (long long)step,
                  rank, text ? text : "");
      return false;
    }
    if (by_nccl(&run->config)) continue;
    const int64_t ranks = ranks_of(&run->config, group);
    const bool message = strcmp(op, "send") == 0 || strcmp(op, "recv") == 0;
    int rule = rule_of_op(op);
    if ((ranks == 1 && !message) || (count == 0 && strcmp(op, "barrier") != 0)) continue;
    if (rule == ALLGATHER) count /= ranks;
    if (rule == REDUCE_SCATTER && run->config.reduce == REDUCE_ORDERED) rule = ALLREDUCE; /* MPI sees the same call */
    sum[rule].calls++;
    sum[rule].bytes += count * (long long)dtype_bytes(t);
  }
  return true;
}

static bool counted(const struct run_data *run, int rank, int64_t step, struct total *sum, struct verdict *out)
{
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *record = json_array_get(run->records, i);
    if (!evidence_is(record, "shim") || evidence_rank(record) != rank || evidence_step(record) != step) continue;
    const char *call = evidence_text(record, "got.call");
    if (strcmp(call, "MPI_Iallgatherv") == 0) continue; /* the second half of a sum in rank order */
    const int rule = rule_of_call(call);
    if (rule < 0) {
      snprintf(out->worst, sizeof out->worst, "%s at step %lld", call, (long long)step);
      verdict_say(out, OUTCOME_FAIL, "rank %d called %s at step %lld; nothing in its trace stands for that", rank, call,
                  (long long)step);
      return false;
    }
    sum[rule].calls += record_get_int(record, "got.calls", 0);
    sum[rule].bytes += record_get_int(record, "got.bytes", 0);
  }
  return true;
}

static bool judge_one(const struct run_data *run, int rank, int64_t step, long long *seen, struct verdict *out)
{
  struct total want[RULES] = {{0, 0}}, got[RULES] = {{0, 0}};
  if (!traced(run, rank, step, want, out) || !counted(run, rank, step, got, out)) return false;
  for (int i = 0; i < RULES; i++) {
    *seen += got[i].calls;
    if (got[i].bytes == want[i].bytes && got[i].calls >= want[i].calls && (want[i].calls > 0 || got[i].calls == 0))
      continue;
    snprintf(out->worst, sizeof out->worst, "%s at step %lld", rules[i].op, (long long)step);
    out->value = (double)got[i].bytes;
    out->bound = (double)want[i].bytes;
    verdict_say(out, OUTCOME_FAIL,
                "%s of rank %d at step %lld: MPI was handed %lld bytes in %lld calls, the trace implies %lld in %lld",
                rules[i].op, rank, (long long)step, got[i].bytes, got[i].calls, want[i].bytes, want[i].calls);
    return false;
  }
  return true;
}

void shim_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions,
                int n, struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "shim", "O16");
  if (evidence_ranks(run) == 1) {
    verdict_say(out, OUTCOME_SKIPPED, "one rank makes no MPI calls for collectives");
    return;
  }
  const int64_t steps = evidence_steps(run);
  long long seen = 0;
  for (int64_t step = 0; step < steps; step++)
    for (int rank = 0; rank < evidence_ranks(run); rank++)
      if (!judge_one(run, rank, step, &seen, out)) return;
  if (by_nccl(&run->config) && steps == run->config.steps)
    verdict_say(out, OUTCOME_PASS, "NCCL carries what ranks exchange: MPI was handed nothing at %lld steps", (long long)steps);
  else if (steps < run->config.steps || seen == 0)
    verdict_say(out, OUTCOME_INVALID, "%lld of %lld steps, %lld MPI calls counted", (long long)steps,
                (long long)run->config.steps, seen);
  else
    verdict_say(out, OUTCOME_PASS, "%lld MPI calls at %lld steps, bytes as the trace implies", seen, (long long)steps);
}
