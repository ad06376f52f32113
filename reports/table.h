/* table.h - one column table gives Markdown, CSV and HTML alike.
 *
 * Rows are JSON objects; a cell that is missing, null or not finite prints as "n/a".
 */
#ifndef REPORTS_TABLE_H
#define REPORTS_TABLE_H
#include <jansson.h>
#include <stdio.h>

struct column {
  const char *key, *header, *unit; /* unit "" if the header says it                 */
  const char *format;              /* of a number: "%.3g"; NULL: text, whole number */
};
struct table {
  const char *title;
  const struct column *columns;
  int n_columns;
  json_t *rows; /* array of objects; the caller's */
};

void table_markdown(const struct table *t, FILE *out);
void table_csv(const struct table *t, FILE *out);  /* numbers with %.17g; RFC 4180 quotes */
void table_html(const struct table *t, FILE *out); /* scrolls sideways on a narrow screen */
/* One cell as people read it, into out. */
void table_cell(const struct column *c, const json_t *row, char *out, size_t bytes);
/* Text with &, <, >, " as entities and without what XML does not allow. */
void table_escape(const char *text, FILE *out);

#endif
