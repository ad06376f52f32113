/* section_gradients.c - each parameter's worst gradient error over all cases, beside its bound. */
#include "reports/sections.h"

#include <math.h>
#include <string.h>

static const struct column columns[] = {
  {"precision", "precision", "", NULL}, {"what", "parameter", "", NULL},      {"value", "floored relative error", "", "%.2e"},
  {"bound", "bound", "", "%.2e"},       {"share", "error / bound", "", "%.3f"}, {"case", "worst case", "", NULL},
};

static const char *precision_of(const struct evidence *e, const json_t *judged)
{
  const char *run = record_get_text(judged, "got.run");
  const json_t *first = run ? evidence_first(e, "run", run) : NULL;
  const char *precision = first ? record_get_text(first, "set.precision") : NULL;
  return precision ? precision : "";
}

/* For each parameter the comparison with the largest error / bound, in one precision. */
static json_t *worst_of(const struct evidence *e, const char *precision)
{
  json_t *worst = json_object(), *judged = evidence_select(e, "judged", NULL), *one, *bound;
  size_t i, k;
  json_array_foreach(judged, i, one) {
    const char *name = record_get_text(one, "case"), *kind = record_get_text(one, "got.suite_kind");
    if (name == NULL || kind == NULL || strcmp(kind, "conformance") != 0 || strcmp(precision_of(e, one), precision) != 0) continue;
    json_t *bounds = evidence_select(e, "bound", name);
    json_array_foreach(bounds, k, bound) {
      const char *check = record_get_text(bound, "got.check"), *what = record_get_text(bound, "got.what");
      const double value = record_get_real(bound, "got.value", NAN), limit = record_get_real(bound, "got.bound", NAN);
      if (check == NULL || what == NULL || strcmp(check, "gradients") != 0) continue;
      const json_t *before = json_object_get(worst, what);
      const double share = value / limit;
      if (before && !(share > json_number_value(json_object_get(before, "share")))) continue;
      json_t *row = json_pack("{s:s, s:s, s:s}", "precision", precision, "what", what, "case", name);
      json_object_set_new(row, "value", json_real(value));
      json_object_set_new(row, "bound", json_real(limit));
      json_object_set_new(row, "share", json_real(share));
      json_object_set_new(worst, what, row);
    }
    json_decref(bounds);
  }
  json_decref(judged);
  return worst;
}

static double cell(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

static enum err draw(struct page *p, const json_t *worst, const char *precision)
{
  enum err err;
  struct figure *f;
  const char *what, *nearest = "";
  json_t *row;
  char id[64];
  double most = 0.0, x = 0.0;
  snprintf(id, sizeof id, "gradients-%s", precision);
  TRY(figure_create(id, "parameter, in table order", "floored relative error to the truth", &f));
  figure_log_y(f);
  TRY_TO(done, figure_series(f, FIGURE_POINTS, "worst error over all cases", 0));
  json_object_foreach((json_t *)worst, what, row) {
    TRY_TO(done, figure_point(f, x++, cell(row, "value"), NAN, NAN));
    if (cell(row, "share") > most) {
      most = cell(row, "share");
      nearest = what;
    }
  }
  x = 0.0;
  TRY_TO(done, figure_series(f, FIGURE_DASHES, "its bound", 1));
  json_object_foreach((json_t *)worst, what, row) TRY_TO(done, figure_point(f, x++, cell(row, "bound"), NAN, NAN));
  if (most <= 1.0) figure_title(f, "%s: every parameter's gradient is within its bound; nearest is %s at %.0f %% of it", precision, nearest, 100.0 * most);
  else figure_title(f, "%s: gradients leave their bound; worst is %s at %.3g times it", precision, nearest, most);
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

enum err section_gradients(const struct evidence *e, struct page *p)
{
  static const char *const precisions[] = {"float32", "float64", "tf32", "bf16", "fp16"};
  enum err err = ERR_OK;
  json_t *rows = json_array();
  bool headed = false;
  for (int k = 0; k < (int)(sizeof precisions / sizeof *precisions) && err == ERR_OK; k++) {
    json_t *worst = worst_of(e, precisions[k]), *row;
    const char *what;
    if (json_object_size(worst) > 0) {
      if (!headed) page_heading(p, "Gradients, parameter by parameter");
      headed = true;
      err = draw(p, worst, precisions[k]);
      json_object_foreach(worst, what, row) json_array_append(rows, row);
    }
    json_decref(worst);
  }
  if (headed && err == ERR_OK) {
    const struct table t = {"Worst gradient error of each parameter over all cases", columns, sizeof columns / sizeof *columns, rows};
    page_table(p, &t, true);
  }
  json_decref(rows);
  return err;
}
