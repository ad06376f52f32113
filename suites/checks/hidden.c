/* hidden.c - medians of runs, and what they make together. */
#include "hidden.h"

#include "evidence.h"
#include "median.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum kind { WITH, SILENT, ALONE, BARE, KINDS };
static const char *const words[KINDS] = {"with", "silent", "alone", "bare"};

/* Products of float32 on the cpu and nothing but replicas. */
static bool has_bare(const struct run_config *c)
{
  return c->device == DEVICE_CPU && c->precision == PRECISION_F32 && c->zero == 0 && c->compute == COMPUTE_REAL;
}

/* Equal settings of two repeats are two runs: their roles start with "rerun". */
static void role_of(int repeat, enum kind kind, char out[32]) { snprintf(out, 32, "rerun%d-%s", repeat, words[kind]); }

static struct run_config settings_of(const struct run_config *c, enum kind kind)
{
  struct run_config s = *c;
  memset(s.name, 0, sizeof s.name);
  memset(s.out, 0, sizeof s.out);
  if (kind == SILENT) s.communicate = false;
  if (kind == ALONE) s.overlap = s.overlap_gather = s.overlap_p2p = false, s.align = true;
  if (kind == ALONE && s.zero == 3) s.prefetch = 0;
  if (kind == BARE) s.task = TASK_OVERLAP;
  return s;
}

int hidden_companions(const struct run_config *c, struct companion *out, int max)
{
  int n = 0;
  for (int repeat = 0; repeat < HIDDEN_REPEATS; repeat++)
    for (int i = 0; i < KINDS; i++) {
      const enum kind kind = (enum kind)(repeat % 2 ? KINDS - 1 - i : i);
      if ((repeat == 0 && kind == WITH) || (kind == BARE && !has_bare(c))) continue; /* the first is the case's own */
      BUG_IF(n >= max);
      role_of(repeat, kind, out[n].role);
      out[n++].config = settings_of(c, kind);
    }
  return n;
}

/* --- one run ------------------------------------------------------------------------- */

enum { STEPS = 256, RANKS = 64, WARM = 2 };

static double median(const double *x, int n)
{
  double sorted[STEPS];
  memcpy(sorted, x, (size_t)n * sizeof *x);
  return median_sorting(sorted, n);
}

struct medians {
  double step_ms, busy_ms, stream_ms, transfers_ms, left_ms;
  int64_t calls;
};

/* Of one step: the slowest rank's times, and each transfer from the last rank that was ready to the last that was done. */
struct one_step {
  double step_ms, busy_ms, stream_ms, transfers_ms, left_ms;
  int64_t calls;
};

static bool is_over_replicas(const char *call)
{
  char op[32], group[32];
  return sscanf(call, "%*d %31s %31s", op, group) == 2 && strcmp(op, "barrier") != 0 &&
         (strcmp(group, "dp") == 0 || strcmp(group, "gather") == 0 || strcmp(group, "replicas") == 0);
}

/* Alike but for the micro-batch, whose number is each replica's own. */
static bool is_same_call(const char *a, const char *b)
{
  const char *end = a ? strrchr(a, ' ') : NULL;
  return end && b && strncmp(a, b, (size_t)(end - a) + 1) == 0;
}

/* calls_ready_ms or calls_end_ms of the i-th call that is over replicas. */
static double time_at(const json_t *time, const char *key, size_t i)
{
  const json_t *value = json_array_get(json_object_get(time, key), i);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

/* How long a rank waited in the last sum over ranks of a step, its loss.  A rank that began earlier than others waits for
 * them in its transfers, and where those are silent here. */
static double last_sum_ms(const json_t *trace, const json_t *time)
{
  char op[32], group[32];
  double ms = 0;
  size_t i;
  const json_t *call;
  json_array_foreach(json_object_get(trace, "got.calls"), i, call)
    if (json_is_string(call) && sscanf(json_string_value(call), "%*d %31s %31s", op, group) == 2 && strcmp(group, "sums") == 0)
      ms = time_at(time, "got.calls_end_ms", i) - time_at(time, "got.calls_ready_ms", i);
  return ms;
}

/* Weights are gathered beside the next step's forward. */
static bool gathers_beside_next(const struct run_config *c) { return (c->zero == 1 || c->zero == 2) && c->overlap_gather; }

/* Adds up the transfers that the ranks name alike. */
static enum err add_transfers(const json_t *const *traces, const json_t *const *times, int ranks, bool beside_next, struct one_step *out)
{
  const json_t *calls = json_object_get(traces[0], "got.calls");
  double first_ready[RANKS];
  bool unfinished = false; /* goes on beside the next step: its time is not in this one's records */
  for (int r = 0; r < ranks; r++) first_ready[r] = NAN;
  for (size_t i = 0; i < json_array_size(calls); i++) {
    const char *call = json_string_value(json_array_get(calls, i));
    double ready = -INFINITY, end = -INFINITY;
    if (call == NULL || !is_over_replicas(call)) continue;
    for (int r = 0; r < ranks; r++) {
      const char *theirs = json_string_value(json_array_get(json_object_get(traces[r], "got.calls"), i));
      const double at = time_at(times[r], "got.calls_ready_ms", i);
      if (!is_same_call(call, theirs)) FAIL(ERR_FORMAT, "rank %d names '%s' where rank 0 names '%s'", r, theirs ? theirs : "", call);
      if (isnan(at)) FAIL(ERR_UNAVAILABLE, "rank %d told no times of its calls (trace_time)", r);
      unfinished = unfinished || at < 0;
      if (isnan(first_ready[r]) && at >= 0) first_ready[r] = at;
      ready = fmax(ready, at);
      end = fmax(end, time_at(times[r], "got.calls_end_ms", i));
    }
    out->transfers_ms += end - ready;
    out->calls++;
  }
  if (unfinished) out->transfers_ms = NAN;
  for (int r = 0; r < ranks; r++) {
    const double next_ms = beside_next ? evidence_real(times[r], "got.forward_ms") : 0;
    out->left_ms = fmax(out->left_ms, evidence_real(times[r], "got.backward_end_ms") - first_ready[r] + next_ms);
  }
  return ERR_OK;
}

static enum err take_step(const struct run_data *run, int64_t step, struct one_step *out)
{
  static const char *const busy[] = {"got.forward_ms", "got.backward_ms", "got.optimizer_ms", "got.other_ms"};
  const json_t *traces[RANKS] = {NULL}, *times[RANKS] = {NULL};
  const int ranks = evidence_ranks(run);
  *out = (struct one_step){0};
  for (int r = 0; r < ranks; r++) {
    double sum = 0;
    traces[r] = evidence_record(run, "trace", r, step, -1);
    times[r] = evidence_record(run, "time", r, step, -1);
    if (traces[r] == NULL || times[r] == NULL) FAIL(ERR_UNAVAILABLE, "rank %d told nothing of step %lld", r, (long long)step);
    for (size_t i = 0; i < sizeof busy / sizeof *busy; i++) sum += evidence_real(times[r], busy[i]);
    out->step_ms = fmax(out->step_ms, evidence_real(times[r], "got.step_ms"));
    out->busy_ms = fmax(out->busy_ms, sum);
    out->stream_ms = fmax(out->stream_ms, sum + evidence_real(times[r], "got.exposed_replicas_ms") + last_sum_ms(traces[r], times[r]));
  }
  return add_transfers(traces, times, ranks, gathers_beside_next(&run->config), out);
}

static enum err take_run(const struct run_data *run, struct medians *out)
{
  double step_ms[STEPS], busy_ms[STEPS], stream_ms[STEPS], transfers_ms[STEPS], left_ms[STEPS];
  int n = 0;
  if (evidence_ranks(run) > RANKS) FAIL(ERR_UNAVAILABLE, "%d ranks are more than %d", evidence_ranks(run), RANKS);
  for (int64_t step = WARM; step < run->config.steps && n < STEPS; step++, n++) {
    struct one_step one;
    TRY(take_step(run, step, &one));
    step_ms[n] = one.step_ms;
    busy_ms[n] = one.busy_ms;
    stream_ms[n] = one.stream_ms;
    transfers_ms[n] = one.transfers_ms;
    left_ms[n] = one.left_ms;
    out->calls = one.calls;
  }
  if (n == 0) FAIL(ERR_UNAVAILABLE, "%lld steps leave none after the first %d", (long long)run->config.steps, WARM);
  out->step_ms = median(step_ms, n);
  out->busy_ms = median(busy_ms, n);
  out->stream_ms = median(stream_ms, n);
  out->transfers_ms = median(transfers_ms, n);
  out->left_ms = median(left_ms, n);
  return ERR_OK;
}

/* --- the bare program ------------------------------------------------------------------- */

/* Of seconds or processor_seconds the median over repeats of the slowest rank.  Of sums alone too: a barrier stands before each,
 * and a rank that only hands its part to the system is done before its part has arrived. */
static enum err bare_ms(const struct run_data *run, const char *what, const char *key, double *out)
{
  double chosen[STEPS];
  int ranks = 0;
  const int64_t n = run->config.steps < STEPS ? run->config.steps : STEPS;
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *r = json_array_get(run->records, i), *seconds = json_object_get(r, key);
    if (!evidence_is(r, "measure") || strcmp(evidence_text(r, "got.what"), what) != 0) continue;
    if (evidence_real(r, "got.wrong") != 0) FAIL(ERR_FORMAT, "the bare program summed %g elements wrongly", evidence_real(r, "got.wrong"));
    if ((int64_t)json_array_size(seconds) < n) FAIL(ERR_UNAVAILABLE, "the bare program told %zu of %lld repeats", json_array_size(seconds), (long long)n);
    for (int64_t k = 0; k < n; k++) {
      const double ms = 1e3 * json_number_value(json_array_get(seconds, (size_t)k));
      chosen[k] = ranks == 0 ? ms : fmax(chosen[k], ms);
    }
    ranks++;
  }
  if (ranks != evidence_ranks(run)) FAIL(ERR_UNAVAILABLE, "%d of %d ranks of the bare program told of %s", ranks, evidence_ranks(run), what);
  *out = median(chosen, (int)n);
  return ERR_OK;
}

static enum err take_bare(const struct run_data *run, int repeat, struct hidden *out)
{
  static const char *const wall = "got.seconds", *const processor = "got.processor_seconds";
  double both, products, sums, both_busy, products_busy;
  TRY(bare_ms(run, "overlap.both", wall, &both));
  TRY(bare_ms(run, "overlap.products", wall, &products));
  TRY(bare_ms(run, "overlap.sums", wall, &sums));
  TRY(bare_ms(run, "overlap.both", processor, &both_busy));
  TRY(bare_ms(run, "overlap.products", processor, &products_busy));
  out->bare_alone_ms.each[repeat] = sums;
  out->bare_products_ms.each[repeat] = products;
  out->bare_hidden.each[repeat] = 1 - (both - products) / sums;
  out->bare_slowdown.each[repeat] = both / products;
  out->bare_processor_ms.each[repeat] = both_busy - products_busy;
  out->bare_most.each[repeat] = 1 - (both_busy - products_busy) / sums;
  return ERR_OK;
}

/* --- all of them ---------------------------------------------------------------------------- */

static void finish(struct hidden_figure *f, int n)
{
  f->value = median(f->each, n);
  f->low = f->high = f->each[0];
  for (int i = 1; i < n; i++) f->low = fmin(f->low, f->each[i]), f->high = fmax(f->high, f->each[i]);
}

static enum err take_repeat(const struct run_data *const runs[KINDS], int r, struct hidden *out)
{
  struct medians with = {0}, silent = {0}, alone = {0};
  TRY(take_run(runs[WITH], &with));
  TRY(take_run(runs[SILENT], &silent));
  TRY(take_run(runs[ALONE], &alone));
  if (with.calls == 0 || with.calls != alone.calls || with.calls != silent.calls)
    FAIL(ERR_FORMAT, "transfers over replicas in a step: %lld, silent %lld, alone %lld", (long long)with.calls, (long long)silent.calls,
         (long long)alone.calls);
  if (isnan(alone.transfers_ms)) FAIL(ERR_UNAVAILABLE, "the run '%s' does not tell when its transfers were done", words[ALONE]);
  out->calls = with.calls;
  out->step_ms.each[r] = with.step_ms;
  out->silent_ms.each[r] = silent.step_ms;
  out->compute_ms.each[r] = silent.busy_ms;
  out->alone_ms.each[r] = alone.transfers_ms;
  out->exposed_ms.each[r] = with.step_ms - silent.step_ms;
  out->traced_ms.each[r] = with.stream_ms - silent.stream_ms;
  out->coverable_ms.each[r] = fmin(alone.transfers_ms, silent.left_ms);
  out->hidden.each[r] = 1 - out->exposed_ms.each[r] / alone.transfers_ms;
  out->compute_slowdown.each[r] = with.busy_ms / silent.busy_ms;
  out->transfer_slowdown.each[r] = with.transfers_ms / alone.transfers_ms;
  return out->has_bare ? take_bare(runs[BARE], r, out) : ERR_OK;
}

void hidden_probe(const struct run_config *c, struct run_config *silent, struct run_config *alone)
{
  *silent = settings_of(c, SILENT);
  *alone = settings_of(c, ALONE);
}

enum err hidden_ratio(const struct run_data *silent, const struct run_data *alone, double *percent)
{
  struct medians compute = {0}, transfers = {0};
  TRY(take_run(silent, &compute));
  TRY(take_run(alone, &transfers));
  if (!(compute.busy_ms > 0) || isnan(transfers.transfers_ms)) FAIL(ERR_UNAVAILABLE, "no time of compute or of transfers alone was told");
  *percent = 100 * transfers.transfers_ms / compute.busy_ms;
  return ERR_OK;
}

static enum err find(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                     int repeat, bool bare, const struct run_data *runs[KINDS])
{
  for (int kind = 0; kind < KINDS; kind++) {
    char role[32];
    role_of(repeat, (enum kind)kind, role);
    runs[kind] = repeat == 0 && kind == WITH ? run : evidence_companion(wanted, companions, n, role);
    if (kind == BARE && !bare) continue;
    if (runs[kind] == NULL || !evidence_ended(runs[kind])) FAIL(ERR_UNAVAILABLE, "the run '%s' did not run to its end", role);
  }
  return ERR_OK;
}

enum err hidden_measure(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                        struct hidden *out)
{
  const struct run_config *c = &run->config;
  *out = (struct hidden){.repeats = HIDDEN_REPEATS, .has_bare = has_bare(c)};
  if (c->dp < 2 || c->tp != 1 || c->pp != 1)
    FAIL(ERR_UNAVAILABLE, "only replicas are measured: dp 2 or more, tp 1, pp 1; here %lld, %lld, %lld", (long long)c->dp, (long long)c->tp,
         (long long)c->pp);
  for (int r = 0; r < HIDDEN_REPEATS; r++) {
    const struct run_data *runs[KINDS];
    TRY(find(run, wanted, companions, n, r, out->has_bare, runs));
    TRY(take_repeat(runs, r, out));
  }
  struct hidden_figure *const figures[] = {&out->step_ms, &out->silent_ms, &out->compute_ms, &out->alone_ms, &out->exposed_ms,
                                           &out->traced_ms, &out->coverable_ms, &out->hidden, &out->compute_slowdown,
                                           &out->transfer_slowdown, &out->bare_alone_ms, &out->bare_products_ms, &out->bare_hidden,
                                           &out->bare_slowdown, &out->bare_processor_ms, &out->bare_most};
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) finish(figures[i], HIDDEN_REPEATS);
  return ERR_OK;
}

bool hidden_agrees(const struct hidden *h)
{
  const double off = fabs(h->exposed_ms.value - h->traced_ms.value);
  return off <= 0.1 * fmax(h->exposed_ms.value, h->traced_ms.value) || off <= 0.02 * h->alone_ms.value;
}
