/* loss.c - O3: loss as sum and count: per micro-batch, per step, reported, and in evaluation.
 *
 *   counts     equal to the truth's, exactly
 *   sums       within the bound of the truth's
 *   reported   equal to what the micro-batches' sums give, on every rank
 *   evaluation equal to the training path's loss of the same batch and weights; within the bound of the truth's
 */
#include "bound.h"
#include "losses.h"
#include "noise.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>

/* Sums are carried in float64, so regrouping them costs some units of float64 only. */
static const double same_sum = 1e-12;

/* A foreign run may carry them in float32: M positive numbers added one by one, and a division. */
static double sum_bound(const struct run_data *run)
{
  return run->foreign ? ((double)evidence_microbatches(&run->config) + 2.0) * bound_unit(PRECISION_F32) : same_sum;
}

static bool tells(const struct run_data *run, const char *kind, const char *key) { return !run->foreign || evidence_tells(run, kind, key); }

struct trial {
  const struct run_data *run, *truth;
  struct noise noise;
  struct worst worst;   /* against the truth */
  struct worst reported; /* against the run's own sums */
  int counts;           /* compared */
  double widest;        /* measured bound / ceiling */
  char capped[96];
  double same_sum;      /* bound of what follows from the run's own sums */
  bool missing;
};

/* One number of the run against the truth's, at one place. */
static void against_truth(struct trial *t, const char *kind, int64_t rank, int64_t step, int64_t m, const char *key, const char *what,
                          struct verdict *out)
{
  const enum precision precision = bound_precision(&t->run->config, BOUND_LOSS, step);
  const double truth = evidence_value(t->truth, kind, -1, step, m, key), q = noise_of(&t->noise, t->truth, kind, step, m, key);
  char place[96];
  if (m >= 0) snprintf(place, sizeof place, "%s of micro-batch %lld at step %lld", what, (long long)m, (long long)step);
  else snprintf(place, sizeof place, "%s at step %lld", what, (long long)step);
  const double bound = bound_measured(bound_floor(BOUND_LOSS, precision, 1.0), q); /* as in gradients.c: at least 4 u of the whole */
  const double ceiling = bound_ceiling(BOUND_LOSS, precision, step);
  const double value = bound_relative(evidence_value(t->run, kind, rank, step, m, key), truth);
  if (isnan(truth) || isnan(q)) t->missing = true;
  t->worst.step = step;
  worst_see(&t->worst, value, bound, "%s", place);
  if (m < 0 && rank == 0) verdict_detail(out, what, step, value, bound);
  if (bound / ceiling > t->widest) {
    t->widest = bound / ceiling;
    if (bound > ceiling) snprintf(t->capped, sizeof t->capped, "%s", place);
  }
}

/* Exact: a count that is not the truth's.  True if equal. */
static bool same_count(struct trial *t, const char *kind, int64_t rank, int64_t step, int64_t m, struct verdict *out)
{
  const double got = evidence_value(t->run, kind, rank, step, m, "got.valid_tokens");
  const double want = evidence_value(t->truth, kind, -1, step, m, "got.valid_tokens");
  t->counts++;
  if (got == want) return true;
  verdict_first(out, step, "step %lld", (long long)step);
  if (rank < 0)
    verdict_say(out, isnan(want) || isnan(got) ? OUTCOME_INVALID : OUTCOME_FAIL, "micro-batch %lld of step %lld counts %.0f valid tokens, the truth's %.0f",
                (long long)m, (long long)step, got, want);
  else verdict_say(out, isnan(want) || isnan(got) ? OUTCOME_INVALID : OUTCOME_FAIL,
              "rank %lld counts %.0f valid tokens in a %s of step %lld (micro-batch %lld), the truth %.0f", (long long)rank, got, kind,
              (long long)step, (long long)m, want);
  return false;
}

/* What each rank reports must follow from the sums of the micro-batches. */
static void reported(struct trial *t, int64_t rank, int64_t step)
{
  const bool parts = tells(t->run, "microbatch", NULL), sums = tells(t->run, "step", "got.loss_sum");
  struct loss_sums all = {0};
  if (parts) all = losses_gather(t->run, step, -1);
  else all = (struct loss_sums){.sum = evidence_value(t->run, "step", rank, step, -1, "got.loss_sum"),
                                .tokens = evidence_value(t->run, "step", rank, step, -1, "got.valid_tokens")};
  t->reported.step = step;
  const double sum = evidence_value(t->run, "step", rank, step, -1, "got.loss_sum");
  const double loss = evidence_value(t->run, "step", rank, step, -1, "got.loss");
  if (sums)
    worst_see(&t->reported, bound_relative(sum, all.sum), t->same_sum, "loss sum that rank %lld reports at step %lld", (long long)rank,
              (long long)step);
  if (tells(t->run, "step", "got.loss") && (parts || (sums && tells(t->run, "step", "got.valid_tokens"))))
    worst_see(&t->reported, bound_relative(loss, all.sum / all.tokens), t->same_sum, "loss that rank %lld reports at step %lld",
              (long long)rank, (long long)step);
}

static void evaluation(struct trial *t, int64_t step, struct verdict *out)
{
  for (int rank = 0; rank < evidence_ranks(t->run); rank++) {
    const json_t *record = evidence_record(t->run, "eval", rank, step, -1);
    if (record == NULL) {
      t->missing = true;
      continue;
    }
    const double loss = evidence_real(record, "got.loss");
    against_truth(t, "eval", rank, step, -1, "got.loss", "evaluation loss", out);
    worst_see(&t->reported, bound_relative(loss, evidence_real(record, "got.train_loss")), same_sum,
              "evaluation loss beside the training path's (rank %d, step %lld)", rank, (long long)step);
    worst_see(&t->reported, bound_relative(loss, evidence_real(record, "got.loss_sum") / evidence_real(record, "got.valid_tokens")),
              same_sum, "evaluation loss beside its own sum (rank %d, step %lld)", rank, (long long)step);
  }
}

static bool judge_step(struct trial *t, int64_t step, struct verdict *out)
{
  for (int64_t m = 0; tells(t->run, "microbatch", NULL) && m < evidence_microbatches(&t->run->config); m++) {
    const int told = evidence_count(t->run, "microbatch", -1, step, m);
    if (told != 1) { /* by the one rank of its replica that has it */
      verdict_say(out, OUTCOME_INVALID, "the loss of micro-batch %lld of step %lld was told %d times", (long long)m, (long long)step, told);
      return false;
    }
    if (!same_count(t, "microbatch", -1, step, m, out)) return false;
    against_truth(t, "microbatch", -1, step, m, "got.loss_sum", "loss sum", out);
  }
  for (int rank = 0; rank < evidence_ranks(t->run); rank++) {
    if (tells(t->run, "step", "got.valid_tokens") && !same_count(t, "step", rank, step, -1, out)) return false;
    against_truth(t, "step", rank, step, -1, tells(t->run, "step", "got.loss") ? "got.loss" : "got.loss_sum", "loss", out);
    reported(t, rank, step);
  }
  return true;
}

static void conclude(const struct trial *t, int64_t steps, struct verdict *out)
{
  const bool own = t->reported.over > 0; /* what contradicts the run itself needs no truth to be wrong */
  worst_to(own ? &t->reported : &t->worst, out);
  if (own)
    verdict_say(out, OUTCOME_FAIL, "%s is off by %.3g (relative), bound %.0e; %lld of %lld such numbers are", t->reported.place,
                t->reported.value, t->reported.bound, (long long)t->reported.over, (long long)t->reported.seen);
  else if (t->worst.over > 0 && !t->missing)
    verdict_say(out, OUTCOME_FAIL, "%s is %.3g (relative) from the truth, bound %.2g; %lld of %lld comparisons off, first: %s",
                t->worst.place, t->worst.value, t->worst.bound, (long long)t->worst.over, (long long)t->worst.seen, t->worst.first);
  else if (t->missing || steps < t->run->config.steps || t->worst.seen == 0)
    verdict_say(out, OUTCOME_INVALID, "losses are missing: %lld of %lld steps told by every rank%s", (long long)steps,
                (long long)t->run->config.steps, t->missing ? ", and some records or companions' records absent" : "");
  else if (t->capped[0] != '\0')
    verdict_say(out, OUTCOME_INVALID, "the legal serial runs differ too much to decide: measured bound above its ceiling for %s", t->capped);
  else {
    out->smallest = t->worst.bound + t->worst.value;
    verdict_say(out, OUTCOME_PASS, "%lld losses at %lld steps and %d counts; nearest to its bound: %s, %.2g of %.2g",
                (long long)t->worst.seen, (long long)steps, t->counts, t->worst.place, t->worst.value, t->worst.bound);
  }
}

void loss_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                struct verdict *out)
{
  verdict_start(out, "loss", "O3");
  struct trial t = {.run = run, .same_sum = sum_bound(run)};
  if (!tells(run, "step", "got.loss") && !tells(run, "step", "got.loss_sum")) {
    verdict_unseen(out, "no got.loss and no got.loss_sum in records of steps", "a forward pass or an average that is wrong");
    return;
  }
  if (!noise_have(wanted, companions, n, &t.truth, &t.noise, out)) return;
  worst_start(&t.worst);
  worst_start(&t.reported);
  const int64_t steps = evidence_steps(run);
  for (int64_t step = 0; step < steps; step++)
    if (!judge_step(&t, step, out)) return;
  for (int64_t step = 0; step <= steps; step++)
    if (tells(run, "eval", NULL) && evidence_record(t.truth, "eval", -1, step, -1) != NULL) evaluation(&t, step, out);
  if (tells(run, "eval", NULL) && run->config.evaluate_each > 0 && evidence_record(t.truth, "eval", -1, -1, -1) == NULL) t.missing = true;
  conclude(&t, steps, out);
}
