/* section_imbalance.c - what uneven work costs under each batch policy, and which rank has it. */
#include "reports/sections.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct column columns[] = {
    {"case", "case", "", NULL},
    {"policy", "policy", "", NULL},
    {"lengths", "lengths", "", NULL},
    {"micro_batch", "micro-batch", "sequences", NULL},
    {"accumulation", "a step", "micro-batches a replica", NULL},
    {"lost", "lost to waiting", "% of the step", "%.1f"},
    {"low", "lowest", "%", "%.1f"},
    {"high", "highest", "%", "%.1f"},
    {"predicted", "by lengths", "%", "%.1f"},
    {"balance", "LB", "", "%.3f"},
    {"persistent_ms", "persistent", "ms", "%.2f"},
    {"jitter_ms", "jitter", "ms", "%.2f"},
    {"step_ms", "step", "ms", "%.1f"},
    {"tokens_per_s", "valid tokens", "tokens/s", "%.0f"},
    {"computed_per_s", "computed", "positions/s", "%.0f"},
    {"padding", "padding", "%", "%.1f"},
    {"token_balance", "tokens, mean/most", "", "%.3f"},
    {"worst_rank", "busiest rank", "", NULL},
    {"worst_phase", "in its", "", NULL},
    {"worst_share", "of the steps", "%", "%.0f"},
    {"memory_rank", "most memory: rank", "", NULL},
    {"memory_over_least", "over least", "", "%.2f"},
    {"layout", "layout", "", NULL},
    {"evidence", "evidence", "", NULL},
};
static const struct column cost_columns[] = {
    {"case", "case", "", NULL},
    {"cost_a", "cost_a", "ms", "%.4g"},
    {"cost_b", "cost_b", "ms/token", "%.4g"},
    {"cost_c", "cost_c", "ms/pair", "%.4g"},
    {"cost_residual_ms", "residual", "ms", "%.3g"},
    {"explained", "explained", "%", "%.1f"},
};

static double real_of(const json_t *record, const char *key) { return record_get_real(record, key, NAN); }
static const char *case_of(const json_t *record) { return evidence_said(record, "case"); }
static const char *policy_of(const json_t *record) { return evidence_said(record, "got.policy"); }
static double value_at(const json_t *record, const char *key, size_t i)
{
  const json_t *value = json_array_get(json_object_get(record, key), i);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

static void range_of(const json_t *record, double *low, double *high)
{
  const size_t n = json_array_size(json_object_get(record, "got.lost_repeats"));
  *low = *high = NAN;
  for (size_t i = 0; i < n; i++) {
    *low = fmin(*low, value_at(record, "got.lost_repeats", i));
    *high = fmax(*high, value_at(record, "got.lost_repeats", i));
  }
}

/* The policy's record of a case; NULL: none. */
static const json_t *find(const json_t *records, const char *name, const char *policy)
{
  const json_t *record;
  size_t i;
  json_array_foreach(records, i, record)
    if (strcmp(case_of(record), name) == 0 && strcmp(policy_of(record), policy) == 0) return record;
  return NULL;
}

/* Is it the first of its case? */
static bool begins(const json_t *records, size_t i)
{
  for (size_t k = 0; k < i; k++)
    if (strcmp(case_of(json_array_get(records, k)), case_of(json_array_get(records, i))) == 0) return false;
  return true;
}

static bool has_policies(const json_t *record) { return record_get_int(record, "got.repeats", 1) > 1; }

static void set_percent(json_t *row, const char *name, double share)
{
  json_object_set_new(row, name, isnan(share) ? json_null() : json_real(100 * share));
}

static json_t *row_of(const json_t *record)
{
  static const char *const same[] = {"policy",     "lengths",     "micro_batch",       "accumulation",  "balance",        "persistent_ms",
                                     "jitter_ms",  "step_ms",     "tokens_per_s",      "computed_per_s", "token_balance", "worst_rank",
                                     "worst_phase", "memory_rank", "memory_over_least", "layout",         "evidence"};
  json_t *row = json_object();
  double low, high;
  json_object_set(row, "case", json_object_get(record, "case"));
  evidence_copy(record, same, sizeof same / sizeof *same, row);
  range_of(record, &low, &high);
  set_percent(row, "lost", real_of(record, "got.lost"));
  set_percent(row, "low", low);
  set_percent(row, "high", high);
  set_percent(row, "predicted", real_of(record, "got.predicted_lost"));
  set_percent(row, "padding", real_of(record, "got.padding"));
  set_percent(row, "worst_share", real_of(record, "got.worst_share"));
  return row;
}

static json_t *cost_row_of(const json_t *record)
{
  static const char *const same[] = {"cost_a", "cost_b", "cost_c", "cost_residual_ms"};
  json_t *row = json_object();
  json_object_set(row, "case", json_object_get(record, "case"));
  evidence_copy(record, same, sizeof same / sizeof *same, row);
  set_percent(row, "explained", real_of(record, "got.cost_explained"));
  return row;
}

/* --- policies ------------------------------------------------------------------------------------------------ */

static const struct {
  const char *name;
  int colour;
} policies[] = {{"fixed", 6}, {"padded", 1}, {"bucketed", 4}, {"packed", 2}, {"balanced", 0}};
enum { POLICIES = sizeof policies / sizeof *policies };

/* Where policy k of POLICIES stands beside the others at x. */
static double beside(double x, int k) { return x - 0.4 + 0.8 * (k + 0.5) / POLICIES; }

static enum err add_lost(struct figure *f, const json_t *records, int k, bool predicted)
{
  const json_t *record;
  size_t i;
  int at = -1;
  const char *name = !predicted ? policies[k].name : k == 1 ? "by the lengths and the fitted cost" : "";
  TRY(figure_series(f, FIGURE_POINTS, name, predicted ? 3 : policies[k].colour));
  json_array_foreach(records, i, record) {
    double low, high;
    at += has_policies(record) && begins(records, i);
    if (!has_policies(record) || strcmp(policy_of(record), policies[k].name) != 0) continue;
    range_of(record, &low, &high);
    const double y = 100 * real_of(record, predicted ? "got.predicted_lost" : "got.lost");
    TRY(figure_point(f, beside(at, k) + (predicted ? 0.06 : 0), y, predicted ? NAN : 100 * low, predicted ? NAN : 100 * high));
  }
  return ERR_OK;
}

static enum err draw_lost(struct page *p, const json_t *records)
{
  enum err err = ERR_OK;
  struct figure *f;
  const json_t *record, *first = NULL;
  size_t i;
  TRY(figure_create("imbalance", "case", "waiting for the busiest rank, % of the step", &f));
  figure_y_from(f, 0.0);
  json_array_foreach(records, i, record) {
    if (!has_policies(record) || !begins(records, i)) continue;
    if (first == NULL && record_get_int(record, "got.ranks", 1) > 1) first = record;
    figure_x_name(f, case_of(record));
  }
  if (first == NULL) goto done;
  for (int k = 0; k < POLICIES; k++) TRY_TO(done, add_lost(f, records, k, false));
  for (int k = 0; k < POLICIES; k++) TRY_TO(done, add_lost(f, records, k, true));
  const json_t *padded = find(records, case_of(first), "padded"), *balanced = find(records, case_of(first), "balanced"),
               *packed = find(records, case_of(first), "packed");
  figure_title(f, "%s: padded in order loses %.1f %% of the step to waiting, balanced %.1f %%, packed %.1f %%", case_of(first),
               100 * real_of(padded, "got.lost"), 100 * real_of(balanced, "got.lost"), 100 * real_of(packed, "got.lost"));
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

/* Of each case: computed positions a second, and of these, in front, the tokens that count. */
static enum err draw_throughput(struct page *p, const json_t *records, const char *name)
{
  enum err err;
  struct figure *f;
  char id[96];
  const json_t *best = NULL;
  snprintf(id, sizeof id, "padding-%.60s", name);
  TRY(figure_create(id, "policy (left: valid tokens; right and pale: computed positions, padding included)", "a second", &f));
  figure_y_from(f, 0.0);
  for (int computed = 0; computed < 2; computed++) {
    TRY_TO(done, figure_series(f, FIGURE_BAR, computed ? "computed positions" : "valid tokens", computed ? 6 : 0));
    figure_beside(f, computed, 2, computed);
    for (int k = 0; k < POLICIES; k++) {
      char label[64];
      const json_t *record = find(records, name, policies[k].name);
      if (record == NULL) continue;
      snprintf(label, sizeof label, "%s, %.0f %% padding", policies[k].name, 100 * real_of(record, "got.padding"));
      if (!computed) figure_x_name(f, label);
      TRY_TO(done, figure_point(f, (double)k, real_of(record, computed ? "got.computed_per_s" : "got.tokens_per_s"), NAN, NAN));
      if (best == NULL || real_of(record, "got.tokens_per_s") > real_of(best, "got.tokens_per_s")) best = record;
    }
  }
  const json_t *fixed = find(records, name, "fixed");
  if (best && fixed)
    figure_title(f, "%s: %s trains %.2f times as many tokens a second as fixed, of which %.0f %% is padding", name, policy_of(best),
                 real_of(best, "got.tokens_per_s") / real_of(fixed, "got.tokens_per_s"), 100 * real_of(fixed, "got.padding"));
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

/* --- ranks ------------------------------------------------------------------------------------------------------ */

static enum err draw_heat(struct page *p, const struct evidence *e, const char *name)
{
  enum err err = ERR_OK;
  struct figure *f;
  char id[96];
  json_t *ranks = evidence_select(e, "busy", name), *record;
  size_t i;
  double most = 0;
  const char *worst = "";
  int64_t worst_rank = 0;
  size_t worst_step = 0;
  snprintf(id, sizeof id, "busy-%.60s", name);
  TRY_TO(drop, figure_create(id, "step, after the warm-up", "", &f));
  TRY_TO(done, figure_series(f, FIGURE_HEAT, "busy, ms", 0));
  json_array_foreach(ranks, i, record) {
    char label[64];
    const size_t n = json_array_size(json_object_get(record, "got.busy_ms"));
    snprintf(label, sizeof label, "%s, rank %lld", policy_of(record), (long long)record_get_int(record, "got.of_rank", 0));
    figure_row_name(f, label);
    for (size_t k = 0; k < n; k++) {
      const double ms = value_at(record, "got.busy_ms", k);
      TRY_TO(done, figure_cell(f, (int)i, (double)k, (double)k + 1, ms));
      if (!(ms > most)) continue;
      most = ms;
      worst = policy_of(record);
      worst_rank = record_get_int(record, "got.of_rank", 0);
      worst_step = k;
    }
  }
  figure_title(f, "%s: the longest is rank %lld under %s, busy %.0f ms in measured step %zu", name, (long long)worst_rank, worst, most, worst_step);
  err = page_figure(p, f);
done:
  figure_destroy(f);
drop:
  json_decref(ranks);
  return err;
}

static const struct {
  const char *key, *name;
  int colour;
} phases[] = {{"got.forward_ms", "forward", 0},     {"got.backward_ms", "backward", 1}, {"got.optimizer_ms", "optimizer", 2},
              {"got.other_ms", "other", 7}, {"got.exposed_ms", "waiting for transfers and peers", 6}};
enum { PHASES = sizeof phases / sizeof *phases, WAITING = PHASES - 1 };

static double waits(const json_t *record) { return real_of(record, "got.exposed_ms") / real_of(record, "got.step_ms"); }

static enum err draw_phases(struct page *p, const struct evidence *e, const char *name)
{
  enum err err = ERR_OK;
  struct figure *f;
  char id[96];
  json_t *ranks = evidence_select(e, "busy", name);
  const json_t *record, *worst = NULL;
  size_t i;
  snprintf(id, sizeof id, "phases-%.60s", name);
  TRY_TO(drop, figure_create(id, "policy and rank", "mean over steps, ms", &f));
  figure_y_from(f, 0.0);
  json_array_foreach(ranks, i, record) {
    char label[64];
    snprintf(label, sizeof label, "%s %lld", policy_of(record), (long long)record_get_int(record, "got.of_rank", 0));
    figure_x_name(f, label);
    if (worst == NULL || waits(record) > waits(worst)) worst = record;
  }
  for (int k = 0; k < PHASES; k++) {
    TRY_TO(done, figure_series(f, FIGURE_BAR, phases[k].name, phases[k].colour));
    if (k == WAITING) figure_beside(f, 0, 1, true);
    json_array_foreach(ranks, i, record) TRY_TO(done, figure_point(f, (double)i, real_of(record, phases[k].key), NAN, NAN));
  }
  if (worst)
    figure_title(f, "%s: rank %lld under %s waits longest, %.0f %% of its step", name, (long long)record_get_int(worst, "got.of_rank", 0),
                 policy_of(worst), 100 * waits(worst));
  err = page_figure(p, f);
done:
  figure_destroy(f);
drop:
  json_decref(ranks);
  return err;
}

/* --- lengths ------------------------------------------------------------------------------------------------------ */

/* How many sequences there are of each length, and above it from which to which the bucketed batches reach. */
static enum err draw_lengths(struct page *p, const struct evidence *e, const char *name)
{
  enum err err;
  struct figure *f;
  char id[96];
  const json_t *record = evidence_first(e, "lengths", name);
  const size_t classes = json_array_size(json_object_get(record, "got.from")), steps = json_array_size(json_object_get(record, "got.batch_least"));
  double all = 0, most = 0, last = 0, width = 0;
  if (record == NULL || classes < 2) return ERR_OK;
  for (size_t i = 0; i < classes; i++) {
    all += value_at(record, "got.sequences", i);
    most = fmax(most, value_at(record, "got.sequences", i));
  }
  snprintf(id, sizeof id, "lengths-%.60s", name);
  TRY(figure_create(id, "tokens of a sequence", "", &f));
  TRY_TO(done, figure_series(f, FIGURE_SPAN, "sequences of these lengths, % of all, darker where there are more", 0));
  figure_row_name(f, "all sequences");
  const double each = value_at(record, "got.from", 1) - value_at(record, "got.from", 0);
  for (int pale = 0; pale < 2; pale++) {
    if (pale) TRY_TO(done, figure_series(f, FIGURE_SPAN, "", 0));
    figure_beside(f, 0, 1, pale);
    for (size_t i = 0; i < classes; i++) {
      char label[8];
      const double share = value_at(record, "got.sequences", i) / all, from = value_at(record, "got.from", i);
      last = from + each;
      if ((share * all > 0.5 * most) == pale) continue;
      snprintf(label, sizeof label, "%.0f", 100 * share);
      TRY_TO(done, figure_span(f, 0, from, from + each, label));
    }
  }
  TRY_TO(done, figure_series(f, FIGURE_SPAN, "a bucketed batch, shortest to longest", 4));
  for (size_t k = 0; k < steps; k++) {
    char label[32];
    const double from = value_at(record, "got.batch_least", k), to = value_at(record, "got.batch_most", k);
    snprintf(label, sizeof label, "batch of step %zu", k);
    figure_row_name(f, label);
    const double seen = fmax(to + 1 - from, 0.008 * last); /* a line would not be */
    TRY_TO(done, figure_span(f, (int)k + 1, fmin(from, last - seen), fmin(from, last - seen) + seen, ""));
    width += (to - from + 1) / (double)steps / (last - 1);
  }
  figure_title(f, "%s: a bucketed batch spans %.2g %% of the lengths on the mean", name, 100 * width);
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

/* Of the first cases, each kind of figure: those with policies, and those of a single run. */
static enum err draw_cases(struct page *p, const struct evidence *e, const json_t *records)
{
  enum { SHOWN = 2 };
  int shown[2] = {0, 0};
  const json_t *record;
  size_t i;
  json_array_foreach(records, i, record) {
    const char *name = case_of(record);
    if (!begins(records, i) || shown[has_policies(record)]++ >= SHOWN) continue;
    if (has_policies(record)) TRY(draw_throughput(p, records, name));
    TRY(draw_heat(p, e, name));
    TRY(draw_phases(p, e, name));
    if (has_policies(record)) TRY(draw_lengths(p, e, name));
  }
  return ERR_OK;
}

enum err section_imbalance(const struct evidence *e, struct page *p)
{
  enum err err = ERR_OK;
  json_t *records = evidence_select(e, "imbalance", NULL), *rows = json_array(), *costs = json_array(), *record;
  size_t i;
  if (json_array_size(records) == 0) goto done;
  page_heading(p, "Imbalance: ranks that wait for the one with most to do");
  page_text(p, "Busy times are the compute stream's, waiting excluded. Lost: the busiest rank's time less the mean of all, of the step; median over "
               "steps. Persistent: the part that is the same rank's in every step; jitter: the rest. Each case is made five times under each policy, "
               "in turn; points are medians, bars the range of the repeats. Fixed passes are as wide as the longest sequence there can be, the "
               "others as wide as their micro-batch needs. The cost of a micro-batch is fitted to its lengths, and what that predicts stands "
               "beside. Computed: positions that passes worked on, padding included.");
  TRY_TO(done, draw_lost(p, records));
  TRY_TO(done, draw_cases(p, e, records));
  json_array_foreach(records, i, record) {
    json_array_append_new(rows, row_of(record));
    if (begins(records, i) && json_object_get(record, "got.cost_b")) json_array_append_new(costs, cost_row_of(record));
  }
  const struct table t = {"Each case and policy", columns, sizeof columns / sizeof *columns, rows};
  const struct table of_costs = {"Cost of a micro-batch: a + b tokens + c pairs of tokens of one document, for policy balanced", cost_columns,
                                 sizeof cost_columns / sizeof *cost_columns, costs};
  page_table(p, &t, false);
  if (json_array_size(costs)) page_table(p, &of_costs, false);
done:
  json_decref(records);
  json_decref(rows);
  json_decref(costs);
  return err;
}
