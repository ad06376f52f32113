/* point.c - medians, intervals, and the reasons to withhold them. */
#include "harness/point.h"
#include "harness/cut.h"
#include "harness/proof.h"
#include "harness/stats.h"
#include "harness/trial.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const double level = 0.95;
static const double widest = 0.25;     /* interval over median: beyond, a speed says nothing                */
static const double first_loss = 1e-5; /* relative, float32: the ceiling of O3 at step k, for large models  */

/* First sample that is not ok; NULL: all are. */
static const struct sample *broken(const struct timing_setting *m)
{
  for (int i = 0; i < m->n_samples; i++)
    if (!m->samples[i].ok) return &m->samples[i];
  return NULL;
}

static void column(const struct timing_setting *m, size_t offset, double scale, double *out)
{
  for (int i = 0; i < m->n_samples; i++) out[i] = *(const double *)((const char *)&m->samples[i] + offset) * scale;
}
#define COLUMN(m, field, scale, out) column(m, offsetof(struct sample, field), scale, out)

static double median_of(const struct timing_setting *m, size_t offset)
{
  double x[TIMING_REPEATS];
  column(m, offset, 1, x);
  return stats_median(x, m->n_samples);
}
#define MEDIAN(m, field) median_of(m, offsetof(struct sample, field))

/* X(N)/N over X(N0)/N0, repeat by repeat. */
static struct stats_interval ratio(const struct timing_setting *m, double per, const struct timing_setting *base, double base_per)
{
  double x[TIMING_REPEATS], y[TIMING_REPEATS];
  COLUMN(m, tokens_per_s, 1 / per, x);
  COLUMN(base, tokens_per_s, 1 / base_per, y);
  return stats_ratio_interval(x, m->n_samples, y, base->n_samples, true, level, 2000, 1);
}

/* What is wrong with what was trained while it was timed; "" if nothing is. */
static bool went_wrong(const struct point *q, char *why, size_t bytes)
{
  const struct sample *bad = broken(q->own) ? broken(q->own) : broken(q->base);
  if (bad) {
    snprintf(why, bytes, "%s", bad->why);
    return bad->wrong;
  }
  for (int i = 0; i < q->own->n_samples; i++) {
    const double got = q->own->samples[i].first_loss;
    if (fabs(got - q->want_loss) <= first_loss * fabs(q->want_loss)) continue;
    snprintf(why, bytes, "first loss of repeat %d is %.9g, one rank's is %.9g", i + 1, got, q->want_loss);
    return isfinite(q->want_loss);
  }
  return false;
}

static void too_noisy(const struct timing *b, const struct point *q, char *why, size_t bytes)
{
  double x[TIMING_REPEATS];
  const double others = timing_elsewhere(b);
  if (!timing_quiet(others)) {
    snprintf(why, bytes, "the machine is not quiet: others use %.1f of %d cores", others, b->s->world.cores);
    return;
  }
  if (q->own->n_samples < TIMING_REPEATS || q->base->n_samples < TIMING_REPEATS) {
    snprintf(why, bytes, "only %d of %d repeats ran", q->own->n_samples, TIMING_REPEATS);
    return;
  }
  COLUMN(q->own, tokens_per_s, 1, x);
  const struct stats_interval v = stats_median_interval(x, TIMING_REPEATS, level);
  if ((v.high - v.low) / v.value > widest)
    snprintf(why, bytes, "noise: repeats lie between %.4g and %.4g tokens/s, wider than %.0f %% of the median", v.low, v.high, widest * 100);
}

/* Why the speed of a point is not shown; true: the training is to blame. */
static bool withhold(const struct timing *b, const struct point *q, char *why, size_t bytes)
{
  why[0] = '\0';
  if (!proof_holds(&b->s->plan.trials[b->s->plan.trials[q->trial].twin], why, bytes)) return false;
  if (q->own == NULL) return false;
  const bool wrong = !b->never_quiet && went_wrong(q, why, bytes);
  if (!*why) too_noisy(b, q, why, bytes);
  return wrong;
}

/* Efficiency in POP's words, useful time being that of compute streams at work: what a token takes more of it than at N0, and
 * how much of the step it is. */
static void record_factors(struct record_file *f, const struct point *q, double efficiency)
{
  const double computation = MEDIAN(q->base, busy_a_token_s) / MEDIAN(q->own, busy_a_token_s);
  const double parallel = MEDIAN(q->own, busy), base = MEDIAN(q->base, busy);
  record_real(f, "got.computation", computation);
  record_real(f, "got.parallel", parallel);
  record_real(f, "got.parallel_base", base);
  record_real(f, "got.remainder", computation * parallel / base / efficiency - 1);
}

static void record_speeds(struct record_file *f, const struct timing *b, const struct point *q)
{
  const struct timing_setting *m = q->own;
  double x[TIMING_REPEATS];
  COLUMN(m, tokens_per_s, 1, x);
  const struct stats_interval v = stats_median_interval(x, m->n_samples, level), e = ratio(m, q->ranks, q->base, q->base_ranks);
  record_real(f, "got.step_ms", MEDIAN(m, step_ms));
  record_real(f, "got.tokens_per_s", v.value);
  record_real(f, "got.tokens_per_s_low", v.low);
  record_real(f, "got.tokens_per_s_high", v.high);
  record_reals(f, "got.tokens_per_s_repeats", x, m->n_samples);
  record_real(f, "got.sequences_per_s", (double)m->config.global_batch / (MEDIAN(m, step_ms) / 1e3));
  record_real(f, "got.efficiency", e.value);
  record_real(f, "got.efficiency_low", e.low);
  record_real(f, "got.efficiency_high", e.high);
  if (q->copies && q->copies->n_samples == q->alone->n_samples && !broken(q->copies) && !broken(q->alone)) {
    const struct stats_interval c = ratio(q->copies, 1, q->alone, 1);
    record_real(f, "got.copies", c.value);
    record_real(f, "got.copies_low", c.low);
    record_real(f, "got.copies_high", c.high);
  }
  const double rate = timing_rate(b, m->config.threads);
  record_real(f, "got.sgemm_FLOP_per_s", rate);
  record_real(f, "got.rate_fraction", MEDIAN(m, flops_per_s) / rate);
  if (isfinite(MEDIAN(m, mfu))) record_real(f, "got.mfu", MEDIAN(m, mfu));
  record_real(f, "got.exposed_fraction", MEDIAN(m, exposed));
  record_real(f, "got.imbalance", MEDIAN(m, balance));
  record_factors(f, q, e.value);
}

static enum err record_point(const struct timing *b, const struct point *q, const char *withheld)
{
  const struct trial *t = &b->s->plan.trials[q->trial], *evidence = &b->s->plan.trials[t->twin];
  struct record_file *f;
  char layout[CONFIG_NAME];
  TRY(record_open(b->s->results.records, t->name, -1, &f));
  record_begin(f, "point", -1, -1);
  record_text(f, "got.suite", t->suite->name);
  record_text(f, "got.curve", t->of->name);
  record_text(f, "got.scale", t->of->scale == SCALE_WEAK ? "weak" : t->of->scale == SCALE_LAYOUT ? "layout" : "strong");
  cut_text(&b->s->plan.runs[t->run].config, layout, sizeof layout);
  record_text(f, "got.layout", layout);
  record_int(f, "got.ranks", q->ranks);
  record_int(f, "got.base_ranks", q->base_ranks);
  record_int(f, "got.threads", b->s->plan.runs[t->run].config.threads);
  record_int(f, "got.repeats", q->own ? q->own->n_samples : 0);
  record_text(f, "got.evidence", evidence->outcome == OUTCOME_PASS && evidence->state == TRIAL_JUDGED ? evidence->name : "");
  record_bool(f, "got.correctness_only", q->own == NULL);
  if (q->own == NULL) record_text(f, "got.correctness_reason", q->only ? q->only : "more ranks than cores");
  record_text(f, "got.withheld", withheld);
  if (q->own && q->own->n_samples && !broken(q->own)) {
    double peak[TIMING_REPEATS], largest = 0;
    COLUMN(q->own, peak_bytes, 1, peak);
    for (int i = 0; i < q->own->n_samples; i++) largest = fmax(largest, peak[i]);
    record_int(f, "got.peak_bytes", (int64_t)largest);
    if (!*withheld) record_speeds(f, b, q);
  }
  const enum err err = record_end(f);
  record_close(f);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

/* A speed that noise hides is no fault of the program: the quick form says so and leaves the verdict to
 * conformance, the full form was asked for a speed and is INCONCLUSIVE. */
enum err point_settle(struct timing *b, const struct point *q)
{
  struct trial *t = &b->s->plan.trials[q->trial];
  const struct trial *evidence = &b->s->plan.trials[t->twin];
  char why[512];
  t->n_verdicts = 0;
  t->state = TRIAL_JUDGED;
  t->outcome = OUTCOME_PASS;
  t->reason[0] = '\0';
  if (q->own && q->own->first_run >= 0) {
    t->run = q->own->first_run;
    trial_judge(&b->s->plan, q->trial);
  }
  const bool wrong = withhold(b, q, why, sizeof why);
  if (t->outcome != OUTCOME_PASS) snprintf(why, sizeof why, "%.400s", t->sentence);
  TRY(record_point(b, q, why));
  if (t->outcome != OUTCOME_PASS) return session_settled(b->s, q->trial);
  if (q->own == NULL && !*why) {
    t->outcome = OUTCOME_PASS;
    char cores[64];
    snprintf(cores, sizeof cores, "%d ranks on %d cores", q->ranks, b->s->world.cores);
    snprintf(t->sentence, sizeof t->sentence, "correctness only: %s; %s passed", q->only ? q->only : cores, evidence->name);
  } else if (!*why) {
    t->outcome = OUTCOME_PASS;
    const struct stats_interval e = ratio(q->own, q->ranks, q->base, q->base_ranks);
    snprintf(t->sentence, sizeof t->sentence, "%.4g tokens/s, E(%d) = %.3f [%.3f, %.3f] against N0 = %d", MEDIAN(q->own, tokens_per_s),
             q->ranks, e.value, e.low, e.high, q->base_ranks);
  } else {
    const bool judged = evidence->state == TRIAL_JUDGED && evidence->outcome == OUTCOME_PASS;
    t->outcome = wrong ? OUTCOME_FAIL : !judged ? OUTCOME_INVALID : b->s->asked->full ? OUTCOME_INCONCLUSIVE : OUTCOME_SKIPPED;
    snprintf(t->reason, sizeof t->reason, wrong ? "timed run" : "speed withheld");
    snprintf(t->sentence, sizeof t->sentence, "%s%s", wrong ? "" : "speed withheld: ", why);
  }
  return session_settled(b->s, q->trial);
}
