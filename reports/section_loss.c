/* section_loss.c - loss of truth, serial and sharded run, and their distance beside the bound. */
#include "reports/sections.h"

#include <math.h>
#include <string.h>

static const struct column columns[] = {
  {"case", "case", "", NULL},          {"step", "step", "", NULL},        {"reference", "reference", "nats", "%.9g"},
  {"serial", "serial", "nats", "%.9g"}, {"sharded", "sharded", "nats", "%.9g"}, {"serial_off", "serial off", "relative", "%.2e"},
  {"off", "sharded off", "relative", "%.2e"}, {"bound", "bound", "relative", "%.2e"},
};

/* Loss at each step of one run, as rank 0 reports it. */
static double loss_at(const json_t *steps, int64_t step)
{
  json_t *record;
  size_t i;
  json_array_foreach(steps, i, record)
    if (record_get_int(record, "step", -1) == step && record_get_int(record, "rank", 0) == 0) return record_get_real(record, "got.loss", NAN);
  return NAN;
}

/* The comparison that a check made of this step's loss: its distance and its bound, both relative. */
static const json_t *comparison_at(const json_t *bounds, int64_t step)
{
  json_t *record;
  size_t i;
  json_array_foreach(bounds, i, record) {
    const char *check = record_get_text(record, "got.check"), *what = record_get_text(record, "got.what");
    if (check && what && (strcmp(check, "loss") == 0 || strcmp(check, "curve") == 0) && strcmp(what, "loss") == 0 &&
        record_get_int(record, "step", -1) == step)
      return record;
  }
  return NULL;
}

static bool is_truth(const json_t *judged)
{
  char name[256];
  return evidence_companion_name(judged, "truth", name, sizeof name) != NULL;
}

/* Losses of the run, of what it is held against (the float64 truth, or the serial run where a truth
 * would take too long) and of one legal serial run that shows the noise. */
static json_t *rows_of(const struct evidence *e, const json_t *judged)
{
  char reference_name[256], serial_name[256];
  json_t *rows = json_array();
  const bool truth = is_truth(judged);
  const char *name = record_get_text(judged, "case"), *run = record_get_text(judged, "got.run");
  const char *reference = evidence_companion_name(judged, truth ? "truth" : "serial", reference_name, sizeof reference_name);
  const char *serial = evidence_companion_name(judged, truth ? "noise0" : "serial0", serial_name, sizeof serial_name);
  if (run == NULL || reference == NULL) return rows;
  json_t *sharded = evidence_select(e, "step", run), *true_steps = evidence_select(e, "step", reference);
  json_t *serial_steps = serial ? evidence_select(e, "step", serial) : json_array(), *bounds = evidence_select(e, "bound", name);
  for (int64_t step = 0;; step++) {
    const double got = loss_at(sharded, step), want = loss_at(true_steps, step), one = loss_at(serial_steps, step);
    const json_t *compared = comparison_at(bounds, step);
    if (!isfinite(got) && !isfinite(want)) break;
    json_t *row = json_pack("{s:s, s:I}", "case", name, "step", (json_int_t)step);
    json_object_set_new(row, "reference", json_real(want));
    json_object_set_new(row, "sharded", json_real(got));
    json_object_set_new(row, "serial", json_real(one));
    json_object_set_new(row, "serial_off", json_real(fabs(one - want) / fabs(want)));
    if (compared) {
      json_object_set_new(row, "off", json_real(record_get_real(compared, "got.value", NAN)));
      json_object_set_new(row, "bound", json_real(record_get_real(compared, "got.bound", NAN)));
    }
    json_array_append_new(rows, row);
  }
  json_decref(sharded);
  json_decref(true_steps);
  json_decref(serial_steps);
  json_decref(bounds);
  return rows;
}

static double cell(const json_t *row, const char *key)
{
  const json_t *value = json_object_get(row, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

static enum err add_series(struct figure *f, const json_t *rows, const char *key, const char *name, enum figure_style style, int colour)
{
  json_t *row;
  size_t i;
  TRY(figure_series(f, style, name, colour));
  json_array_foreach(rows, i, row) TRY(figure_point(f, cell(row, "step"), cell(row, key), NAN, NAN));
  return ERR_OK;
}

static enum err draw(struct page *p, const json_t *rows, const char *name, bool truth)
{
  enum err err;
  struct figure *curves = NULL, *distances = NULL;
  char id[160];
  const size_t n = json_array_size(rows);
  double nearest = INFINITY;
  int64_t nearest_step = -1;
  json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    const double room = cell(row, "bound") / cell(row, "off");
    if (room < nearest) {
      nearest = room;
      nearest_step = (int64_t)cell(row, "step");
    }
  }
  snprintf(id, sizeof id, "loss-%.100s", name);
  TRY(figure_create(id, "step", "loss, nats a token", &curves));
  TRY_TO(done, add_series(curves, rows, "reference", truth ? "truth: float64, one rank" : "serial, one rank", FIGURE_LINE, 6));
  TRY_TO(done, add_series(curves, rows, "serial", truth ? "serial, working precision" : "serial, sums in another legal order", FIGURE_LINE, 0));
  TRY_TO(done, add_series(curves, rows, "sharded", "sharded", FIGURE_DASHES, 1));
  figure_title(curves, "%s: the loss goes from %.3f to %.3f nats in %zu steps", name, cell(json_array_get(rows, 0), "sharded"),
               cell(json_array_get(rows, n - 1), "sharded"), n);
  TRY_TO(done, page_figure(p, curves));
  snprintf(id, sizeof id, "loss-distance-%.100s", name);
  TRY_TO(done, figure_create(id, "step", truth ? "relative distance to the truth" : "relative distance to the serial run", &distances));
  figure_log_y(distances);
  TRY_TO(done, add_series(distances, rows, "bound", "bound", FIGURE_DASHES, 1));
  TRY_TO(done, add_series(distances, rows, "serial_off", "serial", FIGURE_LINE, 0));
  TRY_TO(done, add_series(distances, rows, "off", "sharded", FIGURE_LINE, 2));
  if (nearest_step < 0) figure_title(distances, "%s: the sharded loss is equal in every digit", name);
  else if (nearest >= 1.0)
    figure_title(distances, "%s: the sharded loss stays within the bound; nearest at step %lld, %.1f times below it", name, (long long)nearest_step, nearest);
  else figure_title(distances, "%s: the sharded loss leaves the bound; worst at step %lld, %.1f times above it", name, (long long)nearest_step, 1.0 / nearest);
  err = page_figure(p, distances);
done:
  figure_destroy(curves);
  figure_destroy(distances);
  return err;
}

static double setting_of(const struct evidence *e, const json_t *judged, const char *key)
{
  const char *run = record_get_text(judged, "got.run");
  const json_t *first = run ? evidence_first(e, "run", run) : NULL;
  return first ? record_get_real(first, key, 0.0) : 0.0;
}

/* Of the cases not yet shown the one whose curve says most: the most steps, then the most replicas. */
static json_t *next_case(const struct evidence *e, const json_t *judged, const json_t *shown)
{
  json_t *record, *best = NULL;
  size_t i, k;
  json_array_foreach(judged, i, record) {
    const char *kind = record_get_text(record, "got.suite_kind"), *suite = record_get_text(record, "got.suite");
    bool taken = kind == NULL || suite == NULL || strcmp(kind, "conformance") != 0 || setting_of(e, record, "set.dp") < 2;
    for (k = 0; k < json_array_size(shown); k++) /* one case a suite */
      taken = taken || strcmp(suite, evidence_said(json_array_get(shown, k), "got.suite")) == 0;
    if (taken) continue;
    const double steps = setting_of(e, record, "set.steps"), most = best ? setting_of(e, best, "set.steps") : -1.0;
    if (steps > most || (steps == most && setting_of(e, record, "set.dp") > setting_of(e, best, "set.dp"))) best = record;
  }
  return best;
}

enum err section_loss(const struct evidence *e, struct page *p)
{
  enum err err = ERR_OK;
  json_t *judged = evidence_select(e, "judged", NULL), *shown = json_array(), *all = json_array(), *record;
  while (err == ERR_OK && (record = next_case(e, judged, shown)) != NULL) {
    json_t *rows = rows_of(e, record);
    json_array_append(shown, record);
    if (json_array_size(rows) > 0) {
      if (json_array_size(all) == 0) {
        page_heading(p, "Loss: sharded beside the truth");
        page_text(p, "The truth is a float64 run on one rank from the same weights, rounded to the working precision; over hundreds of steps "
                     "the serial run stands for it. The bound is the larger of a derived floor and four times the largest distance that "
                     "legal serial runs, with their sums in other orders, show.");
      }
      json_array_extend(all, rows);
      err = draw(p, rows, record_get_text(record, "case"), is_truth(record));
    }
    json_decref(rows);
  }
  if (json_array_size(all) > 0 && err == ERR_OK) {
    const struct table t = {"Loss by step", columns, sizeof columns / sizeof *columns, all};
    page_table(p, &t, true);
  }
  json_decref(judged);
  json_decref(shown);
  json_decref(all);
  return err;
}
