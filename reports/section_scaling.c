/* section_scaling.c - the one table of speed, and efficiency over ranks. */
#include "reports/sections.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct column columns[] = {
  {"curve", "case", "", NULL},
  {"scale", "scaling", "", NULL},
  {"layout", "layout", "", NULL},
  {"ranks", "N", "ranks", NULL},
  {"threads", "threads", "a rank", NULL},
  {"tokens_per_s", "rate", "tokens/s", "%.0f"},
  {"sequences_per_s", "samples", "1/s", "%.2f"},
  {"tokens_per_s_rank", "rate a rank", "tokens/s", "%.0f"},
  {"efficiency_text", "E ± interval", "", NULL},
  {"copies_text", "C(N)", "", NULL},
  {"rate_fraction", "fraction of the measured matrix rate", "", "%.2f"},
  {"mfu", "MFU", "of the dense peak", "%.3f"},
  {"exposed_fraction", "exposed communication", "of the step", "%.3f"},
  {"imbalance", "load balance", "mean/max busy", "%.3f"},
  {"parallel", "useful time", "of the step", "%.3f"},
  {"computation", "computation scaling", "useful time a token, N0's over N's", "%.3f"},
  {"remainder", "remainder", "useful x scaling over N0's useful, over E, - 1", "%.3f"},
  {"peak_GiB", "peak, worst rank", "GiB", "%.3f"},
  {"evidence", "conformance case", "", NULL},
  {"note", "note", "", NULL},
};

static void interval(json_t *row, const json_t *point, const char *key, const char *to)
{
  char name[64], text[96];
  const double at = record_get_real(point, key, NAN);
  snprintf(name, sizeof name, "%s_low", key);
  const double low = record_get_real(point, name, NAN);
  snprintf(name, sizeof name, "%s_high", key);
  const double high = record_get_real(point, name, NAN);
  if (!isfinite(at)) return;
  snprintf(text, sizeof text, isfinite(low) && isfinite(high) ? "%.3f (%.3f to %.3f)" : "%.3f", at, low, high);
  json_object_set_new(row, to, json_string(text));
}

static json_t *row_of(const json_t *point)
{
  static const char *const same[] = {"curve", "scale", "layout", "ranks", "threads", "tokens_per_s", "sequences_per_s", "rate_fraction",
                                     "mfu", "exposed_fraction", "imbalance", "parallel", "computation", "remainder", "evidence"};
  json_t *row = json_object();
  evidence_copy(point, same, sizeof same / sizeof *same, row);
  const double rate = record_get_real(point, "got.tokens_per_s", NAN), ranks = record_get_real(point, "got.ranks", NAN);
  if (isfinite(rate)) json_object_set_new(row, "tokens_per_s_rank", json_real(rate / ranks));
  const double peak = record_get_real(point, "got.peak_bytes", NAN);
  if (isfinite(peak)) json_object_set_new(row, "peak_GiB", json_real(peak / (1024.0 * 1024.0 * 1024.0)));
  interval(row, point, "got.efficiency", "efficiency_text");
  interval(row, point, "got.copies", "copies_text");
  const char *withheld = evidence_said(point, "got.withheld");
  const char *why = evidence_said(point, "got.correctness_reason");
  char only[128] = "";
  if (json_is_true(json_object_get(point, "got.correctness_only")))
    snprintf(only, sizeof only, "correctness only: %s", why[0] ? why : "more ranks than cores");
  json_object_set_new(row, "note", json_string(withheld[0] ? withheld : only));
  return row;
}

static bool of_curve(const json_t *point, const char *curve, const char *scale)
{
  const char *c = evidence_said(point, "got.curve"), *s = evidence_said(point, "got.scale");
  return strcmp(c, curve) == 0 && strcmp(s, scale) == 0;
}

/* One series of E or C over ranks; keeps the last finite value for the title. */
static enum err curve_series(struct figure *f, const json_t *points, const char *curve, const char *scale, const char *key,
                             const char *name, enum figure_style style, int colour, double *last, double *last_ranks)
{
  char low[64], high[64];
  json_t *point;
  size_t i;
  snprintf(low, sizeof low, "%s_low", key);
  snprintf(high, sizeof high, "%s_high", key);
  TRY(figure_series(f, style, name, colour));
  json_array_foreach(points, i, point) {
    const double y = record_get_real(point, key, NAN), ranks = record_get_real(point, "got.ranks", NAN);
    if (!of_curve(point, curve, scale) || !isfinite(y)) continue;
    TRY(figure_point(f, ranks, y, record_get_real(point, low, NAN), record_get_real(point, high, NAN)));
    *last = y;
    *last_ranks = ranks;
  }
  return ERR_OK;
}

static enum err draw_curve(struct page *p, const json_t *points, const json_t *first)
{
  enum err err;
  const char *curve = evidence_said(first, "got.curve"), *scale = evidence_said(first, "got.scale");
  const double base = record_get_real(first, "got.base_ranks", 1);
  double e = NAN, e_ranks = NAN, c = NAN, c_ranks = NAN;
  char id[160], label[96];
  struct figure *f;
  snprintf(id, sizeof id, "efficiency-%.60s-%.20s", curve, scale);
  snprintf(label, sizeof label, "share of the rate at N0 = %.0f", base);
  TRY(figure_create(id, "ranks N", label, &f));
  figure_y_from(f, 0.0);
  TRY_TO(done, curve_series(f, points, curve, scale, "got.efficiency", "E(N), measured", FIGURE_LINE, 0, &e, &e_ranks));
  TRY_TO(done, curve_series(f, points, curve, scale, "got.copies", "C(N), independent copies without communication", FIGURE_LINE, 4, &c, &c_ranks));
  if (isfinite(e)) {
    TRY_TO(done, figure_series(f, FIGURE_DASHES, "ideal", 6));
    TRY_TO(done, figure_point(f, base, 1.0, NAN, NAN));
    TRY_TO(done, figure_point(f, e_ranks, 1.0, NAN, NAN));
    char beside[96] = "";
    if (isfinite(c)) snprintf(beside, sizeof beside, "; copies without communication keep %.0f %%", 100.0 * c);
    figure_title(f, "%s, %s scaling: %.0f ranks keep %.0f %% of the rate a rank has at N0 = %.0f%s", curve, scale, e_ranks, 100.0 * e,
                 base, beside);
    err = page_figure(p, f);
  } else err = ERR_OK;
done:
  figure_destroy(f);
  return err;
}

/* --- layouts of one rank count, beside each other ---------------------------------------- */

static bool is_layout_of(const json_t *point, double ranks)
{
  const char *scale = evidence_said(point, "got.scale");
  return scale && strcmp(scale, "layout") == 0 && record_get_real(point, "got.ranks", 0) == ranks && isfinite(record_get_real(point, "got.tokens_per_s", NAN));
}

static enum err draw_layouts(struct page *p, const json_t *points, double ranks)
{
  enum err err;
  struct figure *f;
  const json_t *best = NULL, *worst = NULL;
  json_t *point;
  size_t i;
  int n = 0;
  char id[64];
  snprintf(id, sizeof id, "layouts-n%.0f", ranks);
  TRY(figure_create(id, "layout", "tokens/s, median over repeats", &f));
  figure_y_from(f, 0.0);
  TRY_TO(done, figure_series(f, FIGURE_BAR, "", 0));
  json_array_foreach(points, i, point) {
    if (!is_layout_of(point, ranks)) continue;
    const char *layout = evidence_said(point, "got.layout");
    const double rate = record_get_real(point, "got.tokens_per_s", NAN);
    figure_x_name(f, layout ? layout : "");
    TRY_TO(done, figure_point(f, n++, rate, NAN, NAN));
    if (best == NULL || rate > record_get_real(best, "got.tokens_per_s", NAN)) best = point;
    if (worst == NULL || rate < record_get_real(worst, "got.tokens_per_s", NAN)) worst = point;
  }
  figure_title(f, "Of %d layouts of %.0f ranks with the same global batch %s is fastest, %.0f tokens/s (E = %.2f); %s keeps %.0f %% of that", n, ranks,
               evidence_said(best, "got.layout"), record_get_real(best, "got.tokens_per_s", NAN), record_get_real(best, "got.efficiency", NAN),
               evidence_said(worst, "got.layout"), 100.0 * record_get_real(worst, "got.tokens_per_s", NAN) / record_get_real(best, "got.tokens_per_s", NAN));
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

static enum err draw_all_layouts(struct page *p, const json_t *points)
{
  json_t *point;
  size_t i;
  json_array_foreach(points, i, point) {
    const double ranks = record_get_real(point, "got.ranks", 0);
    bool first = is_layout_of(point, ranks);
    for (size_t k = 0; k < i; k++) first = first && !is_layout_of(json_array_get(points, k), ranks);
    if (first) TRY(draw_layouts(p, points, ranks));
  }
  return ERR_OK;
}

enum err section_scaling(const struct evidence *e, struct page *p)
{
  enum err err = ERR_OK;
  json_t *points = evidence_select(e, "point", NULL), *rows = json_array(), *point;
  size_t i;
  if (json_array_size(points) == 0) goto done;
  page_heading(p, "Scaling");
  page_text(p, "E(N) = [X(N)/N] / [X(N0)/N0], X = valid tokens of whole steps over wall time. Strong: the global batch is fixed. "
               "Weak: tokens a rank are fixed, so the global batch grows with N and this is no claim about time to quality. "
               "C(N) is the same without communication, so what is lost there is shared memory, cache and power. Intervals are 95 %% "
               "of the median over interleaved repeats.");
  json_array_foreach(points, i, point) json_array_append_new(rows, row_of(point));
  const struct table t = {"Speed, each with the conformance case that passed in this run", columns, sizeof columns / sizeof *columns, rows};
  page_table(p, &t, false);
  json_array_foreach(points, i, point) {
    const char *scale = evidence_said(point, "got.scale");
    bool seen = scale && strcmp(scale, "layout") == 0; /* no curve */
    for (size_t k = 0; k < i; k++)
      seen = seen || of_curve(json_array_get(points, k), evidence_said(point, "got.curve"), evidence_said(point, "got.scale"));
    if (!seen) TRY_TO(done, draw_curve(p, points, point));
  }
  TRY_TO(done, draw_all_layouts(p, points));
done:
  json_decref(points);
  json_decref(rows);
  return err;
}
