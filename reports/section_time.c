/* section_time.c - where each rank's step goes: busy by phase, waiting for transfers. */
#include "reports/sections.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *key, *name;
} phases[] = {{"got.data_ms", "data"},           {"got.forward_ms", "forward"}, {"got.backward_ms", "backward"},
              {"got.optimizer_ms", "optimizer"}, {"got.other_ms", "other"},     {"got.exposed_ms", "waiting for communication"}};
enum { PHASES = sizeof phases / sizeof *phases, BUSY = PHASES - 1 };

static const struct column columns[] = {
  {"case", "case", "", NULL},          {"rank", "rank", "", NULL},
  {"data", "data", "ms", "%.2f"},      {"forward", "forward", "ms", "%.2f"},
  {"backward", "backward", "ms", "%.2f"}, {"optimizer", "optimizer", "ms", "%.2f"},
  {"other", "other", "ms", "%.2f"},    {"waiting for communication", "waiting for communication", "ms", "%.2f"},
  {"busy", "busy", "ms", "%.2f"},      {"step", "step", "ms", "%.2f"},
};

/* Median over the steps of one rank, the first step (warm-up) left out where there are others. */
static double median_of(const json_t *records, int64_t rank, const char *key)
{
  json_t *record;
  size_t i;
  int n = 0;
  double *values = calloc(json_array_size(records) + 1, sizeof *values), first = NAN;
  if (values == NULL) return NAN;
  json_array_foreach(records, i, record) {
    const double x = record_get_real(record, key, NAN);
    if (record_get_int(record, "rank", -1) != rank || !isfinite(x)) continue;
    if (record_get_int(record, "step", -1) == 0) first = x;
    else values[n++] = x;
  }
  const double median = n > 0 ? evidence_median(values, n) : first;
  free(values);
  return median;
}

static int64_t ranks_of(const json_t *records)
{
  int64_t ranks = 0;
  json_t *record;
  size_t i;
  json_array_foreach(records, i, record) {
    const int64_t rank = record_get_int(record, "rank", -1);
    if (rank >= ranks) ranks = rank + 1;
  }
  return ranks;
}

static json_t *row_of(const json_t *records, const char *name, int64_t rank)
{
  json_t *row = json_pack("{s:s, s:I}", "case", name, "rank", (json_int_t)rank);
  double busy = 0.0;
  for (int k = 0; k < PHASES; k++) {
    const double ms = median_of(records, rank, phases[k].key);
    json_object_set_new(row, phases[k].name, isfinite(ms) ? json_real(ms) : json_null());
    if (k < BUSY && isfinite(ms)) busy += ms;
  }
  json_object_set_new(row, "busy", json_real(busy));
  const double step = median_of(records, rank, "got.step_ms");
  json_object_set_new(row, "step", isfinite(step) ? json_real(step) : json_null());
  return row;
}

static enum err draw(struct page *p, const json_t *records, const char *name, json_t *rows)
{
  enum err err;
  struct figure *f;
  char id[160];
  const int64_t ranks = ranks_of(records);
  const size_t before = json_array_size(rows);
  double most = -1.0, least = INFINITY;
  int64_t slow = 0;
  for (int64_t r = 0; r < ranks; r++) {
    json_array_append_new(rows, row_of(records, name, r));
    const double busy = json_real_value(json_object_get(json_array_get(rows, before + (size_t)r), "busy"));
    if (busy > most) {
      most = busy;
      slow = r;
    }
    if (busy < least) least = busy;
  }
  snprintf(id, sizeof id, "time-%.100s", name);
  TRY(figure_create(id, "rank", "median over steps, ms", &f));
  figure_y_from(f, 0.0);
  for (int64_t r = 0; r < ranks; r++) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)r);
    figure_x_name(f, text);
  }
  for (int k = 0; k < PHASES; k++) {
    TRY_TO(done, figure_series(f, FIGURE_BAR, phases[k].name, k == BUSY ? 6 : k == 4 ? 7 : k));
    if (k == BUSY) figure_beside(f, 0, 1, true);
    for (int64_t r = 0; r < ranks; r++)
      TRY_TO(done, figure_point(f, (double)r, json_number_value(json_object_get(json_array_get(rows, before + (size_t)r), phases[k].name)), NAN, NAN));
  }
  if (most > 1.05 * least)
    figure_title(f, "%s: rank %lld is busy %.0f ms a step, %.0f %% longer than the least busy", name, (long long)slow, most, 100.0 * (most / least - 1.0));
  else figure_title(f, "%s: all ranks are busy alike, %.0f ms a step", name, most);
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

/* Time records of a run, or of all repeats "<point>-r1", "<point>-r2", ... of a point. */
static json_t *times_of(const struct evidence *e, const char *name, bool point)
{
  json_t *found = json_array(), *times = evidence_select(e, "time", NULL), *record;
  size_t i;
  const size_t length = strlen(name);
  json_array_foreach(times, i, record) {
    const char *of = record_get_text(record, "case");
    if (of == NULL || strncmp(of, name, length) != 0) continue;
    const char *rest = of + length;
    if (*rest == '\0' || (point && strncmp(rest, "-r", 2) == 0 && strspn(rest + 2, "0123456789") == strlen(rest + 2)))
      json_array_append(found, record);
  }
  json_decref(times);
  return found;
}

static enum err show(const struct evidence *e, struct page *p, const char *name, bool point, json_t *rows, int *shown)
{
  enum err err = ERR_OK;
  json_t *times = times_of(e, name, point);
  if (ranks_of(times) > 1 && *shown < 6) {
    if ((*shown)++ == 0) page_heading(p, "Busy and waiting, by rank and phase");
    err = draw(p, times, name, rows);
  }
  json_decref(times);
  return err;
}

/* Points of a scaling curve, which had cores of their own; and runs in which a rank was slowed on
 * purpose.  Other cases may share cores, and their time says nothing. */
enum err section_time(const struct evidence *e, struct page *p)
{
  enum err err = ERR_OK;
  json_t *points = evidence_select(e, "point", NULL), *runs = evidence_select(e, "run", NULL), *rows = json_array(), *record;
  size_t i;
  int shown = 0;
  json_array_foreach(points, i, record) {
    if (json_is_true(json_object_get(record, "got.correctness_only"))) continue;
    TRY_TO(done, show(e, p, record_get_text(record, "case"), true, rows, &shown));
  }
  json_array_foreach(runs, i, record)
    if (record_get_real(record, "set.slow_percent", 0.0) > 0.0)
      TRY_TO(done, show(e, p, record_get_text(record, "case"), false, rows, &shown));
  if (shown > 0) {
    const struct table t = {"Median over steps", columns, sizeof columns / sizeof *columns, rows};
    page_table(p, &t, true);
  }
done:
  json_decref(points);
  json_decref(runs);
  json_decref(rows);
  return err;
}
