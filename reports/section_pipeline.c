/* section_pipeline.c - the idle time of pipelines with its parts, and stages in time, simulated above measured. */
#include "reports/sections.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct column columns[] = {
    {"case", "case", "", NULL},
    {"layout", "layout", "", NULL},
    {"compute", "passes", "", NULL},
    {"microbatches", "m", "", NULL},
    {"window_ms", "window", "ms", "%.1f"},
    {"bubble_ms", "bubble", "ms", "%.2f"},
    {"simulated_bubble_ms", "simulated", "ms", "%.2f"},
    {"off", "measured/simulated", "", "%.3f"},
    {"of_ideal", "bubble of ideal time", "%", "%.1f"},
    {"of_total", "bubble of total time", "%", "%.1f"},
    {"equal_of_ideal", "of ideal, equal times", "%", "%.1f"},
    {"equal_of_total", "of total, equal times", "%", "%.1f"},
    {"schedule", "schedule", "ms", "%.2f"},
    {"imbalance", "imbalance", "ms", "%.2f"},
    {"transfer", "exposed transfer", "ms", "%.2f"},
    {"live", "most live", "micro-batches x chunks", NULL},
    {"transfer_ms", "a transfer", "ms", "%.3f"},
    {"steps", "steps", "", NULL},
};
static const struct column stage_columns[] = {
    {"case", "case", "", NULL},
    {"stage", "stage", "", NULL},
    {"idle", "idle", "ms", "%.2f"},
    {"schedule", "schedule", "ms", "%.2f"},
    {"imbalance", "imbalance", "ms", "%.2f"},
    {"transfer", "exposed transfer", "ms", "%.2f"},
};

static const struct {
  const char *name, *key;
} parts[] = {{"schedule", "got.stage_schedule_ms"},
             {"imbalance", "got.stage_imbalance_ms"},
             {"transfer", "got.stage_transfer_ms"}};
enum { PARTS = 3 };

static double at_stage(const json_t *record, const char *key, size_t stage)
{
  return json_number_value(json_array_get(json_object_get(record, key), stage));
}

static double mean_of(const json_t *record, const char *key)
{
  const size_t n = json_array_size(json_object_get(record, key));
  double sum = 0.0;
  for (size_t i = 0; i < n; i++) sum += at_stage(record, key, i);
  return n ? sum / (double)n : NAN;
}

static double real_of(const json_t *record, const char *key) { return record_get_real(record, key, NAN); }
static double off_of(const json_t *record)
{
  return real_of(record, "got.bubble_ms") / real_of(record, "got.simulated_bubble_ms");
}

static json_t *row_of(const json_t *record)
{
  static const char *const same[] = {"layout",    "compute",     "microbatches",
                                     "window_ms", "bubble_ms",   "simulated_bubble_ms",
                                     "live",      "transfer_ms", "steps"};
  static const char *const shares[] = {"of_ideal", "of_total", "equal_of_ideal", "equal_of_total"};
  json_t *row = json_object();
  char key[64];
  json_object_set(row, "case", json_object_get(record, "case"));
  evidence_copy(record, same, sizeof same / sizeof *same, row);
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
    snprintf(key, sizeof key, "got.%s", shares[i]);
    json_object_set_new(row, shares[i], json_real(100.0 * real_of(record, key)));
  }
  json_object_set_new(row, "off", json_real(off_of(record)));
  for (int k = 0; k < PARTS; k++) json_object_set_new(row, parts[k].name, json_real(mean_of(record, parts[k].key)));
  return row;
}

static void add_stages(json_t *rows, const json_t *record)
{
  const size_t n = json_array_size(json_object_get(record, "got.stage_idle_ms"));
  for (size_t stage = 0; stage < n; stage++) {
    json_t *row = json_pack("{s:i, s:f}", "stage", (int)stage, "idle", at_stage(record, "got.stage_idle_ms", stage));
    json_object_set(row, "case", json_object_get(record, "case"));
    for (int k = 0; k < PARTS; k++)
      json_object_set_new(row, parts[k].name, json_real(at_stage(record, parts[k].key, stage)));
    json_array_append_new(rows, row);
  }
}

/* --- bars: parts of the bubble ------------------------------------------------------------ */

static const char *largest_part(const json_t *records)
{
  static const char *const said[PARTS] = {"the schedule itself", "stage imbalance", "exposed transfers"};
  double sums[PARTS] = {0};
  json_t *record;
  size_t i;
  int best = 0;
  json_array_foreach(records, i, record)
    for (int k = 0; k < PARTS; k++) sums[k] += mean_of(record, parts[k].key);
  for (int k = 1; k < PARTS; k++)
    if (sums[k] > sums[best]) best = k;
  return said[best];
}

static enum err draw_parts(struct page *p, const json_t *records)
{
  static const char *const names[PARTS] = {"schedule", "stage imbalance", "exposed transfer"};
  enum err err;
  struct figure *f;
  double worst = 0.0;
  const char *worst_name = "";
  json_t *record;
  size_t i;
  TRY(figure_create("bubble", "case (left: measured, with its parts; right and pale: its list, simulated)",
                    "idle time of a stage, % of its busy time", &f));
  figure_y_from(f, 0.0);
  json_array_foreach(records, i, record) {
    const char *name = record_get_text(record, "case");
    figure_x_name(f, name ? name : "");
    if (fabs(off_of(record) - 1.0) > worst) {
      worst = fabs(off_of(record) - 1.0);
      worst_name = name ? name : "";
    }
  }
  for (int k = 0; k <= PARTS; k++) {
    TRY_TO(done, figure_series(f, FIGURE_BAR, k < PARTS ? names[k] : "simulated with median times", k < PARTS ? k : 6));
    figure_beside(f, k == PARTS, 2, k == PARTS);
    json_array_foreach(records, i, record) {
      const double busy = real_of(record, "got.window_ms") - real_of(record, "got.bubble_ms");
      const double ms = k < PARTS ? mean_of(record, parts[k].key) : real_of(record, "got.simulated_bubble_ms");
      TRY_TO(done, figure_point(f, (double)i, fmax(0.0, 100.0 * ms / busy), NAN, NAN));
    }
  }
  figure_title(f, "Measured bubbles are within %.1f %% of their lists (farthest: %s); most of the idle time is %s",
               100.0 * worst, worst_name, largest_part(records));
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

/* --- spans: stages in time ------------------------------------------------------------------ */

static const struct {
  const char *pass, *name;
  int colour;
} drawn[] = {
    {"F", "forward", 0}, {"B", "backward", 1}, {"I", "backward for inputs", 1}, {"W", "backward for weights", 2}};
enum { DRAWN = sizeof drawn / sizeof *drawn };

/* Which passes one series shows: of a few chunks those of one, of many those of every other. */
struct shown {
  int kind, chunk, each; /* chunks `chunk`, `chunk + each`, ... */
};
enum { CHUNKS_NAMED = 8 };

/* "F 3 0", or what else stands in a record: then false. */
static bool read_pass(const json_t *text, const struct shown *s, int *microbatch)
{
  char pass[16] = "";
  int chunk;
  const char *said = json_string_value(text);
  if (said == NULL || sscanf(said, "%15s %d %d", pass, microbatch, &chunk) != 3) return false;
  return strcmp(pass, drawn[s->kind].pass) == 0 && chunk >= 0 && chunk % s->each == s->chunk;
}

/* Of each stage one row simulated, one measured below. */
static enum err add_spans(struct figure *f, const json_t *lines, const struct shown *s, double window)
{
  json_t *line, *text;
  size_t i, k;
  json_array_foreach(lines, i, line) {
    const int stage = (int)record_get_int(line, "got.stage", 0);
    json_array_foreach(json_object_get(line, "got.passes"), k, text) {
      char label[8];
      int microbatch;
      if (!read_pass(text, s, &microbatch)) continue;
      for (int measured = 0; measured < 2; measured++) {
        const double start = at_stage(line, measured ? "got.start_ms" : "got.simulated_start_ms", k);
        const double end = at_stage(line, measured ? "got.end_ms" : "got.simulated_end_ms", k);
        snprintf(label, sizeof label, end - start > 0.015 * window ? "%d" : "", microbatch);
        TRY(figure_span(f, 2 * stage + measured, start, end, label));
      }
    }
  }
  return ERR_OK;
}

static bool has_pass(const json_t *lines, const struct shown *s)
{
  json_t *text;
  size_t k;
  int microbatch;
  json_array_foreach(json_object_get(json_array_get(lines, 0), "got.passes"), k, text)
    if (read_pass(text, s, &microbatch)) return true;
  return false;
}

static enum err draw_timeline(struct page *p, const struct evidence *e, const json_t *record)
{
  enum err err = ERR_OK;
  struct figure *f;
  char id[160];
  const char *name = record_get_text(record, "case"), *layout = record_get_text(record, "got.layout");
  json_t *lines = evidence_select(e, "timeline", name);
  const int stages = (int)json_array_size(lines);
  const int64_t chunks = record_get_int(record, "got.chunks", 1);
  const int each = chunks > CHUNKS_NAMED ? 2 : CHUNKS_NAMED;
  const double window = real_of(record, "got.window_ms");
  snprintf(id, sizeof id, "timeline-%.100s", name);
  TRY_TO(drop, figure_create(id, "time since the first pass of the step, ms", "", &f));
  for (int stage = 0; stage < stages; stage++) {
    char text[48];
    snprintf(text, sizeof text, "stage %d, list", stage);
    figure_row_name(f, text);
    figure_row_name(f, "ran");
  }
  for (int kind = 0; kind < DRAWN; kind++)
    for (int chunk = 0; chunk < each; chunk++) {
      char title[64];
      const struct shown s = {kind, chunk, each};
      if (!has_pass(lines, &s)) continue;
      if (chunks > CHUNKS_NAMED)
        snprintf(title, sizeof title, "%s, %s chunks", drawn[kind].name, chunk ? "odd" : "even");
      else if (chunks > 1)
        snprintf(title, sizeof title, "%s, chunk %d", drawn[kind].name, chunk);
      else
        snprintf(title, sizeof title, "%s", drawn[kind].name);
      TRY_TO(done, figure_series(f, FIGURE_SPAN, title, drawn[kind].colour));
      figure_beside(f, 0, 1, chunk % 2 == 1);
      TRY_TO(done, add_spans(f, lines, &s, window));
    }
  figure_title(f, "%s (%s): stages idle %.1f %% of the time, %.1f %% by their list", name,
               layout ? layout : "", 100.0 * real_of(record, "got.of_total"),
               100.0 * real_of(record, "got.simulated_bubble_ms") / real_of(record, "got.simulated_window_ms"));
  err = page_figure(p, f);
done:
  figure_destroy(f);
drop:
  json_decref(lines);
  return err;
}

/* One timeline of each schedule and kind of passes: the first with few stages, or else the first there is. */
static enum err draw_timelines(struct page *p, const struct evidence *e, const json_t *records)
{
  enum { SHOWN = 8, FEW = 4 };
  char shown[SHOWN][64];
  int n = 0;
  const size_t all = json_array_size(records);
  for (size_t i = 0; i < 2 * all; i++) {
    const json_t *record = json_array_get(records, i % all);
    char what[64];
    bool seen = false;
    const char *schedule = record_get_text(record, "got.schedule"), *compute = record_get_text(record, "got.compute");
    if (n == SHOWN || (i < all && record_get_int(record, "got.stages", 0) > FEW) ||
        evidence_first(e, "timeline", record_get_text(record, "case")) == NULL)
      continue;
    snprintf(what, sizeof what, "%.30s %.20s", schedule ? schedule : "", compute ? compute : "");
    for (int k = 0; k < n; k++) seen = seen || strcmp(shown[k], what) == 0;
    if (seen) continue;
    memcpy(shown[n++], what, sizeof what);
    TRY(draw_timeline(p, e, record));
  }
  return ERR_OK;
}

enum err section_pipeline(const struct evidence *e, struct page *p)
{
  enum err err = ERR_OK;
  json_t *records = evidence_select(e, "bubble", NULL), *rows = json_array(), *stages = json_array(), *record;
  size_t i;
  if (json_array_size(records) == 0) goto done;
  page_heading(p, "Pipelines: idle time of stages");
  page_text(p, "A step's window runs from the first pass of any stage to the end of the last; what a stage's own "
               "passes leave of it is idle. "
               "Schedule: the list replayed with equal mean costs. Imbalance: replayed with measured costs, less that. "
               "Exposed transfer: the rest. "
               "Simulated: the list played with the run's median times of passes and transfers. Sleeping passes prove "
               "order and attribution, "
               "never what communication costs a busy core. A bubble is given of ideal time (busy alone) and of total "
               "time (busy and idle).");
  TRY_TO(done, draw_parts(p, records));
  TRY_TO(done, draw_timelines(p, e, records));
  json_array_foreach(records, i, record) {
    json_array_append_new(rows, row_of(record));
    add_stages(stages, record);
  }
  const struct table t = {"Bubble of each case, mean over stages", columns, sizeof columns / sizeof *columns, rows};
  const struct table of_stages = {"Idle time of each stage and its parts, mean over steps", stage_columns,
                                  sizeof stage_columns / sizeof *stage_columns, stages};
  page_table(p, &t, false);
  page_table(p, &of_stages, true);
done:
  json_decref(records);
  json_decref(rows);
  json_decref(stages);
  return err;
}
