/* diagnose_data.c - signatures of faults of the order in which documents come, and of what a batch says of them. */
#include "signs.h"

#include <string.h>

/* Hash of micro-batch `n`, counted through all steps; NULL: there is none. */
static const char *hash_at(const struct run_data *run, int64_t n)
{
  const int64_t M = evidence_microbatches(&run->config);
  const json_t *r = n < 0 || M < 1 ? NULL : evidence_record(run, "batch", -1, n / M, n % M);
  return r != NULL ? evidence_text(r, "got.hash") : NULL;
}

/* Micro-batches that are not the serial run's, and how many of them are the one that `other` has `back` before. */
static bool all_come_from(const struct signs *s, const struct run_data *other, int64_t back)
{
  const int64_t n = evidence_microbatches(&s->run->config) * s->run->config.steps;
  int64_t wrong = 0, found = 0;
  for (int64_t i = 0; s->truth != NULL && i < n; i++) {
    const char *mine = hash_at(s->run, i), *right = hash_at(s->truth, i), *earlier = hash_at(other, i - back);
    if (mine == NULL || right == NULL || strcmp(mine, right) == 0) continue;
    wrong++;
    found += earlier != NULL && strcmp(mine, earlier) == 0;
  }
  return wrong > 0 && found == wrong;
}

/* What is wrong is what stood there an epoch before. */
bool data_epochs_are_alike(const struct signs *s)
{
  const int64_t B = s->run->config.micro_batch;
  const double epoch = s->truth ? evidence_value(s->truth, "data", -1, -1, -1, "got.sequences") : 0;
  if (signs_failed(s, "batch") == NULL || !(epoch > 0) || B < 1 || (int64_t)epoch % B != 0) return false;
  return all_come_from(s, s->run, (int64_t)epoch / B);
}

/* What is wrong is what should have stood one place before. */
bool data_place_is_off_by_one(const struct signs *s)
{
  return signs_failed(s, "batch") != NULL && s->run->config.micro_batch == 1 && s->truth != NULL && all_come_from(s, s->truth, 1);
}

/* Samples and token counts are right everywhere, contents are not, and all ranks of a replica have the same. */
bool data_positions_go_on(const struct signs *s)
{
  const struct run_config *c = &s->run->config;
  const bool several = c->policy == POLICY_PACKED || (c->policy == POLICY_PADDED && c->documents_each > 1);
  int64_t wrong = 0;
  if (signs_failed(s, "batch") == NULL || s->truth == NULL || !several) return false;
  for (int64_t m = 0; m < evidence_microbatches(c); m++) {
    const json_t *mine = evidence_record(s->run, "batch", -1, 0, m), *right = evidence_record(s->truth, "batch", -1, 0, m);
    static const char *const facts[] = {"got.samples", "got.tokens", "got.valid_tokens"};
    for (int i = 0; i < 3; i++)
      if (mine == NULL || right == NULL || !json_equal(json_object_get(mine, facts[i]), json_object_get(right, facts[i]))) return false;
    wrong += !evidence_same_text(mine, right, "got.hash");
  }
  return wrong > 0;
}
