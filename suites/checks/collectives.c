/* collectives.c - O16: the self-test of what moves data: sums and copies known in closed form, every element
 * compared; odd counts, several types, strided views, rows far apart, a group of one. */
#include "base/record.h"
#include "evidence.h"
#include "verdict.h"

#include <stdio.h>

void collectives_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                       struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "collectives", "O16");
  int tested = 0, wrong = 0;
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *record = json_array_get(run->records, i);
    if (!evidence_is(record, "measure")) continue;
    const int64_t elements = record_get_int(record, "got.wrong", -1);
    tested++;
    if (elements == 0) continue;
    if (wrong++ > 0) continue;
    snprintf(out->worst, sizeof out->worst, "%s", evidence_text(record, "got.what"));
    out->value = (double)elements;
    out->bound = 0.0;
    if (elements < 0) verdict_say(out, OUTCOME_INVALID, "%s on rank %lld was not checked", out->worst, (long long)evidence_rank(record));
    else
      verdict_say(out, OUTCOME_FAIL, "%s of %lld bytes delivered %lld wrong elements on rank %lld", out->worst,
                  (long long)record_get_int(record, "got.size", 0), (long long)elements, (long long)evidence_rank(record));
  }
  if (wrong > 0) return;
  for (int rank = 0; rank < evidence_ranks(run); rank++)
    if (evidence_count(run, "measure", rank, -1, -1) == 0) {
      verdict_say(out, OUTCOME_INVALID, "rank %d tested nothing", rank);
      return;
    }
  verdict_say(out, OUTCOME_PASS, "%d collectives and copies delivered what they should on %d ranks", tested, evidence_ranks(run));
}
