/* section_memory.c - memory of the worst rank, measured beside predicted. */
#include "reports/sections.h"

#include <math.h>
#include <string.h>

static const double GiB = 1024.0 * 1024.0 * 1024.0;

static const char *const parts[] = {"parameters", "gradients", "optimizer", "activations", "communication", "other", "unaccounted"};
enum { PARTS = sizeof parts / sizeof *parts, PREDICTED = 5 };

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
  {"other", "other", "GiB", "%.4f"},
  {"unaccounted", "unaccounted", "GiB", "%.4f"},
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
  json_object_set_new(row, "states", json_real(record_get_real(point, "got.published_states_bytes", NAN) / GiB));
  json_object_set_new(row, "layers", json_real(record_get_real(point, "got.published_activations_bytes", NAN) / GiB));
  json_object_set_new(row, "mean", json_real(record_get_real(point, "got.mean_bytes", NAN) / GiB));
  json_object_set_new(row, "spread", json_real(record_get_real(point, "got.largest_over_smallest", NAN)));
  return row;
}

static enum err draw(struct page *p, const json_t *points)
{
  enum err err;
  struct figure *f;
  double worst = 0.0;
  const char *worst_name = "";
  json_t *point;
  size_t i;
  TRY(figure_create("memory", "case (left: measured, right and pale: predicted)", "peak of the worst rank, GiB", &f));
  figure_y_from(f, 0.0);
  json_array_foreach(points, i, point) {
    const char *name = record_get_text(point, "case");
    const double off = fabs(record_get_real(point, "got.peak_bytes", NAN) / record_get_real(point, "got.predicted_bytes", NAN) - 1.0);
    figure_x_name(f, name ? name : "");
    if (off > worst) {
      worst = off;
      worst_name = name ? name : "";
    }
  }
  for (int k = 0; k < PARTS; k++) {
    TRY_TO(done, figure_series(f, FIGURE_BAR, parts[k], k));
    figure_beside(f, 0, 2, false);
    json_array_foreach(points, i, point)
      TRY_TO(done, figure_point(f, (double)i, fmax(0.0, bytes_of(point, "", parts[k])) / GiB, NAN, NAN));
  }
  for (int k = 0; k < PREDICTED; k++) {
    TRY_TO(done, figure_series(f, FIGURE_BAR, "", k));
    figure_beside(f, 1, 2, true);
    json_array_foreach(points, i, point)
      TRY_TO(done, figure_point(f, (double)i, bytes_of(point, "predicted", parts[k]) / GiB, NAN, NAN));
  }
  figure_title(f, "Measured memory is within %.1f %% of the closed formula (farthest: %s)", 100.0 * worst, worst_name);
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

enum err section_memory(const struct evidence *e, struct page *p)
{
  enum err err = ERR_OK;
  json_t *points = evidence_select(e, "memory_point", NULL), *rows = json_array(), *point;
  size_t i;
  if (json_array_size(points) == 0) goto done;
  page_heading(p, "Memory per rank");
  page_text(p, "Measured: the system's high-water mark less its value after MPI and libraries started, on the worst rank; categories at the "
               "instant of the peak. Predicted: a closed function of the configuration that knows neither allocator nor parameter table.");
  TRY_TO(done, draw(p, points));
  json_array_foreach(points, i, point) json_array_append_new(rows, row_of(point));
  const struct table t = {"Peak of the worst rank", columns, sizeof columns / sizeof *columns, rows};
  page_table(p, &t, false);
done:
  json_decref(points);
  json_decref(rows);
  return err;
}
