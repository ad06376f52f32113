/* section_machine.c - machine and versions, from an allow-list of env.* keys. */
#include "reports/sections.h"

#include <string.h>

static const struct column columns[] = {{"what", "", "", NULL}, {"value", "", "", NULL}};

static void add_keys(json_t *rows, const json_t *record, const char *prefix)
{
  const char *key;
  json_t *value;
  if (record == NULL) return;
  json_object_foreach((json_t *)record, key, value) {
    char text[1024];
    if (strncmp(key, prefix, strlen(prefix)) != 0) continue;
    if (json_is_array(value)) {
      json_t *one;
      size_t i;
      text[0] = '\0';
      json_array_foreach(value, i, one)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? "; " : "", json_is_string(one) ? json_string_value(one) : "");
    } else {
      const struct column c = {key, "", "", "%g"};
      table_cell(&c, record, text, sizeof text);
    }
    json_array_append_new(rows, json_pack("{s:s, s:s}", "what", key + strlen(prefix), "value", text));
  }
}

enum err section_machine(const struct evidence *e, struct page *p)
{
  json_t *rows = json_array();
  add_keys(rows, evidence_first(e, "run", NULL), "env.");
  add_keys(rows, evidence_first(e, "machine", NULL), "got.");
  if (json_array_size(rows) > 0) {
    page_heading(p, "Machine and versions");
    const struct table t = {"As the first run and the harness saw them", columns, 2, rows};
    page_table(p, &t, false);
  }
  json_decref(rows);
  return ERR_OK;
}
