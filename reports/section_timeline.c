/* section_timeline.c - the longest step of each case that recorded its spans: ranks and their streams in time, by phase. */
#include "reports/sections.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 6, RANKS_SHOWN = 8, STEPS_MAX = 4096, ROWS_MAX = 64 };
enum { WARM_STEPS = 1 }; /* left out where there are more */

static const struct {
  const char *phase, *name;
  int colour;
} kinds[] = {{"data", "data", 4}, {"forward", "forward", 0}, {"backward", "backward", 1}, {"optimizer", "optimizer", 2}, {"", "collectives and messages", 5},
             {"other", "other", 6}};
enum { KINDS = sizeof kinds / sizeof *kinds, TRAVELS = 4, OTHER = 5 };

static double real_at(const json_t *record, const char *key, size_t i) { return json_number_value(json_array_get(json_object_get(record, key), i)); }
static int64_t whole_at(const json_t *record, const char *key, size_t i)
{
  const json_t *value = json_array_get(json_object_get(record, key), i);
  return json_is_integer(value) ? json_integer_value(value) : -1;
}
static const char *text_at(const json_t *record, const char *key, int64_t i)
{
  const char *text = i < 0 ? NULL : json_string_value(json_array_get(json_object_get(record, key), (size_t)i));
  return text ? text : "";
}
static size_t spans_of(const json_t *record) { return json_array_size(json_object_get(record, "got.stream")); }

/* --- which step ------------------------------------------------------------------------- */

/* Of one rank: its wait for data begins the step, its host's last span ends it. */
static bool bounds_of(const json_t *record, double *begin, double *end)
{
  bool found = false;
  for (size_t i = 0; i < spans_of(record); i++) {
    if (whole_at(record, "got.stream", i) != 0) continue;
    if (strcmp(text_at(record, "got.phases", whole_at(record, "got.phase", i)), "data") == 0) {
      *begin = real_at(record, "got.start_ms", i);
      found = true;
    }
    *end = real_at(record, "got.end_ms", i);
  }
  return found;
}

struct step {
  int64_t number;
  double ms, median_ms, begin_ms; /* of it, of all that were looked at; when its first rank began */
};

/* A step takes as long as on its slowest rank. */
static bool longest_step(const json_t *spans, struct step *out)
{
  double ms[STEPS_MAX] = {0}, kept[STEPS_MAX];
  int n = 0;
  bool later = false;
  json_t *record;
  size_t i;
  *out = (struct step){.number = -1};
  json_array_foreach(spans, i, record) {
    double begin, end;
    const int64_t step = record_get_int(record, "step", -1);
    if (step < 0 || step >= STEPS_MAX || !bounds_of(record, &begin, &end)) continue;
    ms[step] = fmax(ms[step], end - begin);
    later = later || step >= WARM_STEPS;
  }
  for (int64_t step = later ? WARM_STEPS : 0; step < STEPS_MAX; step++) {
    if (!(ms[step] > 0)) continue;
    kept[n++] = ms[step];
    if (ms[step] > out->ms) out->number = step, out->ms = ms[step];
  }
  out->median_ms = evidence_median(kept, n);
  return out->number >= 0;
}

/* --- rows ------------------------------------------------------------------------------------ */

/* Each stream of each rank that did something in the step, and that rank's record. */
struct rows {
  const json_t *of_rank[RANKS_SHOWN];
  double drift[RANKS_SHOWN], from_ms[RANKS_SHOWN]; /* what is added to a time t: drift * (t - from) */
  struct {
    int rank;
    int64_t stream;
  } list[ROWS_MAX];
  int n, ranks;
};

static void find_rows(const json_t *spans, int64_t step, struct rows *out)
{
  json_t *record;
  size_t i;
  *out = (struct rows){0};
  json_array_foreach(spans, i, record) {
    const int64_t rank = record_get_int(record, "rank", -1);
    if (record_get_int(record, "step", -1) != step || rank < 0) continue;
    out->ranks = rank >= out->ranks ? (int)rank + 1 : out->ranks;
    if (rank < RANKS_SHOWN) out->of_rank[rank] = record;
  }
  for (int rank = 0; rank < RANKS_SHOWN; rank++) {
    const size_t n = json_array_size(json_object_get(out->of_rank[rank], "got.streams"));
    for (size_t stream = 0; stream < n; stream++) {
      bool used = false;
      for (size_t k = 0; k < spans_of(out->of_rank[rank]) && !used; k++) used = whole_at(out->of_rank[rank], "got.stream", k) == (int64_t)stream;
      if (!used || out->n == ROWS_MAX) continue;
      out->list[out->n].rank = rank;
      out->list[out->n++].stream = (int64_t)stream;
    }
  }
}

static void read_clocks(const struct evidence *e, const char *name, struct rows *rows)
{
  json_t *clocks = evidence_select(e, "clock", name), *record;
  size_t i;
  json_array_foreach(clocks, i, record) {
    const int64_t rank = record_get_int(record, "rank", -1);
    const double from = record_get_real(record, "got.start_ms", NAN), ms = record_get_real(record, "got.end_ms", NAN) - from;
    const double drift = (record_get_real(record, "got.end_offset_ms", NAN) - record_get_real(record, "got.start_offset_ms", NAN)) / ms;
    if (rank < 0 || rank >= RANKS_SHOWN || !(ms > 0) || !isfinite(drift)) continue;
    rows->drift[rank] = drift;
    rows->from_ms[rank] = from;
  }
  json_decref(clocks);
}

static double time_at(const struct rows *rows, int rank, const char *key, size_t i)
{
  const double t = real_at(rows->of_rank[rank], key, i);
  return t + rows->drift[rank] * (t - rows->from_ms[rank]);
}

/* When the first of them began. */
static double first_begin(const struct rows *rows)
{
  double first = INFINITY;
  for (int rank = 0; rank < RANKS_SHOWN; rank++)
    for (size_t i = 0; i < spans_of(rows->of_rank[rank]); i++)
      if (whole_at(rows->of_rank[rank], "got.stream", i) == 0 &&
          strcmp(text_at(rows->of_rank[rank], "got.phases", whole_at(rows->of_rank[rank], "got.phase", i)), "data") == 0)
        first = fmin(first, time_at(rows, rank, "got.start_ms", i));
  return first;
}

/* --- drawing -------------------------------------------------------------------------------- */

static int kind_of(const json_t *record, size_t i)
{
  const char *phase = text_at(record, "got.phases", whole_at(record, "got.phase", i));
  if (whole_at(record, "got.call", i) != -1) return TRAVELS;
  for (int k = 0; k < KINDS; k++)
    if (k != TRAVELS && strcmp(phase, kinds[k].phase) == 0) return k;
  return OTHER;
}

/* Spans of one row and kind; those closer than the eye tells apart are one. */
static enum err add_row(struct figure *f, const struct rows *rows, int row, int kind, const struct step *step)
{
  const int rank = rows->list[row].rank;
  const json_t *record = rows->of_rank[rank];
  const double apart = step->ms / 1500;
  double start = NAN, end = NAN;
  for (size_t i = 0; i < spans_of(record); i++) {
    if (whole_at(record, "got.stream", i) != rows->list[row].stream || kind_of(record, i) != kind) continue;
    const double from = fmax(0, time_at(rows, rank, "got.start_ms", i) - step->begin_ms), to = time_at(rows, rank, "got.end_ms", i) - step->begin_ms;
    if (!(to > from)) continue;
    if (from - end <= apart) {
      end = to;
      continue;
    }
    if (end > start) TRY(figure_span(f, row, start, end, ""));
    start = from;
    end = to;
  }
  if (end > start) TRY(figure_span(f, row, start, end, ""));
  return ERR_OK;
}

static bool has_kind(const struct rows *rows, int kind)
{
  for (int rank = 0; rank < RANKS_SHOWN; rank++)
    for (size_t i = 0; i < spans_of(rows->of_rank[rank]); i++)
      if (kind_of(rows->of_rank[rank], i) == kind && real_at(rows->of_rank[rank], "got.end_ms", i) > real_at(rows->of_rank[rank], "got.start_ms", i)) return true;
  return false;
}

static enum err draw(struct page *p, const char *name, const struct rows *rows, const struct step *step)
{
  enum err err;
  struct figure *f;
  char id[128];
  snprintf(id, sizeof id, "step-%.100s", name);
  for (char *c = id; *c; c++)
    if (strchr("._ ", *c)) *c = '-';
  TRY(figure_create(id, "time since the first rank began the step, ms", "", &f));
  for (int row = 0; row < rows->n; row++) {
    char label[64];
    snprintf(label, sizeof label, "rank %d %.24s", rows->list[row].rank, text_at(rows->of_rank[rows->list[row].rank], "got.streams", rows->list[row].stream));
    figure_row_name(f, label);
  }
  for (int kind = 0; kind < KINDS; kind++) {
    if (!has_kind(rows, kind)) continue;
    TRY_TO(done, figure_series(f, FIGURE_SPAN, kinds[kind].name, kinds[kind].colour));
    for (int row = 0; row < rows->n; row++) TRY_TO(done, add_row(f, rows, row, kind, step));
  }
  figure_title(f, "%s: the longest step, %lld, took %.1f ms, the median %.1f ms%s", name, (long long)step->number, step->ms, step->median_ms,
               rows->ranks > RANKS_SHOWN ? " (the first eight ranks)" : "");
  err = page_figure(p, f);
done:
  figure_destroy(f);
  return err;
}

static enum err show(const struct evidence *e, struct page *p, const char *name, int *shown)
{
  enum err err = ERR_OK;
  struct rows rows;
  struct step step;
  json_t *spans = evidence_select(e, "span", name);
  if (*shown < SHOWN && longest_step(spans, &step)) {
    find_rows(spans, step.number, &rows);
    read_clocks(e, name, &rows);
    step.begin_ms = first_begin(&rows);
    if ((*shown)++ == 0) {
      page_heading(p, "Timeline of the longest step");
      page_text(p, "Each rank's streams, the host's among them; what travels is drawn from when its inputs were there to its end, waiting for the other "
                   "ranks included. All steps, with an arrow from each send to its receive and from the last rank that came to a collective to the "
                   "others: cases/<case>/trace.json, which ui.perfetto.dev and chrome://tracing open.");
    }
    err = draw(p, name, &rows, &step);
  }
  json_decref(spans);
  return err;
}

enum err section_timeline(const struct evidence *e, struct page *p)
{
  int shown = 0;
  json_t *one;
  size_t i;
  json_array_foreach(json_object_get(e->summary, "cases"), i, one) {
    const char *name = json_string_value(json_object_get(one, "name"));
    if (name != NULL && name[0] != '\0') TRY(show(e, p, name, &shown));
  }
  return ERR_OK;
}
