/* table.c - a column table printed in every form that people and programs read. */
#include "reports/table.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

void table_cell(const struct column *c, const json_t *row, char *out, size_t bytes)
{
  const json_t *value = json_object_get(row, c->key);
  const double x = json_is_number(value) ? json_number_value(value) : NAN;
  if (json_is_string(value)) snprintf(out, bytes, "%s", json_string_value(value));
  else if (json_is_boolean(value)) snprintf(out, bytes, "%s", json_is_true(value) ? "yes" : "no");
  else if (!isfinite(x)) snprintf(out, bytes, "n/a");
  else if (c->format == NULL) snprintf(out, bytes, "%.0f", x);
  else {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(out, bytes, c->format, x);
#pragma GCC diagnostic pop
  }
}

void table_escape(const char *text, FILE *out)
{
  for (; *text; text++) switch (*text) {
    case '&': fputs("&amp;", out); break;
    case '<': fputs("&lt;", out); break;
    case '>': fputs("&gt;", out); break;
    case '"': fputs("&quot;", out); break;
    default:
      if ((unsigned char)*text >= 0x20 || *text == '\n' || *text == '\t') fputc(*text, out);
    }
}

static void header_of(const struct column *c, char *out, size_t bytes)
{
  snprintf(out, bytes, "%s%s%s", c->header, c->unit[0] ? ", " : "", c->unit);
}

void table_markdown(const struct table *t, FILE *out)
{
  char text[1024];
  fprintf(out, "### %s\n\n|", t->title);
  for (int c = 0; c < t->n_columns; c++) {
    header_of(&t->columns[c], text, sizeof text);
    fprintf(out, " %s |", text);
  }
  fputs("\n|", out);
  for (int c = 0; c < t->n_columns; c++) fputs(t->columns[c].format ? "---:|" : "---|", out);
  fputc('\n', out);
  for (size_t r = 0; r < json_array_size(t->rows); r++) {
    fputc('|', out);
    for (int c = 0; c < t->n_columns; c++) {
      table_cell(&t->columns[c], json_array_get(t->rows, r), text, sizeof text);
      fputc(' ', out);
      for (const char *at = text; *at; at++) { /* a bar or a line break would end the cell */
        if (*at == '|') fputc('\\', out);
        fputc(*at == '\n' ? ' ' : *at, out);
      }
      fputs(" |", out);
    }
    fputc('\n', out);
  }
  fputc('\n', out);
}

static void csv_text(const char *text, FILE *out)
{
  const bool quotes = strpbrk(text, ",\"\r\n") != NULL;
  if (quotes) fputc('"', out);
  for (; *text; text++) {
    if (*text == '"') fputc('"', out);
    fputc(*text, out);
  }
  if (quotes) fputc('"', out);
}

void table_csv(const struct table *t, FILE *out)
{
  char text[1024];
  for (int c = 0; c < t->n_columns; c++) {
    if (c) fputc(',', out);
    csv_text(t->columns[c].key, out);
  }
  fputs("\r\n", out);
  for (size_t r = 0; r < json_array_size(t->rows); r++) {
    const json_t *row = json_array_get(t->rows, r);
    for (int c = 0; c < t->n_columns; c++) {
      const json_t *value = json_object_get(row, t->columns[c].key);
      if (c) fputc(',', out);
      if (json_is_real(value)) fprintf(out, "%.17g", json_real_value(value));
      else if (value != NULL && !json_is_null(value)) {
        table_cell(&t->columns[c], row, text, sizeof text);
        csv_text(text, out);
      }
    }
    fputs("\r\n", out);
  }
}

static const char *class_of(const char *text, const json_t *value)
{
  static const struct {
    const char *text, *class;
  } words[] = {{"PASS", "pass"},          {"caught", "pass"},           {"FAIL", "fail"},       {"missed", "fail"},
               {"INVALID", "unsure"},     {"INCONCLUSIVE", "unsure"},   {"NOT_RUN", "unsure"},  {"SKIPPED", "unsure"}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(text, words[i].text) == 0) return words[i].class;
  return json_is_number(value) ? "number" : strlen(text) > 40 ? "long" : "text";
}

void table_html(const struct table *t, FILE *out)
{
  char text[1024];
  fputs("<div class=\"scroll\"><table><caption>", out);
  table_escape(t->title, out);
  fputs("</caption><thead><tr>", out);
  for (int c = 0; c < t->n_columns; c++) {
    header_of(&t->columns[c], text, sizeof text);
    fputs("<th>", out);
    table_escape(text, out);
    fputs("</th>", out);
  }
  fputs("</tr></thead><tbody>\n", out);
  for (size_t r = 0; r < json_array_size(t->rows); r++) {
    const json_t *row = json_array_get(t->rows, r);
    fputs("<tr>", out);
    for (int c = 0; c < t->n_columns; c++) {
      table_cell(&t->columns[c], row, text, sizeof text);
      fprintf(out, "<td class=\"%s\">", class_of(text, json_object_get(row, t->columns[c].key)));
      table_escape(text, out);
      fputs("</td>", out);
    }
    fputs("</tr>\n", out);
  }
  fputs("</tbody></table></div>\n", out);
}
