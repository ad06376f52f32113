/* opt_print.c - the table of options as JSON, Markdown and help: nothing about an
 * option is written a second time. */
#include "base/opt.h"

#include <string.h>

static const char *const type_names[] = {
  [OPT_INT] = "int", [OPT_REAL] = "real", [OPT_BOOL] = "bool", [OPT_NAME] = "name", [OPT_TEXT] = "text"};

static const char *allowed(const struct opt *o) { return o->type == OPT_BOOL ? "true|false" : o->allowed; }

json_t *opt_json(const struct opt *o, const void *base)
{
  const void *at = (const char *)base + o->offset;
  char text[2048];
  switch (o->type) {
  case OPT_INT: return json_integer(*(const int64_t *)at);
  case OPT_REAL: return json_real(*(const double *)at);
  case OPT_BOOL: return json_boolean(*(const bool *)at);
  case OPT_NAME:
  case OPT_TEXT: opt_text(o, base, text, sizeof text); return json_string(text);
  }
  return NULL;
}

json_t *opt_table_json(const struct opt *table, int n)
{
  json_t *list = json_array();
  for (int i = 0; i < n; i++) {
    const struct opt *o = &table[i];
    json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "key", o->key, "type", type_names[o->type],
                                          "default", o->initial, "valid", allowed(o), "unit", o->unit, "meaning", o->meaning));
  }
  return list;
}

/* A '|' would end the cell. */
static void cell(const char *text, FILE *out)
{
  for (; *text; text++) {
    if (*text == '|') fputc('\\', out);
    fputc(*text, out);
  }
}

void opt_table_markdown(const struct opt *table, int n, FILE *out)
{
  fputs("| key | default | valid | unit | meaning |\n|---|---|---|---|---|\n", out);
  for (int i = 0; i < n; i++) {
    const char *const cells[] = {table[i].initial, allowed(&table[i]), table[i].unit, table[i].meaning};
    fprintf(out, "| `%s` |", table[i].key);
    for (int c = 0; c < 4; c++) {
      fputc(' ', out);
      cell(cells[c], out);
      fputs(" |", out);
    }
    fputc('\n', out);
  }
}

void opt_table_help(const struct opt *table, int n, FILE *out)
{
  for (int i = 0; i < n; i++) {
    const struct opt *o = &table[i];
    fprintf(out, "  %-18s %s%s%s%s", o->key, o->meaning, o->unit[0] ? " [" : "", o->unit, o->unit[0] ? "]" : "");
    if (allowed(o)[0]) fprintf(out, "; %s", allowed(o));
    if (o->initial[0]) fprintf(out, "; default %s", o->initial);
    fputc('\n', out);
  }
}
