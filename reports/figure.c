/* figure.c - the parts of a figure. */
#include "reports/figure_parts.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum err figure_create(const char *id, const char *x_label, const char *y_label, struct figure **out)
{
  *out = NULL;
  struct figure *f = calloc(1, sizeof *f);
  if (f == NULL) FAIL(ERR_MEMORY, "figure %s: %zu bytes", id, sizeof *f);
  snprintf(f->id, sizeof f->id, "%s", id);
  for (char *c = f->id; *c; c++) /* a file name, also between a script's quotes */
    if (!isalnum((unsigned char)*c)) *c = '-';
  snprintf(f->x_label, sizeof f->x_label, "%s", x_label);
  snprintf(f->y_label, sizeof f->y_label, "%s", y_label);
  *out = f;
  return ERR_OK;
}

void figure_destroy(struct figure *f)
{
  if (f == NULL) return;
  for (int i = 0; i < f->n_series; i++) free(f->series[i].points);
  free(f);
}

void figure_title(struct figure *f, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  vsnprintf(f->title, sizeof f->title, format, args);
  va_end(args);
}

const char *figure_id(const struct figure *f) { return f->id; }
const char *figure_title_of(const struct figure *f) { return f->title; }
void figure_log_y(struct figure *f) { f->log_y = true; }

void figure_y_from(struct figure *f, double least)
{
  f->has_least = true;
  f->least = least;
}

void figure_x_name(struct figure *f, const char *name)
{
  if (f->n_names < FIGURE_NAMES) snprintf(f->names[f->n_names++], sizeof f->names[0], "%s", name);
}

void figure_row_name(struct figure *f, const char *name)
{
  if (f->n_rows < FIGURE_NAMES) snprintf(f->rows[f->n_rows++], sizeof f->rows[0], "%s", name);
}

enum err figure_series(struct figure *f, enum figure_style style, const char *name, int colour)
{
  if (f->n_series == FIGURE_SERIES) FAIL(ERR_ARG, "figure %s: more than %d series", f->id, FIGURE_SERIES);
  struct figure_series *s = &f->series[f->n_series++];
  *s = (struct figure_series){.style = style, .colour = colour, .places = 1};
  snprintf(s->name, sizeof s->name, "%s", name);
  return ERR_OK;
}

void figure_beside(struct figure *f, int place, int places, bool pale)
{
  BUG_IF(f->n_series == 0 || places < 1 || place < 0 || place >= places);
  struct figure_series *s = &f->series[f->n_series - 1];
  s->place = place;
  s->places = places;
  s->pale = pale;
}

enum err figure_point(struct figure *f, double x, double y, double lo, double hi)
{
  BUG_IF(f->n_series == 0);
  struct figure_series *s = &f->series[f->n_series - 1];
  if (s->n == s->room) {
    const int room = s->room ? 2 * s->room : 16;
    struct figure_point *more = realloc(s->points, (size_t)room * sizeof *more);
    if (more == NULL) FAIL(ERR_MEMORY, "figure %s: %zu bytes", f->id, (size_t)room * sizeof *more);
    s->points = more;
    s->room = room;
  }
  s->points[s->n++] = (struct figure_point){.x = x, .y = y, .lo = lo, .hi = hi};
  return ERR_OK;
}

enum err figure_span(struct figure *f, int row, double start, double end, const char *label)
{
  TRY(figure_point(f, start, row, start, end));
  struct figure_series *s = &f->series[f->n_series - 1];
  snprintf(s->points[s->n - 1].label, sizeof s->points[0].label, "%s", label);
  return ERR_OK;
}

enum err figure_cell(struct figure *f, int row, double start, double end, double value)
{
  return figure_point(f, value, row, start, end);
}

int figure_points(const struct figure *f)
{
  int n = 0;
  for (int i = 0; i < f->n_series; i++) n += f->series[i].n;
  return n;
}
