/* section_frameworks.c - other frameworks beside our truth: verdicts, planted faults, losses and their distance. */
#include "reports/sections.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 5 }; /* curves in one figure: as many colours as are left beside truth, serial and bound */

static const struct column clean_columns[] = {
  {"framework", "framework", "", NULL}, {"layout", "layout", "", NULL},   {"precision", "precision", "", NULL}, {"level", "level", "", NULL},
  {"verdict", "verdict", "", NULL},     {"value_over_bound", "value over bound", "", "%.2g"}, {"worst", "nearest to its bound", "", NULL},
  {"first", "first divergence", "", NULL}, {"cause", "likely cause", "", NULL}, {"why", "what could not be seen, or why not run", "", NULL},
  {"note", "note", "", NULL},
};
static const struct column planted_columns[] = {
  {"framework", "framework", "", NULL}, {"layout", "layout", "", NULL},   {"precision", "precision", "", NULL}, {"level", "level", "", NULL},
  {"planted", "planted", "", NULL},     {"verdict", "verdict", "", NULL}, {"expected", "is", "", NULL},         {"diagnosed", "taken for", "", NULL},
  {"value_over_bound", "value over bound", "", "%.3g"}, {"first", "first divergence", "", NULL},
  {"why", "what could not be seen, or why not run", "", NULL},
  {"note", "note", "", NULL},
};
enum { COLUMNS_MAX = 12 };

static bool is_planted(const json_t *r) { return evidence_said(r, "got.expected")[0] != '\0'; }
static bool is_run(const json_t *r) { return strcmp(evidence_said(r, "got.outcome"), "SKIPPED") != 0; }

static void put(json_t *row, const char *key, const char *text) { json_object_set_new(row, key, json_string(text)); }

static const char *verdict_of(const json_t *r)
{
  const char *outcome = evidence_said(r, "got.outcome");
  if (!is_run(r)) return "not run";
  if (!is_planted(r)) return outcome;
  if (!json_is_true(json_object_get(r, "got.caught"))) return strcmp(outcome, "INVALID") == 0 ? outcome : "missed";
  return "caught";
}

static json_t *row_of(const json_t *r)
{
  static const char *const texts[] = {"layout", "precision", "worst", "first", "cause", "why", "note", "planted", "diagnosed", "expected"};
  json_t *row = json_object();
  const char *framework = evidence_said(r, "got.framework");
  char key[32];
  put(row, "framework", framework[0] ? framework : evidence_said(r, "got.adapter"));
  put(row, "verdict", verdict_of(r));
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    snprintf(key, sizeof key, "got.%s", texts[i]);
    put(row, texts[i], evidence_said(r, key));
  }
  if (strcmp(evidence_said(r, "got.planted"), "") == 0) put(row, "planted", "(in the version)");
  if (is_run(r) && strcmp(evidence_said(r, "got.diagnosed"), "") == 0) put(row, "diagnosed", "unknown");
  json_t *level = json_object_get(r, "got.level"), *ratio = json_object_get(r, "got.value_over_bound");
  json_object_set_new(row, "level", level && json_integer_value(level) > 0 ? json_incref(level) : json_string("-"));
  if (ratio) json_object_set(row, "value_over_bound", ratio);
  return row;
}

/* A table without the columns in which no row says anything. */
static void table_of(struct page *p, const char *title, const struct column *columns, size_t n, json_t *rows)
{
  struct column said[COLUMNS_MAX];
  int count = 0;
  for (size_t c = 0; c < n; c++) {
    json_t *row;
    size_t i;
    bool any = false;
    json_array_foreach(rows, i, row)
    {
      const json_t *cell = json_object_get(row, columns[c].key);
      any = any || json_is_number(cell) || json_string_length(cell) > 0;
    }
    if (any) said[count++] = columns[c];
  }
  const struct table t = {title, said, count, rows};
  if (json_array_size(rows)) page_table(p, &t, false);
}

/* --- curves of the loss ------------------------------------------------------------------------------- */

static double at(const json_t *r, const char *key, size_t step)
{
  const json_t *value = json_array_get(json_object_get(r, key), step);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

/* How near its loss comes to the bound, at its worst step; NaN: nothing to compare. */
static double nearness(const json_t *r, size_t *step)
{
  double most = NAN;
  for (size_t s = 0; s < json_array_size(json_object_get(r, "got.loss")); s++) {
    const double ratio = at(r, "got.loss_off", s) / at(r, "got.loss_bound", s);
    if (isnan(ratio) || ratio <= most) continue;
    most = ratio;
    *step = s;
  }
  return most;
}

static enum err add(struct figure *f, const json_t *r, const char *key, const char *name, enum figure_style style, int colour)
{
  TRY(figure_series(f, style, name, colour));
  for (size_t s = 0; s < json_array_size(json_object_get(r, key)); s++) TRY(figure_point(f, (double)s, at(r, key, s), NAN, NAN));
  return ERR_OK;
}

/* Clean rows of one precision whose truth is that of `first`, those nearest to the bound first. */
static json_t *group_of(const json_t *all, const json_t *first)
{
  json_t *group = json_array(), *r;
  size_t i, k, step;
  json_array_foreach(all, i, r)
  {
    if (is_planted(r) || !is_run(r) || strcmp(evidence_said(r, "got.precision"), evidence_said(first, "got.precision")) != 0) continue;
    if (!json_equal(json_object_get(r, "got.loss_truth"), json_object_get(first, "got.loss_truth"))) continue;
    const double mine = nearness(r, &step);
    for (k = 0; k < json_array_size(group) && !(mine > nearness(json_array_get(group, k), &step)); k++) continue;
    json_array_insert(group, k, r);
  }
  return group;
}

static void name_of(const json_t *r, char *out, size_t bytes)
{
  const char *framework = evidence_said(r, "got.framework");
  snprintf(out, bytes, "%.60s %.40s", framework[0] ? framework : evidence_said(r, "got.adapter"), evidence_said(r, "got.layout"));
}

static enum err draw_losses(struct page *p, const json_t *group, const char *id)
{
  enum err err;
  struct figure *f = NULL;
  const json_t *first = json_array_get(group, 0);
  const size_t n = json_array_size(json_object_get(first, "got.loss_truth"));
  char full[64];
  snprintf(full, sizeof full, "frameworks-loss-%.32s", id);
  TRY(figure_create(full, "step", "loss, nats a token", &f));
  TRY_TO(done, add(f, first, "got.loss_truth", "truth: float64, one rank", FIGURE_LINE, 6));
  for (size_t k = 0; k < json_array_size(group) && k < SHOWN; k++) {
    char name[128];
    name_of(json_array_get(group, k), name, sizeof name);
    TRY_TO(done, add(f, json_array_get(group, k), "got.loss", name, FIGURE_POINTS, (int[]){2, 3, 4, 5, 7}[k]));
  }
  figure_title(f, "%s: the truth's loss goes from %.3f to %.3f nats in %zu steps; points: frameworks", evidence_said(first, "got.precision"),
               at(first, "got.loss_truth", 0), at(first, "got.loss_truth", n - 1), n);
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

static enum err draw_distances(struct page *p, const json_t *group, const char *id)
{
  enum err err;
  struct figure *f = NULL;
  const json_t *first = json_array_get(group, 0);
  size_t step = 0;
  char full[64], name[128];
  const double most = nearness(first, &step);
  snprintf(full, sizeof full, "frameworks-distance-%.32s", id);
  TRY(figure_create(full, "step", "relative distance of the loss to the truth", &f));
  figure_log_y(f);
  TRY_TO(done, add(f, first, "got.loss_bound", "bound", FIGURE_DASHES, 1));
  TRY_TO(done, add(f, first, "got.loss_serial", "serial: the farthest of eight legal orders of sums", FIGURE_LINE, 0));
  for (size_t k = 0; k < json_array_size(group) && k < SHOWN; k++) {
    name_of(json_array_get(group, k), name, sizeof name);
    TRY_TO(done, add(f, json_array_get(group, k), "got.loss_off", name, FIGURE_LINE, (int[]){2, 3, 4, 5, 7}[k]));
  }
  name_of(first, name, sizeof name);
  const char *precision = evidence_said(first, "got.precision");
  if (isnan(most)) figure_title(f, "%s: no loss of a framework can be compared", precision);
  else if (most <= 0) figure_title(f, "%s: every framework's loss is the truth's in every digit", precision);
  else if (most <= 1)
    figure_title(f, "%s: every loss stays within the bound; nearest: %s at step %zu, %.1f times below it", precision, name, step, 1 / most);
  else figure_title(f, "%s: %s leaves the bound; worst at step %zu, %.1f times above it", precision, name, step, most);
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

static enum err curves(struct page *p, const json_t *all)
{
  enum err err = ERR_OK;
  json_t *r, *seen = json_array(), *k;
  size_t i, j;
  json_array_foreach(all, i, r)
  {
    char id[64];
    bool told = is_planted(r) || !is_run(r) || json_array_size(json_object_get(r, "got.loss_truth")) == 0;
    json_array_foreach(seen, j, k) told = told || (json_equal(json_object_get(k, "got.loss_truth"), json_object_get(r, "got.loss_truth")) &&
                                                    strcmp(evidence_said(k, "got.precision"), evidence_said(r, "got.precision")) == 0);
    if (told || err) continue;
    json_array_append(seen, r);
    json_t *group = group_of(all, r);
    snprintf(id, sizeof id, "%.20s-%zu", evidence_said(r, "got.precision"), json_array_size(seen));
    err = draw_losses(p, group, id);
    if (!err) err = draw_distances(p, group, id);
    if (!err && json_array_size(group) > SHOWN) page_text(p, "Of %zu rows the %d nearest to the bound are drawn.", json_array_size(group), SHOWN);
    json_decref(group);
  }
  json_decref(seen);
  return err;
}

/* --- the section ---------------------------------------------------------------------------------------- */

/* Of each environment once: what it holds. */
static void versions(struct page *p, const json_t *all)
{
  enum { MOST = 16 };
  char lines[MOST][600];
  const char *items[MOST];
  json_t *r;
  size_t i;
  int n = 0;
  json_array_foreach(all, i, r)
  {
    const char *said = evidence_said(r, "got.versions");
    if (*said == '\0' || n == MOST) continue;
    snprintf(lines[n], sizeof lines[n], "%.60s: %.500s", evidence_said(r, "got.environment"), said);
    bool told = false;
    for (int k = 0; k < n; k++) told = told || strcmp(lines[k], lines[n]) == 0;
    if (!told) items[n] = lines[n], n++;
  }
  if (n) page_list(p, items, n);
}

enum err section_frameworks(const struct evidence *e, struct page *p)
{
  enum err err = ERR_OK;
  json_t *all = evidence_select(e, "framework", NULL), *clean = json_array(), *planted = json_array(), *r;
  size_t i;
  int caught = 0, named = 0, tried = 0, held = 0, judged = 0, away = 0;
  json_array_foreach(all, i, r)
  {
    json_array_append_new(is_planted(r) ? planted : clean, row_of(r));
    away += !is_run(r);
    if (!is_run(r)) continue;
    tried += is_planted(r);
    caught += json_is_true(json_object_get(r, "got.caught"));
    named += json_is_true(json_object_get(r, "got.named"));
    judged += !is_planted(r);
    held += !is_planted(r) && strcmp(evidence_said(r, "got.outcome"), "PASS") == 0;
  }
  if (json_array_size(all) > 0) {
    page_heading(p, "Other frameworks beside the truth");
    page_text(p, "%d of %d clean rows held; of %d planted faults %d were caught and %d named by their cause; rows not run: %d. Each trains what "
                 "our float64 run trained, from the same weights and batches, and is held to the bounds that our own layouts are held to. Level 1: "
                 "losses and norms; 2: weights and moments too; 3: gradients, replicas and collectives too.",
              held, judged, tried, caught, named, away);
    versions(p, all);
    table_of(p, "Frameworks by layout and precision", clean_columns, sizeof clean_columns / sizeof *clean_columns, clean);
    table_of(p, "Faults planted in frameworks, and old versions that have them", planted_columns,
             sizeof planted_columns / sizeof *planted_columns, planted);
    err = curves(p, all);
  }
  json_decref(all);
  json_decref(clean);
  json_decref(planted);
  return err;
}
