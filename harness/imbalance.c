/* imbalance.c - figures of batch policies, busy times of their ranks, and lengths, as records. */
#include "harness/imbalance.h"
#include "harness/cut.h"

#include "suites/checks/evidence.h"
#include "suites/checks/policies.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *key;
  size_t offset;
} figures[] = {
    {"got.lost", offsetof(struct policies_one, lost)},
    {"got.balance", offsetof(struct policies_one, balance)},
    {"got.step_ms", offsetof(struct policies_one, step_ms)},
    {"got.busy_ms", offsetof(struct policies_one, busy_ms)},
    {"got.persistent_ms", offsetof(struct policies_one, persistent_ms)},
    {"got.jitter_ms", offsetof(struct policies_one, jitter_ms)},
    {"got.tokens_per_s", offsetof(struct policies_one, tokens_per_s)},
    {"got.computed_per_s", offsetof(struct policies_one, computed_per_s)},
};
enum { FIGURES = sizeof figures / sizeof *figures };

static const struct policies_figure *figure_of(const struct policies_one *one, size_t i)
{
  return (const struct policies_figure *)((const char *)one + figures[i].offset);
}

/* A case: its runs, and which trial proves its layout. */
struct shown {
  const struct plan *plan;
  const struct trial *trial, *proof;
  const struct run_config *config;
  const struct run_data *run;
};

static void record_start(struct record_file *f, const struct shown *s, const char *policy)
{
  const struct run_config *c = s->config;
  char text[CONFIG_NAME];
  cut_text(c, text, sizeof text);
  record_begin(f, "imbalance", -1, -1);
  record_text(f, "got.suite", s->trial->suite->name);
  record_text(f, "got.layout", text);
  record_text(f, "got.evidence", s->proof->name);
  record_int(f, "got.ranks", config_ranks(c));
  record_text(f, "got.policy", policy);
  opt_text(opt_find(run_options, run_options_count, "lengths"), c, text, sizeof text);
  record_text(f, "got.lengths", text);
  record_int(f, "got.micro_batch", c->micro_batch);
  record_int(f, "got.accumulation", config_accumulation(c));
}

/* Who has most to do, in what, and how far memory is apart: of one run. */
static void record_uneven(struct record_file *f, const struct run_data *run, const struct uneven *u)
{
  int most;
  const double memory = uneven_memory(run, &most);
  record_int(f, "got.steps", u->steps);
  record_int(f, "got.worst_rank", u->worst);
  record_text(f, "got.worst_phase", uneven_phase_name(u->phase));
  record_real(f, "got.worst_share", u->last);
  record_real(f, "got.padding", u->padding);
  record_real(f, "got.token_balance", u->token_balance);
  if (isnan(memory)) return;
  record_int(f, "got.memory_rank", most);
  record_real(f, "got.memory_over_least", memory);
}

/* --- busy times of a run's ranks --------------------------------------------------------------------------- */

static const char *const phases[] = {"got.forward_ms", "got.backward_ms", "got.optimizer_ms", "got.other_ms"};
enum { PHASES = sizeof phases / sizeof *phases };

static double valid_tokens(const struct run_data *run, int rank, int64_t step)
{
  double sum = 0;
  for (size_t i = 0; i < json_array_size(run->records); i++) {
    const json_t *r = json_array_get(run->records, i);
    if (evidence_is(r, "batch") && evidence_rank(r) == rank && evidence_step(r) == step) sum += evidence_real(r, "got.valid_tokens");
  }
  return sum;
}

static enum err record_rank(struct record_file *f, const struct run_data *run, const char *policy, int rank, int steps)
{
  double busy_ms[UNEVEN_STEPS], tokens[UNEVEN_STEPS], mean[PHASES] = {0}, exposed = 0, step_ms = 0;
  for (int k = 0; k < steps; k++) {
    const json_t *time = evidence_record(run, "time", rank, k + UNEVEN_WARM, -1);
    busy_ms[k] = 0;
    for (int p = 0; p < PHASES; p++) {
      busy_ms[k] += evidence_real(time, phases[p]);
      mean[p] += evidence_real(time, phases[p]) / steps;
    }
    tokens[k] = valid_tokens(run, rank, k + UNEVEN_WARM);
    exposed += evidence_real(time, "got.exposed_ms") / steps;
    step_ms += evidence_real(time, "got.step_ms") / steps;
  }
  record_begin(f, "busy", -1, -1);
  record_text(f, "got.policy", policy);
  record_int(f, "got.of_rank", rank);
  record_reals(f, "got.busy_ms", busy_ms, steps);
  record_reals(f, "got.valid_tokens", tokens, steps);
  for (int p = 0; p < PHASES; p++) record_real(f, phases[p], mean[p]);
  record_real(f, "got.exposed_ms", exposed);
  record_real(f, "got.step_ms", step_ms);
  return record_end(f);
}

static enum err record_ranks(struct record_file *f, const struct run_data *run, const char *policy, const struct uneven *u)
{
  for (int rank = 0; rank < u->ranks; rank++) TRY(record_rank(f, run, policy, rank, u->steps));
  return ERR_OK;
}

/* --- lengths -------------------------------------------------------------------------------------------- */

enum { CLASSES = 16 };

/* With one sequence a micro-batch its tokens are a length.  How many of each length the fixed run had, and from which to which a
 * step of the bucketed one. */
static enum err record_lengths(struct record_file *f, const struct run_data *fixed, const struct run_data *bucketed)
{
  const struct run_config *c = &fixed->config;
  const int64_t each = (c->sequence + CLASSES - 1) / CLASSES;
  int64_t from[CLASSES], count[CLASSES] = {0};
  double least[UNEVEN_STEPS], most[UNEVEN_STEPS];
  const int steps = (int)(c->steps < UNEVEN_STEPS ? c->steps : UNEVEN_STEPS);
  if (c->micro_batch != 1) return ERR_OK;
  for (int i = 0; i < CLASSES; i++) from[i] = i * each + 1;
  for (int k = 0; k < steps; k++) least[k] = INFINITY, most[k] = 0;
  for (size_t i = 0; i < json_array_size(fixed->records); i++) {
    const json_t *r = json_array_get(fixed->records, i);
    const double tokens = evidence_real(r, "got.tokens");
    if (evidence_is(r, "batch") && tokens >= 1 && tokens <= (double)c->sequence) count[((int64_t)tokens - 1) / each]++;
  }
  for (size_t i = 0; i < json_array_size(bucketed->records); i++) {
    const json_t *r = json_array_get(bucketed->records, i);
    const int64_t k = evidence_step(r);
    if (!evidence_is(r, "batch") || k < 0 || k >= steps) continue;
    least[k] = fmin(least[k], evidence_real(r, "got.tokens"));
    most[k] = fmax(most[k], evidence_real(r, "got.tokens"));
  }
  record_begin(f, "lengths", -1, -1);
  record_ints(f, "got.from", from, CLASSES);
  record_ints(f, "got.sequences", count, CLASSES);
  record_reals(f, "got.batch_least", least, steps);
  record_reals(f, "got.batch_most", most, steps);
  return record_end(f);
}

/* --- a case of policies, and one of a single run ------------------------------------------------------------ */

static const struct run_data *run_of(const struct shown *s, int check, enum policies_kind k)
{
  struct companion wanted[JUDGE_COMPANIONS_MAX];
  const struct run_data *have[JUDGE_COMPANIONS_MAX];
  const int n = s->trial->n_companions[check];
  policies_companions(s->config, wanted, JUDGE_COMPANIONS_MAX);
  for (int i = 0; i < n; i++) have[i] = &s->plan->runs[s->trial->companions[check][i]].data;
  return policies_run(s->run, wanted, have, n, 0, k);
}

static bool measured(const struct shown *s, int check, struct policies *out)
{
  struct companion wanted[JUDGE_COMPANIONS_MAX];
  const struct run_data *have[JUDGE_COMPANIONS_MAX];
  policies_companions(s->config, wanted, JUDGE_COMPANIONS_MAX);
  for (int i = 0; i < s->trial->n_companions[check]; i++) {
    const struct run *run = &s->plan->runs[s->trial->companions[check][i]];
    have[i] = run->ended ? &run->data : NULL;
  }
  return policies_measure(s->run, wanted, have, s->trial->n_companions[check], out) == ERR_OK;
}

static enum err record_policy(struct record_file *f, const struct shown *s, const struct policies *p, enum policies_kind k,
                              const struct run_data *run)
{
  const struct policies_one *one = &p->of[k];
  struct uneven u;
  char key[64];
  TRY(uneven_measure(run, &u));
  record_start(f, s, policies_name(k));
  record_int(f, "got.repeats", POLICIES_REPEATS);
  for (size_t i = 0; i < FIGURES; i++) {
    record_real(f, figures[i].key, figure_of(one, i)->value);
    snprintf(key, sizeof key, "%s_repeats", figures[i].key);
    record_reals(f, key, figure_of(one, i)->each, POLICIES_REPEATS);
  }
  record_uneven(f, run, &u);
  if (!isnan(one->predicted)) record_real(f, "got.predicted_lost", one->predicted);
  if (p->has_costs) {
    record_real(f, "got.cost_a", p->costs.a);
    record_real(f, "got.cost_b", p->costs.b);
    record_real(f, "got.cost_c", p->costs.c);
    record_real(f, "got.cost_residual_ms", p->costs.residual_ms);
    record_real(f, "got.cost_explained", p->costs.explained);
  }
  TRY(record_end(f));
  return record_ranks(f, run, policies_name(k), &u);
}

static enum err record_policies(struct record_file *f, const struct shown *s, int check)
{
  struct policies p;
  if (!measured(s, check, &p)) return ERR_OK; /* its check says why */
  for (int k = 0; k < POLICIES_KINDS; k++)
    TRY(record_policy(f, s, &p, (enum policies_kind)k, run_of(s, check, (enum policies_kind)k)));
  return record_lengths(f, run_of(s, check, POLICIES_FIXED), run_of(s, check, POLICIES_BUCKETED));
}

static enum err record_one(struct record_file *f, const struct shown *s)
{
  struct uneven u;
  char policy[CONFIG_NAME];
  if (uneven_measure(s->run, &u) != ERR_OK) return ERR_OK;
  opt_text(opt_find(run_options, run_options_count, "policy"), s->config, policy, sizeof policy);
  record_start(f, s, policy);
  record_int(f, "got.repeats", 1);
  record_real(f, "got.lost", u.lost);
  record_real(f, "got.balance", u.balance);
  record_real(f, "got.step_ms", u.step_ms);
  record_real(f, "got.busy_ms", u.mean_ms);
  record_real(f, "got.persistent_ms", u.persistent_ms);
  record_real(f, "got.jitter_ms", u.jitter_ms);
  record_uneven(f, s->run, &u);
  TRY(record_end(f));
  return record_ranks(f, s->run, policy, &u);
}

static int check_of(const struct trial *t, const char *name)
{
  for (int c = 0; c < t->n_checks; c++)
    if (strcmp(t->checks[c]->name, name) == 0) return c;
  return -1;
}

enum err imbalance_record(const struct plan *p, const struct trial *t, const struct results *r)
{
  enum err err = ERR_OK;
  struct record_file *f;
  if (t->run < 0 || t->part != PART_TIMED || t->state != TRIAL_JUDGED || !p->runs[t->run].ended) return ERR_OK;
  const struct shown s = {p, t, &p->trials[t->twin], &p->runs[t->run].config, &p->runs[t->run].data};
  const int policies = check_of(t, "imbalance"), one = check_of(t, "heaviest");
  TRY(record_open(r->records, t->name, -1, &f));
  if (policies >= 0) err = record_policies(f, &s, policies);
  else if (one >= 0) err = record_one(f, &s);
  record_close(f);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
