/* scaling.c - what is timed, in which order, and what is made of it. */
#include "harness/scaling.h"
#include "harness/interrupt.h"
#include "harness/sample.h"
#include "harness/stats.h"
#include "harness/trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 5, MEASURED_MAX = 256 };
static const double level = 0.95;
static const double widest = 0.25;      /* interval over median: beyond, a speed says nothing              */
static const double quiet_cores = 0.2;  /* of others, median over looks: beyond, the machine is not ours   */
enum { QUIET_LOOKS = 20 };              /* of half a second                                               */
static const double first_loss = 1e-5;  /* relative, float32: the ceiling of O3 at step k, for large models */

/* --- plan ----------------------------------------------------------------------------- */

/* Powers of two and the number of cores itself, or as asked. */
static int rank_counts(const struct asked *a, int most, int *out)
{
  int n = 0;
  if (a->n_ranks) {
    memcpy(out, a->ranks, (size_t)a->n_ranks * sizeof *out);
    return a->n_ranks;
  }
  for (int k = 1; k <= most && n < ASKED_RANKS - 1; k *= 2) out[n++] = k;
  if (n && out[n - 1] != most) out[n++] = most;
  return n;
}

static void at_ranks(const struct suite_case *of, int ranks, struct run_config *c)
{
  c->dp = ranks;
  if (of->scale == SCALE_WEAK) c->global_batch *= ranks;
}

/* The trial that proves the layout right; points that differ only in model share it. */
static enum err add_evidence(struct plan *p, const struct asked *a, const struct suite *s, const struct suite_case *of, int ranks, int *out)
{
  char name[CONFIG_NAME];
  struct run_config c = of->config;
  TRY(asked_lay_over(a, &c));
  at_ranks(of, ranks, &c);
  TRY(suite_lay_evidence(s, &c));
  const int64_t unit = c.dp * c.micro_batch;
  c.global_batch = (c.global_batch + unit - 1) / unit * unit; /* as many whole micro-batches for every rank */
  snprintf(c.name, sizeof c.name, "evidence");
  if (config_finish(&c)) FAIL(ERR_CONFIG, "%s: evidence of '%s' at %d ranks: %s", of->where, of->name, ranks, err_text());
  for (int i = 0; i < p->n_trials; i++)
    if (p->trials[i].part == PART_EVIDENCE && p->trials[i].suite == s && plan_same(&p->runs[p->trials[i].run].config, &c)) {
      *out = i;
      return ERR_OK;
    }
  snprintf(name, sizeof name, "%.100s-n%d-evidence", of->name, ranks);
  return plan_add_trial(p, s, &s->evidence, name, &c, PART_EVIDENCE, out);
}

static enum err add_point(struct plan *p, const struct asked *a, const struct suite *s, const struct suite_case *of, int ranks)
{
  char name[CONFIG_NAME];
  int evidence, point, run;
  struct run_config c = of->config;
  TRY(asked_lay_over(a, &c));
  at_ranks(of, ranks, &c);
  snprintf(c.name, sizeof c.name, "point");
  const enum err err = config_finish(&c);
  if (err == ERR_CONFIG && a->n_ranks == 0 && model_shape_find(c.model)) return ERR_OK; /* a default count that does not divide */
  if (err) FAIL(err, "%s: '%s' at %d ranks: %s", of->where, of->name, ranks, err_text());
  TRY(add_evidence(p, a, s, of, ranks, &evidence));
  snprintf(name, sizeof name, "%.100s-n%d", of->name, ranks);
  TRY(plan_add_run(p, name, &c, of->seconds, &run));
  TRY(plan_add_trial(p, s, of, name, &c, PART_POINT, &point));
  p->trials[point].run = run; /* its first repeat */
  p->trials[point].twin = evidence;
  return ERR_OK;
}

enum err scaling_plan(struct plan *p, const struct asked *a, const struct suite *s, const struct launch_world *w)
{
  for (int i = 0; i < s->n; i++) {
    const struct suite_case *of = &s->cases[i];
    int counts[ASKED_RANKS];
    if (!plan_wants(a, of, &of->config)) continue;
    const int n = rank_counts(a, w->slots / (int)of->config.threads > 0 ? w->slots / (int)of->config.threads : 1, counts);
    bool has_base = a->base == 0;
    for (int k = 0; k < n; k++) {
      has_base = has_base || counts[k] == a->base;
      TRY(add_point(p, a, s, of, counts[k]));
    }
    if (!has_base) TRY(add_point(p, a, s, of, a->base));
  }
  return ERR_OK;
}

/* --- what is timed ---------------------------------------------------------------------- */

/* One setting that is timed in every repeat: `copies` independent one-rank runs, or one run. */
struct measured {
  struct run_config config;
  int copies; /* 0: one run of config's ranks */
  char label[CONFIG_NAME];
  double seconds;
  struct sample samples[REPEATS];
  int n_samples;
  int first_run; /* of the plan: repeat 1, whose records stay until all points are settled; -1 */
};
struct bench {
  struct session *s;
  const struct suite *suite;
  struct measured *list;
  int n;
  double rate; /* sgemm, FLOP/s; NaN */
  double elsewhere[REPEATS]; /* cores that others used, before each repeat */
  int n_looks;
  bool never_quiet; /* the quick form does not time what it could not show */
};

static int measure(struct bench *b, const struct run_config *c, int copies, const char *label, double seconds)
{
  for (int i = 0; i < b->n; i++)
    if (b->list[i].copies == copies && plan_same(&b->list[i].config, c)) return i;
  BUG_IF(b->n == MEASURED_MAX);
  struct measured *m = &b->list[b->n];
  *m = (struct measured){.config = *c, .copies = copies, .seconds = seconds, .first_run = -1};
  snprintf(m->label, sizeof m->label, "%s", label);
  return b->n++;
}

static bool on_own_cores(const struct session *s, const struct run_config *c)
{
  return config_ranks(c) * c->threads <= s->world.slots;
}

/* One repeat of one setting. */
static enum err time_one(struct bench *b, struct measured *m, int repeat)
{
  struct runner *r = &b->s->runner;
  const int width = m->copies ? m->copies : 1;
  int runs[LAUNCH_CORES] = {0};
  struct runner_timed jobs[LAUNCH_CORES] = {0};
  struct sample *out = &m->samples[repeat];
  *out = (struct sample){.ok = true};
  for (int k = 0; k < width; k++) {
    char name[CONFIG_NAME];
    snprintf(name, sizeof name, m->copies ? "%.90s-r%d-copy%d" : "%.90s-r%d", m->label, repeat + 1, k + 1);
    TRY(plan_add_run(r->plan, name, &m->config, m->seconds, &runs[k]));
    TRY(plan_place(r->plan, runs[k]));
  }
  for (int k = 0; k < width; k++)
    jobs[k] = (struct runner_timed){.runs = &runs[k], .n = 1, .cores_each = (int)m->config.threads, .first_core = k * (int)m->config.threads};
  TRY(runner_timed(r, jobs, width));
  double sum = 0;
  for (int k = 0; k < width; k++) {
    struct run *run = &r->plan->runs[runs[k]];
    struct sample one = {.ok = false};
    struct verdict end;
    if (!run->ended) snprintf(one.why, sizeof one.why, "the run was stopped");
    else {
      trial_of_end(&run->data, &end);
      if (end.outcome == OUTCOME_PASS) sample_take(&run->data, &one);
      else {
        one.wrong = end.outcome == OUTCOME_FAIL;
        snprintf(one.why, sizeof one.why, "%.250s", end.sentence);
      }
    }
    sum += one.tokens_per_s;
    if (k == 0 || !one.ok) *out = one;
    if (repeat == 0 && !m->copies) m->first_run = runs[k]; /* judged by the case's own checks */
    else json_decref((json_t *)run->data.records), run->data.records = NULL;
  }
  if (out->ok) out->tokens_per_s = sum / width;
  m->n_samples = repeat + 1;
  return ERR_OK;
}

/* One rank with the threads of a point; the task goes over 1024, 2048 and 4096. */
static enum err time_gemm(struct bench *b, int64_t threads, int which)
{
  struct runner *r = &b->s->runner;
  struct run_config c;
  int index;
  config_default(&c);
  snprintf(c.name, sizeof c.name, "gemm%d", which + 1);
  TRY(config_set(&c, "task", "gemm"));
  TRY(config_set(&c, "size", "1024"));
  TRY(config_set(&c, "repeats", "3"));
  c.threads = threads;
  TRY(config_finish(&c));
  TRY(plan_add_run(r->plan, c.name, &c, 60, &index));
  TRY(plan_place(r->plan, index));
  const struct runner_timed job = {.runs = &index, .n = 1, .cores_each = (int)threads};
  TRY(runner_timed(r, &job, 1));
  struct run *run = &r->plan->runs[index];
  const double rate = run->ended ? sample_rate(run->data.records) : NAN;
  if (isfinite(rate) && !(b->rate >= rate)) b->rate = rate;
  json_decref((json_t *)run->data.records);
  run->data.records = NULL;
  return ERR_OK;
}

/* Waits for a quiet machine; false: it did not become quiet. */
static bool wait_for_quiet(struct bench *b)
{
  for (int look = 0; look < QUIET_LOOKS && !interrupt_seen(); look++) {
    struct env e;
    env_look(500, &e);
    if (!(e.busy_elsewhere > quiet_cores)) return true;
    progress_show(&b->s->progress, "waiting for a quiet machine", 0, b->s->runner.total, -1);
    b->elsewhere[0] = e.busy_elsewhere;
  }
  return false;
}

static enum err time_all(struct bench *b)
{
  b->never_quiet = b->n && !wait_for_quiet(b) && !b->s->asked->full;
  if (b->never_quiet) {
    b->n_looks = 1;
    return ERR_OK;
  }
  for (int repeat = 0; repeat < REPEATS && !interrupt_seen(); repeat++) {
    struct env e;
    env_look(250, &e);
    if (isfinite(e.busy_elsewhere)) b->elsewhere[b->n_looks++] = e.busy_elsewhere;
    if (b->n && (repeat == 0 || repeat == REPEATS - 1)) TRY(time_gemm(b, b->list[0].config.threads, repeat ? 1 : 0));
    for (int i = 0; i < b->n && !interrupt_seen(); i++) /* every other repeat backwards: a drift meets all alike */
      TRY(time_one(b, &b->list[repeat % 2 ? b->n - 1 - i : i], repeat));
  }
  return ERR_OK;
}

/* --- what is made of it -------------------------------------------------------------------- */

/* First sample that is not ok; NULL: all are. */
static const struct sample *broken(const struct measured *m)
{
  for (int i = 0; i < m->n_samples; i++)
    if (!m->samples[i].ok) return &m->samples[i];
  return NULL;
}

static void column(const struct measured *m, size_t offset, double scale, double *out)
{
  for (int i = 0; i < m->n_samples; i++) out[i] = *(const double *)((const char *)&m->samples[i] + offset) * scale;
}
#define COLUMN(m, field, scale, out) column(m, offsetof(struct sample, field), scale, out)

static double median_of(const struct measured *m, size_t offset)
{
  double x[REPEATS];
  column(m, offset, 1, x);
  return stats_median(x, m->n_samples);
}
#define MEDIAN(m, field) median_of(m, offsetof(struct sample, field))

/* X(N)/N over X(N0)/N0, repeat by repeat. */
static struct stats_interval ratio(const struct measured *m, double per, const struct measured *base, double base_per)
{
  double x[REPEATS], y[REPEATS];
  COLUMN(m, tokens_per_s, 1 / per, x);
  COLUMN(base, tokens_per_s, 1 / base_per, y);
  return stats_ratio_interval(x, m->n_samples, y, base->n_samples, true, level, 2000, 1);
}

struct point {
  int trial, ranks, base_ranks;
  struct measured *own, *base, *copies, *alone; /* NULL: not timed */
  double want_loss; /* first loss of one rank on the same global batch; NaN: not had */
};

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

static void too_noisy(const struct bench *b, const struct point *q, char *why, size_t bytes)
{
  double x[REPEATS];
  const double others = b->n_looks ? stats_median(b->elsewhere, b->n_looks) : NAN;
  if (others > quiet_cores) {
    snprintf(why, bytes, "the machine is not quiet: others use %.1f of %d cores", others, b->s->world.cores);
    return;
  }
  if (q->own->n_samples < REPEATS || q->base->n_samples < REPEATS) {
    snprintf(why, bytes, "only %d of %d repeats ran", q->own->n_samples, REPEATS);
    return;
  }
  COLUMN(q->own, tokens_per_s, 1, x);
  const struct stats_interval v = stats_median_interval(x, REPEATS, level);
  if ((v.high - v.low) / v.value > widest)
    snprintf(why, bytes, "noise: repeats lie between %.4g and %.4g tokens/s, wider than %.0f %% of the median", v.low, v.high, widest * 100);
}

/* Why the speed of a point is not shown; true: the training is to blame. */
static bool withhold(const struct bench *b, const struct point *q, char *why, size_t bytes)
{
  const struct trial *evidence = &b->s->plan.trials[b->s->plan.trials[q->trial].twin];
  why[0] = '\0';
  if (evidence->state != TRIAL_JUDGED || evidence->outcome != OUTCOME_PASS) {
    snprintf(why, bytes, "its conformance case %s is %s", evidence->name,
             evidence->state == TRIAL_JUDGED ? outcome_name(evidence->outcome) : "not run");
    return false;
  }
  if (q->own == NULL) return false;
  const bool wrong = !b->never_quiet && went_wrong(q, why, bytes);
  if (!*why) too_noisy(b, q, why, bytes);
  return wrong;
}

static void record_speeds(struct record_file *f, const struct bench *b, const struct point *q)
{
  const struct measured *m = q->own;
  double x[REPEATS];
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
  record_real(f, "got.sgemm_FLOP_per_s", b->rate);
  record_real(f, "got.rate_fraction", MEDIAN(m, flops_per_s) / b->rate);
  record_real(f, "got.exposed_fraction", MEDIAN(m, exposed));
  record_real(f, "got.imbalance", MEDIAN(m, balance));
}

static enum err record_point(const struct bench *b, const struct point *q, const char *withheld)
{
  const struct trial *t = &b->s->plan.trials[q->trial], *evidence = &b->s->plan.trials[t->twin];
  struct record_file *f;
  TRY(record_open(b->s->results.records, t->name, -1, &f));
  record_begin(f, "point", -1, -1);
  record_text(f, "got.suite", b->suite->name);
  record_text(f, "got.curve", t->of->name);
  record_text(f, "got.scale", t->of->scale == SCALE_WEAK ? "weak" : "strong");
  record_int(f, "got.ranks", q->ranks);
  record_int(f, "got.base_ranks", q->base_ranks);
  record_int(f, "got.threads", b->s->plan.runs[t->run].config.threads);
  record_int(f, "got.repeats", q->own ? q->own->n_samples : 0);
  record_text(f, "got.evidence", evidence->outcome == OUTCOME_PASS && evidence->state == TRIAL_JUDGED ? evidence->name : "");
  record_bool(f, "got.correctness_only", q->own == NULL);
  record_text(f, "got.withheld", withheld);
  if (q->own && q->own->n_samples && !broken(q->own)) {
    double peak[REPEATS], largest = 0;
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
static enum err settle_point(struct bench *b, const struct point *q)
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
    snprintf(t->sentence, sizeof t->sentence, "correctness only: %d ranks on %d cores; %s passed", q->ranks, b->s->world.cores, evidence->name);
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

/* Points of the suite that still wait, each with what is to be timed for it. */
static int gather(struct bench *b, struct point *points, int max)
{
  const struct plan *p = &b->s->plan;
  int n = 0;
  for (int i = 0; i < p->n_trials && n < max; i++) {
    const struct trial *t = &p->trials[i];
    if (t->part != PART_POINT || t->suite != b->suite || t->state != TRIAL_WAITING) continue;
    points[n++] = (struct point){.trial = i, .ranks = p->runs[t->run].ranks, .want_loss = NAN};
  }
  return n;
}

/* N0 of a point's curve: as asked, else the smallest count of the curve. */
static int base_of(const struct bench *b, const struct point *q)
{
  const struct plan *p = &b->s->plan;
  const struct suite_case *of = p->trials[q->trial].of;
  int best = q->trial;
  for (int i = 0; i < p->n_trials; i++) {
    const struct trial *t = &p->trials[i];
    if (t->part != PART_POINT || t->suite != b->suite || t->of != of) continue;
    const int ranks = p->runs[t->run].ranks, now = p->runs[p->trials[best].run].ranks;
    if (b->s->asked->base ? ranks == b->s->asked->base : ranks < now) best = i;
  }
  return best;
}

static void choose(struct bench *b, struct point *q)
{
  const struct plan *p = &b->s->plan;
  const struct trial *t = &p->trials[q->trial], *evidence = &p->trials[t->twin], *base = &p->trials[base_of(b, q)];
  const struct run_config *c = &p->runs[t->run].config, *c0 = &p->runs[base->run].config;
  q->base_ranks = (int)config_ranks(c0);
  /* No speed without its conformance case: nothing to time. */
  if (t->of->correctness_only || evidence->state != TRIAL_JUDGED || evidence->outcome != OUTCOME_PASS || !on_own_cores(b->s, c) || !on_own_cores(b->s, c0)) return;
  const int own = measure(b, c, 0, t->name, t->of->seconds), at_base = measure(b, c0, 0, base->name, t->of->seconds);
  int copies = -1, alone = -1;
  if (q->ranks > 1) {
    struct run_config one = *c0; /* the curve's own one-rank run, else one rank's share of N0 */
    char label[CONFIG_NAME];
    one.global_batch /= q->base_ranks;
    one.dp = 1;
    snprintf(label, sizeof label, "%.90s-alone", t->of->name);
    alone = measure(b, &one, 0, label, t->of->seconds);
    snprintf(label, sizeof label, "%.90s-copies%d", t->of->name, q->ranks);
    if (!b->s->world.hosts[0]) copies = measure(b, &one, q->ranks, label, t->of->seconds);
  }
  q->own = &b->list[own];
  q->base = &b->list[at_base];
  q->alone = alone >= 0 ? &b->list[alone] : NULL;
  q->copies = copies >= 0 ? &b->list[copies] : NULL;
}

/* One rank, the same global batch, one step: what the point's first loss must be. */
static enum err one_rank_loss(struct bench *b, struct point *q)
{
  struct runner *r = &b->s->runner;
  char name[CONFIG_NAME];
  int run;
  struct sample s;
  struct run_config one = q->own->config;
  one.dp = 1;
  for (int i = 0; i < b->n; i++) /* timed anyhow */
    if (b->list[i].copies == 0 && b->list[i].n_samples && plan_same(&b->list[i].config, &one)) {
      q->want_loss = b->list[i].samples[0].first_loss;
      return ERR_OK;
    }
  one.steps = 1;
  snprintf(name, sizeof name, "%.90s-one-rank", b->s->plan.trials[q->trial].name);
  TRY(plan_add_run(r->plan, name, &one, q->own->seconds, &run));
  TRY(plan_place(r->plan, run));
  const struct runner_timed job = {.runs = &run, .n = 1, .cores_each = (int)one.threads};
  TRY(runner_timed(r, &job, 1));
  struct run *ended = &r->plan->runs[run];
  if (ended->ended) {
    sample_take(&ended->data, &s);
    q->want_loss = s.first_loss;
  }
  json_decref((json_t *)ended->data.records);
  ended->data.records = NULL;
  return ERR_OK;
}

static enum err bench_points(struct bench *b, struct point *points, int n)
{
  TRY(time_all(b));
  for (int i = 0; i < n && !interrupt_seen(); i++)
    if (points[i].own && !b->never_quiet) TRY(one_rank_loss(b, &points[i]));
  for (int i = 0; i < n && !interrupt_seen(); i++) TRY(settle_point(b, &points[i]));
  return ERR_OK;
}

enum err scaling_run(struct session *s, const struct suite *suite)
{
  enum err err = ERR_OK;
  struct bench b = {.s = s, .suite = suite, .rate = NAN};
  const int most = s->plan.n_trials + 1;
  struct point *points = calloc((size_t)most, sizeof *points);
  b.list = calloc(MEASURED_MAX, sizeof *b.list);
  if (points == NULL || b.list == NULL) FAIL_TO(done, ERR_MEMORY, "%d points to time", MEASURED_MAX);
  const int n = gather(&b, points, most);
  for (int i = 0; i < n; i++) choose(&b, &points[i]);
  int total = b.n ? 2 : 0; /* matrix products at both ends */
  for (int i = 0; i < b.n; i++) total += REPEATS * (b.list[i].copies ? b.list[i].copies : 1);
  runner_phase(&s->runner, total, true);
  TRY_TO(done, bench_points(&b, points, n));
done:
  for (int i = 0; b.list && i < b.n; i++)
    if (b.list[i].first_run >= 0) {
      json_decref((json_t *)s->plan.runs[b.list[i].first_run].data.records);
      s->plan.runs[b.list[i].first_run].data.records = NULL;
    }
  free(b.list);
  free(points);
  return err;
}
