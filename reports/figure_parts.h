/* figure_parts.h - what a figure is made of; shared by figure.c and figure_draw.c only. */
#ifndef REPORTS_FIGURE_PARTS_H
#define REPORTS_FIGURE_PARTS_H
#include "reports/figure.h"

enum { FIGURE_SERIES = 48, FIGURE_NAMES = 64 };

struct figure_point {
  double x, y, lo, hi; /* a span: start, row, start, end; a cell: value, row, start, end */
  char label[8];
};
struct figure_series {
  enum figure_style style;
  char name[96];
  int colour, place, places;
  bool pale;
  int n, room;
  struct figure_point *points;
};
struct figure {
  char id[64], x_label[96], y_label[96], title[256];
  bool log_y, has_least;
  double least;
  int n_series, n_names, n_rows;
  struct figure_series series[FIGURE_SERIES];
  char names[FIGURE_NAMES][64], rows[FIGURE_NAMES][64];
};
#endif
