/* figure.h - a figure by gnuplot: SVG for the page, SVG and PNG in plots/.
 *
 * The title states the finding.  Lines, points, bands and stacked bars; bars stand at
 * x = 0, 1, ... with names beneath.  Spans lie in rows y = 0, 1, ... from the top, with names beside; so do the cells of a
 * heat map, the darker the larger, its series' name at the scale.
 */
#ifndef REPORTS_FIGURE_H
#define REPORTS_FIGURE_H
#include "base/err.h"

enum figure_style { FIGURE_LINE, FIGURE_DASHES, FIGURE_POINTS, FIGURE_BAND, FIGURE_BAR, FIGURE_SPAN, FIGURE_HEAT };

struct figure;
/* id: file name, letters, digits, dashes.  Owner of *out: the caller. */
enum err figure_create(const char *id, const char *x_label, const char *y_label, struct figure **out);
void figure_destroy(struct figure *f); /* NULL is allowed */
void figure_title(struct figure *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *figure_id(const struct figure *f);
const char *figure_title_of(const struct figure *f);
void figure_log_y(struct figure *f);
void figure_y_from(struct figure *f, double least);        /* the y axis starts here       */
void figure_x_name(struct figure *f, const char *name);    /* of the next place, 0, 1, ... */

void figure_row_name(struct figure *f, const char *name);  /* of the next row of spans, from 0 */

/* Start a series, then its points.  lo and hi: an interval, or the edges of a band; NaN: none.
 * Bars at one x and one place stack in the order of their series; `beside` moves the series'
 * bars sideways within x (place 1 of 2): measured beside predicted.  Fails: ERR_ARG, ERR_MEMORY. */
enum err figure_series(struct figure *f, enum figure_style style, const char *name, int colour);
void figure_beside(struct figure *f, int place, int places, bool pale);
enum err figure_point(struct figure *f, double x, double y, double lo, double hi);
/* From x = start to end in that row; label ("" for none): at most seven characters, inside. */
enum err figure_span(struct figure *f, int row, double start, double end, const char *label);
/* The same in a series of FIGURE_HEAT. */
enum err figure_cell(struct figure *f, int row, double start, double end, double value);
int figure_points(const struct figure *f); /* in all series */

/* Writes dir/plots/<id>.svg and .png.  *missing: NULL, or why nothing was drawn (a literal: there
 * is no gnuplot).  Fails: ERR_IO (also: gnuplot refused; its words). */
enum err figure_draw(const struct figure *f, const char *dir, const char **missing);

#endif
