/* policies.c - figures of each policy's runs, and the cost of lengths that they show together. */
#include "policies.h"

#include "evidence.h"
#include "median.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  enum batch_policy policy;
} kinds[POLICIES_KINDS] = {{"fixed", POLICY_CHUNKED}, {"padded", POLICY_PADDED}, {"bucketed", POLICY_BUCKETED},
                           {"packed", POLICY_PACKED}, {"balanced", POLICY_BALANCED}};

const char *policies_name(enum policies_kind k) { return kinds[k].name; }

/* Equal settings of two repeats are two runs: their roles start with "rerun". */
static void role_of(int repeat, enum policies_kind k, char out[32]) { snprintf(out, 32, "rerun%d-%s", repeat, kinds[k].name); }

static struct run_config settings_of(const struct run_config *c, enum policies_kind k)
{
  struct run_config s = *c;
  memset(s.name, 0, sizeof s.name);
  memset(s.out, 0, sizeof s.out);
  if (k == POLICIES_FIXED) return s;
  s.policy = kinds[k].policy;
  s.narrow = true;
  if (k == POLICIES_PADDED) s.documents_each = 1;
  if (k == POLICIES_BUCKETED && s.tail == TAIL_WRAP) s.tail = TAIL_RESHAPE; /* its batches are of one epoch */
  if (k == POLICIES_BALANCED && s.deal == 0) s.deal = s.dp;
  return s;
}

int policies_companions(const struct run_config *c, struct companion *out, int max)
{
  int n = 0;
  for (int repeat = 0; repeat < POLICIES_REPEATS; repeat++)
    for (int i = 0; i < POLICIES_KINDS; i++) {
      const enum policies_kind k = (enum policies_kind)(repeat % 2 ? POLICIES_KINDS - 1 - i : i);
      if (repeat == 0 && k == POLICIES_FIXED) continue; /* the case's own */
      BUG_IF(n >= max);
      role_of(repeat, k, out[n].role);
      out[n++].config = settings_of(c, k);
    }
  return n;
}

const struct run_data *policies_run(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                                    int repeat, enum policies_kind k)
{
  char role[32];
  if (repeat == 0 && k == POLICIES_FIXED) return run;
  role_of(repeat, k, role);
  return evidence_companion(wanted, companions, n, role);
}

/* --- figures ----------------------------------------------------------------------------------------- */

static void finish(struct policies_figure *f)
{
  double sorted[POLICIES_REPEATS];
  memcpy(sorted, f->each, sizeof sorted);
  f->value = median_sorting(sorted, POLICIES_REPEATS);
  f->low = sorted[0];
  f->high = sorted[POLICIES_REPEATS - 1];
}

static void take(const struct uneven *u, int repeat, struct policies_one *out)
{
  out->rest_ms = repeat == 0 ? u->rest_ms : fmin(out->rest_ms, u->rest_ms);
  out->lost.each[repeat] = u->lost;
  out->balance.each[repeat] = u->balance;
  out->step_ms.each[repeat] = u->step_ms;
  out->busy_ms.each[repeat] = u->mean_ms;
  out->persistent_ms.each[repeat] = u->persistent_ms;
  out->jitter_ms.each[repeat] = u->jitter_ms;
  out->tokens_per_s.each[repeat] = u->tokens_per_s;
  out->computed_per_s.each[repeat] = u->computed_per_s;
  out->padding = u->padding;
  out->token_balance = u->token_balance;
}

static void finish_all(struct policies *p)
{
  for (int k = 0; k < POLICIES_KINDS; k++) {
    struct policies_one *one = &p->of[k];
    for (int r = 0; r < POLICIES_REPEATS; r++) one->excess.each[r] = one->lost.each[r] - p->of[POLICIES_FIXED].lost.each[r];
    struct policies_figure *const figures[] = {&one->lost,          &one->excess,    &one->balance,      &one->step_ms,       &one->busy_ms,
                                               &one->persistent_ms, &one->jitter_ms, &one->tokens_per_s, &one->computed_per_s};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) finish(figures[i]);
    one->predicted = NAN;
  }
}

/* --- the cost of lengths ------------------------------------------------------------------------------- */

enum { MICROS = 8192 };

/* Micro-batches of a policy, one after the other; times are medians over the repeats, in which they are the same. */
struct micros {
  int n;
  struct uneven_micro *list; /* [MICROS] */
};

static enum err take_micros(const struct run_data *const runs[POLICIES_REPEATS], struct uneven_micro *scratch, struct micros *out)
{
  TRY(uneven_micros(runs[0], out->list, MICROS, &out->n));
  double(*ms)[POLICIES_REPEATS] = malloc((size_t)(out->n + 1) * sizeof *ms);
  if (ms == NULL) FAIL(ERR_MEMORY, "times of %d micro-batches", out->n);
  for (int r = 0; r < POLICIES_REPEATS; r++) {
    int n = 0;
    const enum err err = uneven_micros(runs[r], scratch, MICROS, &n);
    const bool same = err == ERR_OK && n == out->n;
    for (int i = 0; same && i < n; i++) ms[i][r] = scratch[i].busy_ms;
    if (same) continue;
    free(ms);
    TRY(err);
    FAIL(ERR_UNAVAILABLE, "repeat %d told of %d micro-batches, the first of %d", r, n, out->n);
  }
  for (int i = 0; i < out->n; i++) out->list[i].busy_ms = median_sorting(ms[i], POLICIES_REPEATS);
  free(ms);
  return ERR_OK;
}

/* All micro-batches that were as wide as they had to be. */
static enum err fit(const struct micros of[POLICIES_KINDS], struct costs *out)
{
  int n = 0;
  double *x = malloc(3 * (size_t)POLICIES_KINDS * MICROS * sizeof *x), *ms = x, *tokens = x + POLICIES_KINDS * MICROS,
         *pairs = x + 2 * POLICIES_KINDS * MICROS;
  if (x == NULL) FAIL(ERR_MEMORY, "costs of micro-batches");
  for (int k = POLICIES_PADDED; k < POLICIES_KINDS; k++)
    for (int i = 0; i < of[k].n; i++, n++) {
      ms[n] = of[k].list[i].busy_ms;
      tokens[n] = of[k].list[i].tokens;
      pairs[n] = of[k].list[i].pairs;
    }
  const enum err err = costs_fit(ms, tokens, pairs, n, out);
  free(x);
  return err;
}

/* What ranks wait for the one whose micro-batches cost most; the rest of a step is as long as it was. */
static double predict_lost(const struct micros *m, const struct costs *c, const struct run_config *run, double rest_ms)
{
  double sum[UNEVEN_RANKS][UNEVEN_STEPS] = {{0}}, lost[UNEVEN_STEPS];
  const int ranks = (int)config_ranks(run);
  int steps = 0;
  for (int i = 0; i < m->n; i++) {
    const int64_t k = m->list[i].step - UNEVEN_WARM;
    if (k >= UNEVEN_STEPS) continue;
    sum[m->list[i].rank][k] += costs_at(c, m->list[i].tokens, m->list[i].pairs);
    if (k >= steps) steps = (int)k + 1;
  }
  for (int k = 0; k < steps; k++) {
    double largest = 0, mean = 0;
    for (int r = 0; r < ranks; r++) {
      largest = fmax(largest, sum[r][k]);
      mean += sum[r][k] / ranks;
    }
    lost[k] = (largest - mean) / (largest + rest_ms);
  }
  return median_sorting(lost, steps);
}

static enum err take_costs(const struct run_data *const runs[POLICIES_KINDS][POLICIES_REPEATS], struct policies *out)
{
  enum err err = ERR_OK;
  struct micros of[POLICIES_KINDS] = {{0}};
  struct uneven_micro *block = malloc((size_t)(POLICIES_KINDS + 1) * MICROS * sizeof *block);
  if (block == NULL) FAIL(ERR_MEMORY, "micro-batches of %d policies", POLICIES_KINDS);
  for (int k = POLICIES_PADDED; k < POLICIES_KINDS; k++) {
    of[k].list = block + (size_t)k * MICROS;
    TRY_TO(free_block, take_micros(runs[k], block + (size_t)POLICIES_KINDS * MICROS, &of[k]));
  }
  TRY_TO(free_block, fit(of, &out->costs));
  out->has_costs = true;
  for (int k = POLICIES_PADDED; k < POLICIES_KINDS; k++)
    out->of[k].predicted = predict_lost(&of[k], &out->costs, &runs[k][0]->config, out->of[k].rest_ms);
free_block:
  free(block);
  return err;
}

enum err policies_measure(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                          struct policies *out)
{
  const struct run_config *c = &run->config;
  const struct run_data *runs[POLICIES_KINDS][POLICIES_REPEATS];
  *out = (struct policies){0};
  if (c->policy != POLICY_CHUNKED || c->narrow) FAIL(ERR_UNAVAILABLE, "the case is not of fixed length: policy chunked, narrow false");
  for (int r = 0; r < POLICIES_REPEATS; r++)
    for (int k = 0; k < POLICIES_KINDS; k++) {
      struct uneven u;
      runs[k][r] = policies_run(run, wanted, companions, n, r, (enum policies_kind)k);
      if (runs[k][r] == NULL || !evidence_ended(runs[k][r])) FAIL(ERR_UNAVAILABLE, "repeat %d of policy %s did not run to its end", r, kinds[k].name);
      TRY(uneven_measure(runs[k][r], &u));
      take(&u, r, &out->of[k]);
    }
  finish_all(out);
  return c->trace_time && c->compute == COMPUTE_REAL ? take_costs(runs, out) : ERR_OK;
}
