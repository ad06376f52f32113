/* actions.c */
#include "actions.h"

#include "evidence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steps at the start that allocate, connect and fill caches. */
static int64_t warm_up(int64_t steps) { return steps > 5 ? 2 : steps > 1 ? 1 : 0; }

static enum err find_ranks(struct actions *x, const struct run_data *run, int dp_rank, int tp_rank)
{
  for (int stage = 0; stage < x->s->p; stage++) x->ranks[stage] = -1;
  for (int rank = 0; rank < evidence_ranks(run); rank++) {
    const json_t *record = evidence_record(run, "rank", rank, -1, -1);
    if (record == NULL || evidence_real(record, "got.dp_rank") != dp_rank ||
        evidence_real(record, "got.tp_rank") != tp_rank)
      continue;
    const double stage = evidence_real(record, "got.pp_rank");
    if (stage >= 0 && stage < x->s->p) x->ranks[(int)stage] = rank;
  }
  for (int stage = 0; stage < x->s->p; stage++)
    if (x->ranks[stage] < 0)
      FAIL(ERR_UNAVAILABLE, "no rank says that it is stage %d of replica %d, tensor rank %d", stage, dp_rank, tp_rank);
  return ERR_OK;
}

static enum err read_times(const json_t *record, const char *key, int n, double *out)
{
  const json_t *list = json_object_get(record, key);
  if ((int)json_array_size(list) != n)
    FAIL(ERR_FORMAT, "%s has %zu times, the list of its stage %d actions", key, json_array_size(list), n);
  for (int i = 0; i < n; i++) {
    out[i] = json_number_value(json_array_get(list, (size_t)i));
    if (!json_is_number(json_array_get(list, (size_t)i)) || !isfinite(out[i]))
      FAIL(ERR_FORMAT, "%s: action %d has no time", key, i);
  }
  return ERR_OK;
}

/* The passes that were run are those of the list, in its order on each stream. */
static enum err check_passes(const struct actions *x, int stage, int64_t step, const json_t *record,
                             const double *start, const double *end)
{
  const json_t *passes = json_object_get(record, "got.passes");
  double last[SCHEDULE_STREAMS] = {-INFINITY, -INFINITY, -INFINITY};
  if ((int)json_array_size(passes) != x->s->n[stage])
    FAIL(ERR_FORMAT, "stage %d ran %zu actions in step %lld, its list has %d", stage, json_array_size(passes),
         (long long)step, x->s->n[stage]);
  for (int i = 0; i < x->s->n[stage]; i++) {
    const struct schedule_action *a = &x->s->list[stage][i];
    const char *got = json_string_value(json_array_get(passes, (size_t)i));
    char want[64];
    snprintf(want, sizeof want, "%s %d %d", schedule_pass_name(a->pass), a->microbatch, a->chunk);
    if (got == NULL || strcmp(got, want) != 0)
      FAIL(ERR_FORMAT, "stage %d, step %lld, action %d is '%s', its list says '%s'", stage, (long long)step, i,
           got ? got : "", want);
    double *before = &last[schedule_stream_of(a->pass)];
    if (start[i] < *before || end[i] < start[i])
      FAIL(ERR_FORMAT,
           "stage %d, step %lld: '%s' ran from %.3f to %.3f ms, before the action ahead of it had begun, or backwards",
           stage, (long long)step, want, start[i], end[i]);
    *before = start[i];
  }
  return ERR_OK;
}

static enum err read_step(struct actions *x, const struct run_data *run, int64_t index)
{
  for (int stage = 0; stage < x->s->p; stage++) {
    const int n = x->s->n[stage];
    struct actions_step *to = &x->list[index];
    const json_t *record = evidence_record(run, "action", x->ranks[stage], x->first + index, -1);
    if (record == NULL)
      FAIL(ERR_UNAVAILABLE, "rank %d told no actions of step %lld (trace_time: true asks for them)", x->ranks[stage],
           (long long)(x->first + index));
    to->start[stage] = malloc((size_t)n * sizeof(double));
    to->end[stage] = malloc((size_t)n * sizeof(double));
    if (to->start[stage] == NULL || to->end[stage] == NULL) FAIL(ERR_MEMORY, "times of %d actions", n);
    TRY(read_times(record, "got.start_ms", n, to->start[stage]));
    TRY(read_times(record, "got.end_ms", n, to->end[stage]));
    TRY(check_passes(x, stage, x->first + index, record, to->start[stage], to->end[stage]));
  }
  return ERR_OK;
}

enum err actions_read(const struct run_data *run, const struct schedule *s, int dp_rank, int tp_rank,
                      struct actions *out)
{
  *out = (struct actions){.s = s, .first = warm_up(run->config.steps)};
  const int64_t steps = run->config.steps - out->first;
  if (steps < 1) FAIL(ERR_UNAVAILABLE, "no step is left after the warm-up");
  TRY(find_ranks(out, run, dp_rank, tp_rank));
  for (int stage = 0; stage < s->p; stage++) out->total += (size_t)s->n[stage];
  out->list = calloc((size_t)steps, sizeof *out->list);
  if (out->list == NULL) FAIL(ERR_MEMORY, "%lld steps of actions", (long long)steps);
  out->steps = steps;
  for (int64_t i = 0; i < steps; i++) TRY(read_step(out, run, i));
  return ERR_OK;
}

void actions_free(struct actions *x)
{
  for (int64_t i = 0; i < x->steps; i++)
    for (int stage = 0; stage < x->s->p; stage++) {
      free(x->list[i].start[stage]);
      free(x->list[i].end[stage]);
    }
  free(x->list);
  *x = (struct actions){0};
}
