/* update.c - O6: each update recomputed in float64 from what the run itself showed: gradients, norm,
 * weights before.
 *
 *   factor   min(1, clip / norm), never above 1, exactly 1 below the threshold; equal on all ranks
 *   lr       its closed form
 *   weights  |after - recomputed| <= 4 ulp of max(|before|, |after|, lr), element by element
 *            (ulp of the parameter alone would fail a correct AdamW by cancellation);
 *            frozen and unused ones unchanged in bits, and all of them in a step that was skipped for an
 *            overflow; that one takes no number of an update
 */
#include "update.h"

#include "bound.h"
#include "evidence.h"
#include "observed.h"
#include "schedule.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Both sides compute these from the same float64 numbers. */
static const double same_scalar = 1e-12;
/* A foreign run may have rounded each of norm, factor and rate to float32 on the way. */
static const double same_rounded = 0x1p-22;

static bool tells(const struct run_data *run, const char *key) { return !run->foreign || evidence_tells(run, "step", key); }

struct ledger {
  const struct run_data *run;
  const struct update_rule *rule; /* NULL: as asked */
  int64_t steps;
  struct safetensors **weights, **gradients; /* by step; weights has one more: the end; NULL: a foreign run does not show it */
  double *factor, *lr;                       /* as reported by rank 0                  */
  double *before, *after, *gradient;
  struct schedule_element *state;
  double typical; /* of a foreign run: root mean square of the tensor's gradient times the factor */
  bool forgets; /* the moments of an element are zero before each update */
  struct worst worst;
};

/* Number of the update that a step makes, from 1; of one that is skipped, what it would have been. */
static int64_t update_of(const struct ledger *l, int64_t step)
{
  int64_t number = step + 1;
  for (int64_t before = 0; before < step; before++) number -= evidence_skipped(l->run, before);
  return number;
}

static bool judge_factor(struct ledger *l, int64_t step, int rank, struct verdict *out)
{
  const double norm = evidence_value(l->run, "step", rank, step, -1, "got.norm");
  const double factor = evidence_value(l->run, "step", rank, step, -1, "got.clip_factor");
  const double want = schedule_clip(&l->run->config, norm);
  const bool exact = want == 1.0 && factor != 1.0;
  const double same = l->run->foreign ? same_rounded : same_scalar;
  if ((!exact || l->run->foreign) && (factor <= 1.0 || l->run->foreign) && bound_relative(factor, want) <= same) return true;
  verdict_first(out, step, "clip factor at step %lld", (long long)step);
  out->value = factor;
  out->bound = want;
  verdict_say(out, OUTCOME_FAIL, "rank %d multiplied the gradients of step %lld by %.17g; norm %.6g and clip %.6g give %.17g", rank,
              (long long)step, factor, norm, l->run->config.clip, want);
  return false;
}

static bool judge_lr(struct ledger *l, int64_t step, int rank, struct verdict *out)
{
  const double lr = evidence_value(l->run, "step", rank, step, -1, "got.lr"), want = schedule_lr(&l->run->config, update_of(l, step));
  if (bound_relative(lr, want) <= (l->run->foreign ? same_rounded : same_scalar)) return true;
  verdict_first(out, step, "learning rate at step %lld", (long long)step);
  out->value = lr;
  out->bound = want;
  verdict_say(out, OUTCOME_FAIL, "rank %d used learning rate %.17g for update %lld; its closed form gives %.17g", rank, lr,
              (long long)update_of(l, step), want);
  return false;
}

static bool judge_scalars(struct ledger *l, struct verdict *out)
{
  for (int64_t step = 0; step < l->steps; step++)
    for (int rank = 0; rank < evidence_ranks(l->run); rank++)
      if ((tells(l->run, "got.clip_factor") && !evidence_skipped(l->run, step) && !judge_factor(l, step, rank, out)) ||
          (tells(l->run, "got.lr") && !judge_lr(l, step, rank, out)))
        return false;
  return true;
}

/* What an element of a foreign run may move otherwise, in learning rates, since its gradient was added up from parts that were clipped, or
 * in another order than for the dump: 4 ulp of the tensor's typical gradient, beside the element's own size. */
static double unlike_part(const struct ledger *l, int64_t number, const struct schedule_element *e)
{
  const double off = bound_ceiling(BOUND_UPDATE, PRECISION_F32, 0) * l->typical;
  const double size = sqrt(e->v / (1.0 - pow(l->run->config.beta2, (double)number))) + l->run->config.eps;
  return fmin(1.0, 2.0 * off / size);
}

/* One update of one tensor: l->before and l->state are carried along from step to step. */
static void judge_elements(struct ledger *l, const char *name, int64_t n, int64_t step, bool decay, double stored)
{
  const struct run_config *c = &l->run->config;
  const enum precision precision = (enum precision)c->precision;
  /* 4 ulp, with an ulp of at most 2 u times the value; float64 has its own figure */
  const double relative = bound_ceiling(BOUND_UPDATE, precision, step) + stored;
  const int64_t number = update_of(l, step);
  double value = -1.0, bound = 0.0;
  int64_t place = 0;
  for (int64_t k = 0; k < n; k++) {
    struct schedule_element *e = &l->state[k];
    if (l->forgets) *e = (struct schedule_element){0};
    e->weight = l->before[k];
    if (l->rule != NULL) update_apply(c, l->rule, number, l->lr[step], decay, l->gradient[k] * l->factor[step], e);
    else schedule_update(c, number, l->lr[step], decay, l->gradient[k] * l->factor[step], e);
    const double away = fabs(l->after[k] - e->weight);
    double limit = relative * fmax(fmax(fabs(l->before[k]), fabs(l->after[k])), l->lr[step]);
    if (l->run->foreign) limit += l->lr[step] * unlike_part(l, number, e);
    if (value < 0.0 || !isfinite(away) || away * bound > value * limit) {
      value = away;
      bound = limit;
      place = k;
      if (!isfinite(away)) break;
    }
  }
  l->worst.step = step;
  worst_see(&l->worst, value, bound, "%s[%lld] at step %lld", name, (long long)place, (long long)step);
}

/* A step whose weights before or after a foreign run does not show: moments go on. */
static void pass_over(struct ledger *l, int64_t n, int64_t step)
{
  const struct update_rule asked = {0};
  for (int64_t k = 0; k < n; k++) update_apply(&l->run->config, l->rule ? l->rule : &asked, step + 1, 0.0, false, l->gradient[k] * l->factor[step], &l->state[k]);
}

static enum err judge_tensor(struct ledger *l, const struct safetensor *t)
{
  const int64_t n = tensor_count(&t->data);
  const json_t *facts = evidence_parameter(l->run, t->name);
  if (facts == NULL && l->run->foreign) return ERR_OK; /* the tied matrix once more; of other names the check of the start speaks */
  if (facts == NULL) FAIL(ERR_FORMAT, "no parameter record of %s", t->name);
  const bool frozen = evidence_flag(facts, "got.frozen"), decay = evidence_flag(facts, "got.decay");
  memset(l->state, 0, (size_t)n * sizeof *l->state);
  for (int64_t step = 0; step < l->steps; step++) {
    const bool shown = l->weights[step] != NULL && l->weights[step + 1] != NULL;
    const struct safetensor *before = shown ? safetensors_find(l->weights[step], t->name) : NULL;
    const struct safetensor *after = shown ? safetensors_find(l->weights[step + 1], t->name) : NULL;
    const struct safetensor *gradient = safetensors_find(l->gradients[step], t->name);
    if (!shown) {
      if (gradient == NULL || tensor_count(&gradient->data) != n) FAIL(ERR_FORMAT, "%s is not among the gradients of step %lld", t->name, (long long)step);
      TRY(evidence_elements(&gradient->data, l->gradient));
      pass_over(l, n, step);
      continue;
    }
    if (before == NULL || tensor_count(&before->data) != n) FAIL(ERR_FORMAT, "%s is not among the weights before step %lld", t->name, (long long)step);
    TRY(evidence_elements(&before->data, l->before));
    if (after == NULL || tensor_count(&after->data) != n) FAIL(ERR_FORMAT, "%s is not among the weights after step %lld", t->name, (long long)step);
    TRY(evidence_elements(&after->data, l->after));
    const bool skipped = evidence_skipped(l->run, step);
    if (frozen || skipped) {
      const bool same = memcmp(l->before, l->after, (size_t)n * sizeof *l->before) == 0;
      worst_see(&l->worst, same ? 0.0 : 1.0, 0.0, skipped ? "%s changed at step %lld, which was skipped" : "frozen %s changed at step %lld",
                t->name, (long long)step);
    } else {
      if (gradient == NULL || tensor_count(&gradient->data) != n)
        FAIL(ERR_FORMAT, "%s is not among the gradients of step %lld", t->name, (long long)step);
      TRY(evidence_elements(&gradient->data, l->gradient));
      double squares = 0.0;
      for (int64_t k = 0; l->run->foreign && k < n; k++) squares += l->gradient[k] * l->gradient[k];
      l->typical = sqrt(squares / (double)n) * fabs(l->factor[step]);
      judge_elements(l, t->name, n, step, decay, update_stored(before));
    }
  }
  return ERR_OK;
}

static bool is_there(const struct run_data *run, const char *what, int64_t step)
{
  return !run->foreign || (evidence_has_tensors(run, what, step) && update_wide(run, what, step));
}

static enum err open_ledger(struct ledger *l)
{
  const size_t steps = (size_t)l->steps;
  l->weights = calloc(steps + 1, sizeof *l->weights);
  l->gradients = calloc(steps + 1, sizeof *l->gradients);
  l->factor = calloc(steps + 1, sizeof *l->factor);
  l->lr = calloc(steps + 1, sizeof *l->lr);
  if (!l->weights || !l->gradients || !l->factor || !l->lr) FAIL(ERR_MEMORY, "%zu steps", steps);
  for (int64_t step = 0; step < l->steps; step++) {
    const struct update_rule asked = {0}, *rule = l->rule ? l->rule : &asked;
    if (is_there(l->run, "weights", step)) TRY(evidence_tensors(l->run, "weights", step, &l->weights[step]));
    TRY(evidence_tensors(l->run, "gradients", step, &l->gradients[step]));
    l->factor[step] = rule->unclipped ? 1.0 : observed_factor(l->run, step);
    l->lr[step] = update_rate(l->run, rule, step);
  }
  if (is_there(l->run, "weights", l->steps)) TRY(evidence_tensors(l->run, "weights", l->steps, &l->weights[l->steps]));
  size_t most = 1;
  for (int i = 0; i < safetensors_count(l->weights[0]); i++) {
    const size_t n = (size_t)tensor_count(&safetensors_get(l->weights[0], i)->data);
    if (n > most) most = n;
  }
  l->before = malloc(most * sizeof *l->before);
  l->after = malloc(most * sizeof *l->after);
  l->gradient = malloc(most * sizeof *l->gradient);
  l->state = malloc(most * sizeof *l->state);
  if (!l->before || !l->after || !l->gradient || !l->state) FAIL(ERR_MEMORY, "%zu elements", most);
  return ERR_OK;
}

static void close_ledger(struct ledger *l)
{
  for (int64_t step = 0; step <= l->steps; step++) {
    if (l->weights) safetensors_close(l->weights[step]);
    if (l->gradients) safetensors_close(l->gradients[step]);
  }
  free(l->weights);
  free(l->gradients);
  free(l->factor);
  free(l->lr);
  free(l->before);
  free(l->after);
  free(l->gradient);
  free(l->state);
}

static enum err judge_weights(struct ledger *l)
{
  enum err err = ERR_OK;
  TRY_TO(close, open_ledger(l));
  for (int i = 0; i < safetensors_count(l->weights[0]); i++) TRY_TO(close, judge_tensor(l, safetensors_get(l->weights[0], i)));
close:
  close_ledger(l);
  return err;
}

bool update_forgets(const struct run_data *run)
{
  struct ledger l = {.run = run, .steps = evidence_steps(run), .forgets = true};
  worst_start(&l.worst);
  if (l.steps < 2) return false;
  if (judge_weights(&l) == ERR_OK) return l.worst.seen > 0 && l.worst.over == 0;
  err_clear();
  return false;
}

/* What a foreign run shows of its weights: by its gradients, if all are dumped, and by its moments. */
static enum err judge_foreign(struct ledger *l)
{
  const struct update_rule asked = {0};
  if (update_by_gradients(l->run, true)) TRY(judge_weights(l));
  return update_by_moments(l->run, l->rule ? l->rule : &asked, &l->worst);
}

bool update_explains(const struct run_data *run, const struct update_rule *rule)
{
  struct ledger l = {.run = run, .steps = evidence_steps(run), .rule = rule};
  worst_start(&l.worst);
  if (judge_foreign(&l) == ERR_OK) return l.worst.seen > 0 && l.worst.over == 0;
  err_clear();
  return false;
}

/* Nothing of the weights: rate and factor may have been told. */
static void conclude_scalars(const struct run_data *run, struct verdict *out)
{
  const bool factor = tells(run, "got.clip_factor"), lr = tells(run, "got.lr");
  if (!factor && !lr)
    verdict_unseen(out, "no clip factor, no learning rate, no weights before and after with gradients or moments",
                   "decay, bias correction, moments, schedule or clipping that are wrong");
  else
    verdict_say(out, OUTCOME_PASS, "%s%s%s of %lld steps as the case has them", factor ? "clip factor" : "", factor && lr ? " and " : "",
                lr ? "learning rate" : "", (long long)run->config.steps);
}

void update_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                  struct verdict *out)
{
  (void)wanted, (void)companions, (void)n;
  verdict_start(out, "update", "O6");
  struct ledger l = {.run = run, .steps = evidence_steps(run)};
  worst_start(&l.worst);
  if (!judge_scalars(&l, out)) return;
  if (l.steps < run->config.steps || l.steps == 0) {
    verdict_say(out, OUTCOME_INVALID, "only %lld of %lld steps left evidence", (long long)l.steps, (long long)run->config.steps);
    return;
  }
  if (run->foreign && !update_squares(run, out)) return;
  if ((run->foreign ? judge_foreign(&l) : judge_weights(&l)) != ERR_OK) {
    verdict_say(out, OUTCOME_INVALID, "updates cannot be recomputed: %s", err_text());
    return;
  }
  if (run->foreign && l.worst.over == 0 && !update_reaches(run, out)) return;
  if (run->foreign && l.worst.seen == 0) {
    conclude_scalars(run, out);
    return;
  }
  worst_to(&l.worst, out);
  if (l.worst.over > 0)
    verdict_say(out, OUTCOME_FAIL, "%s%s is %.3g from the recomputed update, bound %.2g; %lld of %lld tensors and steps off",
                strstr(l.worst.place, "moment of") ? "" : "weight ", l.worst.place, l.worst.value, l.worst.bound, (long long)l.worst.over, (long long)l.worst.seen);
  else if (l.worst.seen == 0)
    verdict_say(out, OUTCOME_INVALID, "no weight was compared");
  else {
    out->smallest = bound_ceiling(BOUND_UPDATE, (enum precision)run->config.precision, 0) * (1.0 + l.worst.excess);
    verdict_say(out, OUTCOME_PASS, "%lld updates of tensors recomputed; nearest to its bound: %s, %.2g of %.2g",
                (long long)l.worst.seen, l.worst.place, l.worst.value, l.worst.bound);
  }
}
