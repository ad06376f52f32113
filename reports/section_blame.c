/* section_blame.c - who is waited for, out of which phase, at what cost; where each rank's time goes; efficiency in factors. */
#include "reports/sections.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct column columns[] = {
  {"case", "case", "", NULL},
  {"layout", "layout", "", NULL},
  {"compute", "passes", "", NULL},
  {"step_ms", "step", "ms", "%.1f"},
  {"blamed", "to blame", "", NULL},
  {"planted", "planted", "", NULL},
  {"cost", "cost", "% of the step", "%.1f"},
  {"cost_ms", "cost", "ms", "%.2f"},
  {"low", "from", "ms", "%.2f"},
  {"high", "to", "ms", "%.2f"},
  {"planted_ms", "planted", "ms", "%.2f"},
  {"charge", "charged", "ms", "%.2f"},
  {"waits", "of all waits", "%", "%.0f"},
  {"period", "every", "steps", NULL},
  {"sentence", "in a sentence", "", NULL},
};
static const struct column factor_columns[] = {
  {"case", "case", "", NULL},
  {"slowdown", "slowdown", "", "%.3f"},
  {"lost_ms", "lost", "ms", "%.2f"},
  {"charged_ms", "charged", "ms", "%.2f"},
  {"load_balance", "load balance", "", "%.3f"},
  {"serialisation", "serialisation", "", "%.3f"},
  {"transfer", "exposed transfer", "", "%.3f"},
  {"efficiency", "useful time of the step", "", "%.3f"},
  {"remainder", "product less that", "%", "%.2f"},
  {"unexplained", "in no work, no transfer", "%", "%.1f"},
};
static const struct column rank_columns[] = {
  {"case", "case", "", NULL},       {"rank", "rank", "", NULL},          {"step", "step", "ms", "%.1f"},
  {"data", "data", "ms", "%.2f"},   {"forward", "forward", "ms", "%.2f"}, {"backward", "backward", "ms", "%.2f"},
  {"optimizer", "optimizer", "ms", "%.2f"}, {"other", "other", "ms", "%.2f"}, {"transfer", "transfer", "ms", "%.2f"},
  {"waiting", "waiting", "ms", "%.2f"},     {"bubble", "bubble", "ms", "%.2f"}, {"between", "between steps", "ms", "%.2f"},
};
enum { PARTS = 9 };
static const char *const parts[PARTS] = {"forward", "backward", "optimizer", "other", "transfer", "waiting", "bubble", "data", "between"};

static double real_of(const json_t *record, const char *key) { return record_get_real(record, key, NAN); }
static double at(const json_t *record, const char *key, size_t i)
{
  const json_t *x = json_array_get(json_object_get(record, key), i);
  return json_is_number(x) ? json_number_value(x) : NAN;
}
static double part_ms(const json_t *record, const char *part, size_t rank)
{
  char key[64];
  snprintf(key, sizeof key, "got.rank_%s_ms", part);
  return at(record, key, rank);
}
static size_t ranks_of(const json_t *record) { return json_array_size(json_object_get(record, "got.rank_step_ms")); }

/* Place of the blamed rank's phase among the costs, else of the dearest. */
static size_t shown_cost(const json_t *record)
{
  const json_t *ranks = json_object_get(record, "got.cost_rank");
  for (size_t i = 0; i < json_array_size(ranks); i++) {
    const char *phase = json_string_value(json_array_get(json_object_get(record, "got.cost_phase"), i));
    if (json_integer_value(json_array_get(ranks, i)) == record_get_int(record, "got.blamed_rank", -1) && phase &&
        strcmp(phase, evidence_said(record, "got.blamed_phase")) == 0)
      return i;
  }
  return 0;
}

static json_t *who(const json_t *record, const char *rank_key, const char *phase_key)
{
  const int64_t rank = record_get_int(record, rank_key, -1);
  return rank < 0 ? json_string("nobody") : json_sprintf("rank %lld, %s", (long long)rank, evidence_said(record, phase_key));
}

static json_t *row_of(const json_t *record)
{
  static const char *const same[] = {"layout", "compute", "step_ms", "sentence"};
  const size_t i = shown_cost(record);
  json_t *row = json_object();
  json_object_set(row, "case", json_object_get(record, "case"));
  evidence_copy(record, same, sizeof same / sizeof *same, row);
  json_object_set_new(row, "blamed", who(record, "got.blamed_rank", "got.blamed_phase"));
  json_object_set_new(row, "planted", who(record, "got.planted_rank", "got.planted_phase"));
  json_object_set_new(row, "cost", json_real(100 * at(record, "got.cost_ms", i) / real_of(record, "got.step_ms")));
  json_object_set_new(row, "cost_ms", json_real(at(record, "got.cost_ms", i)));
  json_object_set_new(row, "low", json_real(at(record, "got.cost_low_ms", i)));
  json_object_set_new(row, "high", json_real(at(record, "got.cost_high_ms", i)));
  json_object_set_new(row, "planted_ms", json_real(real_of(record, "got.planted_ms")));
  json_object_set_new(row, "charge", json_real(at(record, "got.charge_ms", i)));
  json_object_set_new(row, "waits", json_real(100 * at(record, "got.waits", i)));
  json_object_set_new(row, "period", json_integer((json_int_t)at(record, "got.cost_period", i)));
  return row;
}

static json_t *factors_of(const json_t *record)
{
  static const char *const same[] = {"slowdown", "lost_ms", "charged_ms", "load_balance", "serialisation", "transfer", "efficiency"};
  json_t *row = json_object();
  json_object_set(row, "case", json_object_get(record, "case"));
  evidence_copy(record, same, sizeof same / sizeof *same, row);
  json_object_set_new(row, "remainder", json_real(100 * real_of(record, "got.remainder")));
  json_object_set_new(row, "unexplained", json_real(100 * real_of(record, "got.unexplained")));
  return row;
}

static void add_ranks(json_t *rows, const json_t *record)
{
  for (size_t r = 0; r < ranks_of(record); r++) {
    json_t *row = json_pack("{s:i, s:f}", "rank", (int)r, "step", at(record, "got.rank_step_ms", r));
    json_object_set(row, "case", json_object_get(record, "case"));
    for (int k = 0; k < PARTS; k++) json_object_set_new(row, parts[k], json_real(part_ms(record, parts[k], r)));
    json_array_append_new(rows, row);
  }
}

/* --- where the time of each rank goes --------------------------------------------------------------- */

static enum err draw(struct page *p, const json_t *record)
{
  static const char *const names[PARTS] = {"forward", "backward", "optimizer", "other", "transfer", "waiting for a peer", "bubble", "data", "between steps"};
  enum err err;
  struct figure *f;
  char id[160], name[32];
  snprintf(id, sizeof id, "blame-%.100s", evidence_said(record, "case"));
  TRY(figure_create(id, "rank", "time of a step, ms", &f));
  figure_y_from(f, 0);
  for (size_t r = 0; r < ranks_of(record); r++) {
    snprintf(name, sizeof name, "%zu", r);
    figure_x_name(f, name);
  }
  for (int k = 0; k < PARTS; k++) {
    TRY_TO(done, figure_series(f, FIGURE_BAR, names[k], k < PARTS - 1 ? k : k - 1));
    figure_beside(f, 0, 1, k == PARTS - 1); /* eight colours: the last part is a pale one */
    for (size_t r = 0; r < ranks_of(record); r++) TRY_TO(done, figure_point(f, (double)r, part_ms(record, parts[k], r), NAN, NAN));
  }
  figure_title(f, "%s: %s", evidence_said(record, "case"), evidence_said(record, "got.sentence"));
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

/* The case with the most ranks in which somebody is to blame. */
static const json_t *to_draw(const json_t *records)
{
  const json_t *best = NULL;
  json_t *record;
  size_t i;
  json_array_foreach(records, i, record)
    if (record_get_int(record, "got.blamed_rank", -1) >= 0 && (best == NULL || ranks_of(record) > ranks_of(best))) best = record;
  return best ? best : json_array_get(records, 0);
}

enum err section_blame(const struct evidence *e, struct page *p)
{
  enum err err = ERR_OK;
  json_t *records = evidence_select(e, "blame", NULL), *rows = json_array(), *factors = json_array(), *ranks = json_array(), *record;
  size_t i;
  if (json_array_size(records) == 0) goto done;
  page_heading(p, "Blame: who is waited for, out of which phase, at what cost");
  page_text(p, "A step goes from the end of the one before to its last rank's end. Its graph (what each stream did, what that waited for, who took "
               "part in which collective) is played again with a rank's phase as its peers have it: what the step is shorter then is the cost; its "
               "interval is over steps. Charged: its part of all the time lost, by the path that decides the step, followed back through whoever was "
               "last. Of all waits: the share of all ranks' waiting that was followed back to it. Waiting is for a peer that had not entered, "
               "transfer begins when all had; a bubble is what a pipeline waits as well with nothing longer than its peers'.");
  TRY_TO(done, draw(p, to_draw(records)));
  json_array_foreach(records, i, record) {
    json_array_append_new(rows, row_of(record));
    json_array_append_new(factors, factors_of(record));
    add_ranks(ranks, record);
  }
  const struct table t = {"Who is to blame in each case", columns, sizeof columns / sizeof *columns, rows};
  const struct table of_factors = {"Efficiency in factors: load balance x serialisation x exposed transfer", factor_columns,
                                   sizeof factor_columns / sizeof *factor_columns, factors};
  const struct table of_ranks = {"Where the time of each rank goes, mean over steps", rank_columns, sizeof rank_columns / sizeof *rank_columns, ranks};
  page_table(p, &t, false);
  page_table(p, &of_factors, true);
  page_table(p, &of_ranks, true);
done:
  json_decref(records);
  json_decref(rows);
  json_decref(factors);
  json_decref(ranks);
  return err;
}
