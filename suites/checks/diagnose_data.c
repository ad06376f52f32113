/* diagnose_data.c - signatures of faults of the order in which documents come, and of what a batch says of them. */
#include "signs.h"

#include <string.h>

/* Micro-batch `n`, counted through all steps; NULL: there is none. */
static const json_t *batch_at(const struct run_data *run, int64_t n)
{
  const int64_t M = evidence_microbatches(&run->config);
  return n < 0 || M < 1 ? NULL : evidence_record(run, "batch", -1, n / M, n % M);
}

static bool same_batch(const struct run_data *a, int64_t i, const struct run_data *b, int64_t k)
{
  const json_t *mine = batch_at(a, i), *theirs = batch_at(b, k);
  return mine != NULL && theirs != NULL && evidence_same_text(mine, theirs, "got.hash");
}

static int64_t all_microbatches(const struct signs *s) { return s->truth ? evidence_microbatches(&s->run->config) * s->run->config.steps : 0; }

/* Micro-batches that the epoch before began earlier; 0: not a whole number, or not told. */
static int64_t epoch_back(const struct signs *s)
{
  const struct run_config *c = &s->run->config;
  const double told = s->truth ? evidence_value(s->truth, "data", -1, -1, -1, "got.sequences") : 0;
  const int64_t sequences = told > 0 ? (int64_t)told : 0, G = c->global_batch;
  if (c->tail == TAIL_WRAP) return c->micro_batch < 1 || sequences % c->micro_batch != 0 ? 0 : sequences / c->micro_batch;
  const int64_t steps = c->tail == TAIL_DROP ? sequences / G : (sequences + G - 1) / G;
  return steps * evidence_microbatches(c);
}

/* --- batches that stand where their rows do ---------------------------------------------------- */

/* The one before that is not empty. */
static int64_t place_before(const struct run_data *run, int64_t i)
{
  for (i--; i >= 0 && evidence_real(batch_at(run, i), "got.tokens") == 0.0;) i--;
  return i;
}

/* What is wrong in its place is what `other` has `back` before; back 0: in the place before. */
static bool all_come_from(const struct signs *s, const struct run_data *other, int64_t back)
{
  int64_t wrong = 0, found = 0;
  for (int64_t i = 0; i < all_microbatches(s); i++) {
    if (batch_at(s->run, i) == NULL || batch_at(s->truth, i) == NULL || same_batch(s->run, i, s->truth, i)) continue;
    wrong++;
    found += same_batch(s->run, i, other, back ? i - back : place_before(other, i));
  }
  return wrong > 0 && found == wrong;
}

/* --- batches that a policy dealt: a step's rows are known, their order is not -------------------- */

static bool is_dealt(const struct signs *s) { return s->run->config.policy == POLICY_BALANCED; }

/* The run's micro-batch i is one of those that `other` has in steps first to last. */
static bool stands_in(const struct signs *s, int64_t i, const struct run_data *other, int64_t first, int64_t last)
{
  const int64_t M = evidence_microbatches(&s->run->config);
  for (int64_t k = first < 0 ? 0 : first * M; k < (last + 1) * M; k++)
    if (same_batch(s->run, i, other, k)) return true;
  return false;
}

/* What does not belong in its step is what `other` has in the steps of the rows `back` before: one a step, or in all more than that. */
static bool all_dealt_from(const struct signs *s, const struct run_data *other, int64_t back, bool one)
{
  const int64_t M = evidence_microbatches(&s->run->config);
  int64_t wrong = 0, found = 0, most = 0;
  for (int64_t step = 0; step < s->run->config.steps; step++) {
    const int64_t before = wrong, row = step * M - back;
    for (int64_t i = step * M; i < (step + 1) * M; i++) {
      if (stands_in(s, i, s->truth, step, step)) continue;
      wrong++;
      found += row + M > 0 && stands_in(s, i, other, row < 0 ? 0 : row / M, (row + M - 1) / M);
    }
    if (wrong - before > most) most = wrong - before;
  }
  return wrong > 0 && found == wrong && (most == 1) == one;
}

/* What is wrong is what stood there an epoch before. */
bool data_epochs_are_alike(const struct signs *s)
{
  const int64_t back = epoch_back(s);
  if (signs_failed(s, "batch") == NULL || back == 0) return false;
  if (is_dealt(s)) return s->run->config.micro_batch == 1 && all_dealt_from(s, s->run, back, false);
  return all_come_from(s, s->run, back);
}

/* What is wrong is what should have stood one place before. */
bool data_place_is_off_by_one(const struct signs *s)
{
  if (signs_failed(s, "batch") == NULL || s->run->config.micro_batch != 1 || s->truth == NULL) return false;
  return is_dealt(s) ? all_dealt_from(s, s->truth, 1, true) : all_come_from(s, s->truth, 0);
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
