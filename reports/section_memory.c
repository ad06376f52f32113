/* section_memory.c - memory of the worst rank, measured beside predicted. */
#include "reports/sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double GiB = 1024.0 * 1024.0 * 1024.0;

static const char *const parts[] = {"parameters", "gradients", "optimizer", "activations", "communication", "host", "other", "unaccounted"};
enum { PARTS = sizeof parts / sizeof *parts, PREDICTED = 6 };

static const struct column columns[] = {
  {"case", "case", "", NULL},
  {"ranks", "ranks", "", NULL},
  {"measured", "measured", "GiB", "%.4f"},
  {"predicted", "predicted", "GiB", "%.4f"},
  {"off", "measured / predicted", "", "%.3f"},
  {"parameters", "parameters", "GiB", "%.4f"},
  {"gradients", "gradients", "GiB", "%.4f"},
  {"optimizer", "optimizer", "GiB", "%.4f"},
  {"activations", "activations", "GiB", "%.4f"},
  {"communication", "communication", "GiB", "%.4f"},
  {"host", "host", "GiB", "%.4f"},
  {"other", "other", "GiB", "%.4f"},
  {"unaccounted", "unaccounted", "GiB", "%.4f"},
  {"others", "left out: other ranks' of MPI's segments", "GiB", "%.4f"},
  {"states", "ZeRO's states", "GiB", "%.4f"},
  {"layers", "Korthikanti's activations", "GiB", "%.4f"},
  {"mean", "time-weighted mean", "GiB", "%.4f"},
  {"spread", "largest / smallest rank", "", "%.3f"},
};

static double bytes_of(const json_t *point, const char *format, const char *part)
{
  char key[96];
  snprintf(key, sizeof key, strcmp(format, "predicted") == 0 ? "got.predicted_%s_bytes" : "got.%s_bytes", part);
  return record_get_real(point, key, NAN);
}

static json_t *row_of(const json_t *point)
{
  const char *name = record_get_text(point, "case");
  const double measured = record_get_real(point, "got.peak_bytes", NAN), predicted = record_get_real(point, "got.predicted_bytes", NAN);
  json_t *row = json_pack("{s:s, s:I}", "case", name ? name : "", "ranks", (json_int_t)record_get_int(point, "got.ranks", 0));
  json_object_set_new(row, "measured", json_real(measured / GiB));
  json_object_set_new(row, "predicted", json_real(predicted / GiB));
  json_object_set_new(row, "off", json_real(measured / predicted));
  for (int k = 0; k < PARTS; k++) json_object_set_new(row, parts[k], json_real(bytes_of(point, "", parts[k]) / GiB));
  json_object_set_new(row, "others", json_real(bytes_of(point, "", "others") / GiB));
  json_object_set_new(row, "states", json_real(record_get_real(point, "got.published_states_bytes", NAN) / GiB));
  json_object_set_new(row, "layers", json_real(record_get_real(point, "got.published_activations_bytes", NAN) / GiB));
  json_object_set_new(row, "mean", json_real(record_get_real(point, "got.mean_bytes", NAN) / GiB));
  json_object_set_new(row, "spread", json_real(record_get_real(point, "got.largest_over_smallest", NAN)));
  return row;
}

/* --- figures ------------------------------------------------------------------------------- */

static double off(const json_t *point)
{
  return fabs(record_get_real(point, "got.peak_bytes", NAN) / record_get_real(point, "got.predicted_bytes", NAN) - 1.0);
}

static const char *name_of(const json_t *point)
{
  const char *name = record_get_text(point, "case");
  return name ? name : "";
}

/* Stacks of these points, measured beside predicted, and which is farthest from its formula. */
static enum err add_stacks(struct figure *f, const json_t *const *points, int n, int *farthest)
{
  *farthest = 0;
  figure_y_from(f, 0.0);
  for (int i = 0; i < n; i++) {
    figure_x_name(f, name_of(points[i]));
    if (off(points[i]) > off(points[*farthest])) *farthest = i;
  }
  for (int k = 0; k < PARTS; k++) {
    TRY(figure_series(f, FIGURE_BAR, parts[k], k));
    figure_beside(f, 0, 2, false);
    for (int i = 0; i < n; i++) TRY(figure_point(f, (double)i, fmax(0.0, bytes_of(points[i], "", parts[k])) / GiB, NAN, NAN));
  }
  for (int k = 0; k < PREDICTED; k++) { /* older records have no host */
    TRY(figure_series(f, FIGURE_BAR, "", k));
    figure_beside(f, 1, 2, true);
    for (int i = 0; i < n; i++) TRY(figure_point(f, (double)i, fmax(0.0, bytes_of(points[i], "predicted", parts[k])) / GiB, NAN, NAN));
  }
  return ERR_OK;
}

static void title_formula(struct figure *f, const json_t *farthest)
{
  figure_title(f, "Measured memory is within %.1f %% of the closed formula (farthest: %s)", 100.0 * off(farthest), name_of(farthest));
}

static const char x_label[] = "case (left: measured, right and pale: predicted)", y_label[] = "peak of the worst rank, GiB";

static enum err draw_some(struct page *p, const json_t *const *points, int n, int number)
{
  enum err err;
  struct figure *f;
  int farthest;
  char id[32];
  snprintf(id, sizeof id, number ? "memory-%d" : "memory", number + 1);
  TRY(figure_create(id, x_label, y_label, &f));
  TRY_TO(done, add_stacks(f, points, n, &farthest));
  title_formula(f, points[farthest]);
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

/* --- by stage of ZeRO and layout -------------------------------------------------------------- */

static int compare_int(const json_t *a, const json_t *b, const char *key)
{
  const int64_t x = record_get_int(a, key, 0), y = record_get_int(b, key, 0);
  return (x > y) - (x < y);
}

static int compare_text(const json_t *a, const json_t *b, const char *key)
{
  const char *x = record_get_text(a, key), *y = record_get_text(b, key);
  return strcmp(x ? x : "", y ? y : "");
}

/* Of one layout, type and number of parameters, offloaded or not, which only the stage tells apart. */
static int compare_layout(const json_t *a, const json_t *b)
{
  static const char *const keys[] = {"got.tp", "got.pp", "got.dp", "got.rank_parameters"};
  int order = compare_text(a, b, "got.precision");
  for (size_t i = 0; i < sizeof keys / sizeof *keys && order == 0; i++) order = compare_int(a, b, keys[i]);
  return order ? order : compare_text(a, b, "got.offload");
}

static int by_layout_and_stage(const void *a, const void *b)
{
  const json_t *x = *(const json_t *const *)a, *y = *(const json_t *const *)b;
  const int layout = compare_layout(x, y), stage = compare_int(x, y, "got.zero");
  return layout ? layout : stage ? stage : strcmp(name_of(x), name_of(y));
}

/* Its layout is there with another stage. */
static bool is_staged(const json_t *points, const json_t *point)
{
  const json_t *other;
  size_t i;
  json_array_foreach(points, i, other)
    if (compare_int(point, other, "got.zero") != 0 && compare_layout(point, other) == 0) return true;
  return false;
}

static double measured(const json_t *const *points, int n, const json_t *like, int64_t stage)
{
  for (int i = 0; i < n; i++)
    if (record_get_int(points[i], "got.zero", 0) == stage && compare_layout(points[i], like) == 0)
      return record_get_real(points[i], "got.peak_bytes", NAN);
  return NAN;
}

/* Of the layout with the most replicas: what is left by stage. */
static void title_stages(struct figure *f, const json_t *const *points, int n, int farthest)
{
  char left[160] = "";
  size_t used = 0;
  const json_t *most = points[0];
  for (int i = 1; i < n; i++)
    if (compare_int(points[i], most, "got.dp") > 0) most = points[i];
  const double plain = measured(points, n, most, 0);
  for (int64_t stage = 1; stage <= 3; stage++) {
    const double share = measured(points, n, most, stage) / plain;
    if (isfinite(share) && used < sizeof left)
      used += (size_t)snprintf(left + used, sizeof left - used, "%s %.0f %% (ZeRO-%lld)", used ? "," : "", 100.0 * share, (long long)stage);
  }
  if (used)
    figure_title(f, "At dp %lld:%s of plain memory a rank; within %.1f %% of the formula (farthest: %s)",
                 (long long)record_get_int(most, "got.dp", 0), left, 100.0 * off(points[farthest]), name_of(points[farthest]));
  else
    title_formula(f, points[farthest]);
}

static enum err draw_stages(struct page *p, const json_t **points, int n)
{
  enum err err;
  struct figure *f;
  int farthest;
  qsort(points, (size_t)n, sizeof *points, by_layout_and_stage);
  TRY(figure_create("memory-stages", x_label, y_label, &f));
  TRY_TO(done, add_stacks(f, points, n, &farthest));
  title_stages(f, points, n, farthest);
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

/* Stages of ZeRO in one figure, the other cases in as many as can be read. */
static enum err draw(struct page *p, const json_t *points)
{
  enum { READABLE = 18, STAGES = 32 };
  const json_t *staged[STAGES], *others[READABLE], *point;
  int n_staged = 0, n = 0, number = 0;
  size_t i;
  json_array_foreach(points, i, point)
    if (is_staged(points, point) && n_staged < STAGES) staged[n_staged++] = point;
  if (n_staged > 0) TRY(draw_stages(p, staged, n_staged));
  json_array_foreach(points, i, point) {
    if (is_staged(points, point)) continue;
    others[n++] = point;
    if (n < READABLE) continue;
    TRY(draw_some(p, others, n, number++));
    n = 0;
  }
  return n > 0 ? draw_some(p, others, n, number) : ERR_OK;
}

enum err section_memory(const struct evidence *e, struct page *p)
{
  enum err err = ERR_OK;
  json_t *points = evidence_select(e, "memory_point", NULL), *rows = json_array(), *point;
  size_t i;
  if (json_array_size(points) == 0) goto done;
  page_heading(p, "Memory per rank");
  page_text(p, "Measured: the system's high-water mark less its value after MPI and libraries started, on the worst rank; categories at the "
               "instant of the peak. Of segments that several ranks map, which MPI makes, the system counts all in each; here a rank has its part, "
               "each page divided by those that map it, and what that takes off is a column of the table. Predicted: a closed function of the configuration that knows neither allocator nor parameter table. Beside them two "
               "papers' formulas in this run's element sizes: ZeRO's states hold no padding and no buffers, Korthikanti's activations also dropout masks "
               "and attention scores, which are not stored here, and nothing outside the layers.");
  TRY_TO(done, draw(p, points));
  json_array_foreach(points, i, point) json_array_append_new(rows, row_of(point));
  const struct table t = {"Peak of the worst rank", columns, sizeof columns / sizeof *columns, rows};
  page_table(p, &t, false);
done:
  json_decref(points);
  json_decref(rows);
  return err;
}
