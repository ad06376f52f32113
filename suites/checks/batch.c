/* batch.c - O2: the step's data: the serial run's micro-batches, each once, on the rank that owns it. */
#include "evidence.h"
#include "verdict.h"

#include <stdio.h>
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

/* One micro-batch: told once, by its owner, with the serial run's contents. */
static bool judge_one(const struct run_data *run, const struct run_data *truth, int64_t step, int64_t m, struct verdict *out)
{
  const int64_t each = evidence_microbatches(&run->config) / run->config.dp;
  const int told = evidence_count(run, "batch", -1, step, m);
  snprintf(out->worst, sizeof out->worst, "micro-batch %lld of step %lld", (long long)m, (long long)step);
  if (told != 1) {
    verdict_say(out, OUTCOME_FAIL, "%s was consumed %d times", out->worst, told);
    return false;
  }
  const json_t *mine = evidence_record(run, "batch", -1, step, m), *theirs = evidence_record(truth, "batch", -1, step, m);
  if (theirs == NULL) {
    verdict_say(out, OUTCOME_INVALID, "the serial run does not tell of %s", out->worst);
    return false;
  }
  if (evidence_rank(mine) != m / each) {
    verdict_say(out, OUTCOME_FAIL, "%s was consumed by rank %lld, it belongs to rank %lld", out->worst,
                (long long)evidence_rank(mine), (long long)(m / each));
    return false;
  }
  const char *what = differs(mine, theirs);
  if (what != NULL) verdict_say(out, OUTCOME_FAIL, "%s differs from the serial run's in its %s", out->worst, what);
  return what == NULL;
}

void batch_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                 struct verdict *out)
{
  verdict_start(out, "batch", "O2");
  const struct run_data *truth;
  if (!companions_have_truth(wanted, companions, n, &truth, out)) return;
  const int64_t steps = evidence_steps(run), M = evidence_microbatches(&run->config);
  for (int64_t step = 0; step < steps; step++) {
    for (int64_t m = 0; m < M; m++)
      if (!judge_one(run, truth, step, m, out)) return;
    const int told = evidence_count(run, "batch", -1, step, -1);
    if (told != M) {
      verdict_say(out, OUTCOME_FAIL, "step %lld consumed %d micro-batches, expected %lld", (long long)step, told, (long long)M);
      return;
    }
  }
  out->worst[0] = '\0';
  if (steps < run->config.steps || M == 0)
    verdict_say(out, OUTCOME_INVALID, "only %lld of %lld steps left evidence", (long long)steps, (long long)run->config.steps);
  else
    verdict_say(out, OUTCOME_PASS, "%lld micro-batches at each of %lld steps, samples, tokens and order as in the serial run",
                (long long)M, (long long)steps);
}
