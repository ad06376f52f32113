/* initial.c - O1: the census of parameters at the start: names, shapes, contents.
 *
 * Against the truth, and the names and shapes against GPT-2's own (shapes.h), so that a layer
 * missing from both is seen too.
 */
#include "evidence.h"
#include "foreign.h"
#include "shapes.h"
#include "verdict.h"

#include "base/record.h"
#include <stdio.h>
#include <string.h>

static bool same_shape(const json_t *record, int64_t rows, int64_t cols)
{
  return record_get_int(record, "got.rows", -1) == rows && record_get_int(record, "got.cols", -1) == cols;
}

/* What other checks rely on and the run tells of itself must follow from the architecture; NULL: it does. */
static const char *other_fact(const json_t *record, const struct shape *s)
{
  if (evidence_flag(record, "got.decay") != s->decay) return "got.decay";
  if (evidence_flag(record, "got.frozen") != s->frozen) return "got.frozen";
  if (evidence_flag(record, "got.zero_gradient") != s->zero_gradient) return "got.zero_gradient";
  return NULL;
}

/* Every expected parameter is told of exactly once, with its shape. */
static bool has_all(const struct run_data *run, const struct run_data *truth, struct verdict *out)
{
  struct shape shape;
  for (int i = 0; shapes_at(&run->config, i, &shape); i++) {
    const json_t *mine = evidence_parameter(run, shape.name), *theirs = evidence_parameter(truth, shape.name);
    snprintf(out->worst, sizeof out->worst, "%s", shape.name);
    if (mine == NULL || theirs == NULL) {
      verdict_say(out, OUTCOME_FAIL, "%s has no parameter %s", mine ? "the truth" : "the run", shape.name);
      return false;
    }
    if (!same_shape(mine, shape.rows, shape.cols)) {
      verdict_say(out, OUTCOME_FAIL, "%s is [%lld, %lld], expected [%lld, %lld]", shape.name,
                  (long long)record_get_int(mine, "got.rows", -1), (long long)record_get_int(mine, "got.cols", -1),
                  (long long)shape.rows, (long long)shape.cols);
      return false;
    }
    const char *fact = other_fact(mine, &shape);
    if (fact != NULL) {
      verdict_say(out, OUTCOME_FAIL, "%s is told as %s%s; the architecture says the opposite", shape.name,
                  evidence_flag(mine, fact) ? "" : "not ", fact + 4);
      return false;
    }
    const char *hash = evidence_text(mine, "got.hash");
    if (hash[0] == '\0' || strcmp(hash, evidence_text(theirs, "got.hash")) != 0) {
      verdict_say(out, OUTCOME_FAIL, "%s starts from other contents than the truth's: hash '%s', expected '%s'", shape.name, hash,
                  evidence_text(theirs, "got.hash"));
      return false;
    }
  }
  out->worst[0] = '\0';
  return true;
}

void initial_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                   struct verdict *out)
{
  verdict_start(out, "initial", "O1");
  const struct run_data *truth;
  if (!companions_have_truth(wanted, companions, n, &truth, out)) return;
  if (run->foreign) {
    foreign_initial(run, truth, out);
    return;
  }
  const int told = evidence_count(run, "parameter", -1, -1, -1), expected = shapes_count(&run->config) + SHAPES_A_BLOCK * (int)run->config.reused; /* a reused block is told of again */
  if (told == 0) {
    verdict_say(out, OUTCOME_INVALID, "the run told of no parameter");
    return;
  }
  if (!has_all(run, truth, out)) return;
  if (told != expected) {
    verdict_say(out, OUTCOME_FAIL, "the run told of %d parameters, the formula says %d", told, expected);
    return;
  }
  verdict_say(out, OUTCOME_PASS, "%d parameters, %.0f elements, contents equal to the truth's", told, shapes_elements(&run->config));
}
