/* memory.c - O12: what each rank held at its peak, beside the closed formula.
 *
 *   total       the categories' sum and the system's high-water mark, each within 5 % of the formula; so is each category
 *               (below 1 % of the whole none is judged)
 *   unaccounted the mark less the categories' sum: at most 5 % of the mark
 *   slope       nothing is allocated after the first step
 *
 * On device cuda the mark is the card's driver's, less what the device layer holds and nobody asked for; ranks that share a card have none
 * of their own, and the verdict says so.
 *
 * Of segments that several ranks map (MPI's) the system counts all in each of them.  Here a rank has its part, each page divided by those
 * that map it, so that no byte is left out and none is counted twice; what is taken off the mark for that is in the verdict.
 */
#include "base/record.h"
#include "evidence.h"
#include "predict.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>

static const double margin = 0.05, unaccounted_margin = 0.05, small = 0.01;

struct category {
  const char *key, *name;
  double predicted;
};

/* The system's, without what is other ranks'. */
static double mark_of(const json_t *record)
{
  return evidence_real(record, "got.os_peak_bytes") - evidence_real(record, "got.os_others_bytes");
}

/* A key that is not there is no excuse: the comparison with it fails. */
static bool has_mark(const struct run_data *run, const json_t *record)
{
  return run->config.device != DEVICE_CUDA || evidence_real(record, "got.os_peak_bytes") != -1.0;
}

static void judge_rank(const struct run_data *run, const json_t *record, struct worst *w, struct verdict *out)
{
  struct predicted p;
  const long long rank = (long long)evidence_rank(record);
  const struct layout at = layout_of(&run->config, (int)rank);
  predict_at(&run->config, &at, &p);
  const double peak = evidence_real(record, "got.peak_bytes"), os = mark_of(record);
  const struct category parts[] = {
    {"got.parameters_bytes", "parameters", p.parameters_bytes},    {"got.gradients_bytes", "gradients", p.gradients_bytes},
    {"got.optimizer_bytes", "optimizer", p.optimizer_bytes},       {"got.activations_bytes", "activations", p.activations_bytes},
    {"got.communication_bytes", "communication", p.communication_bytes}, {"got.host_bytes", "host", p.host_bytes},
    {"got.peak_bytes", "total", p.total_bytes},
  };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const double got = evidence_real(record, parts[i].key);
    if (rank == 0) verdict_detail(out, parts[i].name, 0, fabs(got - parts[i].predicted), margin * parts[i].predicted);
    if (got < small * p.total_bytes && parts[i].predicted < small * p.total_bytes) continue;
    worst_see(w, fabs(got - parts[i].predicted) / parts[i].predicted, margin, "%s of rank %lld: %.4g bytes, formula %.4g", parts[i].name,
              rank, got, parts[i].predicted);
  }
  if (has_mark(run, record)) {
    worst_see(w, fabs(os - p.total_bytes) / p.total_bytes, margin, "measured on rank %lld: system %.4g bytes, formula %.4g", rank, os,
              p.total_bytes);
    worst_see(w, fabs(os - peak) / os, unaccounted_margin, "unaccounted on rank %lld: system %.4g bytes, categories %.4g", rank, os, peak);
  }
  worst_see(w, evidence_real(record, "got.allocations_last") - evidence_real(record, "got.allocations_first"), 0.0,
            "allocations after the first step on rank %lld", rank);
}

void memory_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                  struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "memory", "O12");
  struct worst w;
  double others = 0.0;
  bool marked = true;
  worst_start(&w);
  for (int rank = 0; rank < evidence_ranks(run); rank++) {
    const json_t *record = evidence_record(run, "memory", rank, -1, -1);
    if (record == NULL) {
      verdict_say(out, OUTCOME_INVALID, "rank %d told nothing of its memory", rank);
      return;
    }
    judge_rank(run, record, &w, out);
    marked = marked && has_mark(run, record);
    others = fmax(others, evidence_real(record, "got.os_others_bytes"));
  }
  worst_to(&w, out);
  if (w.over > 0)
    verdict_say(out, OUTCOME_FAIL, "%s: off by %.3g, allowed %.3g; %lld of %lld comparisons off", w.place, w.value, w.bound,
                (long long)w.over, (long long)w.seen);
  else
    verdict_say(out, OUTCOME_PASS, "%lld figures on %d ranks within %.0f %% of the formula; nearest: %s; %s, at most %.4g bytes", (long long)w.seen,
                evidence_ranks(run), 100.0 * margin, w.place,
                !marked                           ? "without the driver's mark, which ranks that share a card have none of their own of; left out"
                : run->config.device == DEVICE_CUDA ? "left out as the device's own places and workspace"
                                                  : "left out as other ranks' of MPI's segments",
                others);
}
