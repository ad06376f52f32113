/* section_overlap.c - communication over replicas that compute hides: the figure, its parts, and the bare program's. */
#include "reports/sections.h"

#include <math.h>
#include <string.h>

static const struct column columns[] = {
    {"case", "case", "", NULL},
    {"hosts", "hosts", "", NULL},
    {"bucket", "bucket", "elements", NULL},
    {"hidden", "hidden", "%", "%.1f"},
    {"low", "lowest", "%", "%.1f"},
    {"high", "highest", "%", "%.1f"},
    {"bare_hidden", "bare hides", "%", "%.1f"},
    {"bare_most", "bare at most", "%", "%.1f"},
    {"alone_ms", "alone", "ms", "%.1f"},
    {"coverable_ms", "coverable", "ms", "%.1f"},
    {"exposed_ms", "exposed", "ms", "%.1f"},
    {"traced_ms", "exposed by streams", "ms", "%.1f"},
    {"believed", "these agree", "", NULL},
    {"compute_slowdown", "compute beside / alone", "", "%.2f"},
    {"transfer_slowdown", "transfers beside / alone", "", "%.2f"},
    {"bare_slowdown", "bare both / products", "", "%.2f"},
    {"compute_ms", "compute alone", "ms", "%.1f"},
    {"step_ms", "step", "ms", "%.1f"},
    {"silent_ms", "step without transfers", "ms", "%.1f"},
    {"transfers", "transfers a step", "", NULL},
    {"layout", "layout", "", NULL},
    {"evidence", "evidence", "", NULL},
};

static double real_of(const json_t *record, const char *key) { return record_get_real(record, key, NAN); }
static bool agrees(const json_t *record) { return json_is_true(json_object_get(record, "got.agrees")); }

/* Lowest and highest of the repeats. */
static void range_of(const json_t *record, const char *key, double *low, double *high)
{
  const json_t *value;
  size_t i;
  *low = *high = NAN;
  json_array_foreach(json_object_get(record, key), i, value) {
    *low = fmin(*low, json_number_value(value));
    *high = fmax(*high, json_number_value(value));
  }
}

static json_t *row_of(const json_t *record)
{
  static const char *const same[] = {"layout",     "hosts",      "bucket",    "transfers",        "step_ms",           "silent_ms",     "compute_ms", "alone_ms",
                                     "coverable_ms", "exposed_ms", "traced_ms", "compute_slowdown", "transfer_slowdown", "bare_slowdown", "evidence"};
  json_t *row = json_object();
  double low, high;
  json_object_set(row, "case", json_object_get(record, "case"));
  evidence_copy(record, same, sizeof same / sizeof *same, row);
  range_of(record, "got.hidden_repeats", &low, &high);
  json_object_set_new(row, "hidden", json_real(100 * real_of(record, "got.hidden")));
  json_object_set_new(row, "low", json_real(100 * low));
  json_object_set_new(row, "high", json_real(100 * high));
  json_object_set_new(row, "bare_hidden", json_real(100 * real_of(record, "got.bare_hidden")));
  json_object_set_new(row, "bare_most", json_real(100 * real_of(record, "got.bare_most")));
  json_object_set_new(row, "believed", json_string(agrees(record) ? "yes" : "no"));
  return row;
}

static const char *name_of(const json_t *record) { return evidence_said(record, "case"); }

/* The case whose figure can be believed and hides most; NULL: none. */
static const json_t *best_of(const json_t *records)
{
  const json_t *best = NULL, *record;
  size_t i;
  json_array_foreach(records, i, record)
    if (agrees(record) && (best == NULL || real_of(record, "got.hidden") > real_of(best, "got.hidden"))) best = record;
  return best;
}

/* --- bars: the parts of a step's transfers -------------------------------------------------- */

static enum err draw_parts(struct page *p, const json_t *records)
{
  static const char *const names[] = {"hidden", "exposed", "coverable"};
  enum { HIDDEN, EXPOSED, COVERABLE, PARTS };
  enum err err;
  struct figure *f;
  const json_t *best = best_of(records), *record;
  size_t i;
  TRY(figure_create("overlap", "case (left: transfers alone, hidden and exposed; right and pale: coverable)", "ms of a step", &f));
  figure_y_from(f, 0.0);
  json_array_foreach(records, i, record) figure_x_name(f, name_of(record));
  for (int k = 0; k < PARTS; k++) {
    TRY_TO(done, figure_series(f, FIGURE_BAR, names[k], k == COVERABLE ? 6 : k));
    figure_beside(f, k == COVERABLE, 2, k == COVERABLE);
    json_array_foreach(records, i, record) {
      const double exposed = fmax(0.0, real_of(record, "got.exposed_ms")), alone = real_of(record, "got.alone_ms");
      const double ms = k == HIDDEN ? fmax(0.0, alone - exposed) : k == EXPOSED ? exposed : real_of(record, "got.coverable_ms");
      TRY_TO(done, figure_point(f, (double)i, ms, NAN, NAN));
    }
  }
  if (best)
    figure_title(f, "Compute hides up to %.0f %% of the transfers over replicas (%s), and takes %.2f times as long meanwhile",
                 100 * real_of(best, "got.hidden"), name_of(best), real_of(best, "got.compute_slowdown"));
  else
    figure_title(f, "No figure of hidden transfers can be believed: clock and streams are more than 10 %% apart in every case");
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

/* --- bars: beside the bare program --------------------------------------------------------------- */

static bool has_bare(const json_t *record) { return isfinite(real_of(record, "got.bare_hidden")); }

static enum err draw_beside_bare(struct page *p, const json_t *records)
{
  enum err err = ERR_OK;
  struct figure *f;
  const json_t *record, *best = best_of(records);
  size_t i;
  int n = 0;
  json_array_foreach(records, i, record) n += has_bare(record);
  if (n == 0) return ERR_OK;
  TRY(figure_create("overlap-bare", "case (left: trainer; right and pale: bare program, same products and transfers)", "hidden, % of alone", &f));
  for (int bare = 0; bare < 2; bare++) {
    int at = 0;
    TRY_TO(done, figure_series(f, FIGURE_BAR, bare ? "bare program" : "trainer", bare ? 6 : 0));
    figure_beside(f, bare, 2, bare);
    json_array_foreach(records, i, record) {
      if (!has_bare(record)) continue;
      if (!bare) figure_x_name(f, name_of(record));
      TRY_TO(done, figure_point(f, (double)at++, 100 * real_of(record, bare ? "got.bare_hidden" : "got.hidden"), NAN, NAN));
    }
  }
  if (best && has_bare(best))
    figure_title(f, "Where it hides most (%s) the trainer hides %.0f %%, the bare program %.0f %%", name_of(best), 100 * real_of(best, "got.hidden"),
                 100 * real_of(best, "got.bare_hidden"));
  else
    figure_title(f, "What trainer and bare program hide; no figure of the trainer's can be believed");
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

enum err section_overlap(const struct evidence *e, struct page *p)
{
  enum err err = ERR_OK;
  json_t *records = evidence_select(e, "hidden", NULL), *rows = json_array(), *record;
  size_t i;
  if (json_array_size(records) == 0) goto done;
  page_heading(p, "Overlap: transfers over replicas that compute hides");
  page_text(p, "Alone: all transfers of a step with nothing else running and a barrier before each, from the last rank that was ready "
               "to the last that was done. Exposed: the step less the same step without these transfers, in which buffers hold valid "
               "earlier data; by the streams: waits of the compute stream for transfers and of a step's last sum for other ranks, and "
               "how much longer it was busy. Hidden: 1 - exposed / alone; below 0 where transfers cost the step more than they take "
               "alone. Coverable: the smaller of alone and the compute left once the first bucket is ready. Medians over steps of a "
               "run, then over repeats taken in turn. The bare program makes the same products and the same sums and nothing else; at "
               "most: what it would hide if compute lost only the processor's time that the sums take.");
  TRY_TO(done, draw_parts(p, records));
  TRY_TO(done, draw_beside_bare(p, records));
  json_array_foreach(records, i, record) json_array_append_new(rows, row_of(record));
  const struct table t = {"Hidden and exposed transfers of each case", columns, sizeof columns / sizeof *columns, rows};
  page_table(p, &t, false);
done:
  json_decref(records);
  json_decref(rows);
  return err;
}
