/* batch.c - O2: the step's data: the serial run's micro-batches, each once, on all ranks of the replica that owns it.
 *
 * batch asks the truth, which other checks need anyway; samples a run of its own that computes nothing, so that it is cheap
 * beside large models. */
#include "evidence.h"
#include "foreign.h"
#include "layout.h"
#include "verdict.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const facts[] = {"got.samples", "got.tokens", "got.valid_tokens", "got.hash"};

/* The first fact that differs or is absent in both; NULL: all equal. */
static const char *differs(const json_t *mine, const json_t *theirs)
{
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
    const json_t *a = json_object_get(mine, facts[i]), *b = json_object_get(theirs, facts[i]);
    if (a == NULL || b == NULL || !json_equal(a, b)) return facts[i] + 4;
  }
  return NULL;
}

/* The replica's ranks all tell of it once, each with the serial run's contents; no other rank does. */
static bool judge_rank(const struct run_data *run, const json_t *theirs, int rank, int64_t step, int64_t m,
                       struct verdict *out)
{
  const bool owns = layout_of(&run->config, rank).dp == layout_replica(&run->config, m);
  const int told = evidence_count(run, "batch", rank, step, m);
  if (told == (owns ? 1 : 0)) {
    const char *what = owns ? differs(evidence_record(run, "batch", rank, step, m), theirs) : NULL;
    if (what == NULL) return true;
    verdict_say(out, OUTCOME_FAIL, "%s on rank %d differs from the serial run's in its %s", out->worst, rank, what);
  } else if (owns)
    verdict_say(out, OUTCOME_FAIL, "%s was consumed %d times by rank %d", out->worst, told, rank);
  else
    verdict_say(out, OUTCOME_FAIL, "%s was consumed by rank %d, it belongs to replica %d", out->worst, rank,
                layout_replica(&run->config, m));
  return false;
}

static bool judge_one(const struct run_data *run, const struct run_data *truth, int64_t step, int64_t m,
                      struct verdict *out)
{
  const json_t *theirs = evidence_record(truth, "batch", -1, step, m);
  snprintf(out->worst, sizeof out->worst, "micro-batch %lld of step %lld", (long long)m, (long long)step);
  if (theirs == NULL) {
    verdict_say(out, OUTCOME_INVALID, "the serial run does not tell of %s", out->worst);
    return false;
  }
  for (int pass = 0; pass < 2; pass++) /* who should not have it, then who should */
    for (int rank = 0; rank < evidence_ranks(run); rank++)
      if ((layout_of(&run->config, rank).dp == layout_replica(&run->config, m)) == pass &&
          !judge_rank(run, theirs, rank, step, m, out))
        return false;
  return true;
}

/* What a rank trained on, as its sum of hashes; all steps are in it, recorded or not. */
static uint64_t consumed(const json_t *data) { return data ? strtoull(evidence_text(data, "got.hash"), NULL, 16) : 0; }

/* Each replica once: they sum up to the serial run's. */
static bool judge_sum(const struct run_data *run, const struct run_data *truth, struct verdict *out)
{
  const json_t *theirs = evidence_record(truth, "data", -1, -1, -1);
  uint64_t sum = 0;
  if (theirs == NULL || evidence_text(theirs, "got.hash")[0] == '\0') return true; /* of a trainer that does not tell */
  for (int rank = 0; rank < evidence_ranks(run); rank++) {
    const struct layout at = layout_of(&run->config, rank);
    if (at.tp == 0 && at.pp == 0) sum += consumed(evidence_record(run, "data", rank, -1, -1));
  }
  if (sum == consumed(theirs)) return true;
  snprintf(out->worst, sizeof out->worst, "all micro-batches of all steps");
  verdict_say(out, OUTCOME_FAIL, "%s have the hash %016" PRIx64 " over all replicas, the serial run's %016" PRIx64, out->worst, sum,
              consumed(theirs));
  return false;
}

static void judge(const struct run_data *run, const struct run_data *truth, struct verdict *out)
{
  const int64_t steps = evidence_steps(run), M = evidence_microbatches(&run->config);
  for (int64_t step = 0; step < steps; step++) {
    for (int64_t m = 0; m < M; m++)
      if (!judge_one(run, truth, step, m, out)) return;
    const int told = evidence_count(run, "batch", -1, step, -1);
    const int64_t expected = M * run->config.tp * run->config.pp; /* all ranks of a replica consume its own */
    if (told != expected) {
      verdict_say(out, OUTCOME_FAIL, "step %lld consumed %d micro-batches, expected %lld", (long long)step, told,
                  (long long)expected);
      return;
    }
  }
  out->worst[0] = '\0';
  if (steps == run->config.steps && !judge_sum(run, truth, out)) return;
  if (steps < run->config.steps || M == 0)
    verdict_say(out, OUTCOME_INVALID, "only %lld of %lld steps left evidence", (long long)steps,
                (long long)run->config.steps);
  else
    verdict_say(out, OUTCOME_PASS,
                "%lld micro-batches at each of %lld steps, samples, tokens and order as in the serial run",
                (long long)M, (long long)steps);
}

void batch_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                 struct verdict *out)
{
  const struct run_data *truth;
  verdict_start(out, "batch", "O2");
  if (!companions_have_truth(wanted, companions, n, &truth, out)) return;
  if (run->foreign) foreign_batch(run, truth, out);
  else judge(run, truth, out);
}

void samples_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                   struct verdict *out)
{
  const struct run_data *plan;
  verdict_start(out, "samples", "O2");
  if (companions_have(wanted, companions, n, "plan", &plan, out)) judge(run, plan, out);
}
