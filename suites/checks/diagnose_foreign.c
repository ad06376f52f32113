/* diagnose_foreign.c - signatures that need no records but those that a foreign run may have. */
#include "bound.h"
#include "losses.h"
#include "observed.h"
#include "parts.h"
#include "predict.h"
#include "schedule.h"
#include "signs.h"
#include "update.h"

#include "base/fault.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum cause {
#define CAUSE(id, name, sentence) CAUSE_##id,
#include "causes.def"
#undef CAUSE
};
const struct judge_cause judge_causes[] = {
#define CAUSE(id, name, sentence) {name, sentence},
#include "causes.def"
#undef CAUSE
};
const int judge_causes_count = (int)(sizeof judge_causes / sizeof *judge_causes);

/* Rows of gradients agree in direction this well if all that is wrong is a factor; and factors, to be one. */
static bool is_narrow(const struct signs *s) { return bound_is_narrow((enum precision)s->run->config.precision); }
static double straight(const struct signs *s) { return is_narrow(s) ? 0.98 : 1.0 - 1e-7; }
static double alike(const struct signs *s) { return is_narrow(s) ? 0.06 : 1e-3; }

/* Beyond every ceiling: that is less than signs_is_off asks, for there is no other cause to be told from by its size. */
static bool is_off(const struct signs *s, const struct gap *row)
{
  return !row->zero && !(row->error <= bound_ceiling(BOUND_GRADIENT, (enum precision)s->run->config.precision, 0));
}

/* --- names and files ------------------------------------------------------------------------- */

static bool says(const struct signs *s, const char *check, const char *part)
{
  const struct verdict *v = signs_failed(s, check);
  return v != NULL && strstr(v->sentence, part) != NULL;
}

static bool is_transposed(const struct signs *s) { return says(s, "initial", "transposed") || says(s, "gradients", "transposed"); }

static bool has_other_parameters(const struct signs *s)
{
  const struct verdict *gradients = signs_failed(s, "gradients");
  return signs_failed(s, "initial") != NULL || (gradients != NULL && strncmp(gradients->first, "gradients at step", 17) == 0);
}

/* A square that is negative. */
static bool moments_are_swapped(const struct signs *s)
{
  struct safetensors *f = NULL;
  bool negative = false;
  if (signs_failed(s, "update") == NULL && signs_failed(s, "gradients") == NULL) return false;
  for (int64_t step = 1; f == NULL && step <= s->run->config.steps; step++)
    if (evidence_has_tensors(s->run, "moments2", step) && evidence_tensors(s->run, "moments2", step, &f) != ERR_OK) break;
  for (int i = 0; f != NULL && !negative && i < safetensors_count(f); i++) {
    const struct tensor *t = &safetensors_get(f, i)->data;
    const int64_t n = tensor_count(t);
    double *x = malloc(((size_t)n + 1) * sizeof *x);
    if (x != NULL && evidence_elements(t, x) == ERR_OK)
      for (int64_t k = 0; k < n; k++) negative = negative || x[k] < 0.0;
    free(x);
  }
  safetensors_close(f);
  return negative;
}

/* --- losses and counts ----------------------------------------------------------------------- */

/* The step's count of tokens lacks exactly one micro-batch's, or nobody tells of one. */
static bool count_lacks_a_microbatch(const struct signs *s)
{
  if (signs_failed(s, "loss") == NULL && signs_failed(s, "batch") == NULL) return false;
  if (says(s, "batch", "was consumed by 0 ranks")) return true;
  const double got = evidence_value(s->run, "step", 0, 0, -1, "got.valid_tokens"), all = losses_gather(s->truth, 0, -1).tokens;
  for (int64_t m = 0; m < evidence_microbatches(&s->run->config); m++)
    if (got < all && got == all - evidence_value(s->truth, "microbatch", -1, 0, m, "got.valid_tokens")) return true;
  return false;
}

/* Every count of step 0 is a whole row's or its next token's: as many in each, and more than the case has. */
static bool padding_is_counted(const struct signs *s)
{
  const struct run_config *c = &s->run->config;
  const int64_t M = evidence_microbatches(c);
  const double first = evidence_value(s->run, "microbatch", -1, 0, 0, "got.valid_tokens"), all = evidence_value(s->run, "step", 0, 0, -1, "got.valid_tokens");
  const double row = (double)c->micro_batch * (double)c->sequence, each = isnan(first) ? all / (double)M : first, want = losses_gather(s->truth, 0, -1).tokens;
  if ((signs_failed(s, "loss") == NULL && signs_failed(s, "batch") == NULL) || says(s, "batch", "in its samples") || says(s, "batch", "in its tokens")) return false;
  for (int64_t m = 0; !isnan(first) && m < M; m++)
    if (evidence_value(s->run, "microbatch", -1, 0, m, "got.valid_tokens") != each) return false;
  return (each == row || each == row - (double)c->micro_batch) && each * (double)M > want;
}

static bool calls_differ(const struct signs *s) { return says(s, "trace", "these calls differ"); }

/* --- gradients ------------------------------------------------------------------------------- */

/* Step 0's are one multiple of the truth's, all of them; *ratio: which. */
static bool all_are_a_multiple(const struct signs *s, double *ratio)
{
  int seen = 0;
  for (int i = 0; i < s->first.n; i++) {
    const struct gap *row = &s->first.rows[i];
    if (row->zero || !(row->want > 0.0) || row->want < 0.1 * row->unit) continue;
    if (!(row->cosine >= straight(s))) return false;
    if (seen++ == 0) *ratio = row->ratio;
    if (!signs_near(row->ratio, *ratio, alike(s))) return false;
  }
  return seen > 1 && !signs_near(*ratio, 1.0, 2.0 * alike(s)) && !precision_divided_by_a_scale(s);
}

static bool norm_is_right(const struct signs *s)
{
  const double got = evidence_value(s->run, "step", 0, 0, -1, "got.norm"), want = evidence_value(s->truth, "step", -1, 0, -1, "got.norm");
  return signs_near(got, want, bound_no_rounding(BOUND_NORM, (enum precision)s->run->config.precision));
}

/* By what the gradients went into the first moments of step 0, beside what was told: at level 2 the multiple of the truth that the moments
 * show where the norm is the truth's; with gradients at hand by these. */
static bool applied_factor(const struct signs *s, double *applied)
{
  const double told = observed_factor(s->run, 0);
  double ratio = NAN;
  if (observed_by_moments(s->run, 0)) {
    if (!norm_is_right(s) || !all_are_a_multiple(s, &ratio)) return false;
    *applied = ratio * told;
    return true;
  }
  if (signs_failed(s, "update") == NULL || !update_factor_seen(s->run, applied)) return false;
  return !signs_near(*applied, told, alike(s));
}

static bool is_not_clipped(const struct signs *s)
{
  double applied;
  const double norm = evidence_value(s->run, "step", 0, 0, -1, "got.norm"), clip = s->run->config.clip;
  if (!(clip > 0.0) || !(norm > clip)) return false;
  if (evidence_value(s->run, "step", 0, 0, -1, "got.clip_factor") == 1.0) return true;
  return applied_factor(s, &applied) && signs_near(applied, 1.0, 2.0 * alike(s));
}

/* The norm of those of the truth's gradients that decay, which is that of the matrices. */
static double norm_of_matrices(const struct signs *s)
{
  double sum = 0.0;
  struct safetensors *f;
  if (evidence_tensors(s->truth, "gradients", 0, &f) != ERR_OK) return NAN;
  for (int i = 0; i < safetensors_count(f); i++) {
    const struct safetensor *t = safetensors_get(f, i);
    const int64_t n = tensor_count(&t->data);
    double *x = malloc(((size_t)n + 1) * sizeof *x);
    if (x != NULL && t->rank == 2 && evidence_elements(&t->data, x) == ERR_OK)
      for (int64_t k = 0; k < n; k++) sum += x[k] * x[k];
    free(x);
  }
  safetensors_close(f);
  return sqrt(sum);
}

static bool is_clipped_by_another_norm(const struct signs *s)
{
  double applied;
  const double norm = evidence_value(s->run, "step", 0, 0, -1, "got.norm");
  if (shares_norm_is_of_a_shard(s) || cuts_norm_counts_otherwise(s)) return false; /* they say whose */
  if (applied_factor(s, &applied)) return true;
  if (signs_failed(s, "norm") == NULL || norm_is_right(s)) return false;
  if (s->first.n == 0) return s->clean_loss && signs_near(norm, norm_of_matrices(s), bound_no_rounding(BOUND_NORM, (enum precision)s->run->config.precision));
  const struct verdict *gradients = signs_failed(s, "gradients");
  return gradients == NULL || gradients->first_step > 0;
}

/* What all gradients are multiplied by; at level 1, where the loss is right and the norm is not, by the norm. */
static bool multiple(const struct signs *s, double *ratio)
{
  if (!s->clean_loss) return false;
  if (s->first.n > 0) return all_are_a_multiple(s, ratio);
  *ratio = evidence_value(s->run, "step", 0, 0, -1, "got.norm") / evidence_value(s->truth, "step", -1, 0, -1, "got.norm");
  return signs_failed(s, "norm") != NULL && !norm_is_right(s);
}

static bool is_multiple_of(const struct signs *s, double factor)
{
  double ratio;
  return factor != 1.0 && multiple(s, &ratio) && signs_near(ratio, factor, alike(s));
}
static bool is_divided_by_replicas(const struct signs *s) { return is_multiple_of(s, 1.0 / (double)s->run->config.dp); }
static bool is_summed_over_replicas(const struct signs *s) { return is_multiple_of(s, (double)s->run->config.dp); }
static bool is_scaled_by_accumulation(const struct signs *s)
{
  const double each = (double)config_accumulation(&s->run->config);
  return is_multiple_of(s, each) || is_multiple_of(s, 1.0 / each);
}
static bool is_scaled(const struct signs *s)
{
  double ratio;
  return s->first.n > 0 && s->clean_loss && all_are_a_multiple(s, &ratio);
}

/* --- which micro-batches ------------------------------------------------------------------------ */

/* Weights of micro-batches, a hypothesis. */
enum hypothesis { OF_RANKS_TOKENS, OF_OWN_TOKENS, WITHOUT_ONE, OF_ONE_RANK };

static double expected(const struct signs *s, enum hypothesis h, int which, int m)
{
  const struct run_config *c = &s->run->config;
  const int64_t M = evidence_microbatches(c);
  const int replica = (int)(m / (M / c->dp));
  const double all = losses_over(s->truth, c->dp, 0, -1).tokens;
  switch (h) {
  case OF_RANKS_TOKENS: return all / (double)c->dp / losses_over(s->truth, c->dp, 0, replica).tokens;
  case OF_OWN_TOKENS: return all / (double)M / evidence_value(s->truth, "microbatch", -1, 0, m, "got.valid_tokens");
  case WITHOUT_ONE: return m != which;
  case OF_ONE_RANK: return replica == which;
  }
  return NAN;
}

/* Distance of the weights found to those expected; up to a factor where that may be another, too. */
static double distance(const struct signs *s, const struct parts *p, enum hypothesis h, int which)
{
  double ee = 0.0, ea = 0.0, dd = 0.0;
  for (int m = 0; m < p->n; m++) {
    const double e = expected(s, h, which, m);
    ee += e * e;
    ea += e * p->a[m];
  }
  const double scale = h == OF_ONE_RANK ? ea / ee : 1.0;
  for (int m = 0; m < p->n; m++) dd += pow(p->a[m] - scale * expected(s, h, which, m), 2.0);
  return sqrt(dd);
}

/* The weights of step 0's micro-batches are far from one, and near to what this hypothesis says; nearer than to any other. */
static bool weights_are(const struct signs *s, enum hypothesis h, int *which)
{
  struct parts p;
  double ones = 0.0, best = INFINITY;
  enum hypothesis nearest = OF_RANKS_TOKENS;
  if (signs_failed(s, "gradients") == NULL || !s->clean_loss || !parts_solve(s->run, s->truth, &p)) return false;
  if (p.n != evidence_microbatches(&s->run->config) || p.rest > (is_narrow(s) ? 0.2 : 1e-3)) return false;
  for (int m = 0; m < p.n; m++) ones += pow(p.a[m] - 1.0, 2.0);
  for (enum hypothesis k = OF_RANKS_TOKENS; k <= OF_ONE_RANK; k++) {
    const int choices = k == WITHOUT_ONE ? p.n : k == OF_ONE_RANK ? (int)s->run->config.dp : 1;
    for (int i = 0; i < choices; i++) {
      const double d = distance(s, &p, k, i);
      if (!(d < best)) continue;
      best = d;
      nearest = k;
      *which = i;
    }
  }
  return nearest == h && best < 0.3 * sqrt(ones) && sqrt(ones) > 0.05;
}

static bool weighs_ranks_alike(const struct signs *s)
{
  int which;
  return s->run->config.dp > 1 && weights_are(s, OF_RANKS_TOKENS, &which);
}
static bool weighs_microbatches_alike(const struct signs *s)
{
  int which;
  return weights_are(s, OF_OWN_TOKENS, &which);
}
static bool lacks_a_microbatch(const struct signs *s)
{
  int which;
  return count_lacks_a_microbatch(s) || weights_are(s, WITHOUT_ONE, &which);
}

/* All gradients are a rank's own: by the weights of micro-batches, or by hashes of gradients that differ. */
static bool is_never_reduced(const struct signs *s)
{
  int which;
  if (s->run->config.dp == 1) return false;
  if (weights_are(s, OF_ONE_RANK, &which)) return true;
  const struct verdict *replicas = signs_failed(s, "replicas");
  return s->clean_loss && s->first.n > 0 && 2 * signs_count_off(s, &s->first) > s->first.n && replicas != NULL &&
         strstr(replicas->worst, "gradients in group") != NULL && replicas->first_step == 0;
}

/* --- some gradients -------------------------------------------------------------------------------- */

/* Some are off at the first step that has any, most are not; straight: those that are, by a factor alone. */
static bool some_are_off(const struct signs *s, bool by_factor)
{
  int off = 0;
  if (s->first.n == 0 || signs_only_tied_is_off(s) || cuts_one_norm_is_off(s) || !s->clean_loss) return false;
  for (int i = 0; i < s->first.n; i++) {
    const struct gap *row = &s->first.rows[i];
    if (!is_off(s, row)) continue;
    off++;
    if ((row->cosine >= straight(s)) != by_factor) return false;
  }
  return off > 0 && 2 * off <= s->first.n;
}
static bool some_are_scaled(const struct signs *s) { return some_are_off(s, true); }
static bool some_are_not_reduced(const struct signs *s) { return s->run->config.dp > 1 && some_are_off(s, false); }

/* A loss is off before anything was learned, by less than other rules ask for. */
static bool forward_is_off(const struct signs *s)
{
  const struct verdict *loss = signs_failed(s, "loss");
  return loss != NULL && loss->first_step == 0 && strstr(loss->first, "loss sum of micro-batch") != NULL;
}
/* In a run in float32: all gradients are off by what a rounding with unit u does. */
static bool are_rounded(const struct signs *s, double u)
{
  int seen = 0, like = 0;
  for (int i = 0; i < s->first.n; i++) {
    const struct gap *row = &s->first.rows[i];
    if (row->zero || row->want < 0.1 * row->unit) continue;
    seen++;
    like += row->error > u / 32.0 && row->error < 2.0 * u && fabs(row->ratio - 1.0) < u;
  }
  return seen > 0 && 10 * like >= 9 * seen;
}

/* The files' own type rounded them: right losses, and weights of the start or gradients that are off in a narrow file. */
static bool are_told_narrow(const struct signs *s)
{
  if (!s->clean_loss || forward_is_off(s)) return false;
  if (says(s, "initial", " starts from ") && !update_wide(s->run, "weights", 0)) return true;
  if (is_narrow(s) || signs_failed(s, "initial") || signs_failed(s, "gradients") == NULL) return false;
  const char *what = evidence_has_tensors(s->run, "gradients", 0) ? "gradients" : "moments1";
  return !update_wide(s->run, what, what[0] == 'g' ? 0 : 1) && (are_rounded(s, bound_unit(PRECISION_BF16)) || are_rounded(s, bound_unit(PRECISION_F16)));
}

/* Reduced so, where nothing else rounded them: neither the forward pass nor the file. */
static bool is_reduced_in_bf16(const struct signs *s)
{
  return !is_narrow(s) && s->run->config.dp > 1 && s->clean_loss && !forward_is_off(s) && are_rounded(s, bound_unit(PRECISION_BF16));
}

/* --- updates ------------------------------------------------------------------------------------------ */

/* The rates told are the schedule's of the update before or after. */
static bool rate_is_shifted(const struct signs *s)
{
  const struct run_config *c = &s->run->config;
  if (signs_failed(s, "update") == NULL) return false;
  for (int64_t shift = -1; shift <= 1; shift += 2) {
    bool fits = true, differs = false;
    for (int64_t step = 0; step < c->steps; step++) {
      const double lr = evidence_value(s->run, "step", 0, step, -1, "got.lr");
      fits = fits && fabs(lr - schedule_lr(c, step + 1 + shift)) <= 1e-6 * c->lr;
      differs = differs || !signs_near(lr, schedule_lr(c, step + 1), 1e-6);
    }
    if (fits && differs) return true;
  }
  return false;
}

/* A place in the list of rates that goes on once a rank or micro-batch, and stays at its end. */
static bool rate_goes_by_world(const struct signs *s)
{
  const struct run_config *c = &s->run->config;
  const int64_t all = evidence_microbatches(c), ranks = config_ranks(c), factors[] = {all, ranks, c->dp, all / c->dp};
  for (int i = 0; i < 4; i++) {
    bool fits = factors[i] > 1 && signs_failed(s, "update") != NULL, differs = false;
    for (int64_t step = 0; fits && step < c->steps; step++) {
      const double lr = evidence_value(s->run, "step", 0, step, -1, "got.lr");
      const int64_t update = step * factors[i] + 1, last = s->truth->config.steps;
      fits = fabs(lr - schedule_lr(c, update)) <= 1e-6 * c->lr || (update > last && fabs(lr - schedule_lr(c, last)) <= 1e-6 * c->lr);
      differs = differs || !signs_near(lr, schedule_lr(c, step + 1), 1e-6);
    }
    if (fits && differs) return true;
  }
  return false;
}

/* Another rule than the one asked for explains the weights, where the first gradients are right; later ones follow from those weights. */
static bool explained(const struct signs *s, struct update_rule rule)
{
  const struct verdict *gradients = signs_failed(s, "gradients");
  const struct update_rule asked = {0};
  return signs_failed(s, "update") != NULL && (gradients == NULL || gradients->first_step > 0) && update_explains(s->run, &rule) &&
         !update_explains(s->run, &asked);
}
static bool decays_all(const struct signs *s) { return explained(s, (struct update_rule){.decays = UPDATE_DECAYS_ALL}); }
static bool decays_none(const struct signs *s) { return explained(s, (struct update_rule){.decays = UPDATE_DECAYS_NONE}); }
/* First moments have the decay in them: those that stand for gradients are off by it, and weights are right once it is not taken off again. */
static bool decays_coupled(const struct signs *s)
{
  const struct update_rule rule = {.coupled = true};
  const struct verdict *gradients = signs_failed(s, "gradients");
  double share;
  if (signs_failed(s, "update") == NULL) return false;
  if (observed_by_moments(s->run, 0)) return gradients != NULL && gradients->first_step == 0 && update_explains(s->run, &rule);
  return (gradients == NULL || gradients->first_step > 0) && update_decay_seen(s->run, &share) && signs_near(share, 1.0, 0.05);
}
static bool is_uncorrected(const struct signs *s) { return explained(s, (struct update_rule){.uncorrected = true}); }
static bool is_updated_unclipped(const struct signs *s) { return s->run->config.clip > 0.0 && explained(s, (struct update_rule){.unclipped = true}); }
static bool schedule_is_shifted(const struct signs *s)
{
  return rate_is_shifted(s) || explained(s, (struct update_rule){.shift = 1}) || explained(s, (struct update_rule){.shift = -1});
}

/* Of gains and biases those of one norm alone, in a tensor group. */
static bool one_norm_is_off(const struct signs *s)
{
  const char *norm = NULL;
  if (s->run->config.tp == 1 || !s->clean_loss) return false;
  for (int i = 0; i < s->first.n; i++) {
    const char *name = s->first.rows[i].name;
    if (!is_off(s, &s->first.rows[i])) continue;
    if (strstr(name, "ln_") == NULL) return false;
    if (norm && strncmp(name, norm, (size_t)(strrchr(norm, '.') - norm)) != 0) return false;
    norm = name;
  }
  return norm != NULL;
}

static bool a_forward_pass_differs(const struct signs *s) { return !is_narrow(s) && s->clean_loss && forward_is_off(s); }
static bool tensor_ranks_add_too_much(const struct signs *s) { return s->run->config.tp > 1 && s->clean_loss && forward_is_off(s); }

/* Several gradients are off in direction, though losses are right, and micro-batches have no weights that explain it. */
static bool boundary_is_off(const struct signs *s)
{
  int off = 0;
  if (s->run->config.tp == 1 || !s->clean_loss || forward_is_off(s)) return false;
  for (int i = 0; i < s->first.n; i++) off += is_off(s, &s->first.rows[i]);
  return off >= 2;
}

/* Nothing else is wrong. */
static bool replicas_drift(const struct signs *s)
{
  int red = 0;
  for (int i = 0; i < s->n; i++) red += s->list[i].outcome == OUTCOME_FAIL;
  return red == 1 && signs_failed(s, "replicas") != NULL;
}

/* Causes of ours that need other evidence in a foreign run have their row here, too. */
static const struct {
  int cause; /* of judge_causes; -1: the fault */
  enum fault fault;
  bool (*looks)(const struct signs *s);
} rules[] = {
  {CAUSE_TOLD_NARROW, FAULT_NONE, are_told_narrow},
  {CAUSE_TRANSPOSED, FAULT_NONE, is_transposed},
  {CAUSE_OTHER_NAMES, FAULT_NONE, has_other_parameters},
  {CAUSE_PADDING_COUNTED, FAULT_NONE, padding_is_counted},
  {CAUSE_MOMENTS_SWAPPED, FAULT_NONE, moments_are_swapped},
  {CAUSE_MICROBATCH_LEFT_OUT, FAULT_NONE, count_lacks_a_microbatch},
  {CAUSE_NOT_CLIPPED, FAULT_NONE, is_not_clipped},
  {CAUSE_CLIPPED_BY_A_PART, FAULT_NONE, is_clipped_by_another_norm},
  {CAUSE_SCALED_BY_REPLICAS, FAULT_NONE, is_divided_by_replicas},
  {CAUSE_SUMMED_OVER_REPLICAS, FAULT_NONE, is_summed_over_replicas},
  {CAUSE_SCALED_BY_ACCUMULATION, FAULT_NONE, is_scaled_by_accumulation},
  {CAUSE_SCALED, FAULT_NONE, is_scaled},
  {CAUSE_DECAY_COUPLED, FAULT_NONE, decays_coupled},
  {-1, FAULT_Z_REDUCE_DTYPE_SILENTLY_LOW, is_reduced_in_bf16},
  {CAUSE_NEVER_REDUCED, FAULT_NONE, is_never_reduced},
  {-1, FAULT_LN_RANK_TOKEN_IMBALANCE, weighs_ranks_alike},
  {-1, FAULT_LN_GA_MEAN_OF_MEANS, weighs_microbatches_alike},
  {CAUSE_MICROBATCH_LEFT_OUT, FAULT_NONE, lacks_a_microbatch},
  {-1, FAULT_TP_SP_NORM_GRAD_NOT_REDUCED, one_norm_is_off},
  {CAUSE_ONE_SCALED, FAULT_NONE, some_are_scaled},
  {CAUSE_ONE_NOT_REDUCED, FAULT_NONE, some_are_not_reduced},
  {-1, FAULT_OPT_LR_STEPS_BY_WORLD, rate_goes_by_world},
  {CAUSE_SCHEDULE_SHIFTED, FAULT_NONE, schedule_is_shifted},
  {CAUSE_DECAY_EVERYWHERE, FAULT_NONE, decays_all},
  {CAUSE_DECAY_NOWHERE, FAULT_NONE, decays_none},
  {CAUSE_UNCORRECTED, FAULT_NONE, is_uncorrected},
  {CAUSE_NOT_CLIPPED, FAULT_NONE, is_updated_unclipped},
  {-1, FAULT_TP_MISSING_BWD_ALLREDUCE_AT_BOUNDARY, boundary_is_off},
  {-1, FAULT_TP_ROW_BIAS_ADDED_PER_RANK, tensor_ranks_add_too_much},
  {CAUSE_FORWARD_OFF, FAULT_NONE, a_forward_pass_differs},
  {CAUSE_CALLS_DIFFER, FAULT_NONE, calls_differ},
  {CAUSE_REPLICAS_DRIFT, FAULT_NONE, replicas_drift},
};

bool foreign_cause(const struct signs *s, struct diagnosis *out)
{
  if (signs_failed(s, "ends") != NULL) return false; /* what a run that broke off lacks is no sign */
  for (size_t i = 0; s->truth != NULL && i < sizeof rules / sizeof *rules; i++) {
    if (!rules[i].looks(s)) continue;
    const bool ours = rules[i].cause < 0;
    snprintf(out->fault, sizeof out->fault, "%s", ours ? fault_rows[rules[i].fault].name : judge_causes[rules[i].cause].name);
    snprintf(out->sentence, sizeof out->sentence, "%s", ours ? fault_rows[rules[i].fault].cause : judge_causes[rules[i].cause].sentence);
    return true;
  }
  err_clear();
  return false;
}
