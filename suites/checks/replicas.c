/* replicas.c - O7: what must be equal on all ranks of a group has one hash. */
#include "evidence.h"
#include "verdict.h"

#include <stdio.h>
#include <string.h>

static const char *const needed[] = {"weights", "gradients"}; /* at least these are told of at every step */

static bool same_thing(const json_t *a, const json_t *b)
{
  return evidence_is(b, "replica") && evidence_step(a) == evidence_step(b) &&
         strcmp(evidence_text(a, "got.what"), evidence_text(b, "got.what")) == 0 &&
         strcmp(evidence_text(a, "got.group"), evidence_text(b, "got.group")) == 0;
}

/* All ranks' hashes of what `first` is about; returns how many ranks told, or -1 and a verdict. */
static int compare(const struct run_data *run, const json_t *first, struct verdict *out)
{
  int told = 0;
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *other = json_array_get(run->records, i);
    if (!same_thing(first, other)) continue;
    told++;
    const char *hash = evidence_text(other, "got.hash");
    if (hash[0] != '\0' && strcmp(hash, evidence_text(first, "got.hash")) == 0) continue;
    snprintf(out->worst, sizeof out->worst, "%s at step %lld", evidence_text(first, "got.what"), (long long)evidence_step(first));
    verdict_say(out, OUTCOME_FAIL, "%s differ between ranks %lld and %lld after step %lld: hashes %s and %s",
                evidence_text(first, "got.what"), (long long)evidence_rank(first), (long long)evidence_rank(other),
                (long long)evidence_step(first), evidence_text(first, "got.hash"), hash);
    return -1;
  }
  return told;
}

static bool has(const struct run_data *run, const char *what, int64_t step)
{
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *record = json_array_get(run->records, i);
    if (evidence_is(record, "replica") && evidence_step(record) == step && strcmp(evidence_text(record, "got.what"), what) == 0)
      return true;
  }
  return false;
}

void replicas_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                    struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "replicas", "O7");
  int compared = 0;
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *record = json_array_get(run->records, i);
    if (!evidence_is(record, "replica") || evidence_rank(record) != 0) continue;
    const int told = compare(run, record, out);
    if (told < 0) return;
    if (told != evidence_ranks(run)) {
      verdict_say(out, OUTCOME_INVALID, "%d of %d ranks told the hash of %s at step %lld", told, evidence_ranks(run),
                  evidence_text(record, "got.what"), (long long)evidence_step(record));
      return;
    }
    compared++;
  }
  for (int64_t step = 0; step < run->config.steps; step++)
    for (size_t k = 0; k < sizeof needed / sizeof *needed; k++)
      if (!has(run, needed[k], step)) {
        verdict_say(out, OUTCOME_INVALID, "no rank told the hash of %s at step %lld", needed[k], (long long)step);
        return;
      }
  verdict_say(out, OUTCOME_PASS, "%d hashes equal on %d ranks", compared, evidence_ranks(run));
}
