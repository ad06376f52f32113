/* bits.c - comparisons in bits, and the checks of O8 that are made of them. */
#include "bits.h"

#include "checks.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
  const char *kind, *key;
} numbers[] = {
  {"microbatch", "got.loss_sum"}, {"step", "got.loss_sum"}, {"step", "got.norm"}, {"step", "got.clip_factor"},
  {"step", "got.lr"},             {"eval", "got.loss_sum"},
};

struct count {
  int scalars, tensors;
};

static void differs(struct verdict *out, const char *role, const char *what, const char *how)
{
  snprintf(out->worst, sizeof out->worst, "%s", what);
  verdict_say(out, OUTCOME_FAIL, "%s is not equal in bits to the run '%s': %s", what, role, how);
}

/* Every number of `run` that has its like in `other`.  Not a number is equal to nothing. */
static bool scalars(const struct run_data *run, const struct run_data *other, const char *role, bool same_layout, struct count *n,
                    struct verdict *out)
{
  for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
    for (size_t i = 0; i < json_array_size(run->records); i++) {
      const json_t *a = json_array_get(run->records, i);
      if (!evidence_is(a, numbers[k].kind)) continue;
      const int64_t rank = evidence_rank(a), step = evidence_step(a), m = evidence_microbatch(a);
      if (!same_layout && m < 0 && rank > 0) continue;
      const json_t *b = evidence_record(other, numbers[k].kind, same_layout ? rank : -1, step, m);
      char what[96], how[96];
      snprintf(what, sizeof what, "%s of a %s at step %lld", numbers[k].key + 4, numbers[k].kind, (long long)step);
      if (b == NULL) {
        verdict_say(out, OUTCOME_INVALID, "the run '%s' does not tell the %s", role, what);
        return false;
      }
      if (!isfinite(evidence_real(a, numbers[k].key)) && evidence_flag(a, "got.skipped") && evidence_flag(b, "got.skipped")) continue;
      const double x = evidence_real(a, numbers[k].key), y = evidence_real(b, numbers[k].key);
      n->scalars++;
      if (isfinite(x) && memcmp(&x, &y, sizeof x) == 0) continue;
      snprintf(how, sizeof how, "%.17g and %.17g (rank %lld)", x, y, (long long)rank);
      differs(out, role, what, how);
      return false;
    }
  return true;
}

static const char *hash_of(const struct run_data *r, const json_t *like)
{
  for (size_t i = 0; i < json_array_size(r->records); i++) {
    const json_t *b = json_array_get(r->records, i);
    if (evidence_is(b, "replica") && evidence_rank(b) == evidence_rank(like) && evidence_step(b) == evidence_step(like) &&
        evidence_same_text(b, like, "got.what") && evidence_same_text(b, like, "got.group"))
      return evidence_text(b, "got.hash");
  }
  return "";
}

static bool hashes(const struct run_data *run, const struct run_data *other, const char *role, struct count *n, struct verdict *out)
{
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *a = json_array_get(run->records, i);
    if (!evidence_is(a, "replica")) continue;
    const char *mine = evidence_text(a, "got.hash"), *theirs = hash_of(other, a);
    n->tensors++;
    if (mine[0] != '\0' && strcmp(mine, theirs) == 0) continue;
    char what[96], how[96];
    snprintf(what, sizeof what, "%s of rank %lld at step %lld", evidence_text(a, "got.what"), (long long)evidence_rank(a),
             (long long)evidence_step(a));
    snprintf(how, sizeof how, "hashes '%s' and '%s'", mine, theirs);
    differs(out, role, what, how);
    return false;
  }
  return true;
}

static bool same_tensor(const struct tensor *a, const struct tensor *b)
{
  return a->type == b->type && a->rows == b->rows && a->cols == b->cols &&
         memcmp(a->at, b->at, (size_t)tensor_count(a) * dtype_bytes(a->type)) == 0;
}

/* One dump of both runs; both without it is no evidence and no difference. */
static bool dumps(const struct run_data *run, const struct run_data *other, const char *role, const char *what, int64_t step,
                  struct count *n, struct verdict *out)
{
  struct safetensors *a = NULL, *b = NULL;
  const enum err mine = evidence_tensors(run, what, step, &a), theirs = evidence_tensors(other, what, step, &b);
  bool same = true;
  if (mine == ERR_OK && theirs == ERR_OK) {
    for (int i = 0; same && i < safetensors_count(a); i++) {
      const struct safetensor *t = safetensors_get(a, i), *u = safetensors_find(b, t->name);
      n->tensors++;
      same = u != NULL && same_tensor(&t->data, &u->data);
      if (same) continue;
      char place[128];
      snprintf(place, sizeof place, "%.90s (%s) at step %lld", t->name, what, (long long)step);
      differs(out, role, place, u ? "contents differ" : "it has no such tensor");
    }
  } else if (mine == ERR_OK || theirs == ERR_OK) {
    verdict_say(out, OUTCOME_INVALID, "only one of the run and '%s' shows its %s of step %lld", role, what, (long long)step);
    same = false;
  }
  safetensors_close(a);
  safetensors_close(b);
  return same;
}

void bits_compare(const struct run_data *run, const struct run_data *other, const char *role, bool same_layout, struct verdict *out)
{
  struct count n = {0};
  const int64_t steps = evidence_steps(run);
  for (int64_t step = 0; step <= steps; step++) {
    if (!dumps(run, other, role, "gradients", step, &n, out)) return;
    if (!dumps(run, other, role, "weights", step, &n, out)) return;
  }
  if (!scalars(run, other, role, same_layout, &n, out)) return;
  if (same_layout && !hashes(run, other, role, &n, out)) return;
  if (steps < run->config.steps || n.scalars == 0 || n.tensors == 0)
    verdict_say(out, OUTCOME_INVALID, "%lld of %lld steps, %d numbers and %d tensors or hashes to compare with '%s'", (long long)steps,
                (long long)run->config.steps, n.scalars, n.tensors, role);
  else
    verdict_say(out, OUTCOME_PASS, "%d numbers and %d tensors or hashes are equal in bits to the run '%s'", n.scalars, n.tensors, role);
}

/* The one companion of a check in bits.  None was wanted: the check does not apply.  One that failed where
 * the run itself did not: the same settings do not always work. */
static void judge_against(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                          const char *role, bool same_layout, const char *why_none, struct verdict *out)
{
  if (n == 0) {
    verdict_say(out, OUTCOME_SKIPPED, "%s", why_none);
    return;
  }
  const struct run_data *other = evidence_companion(wanted, companions, n, role);
  if (other == NULL)
    verdict_say(out, OUTCOME_INVALID, "the companion run '%s' could not be had", role);
  else if (!evidence_ended(other))
    verdict_say(out, evidence_ended(run) && same_layout ? OUTCOME_FAIL : OUTCOME_INVALID, "the companion run '%s' did not end well: %s",
                role, other->text);
  else
    bits_compare(run, other, role, same_layout, out);
}

void rerun_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                 struct verdict *out)
{
  verdict_start(out, "rerun", "O8");
  judge_against(run, wanted, companions, n, "rerun", true, "no second run was asked for", out);
}

void overlap_off_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                       struct verdict *out)
{
  verdict_start(out, "overlap_off", "O8");
  judge_against(run, wanted, companions, n, "overlap_off", true, "nothing overlaps", out);
}

void undelayed_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                     struct verdict *out)
{
  verdict_start(out, "undelayed", "O8");
  judge_against(run, wanted, companions, n, "undelayed", true, "no delay is planted", out);
}

void recompute_off_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                         struct verdict *out)
{
  verdict_start(out, "recompute_off", "O8");
  judge_against(run, wanted, companions, n, "recompute_off", true, "backward makes nothing again", out);
}

void offload_off_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                       struct verdict *out)
{
  verdict_start(out, "offload_off", "O8");
  judge_against(run, wanted, companions, n, "offload_off", true, "nothing is offloaded", out);
}

void twin_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                struct verdict *out)
{
  verdict_start(out, "twin", "O8");
  judge_against(run, wanted, companions, n, "twin", false, "nothing is cut that keeps bits, or the library's own sums, whose order is not fixed", out);
}
