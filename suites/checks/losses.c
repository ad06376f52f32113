/* losses.c - sums over micro-batch records. */
#include "losses.h"

#include <math.h>

struct loss_sums losses_over(const struct run_data *r, int64_t replicas, int64_t step, int64_t replica)
{
  struct loss_sums s = {0};
  const int64_t M = evidence_microbatches(&r->config), each = M / replicas;
  const int64_t first = replica < 0 ? 0 : replica * each, last = replica < 0 ? M : first + each;
  for (int64_t m = first; m < last; m++) {
    const json_t *record = evidence_record(r, "microbatch", -1, step, m);
    const double sum = record ? evidence_real(record, "got.loss_sum") : NAN;
    const double tokens = record ? evidence_real(record, "got.valid_tokens") : NAN;
    s.sum += sum;
    s.tokens += tokens;
    s.mean_of_means += tokens > 0.0 ? sum / tokens : 0.0;
    s.microbatches++;
  }
  s.mean_of_means /= s.microbatches;
  return s;
}

struct loss_sums losses_gather(const struct run_data *r, int64_t step, int64_t replica) { return losses_over(r, r->config.dp, step, replica); }

struct loss_sums losses_shown(const struct run_data *run, const struct run_data *truth, int64_t step, int64_t replica)
{
  const bool own = !run->foreign || truth == NULL || evidence_tells(run, "microbatch", NULL);
  return losses_over(own ? run : truth, run->config.dp, step, replica);
}
