/* uneven.c - one walk over the records of a run, then sums over ranks and steps. */
#include "uneven.h"

#include "evidence.h"
#include "layout.h"
#include "median.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const phase_keys[UNEVEN_PHASES] = {"got.forward_ms", "got.backward_ms", "got.optimizer_ms", "got.other_ms"};

const char *uneven_phase_name(enum uneven_phase p)
{
  static const char *const names[UNEVEN_PHASES] = {"forward", "backward", "optimizer", "other work"};
  return names[p];
}

/* What the steps that are measured say; NaN: not told. */
struct told {
  double phase_ms[UNEVEN_PHASES][UNEVEN_RANKS][UNEVEN_STEPS];
  double step_ms[UNEVEN_RANKS][UNEVEN_STEPS], tokens[UNEVEN_RANKS][UNEVEN_STEPS], valid[UNEVEN_RANKS][UNEVEN_STEPS],
      computed[UNEVEN_RANKS][UNEVEN_STEPS];
};

static int place_of(const json_t *record) { return (int)(evidence_step(record) - UNEVEN_WARM); }

static void take_time(const json_t *record, int rank, int k, struct told *t)
{
  for (int p = 0; p < UNEVEN_PHASES; p++) t->phase_ms[p][rank][k] = evidence_real(record, phase_keys[p]);
  t->step_ms[rank][k] = evidence_real(record, "got.step_ms");
}

/* Passes are as wide as the micro-batch says, without narrow as the sequence. */
static void take_batch(const struct run_config *c, const json_t *record, int rank, int k, struct told *t)
{
  const double width = c->narrow ? evidence_real(record, "got.width") : (double)c->sequence;
  t->tokens[rank][k] += evidence_real(record, "got.tokens");
  t->valid[rank][k] += evidence_real(record, "got.valid_tokens");
  t->computed[rank][k] += (double)c->micro_batch * width;
}

static void take(const struct run_data *run, int steps, struct told *t)
{
  memset(t, 0, sizeof *t);
  for (int r = 0; r < UNEVEN_RANKS; r++)
    for (int k = 0; k < UNEVEN_STEPS; k++) t->step_ms[r][k] = NAN;
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *record = json_array_get(run->records, i);
    const int64_t rank = evidence_rank(record);
    const int k = place_of(record);
    if (rank < 0 || rank >= evidence_ranks(run) || k < 0 || k >= steps) continue;
    if (evidence_is(record, "time")) take_time(record, (int)rank, k, t);
    if (evidence_is(record, "batch")) take_batch(&run->config, record, (int)rank, k, t);
  }
}

static double busy_ms(const struct told *t, int rank, int k)
{
  double sum = 0;
  for (int p = 0; p < UNEVEN_PHASES; p++) sum += t->phase_ms[p][rank][k];
  return sum;
}

/* Every rank's tokens are its replica's: over ranks each replica counts once. */
static bool counts(const struct run_config *c, int rank)
{
  const struct layout at = layout_of(c, rank);
  return at.tp == 0 && at.pp == 0;
}

/* The busiest rank on the mean, in which phase it exceeds the others, how often it is the busiest. */
static void find_worst(const struct told *t, struct uneven *u)
{
  double most = -INFINITY;
  int hits = 0;
  for (int r = 1; r < u->ranks; r++)
    if (u->rank_ms[r] > u->rank_ms[u->worst]) u->worst = r;
  for (int p = 0; p < UNEVEN_PHASES; p++) {
    double more = 0;
    for (int k = 0; k < u->steps; k++)
      for (int r = 0; r < u->ranks; r++) more += t->phase_ms[p][u->worst][k] - t->phase_ms[p][r][k];
    if (more > most) most = more, u->phase = (enum uneven_phase)p;
  }
  for (int k = 0; k < u->steps; k++) {
    bool busiest = true;
    for (int r = 0; r < u->ranks; r++) busiest = busiest && busy_ms(t, r, k) <= busy_ms(t, u->worst, k);
    hits += busiest;
  }
  u->last = (double)hits / u->steps;
}

static void add_up(const struct run_config *c, const struct told *t, struct uneven *u)
{
  double balance[UNEVEN_STEPS], of_tokens[UNEVEN_STEPS], lost[UNEVEN_STEPS], rest[UNEVEN_STEPS], tokens = 0, valid = 0, computed = 0;
  for (int k = 0; k < u->steps; k++) {
    double largest = 0, mean = 0, passes = 0, slowest = 0, most_valid = 0, mean_valid = 0;
    for (int r = 0; r < u->ranks; r++) {
      const double ms = busy_ms(t, r, k);
      largest = fmax(largest, ms);
      mean += ms / u->ranks;
      passes = fmax(passes, t->phase_ms[UNEVEN_FORWARD][r][k] + t->phase_ms[UNEVEN_BACKWARD][r][k]);
      slowest = fmax(slowest, t->step_ms[r][k]);
      u->rank_ms[r] += ms / u->steps;
      if (!counts(c, r)) continue;
      tokens += t->tokens[r][k];
      valid += t->valid[r][k];
      computed += t->computed[r][k];
      most_valid = fmax(most_valid, t->valid[r][k]);
      mean_valid += t->valid[r][k] / (double)c->dp;
    }
    balance[k] = mean / largest;
    lost[k] = (largest - mean) / slowest;
    rest[k] = slowest - passes;
    of_tokens[k] = mean_valid / most_valid;
    u->largest_ms += largest / u->steps;
    u->mean_ms += mean / u->steps;
    u->step_ms += slowest / u->steps;
  }
  find_worst(t, u);
  u->persistent_ms = u->rank_ms[u->worst] - u->mean_ms;
  u->jitter_ms = u->largest_ms - u->rank_ms[u->worst];
  u->lost = median_sorting(lost, u->steps);
  u->rest_ms = median_sorting(rest, u->steps);
  u->balance = median_sorting(balance, u->steps);
  u->token_balance = median_sorting(of_tokens, u->steps);
  const double seconds = u->step_ms * u->steps / 1e3;
  u->tokens_per_s = valid / seconds;
  u->computed_per_s = computed / seconds;
  u->padding = 1 - tokens / computed;
}

static enum err check_told(const struct told *t, const struct uneven *u)
{
  for (int r = 0; r < u->ranks; r++)
    for (int k = 0; k < u->steps; k++)
      if (!isfinite(t->step_ms[r][k] + busy_ms(t, r, k)) || !(t->step_ms[r][k] > 0) || !(t->computed[r][k] > 0))
        FAIL(ERR_UNAVAILABLE, "rank %d told no times or batches of step %d", r, k + UNEVEN_WARM);
  return ERR_OK;
}

enum err uneven_measure(const struct run_data *run, struct uneven *out)
{
  const int64_t steps = run->config.steps - UNEVEN_WARM;
  *out = (struct uneven){.ranks = evidence_ranks(run), .steps = (int)(steps < UNEVEN_STEPS ? steps : UNEVEN_STEPS)};
  if (out->ranks > UNEVEN_RANKS) FAIL(ERR_UNAVAILABLE, "%d ranks are more than %d", out->ranks, UNEVEN_RANKS);
  if (out->steps < 1) FAIL(ERR_UNAVAILABLE, "%lld steps leave none after the first %d", (long long)run->config.steps, UNEVEN_WARM);
  struct told *t = malloc(sizeof *t);
  if (t == NULL) FAIL(ERR_MEMORY, "times of %d ranks", out->ranks);
  take(run, out->steps, t);
  const enum err err = check_told(t, out);
  if (err == ERR_OK) add_up(&run->config, t, out);
  free(t);
  return err;
}

/* --- micro-batches ------------------------------------------------------------------------------ */

enum err uneven_micros(const struct run_data *run, struct uneven_micro *out, int max, int *n)
{
  const int64_t each = layout_each(&run->config);
  *n = 0;
  for (size_t i = 0; i < json_array_size(run->records) && *n < max; i++) {
    const json_t *record = json_array_get(run->records, i);
    if (!evidence_is(record, "batch") || evidence_step(record) < UNEVEN_WARM) continue;
    const int64_t rank = evidence_rank(record), step = evidence_step(record);
    const json_t *each_ms = json_object_get(evidence_record(run, "time", rank, step, -1), "got.microbatches_ms");
    const struct uneven_micro m = {(int)rank, step, evidence_real(record, "got.tokens"), evidence_real(record, "got.pairs"),
                                   json_number_value(json_array_get(each_ms, (size_t)(evidence_microbatch(record) % each)))};
    if (!(m.busy_ms > 0) || !isfinite(m.tokens + m.pairs))
      FAIL(ERR_UNAVAILABLE, "rank %lld told no times of the passes of step %lld (trace_time)", (long long)rank, (long long)step);
    out[(*n)++] = m;
  }
  return ERR_OK;
}

double uneven_memory(const struct run_data *run, int *most)
{
  double largest = -INFINITY, smallest = INFINITY;
  *most = -1;
  for (int r = 0; r < evidence_ranks(run); r++) {
    const double bytes = evidence_value(run, "memory", r, -1, -1, "got.peak_bytes");
    if (!(bytes > 0)) return NAN;
    if (bytes > largest) largest = bytes, *most = r;
    smallest = fmin(smallest, bytes);
  }
  return largest / smallest;
}
