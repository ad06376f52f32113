/* record_keys.c - the tables of keys: looked up by the writer, printed as the schema. */
#include "base/record_keys.h"

#include "base/config.h"
#include "base/record.h"

#include <errno.h>
#include <string.h>

/* Rows in file order: a row with a type is a key of the kind above it. */
static const struct row {
  const char *name, *type, *about, *meaning; /* about: who writes the kind; the key's unit */
} rows[] = {
#define KIND(kind, who, meaning) {kind, NULL, who, meaning},
#define KEY(key, type, unit, meaning) {key, type, unit, meaning},
#include "base/keys.def"
#undef KIND
#undef KEY
};
static const struct row env_rows[] = {
#define ENV(key, type, unit, meaning) {key, type, unit, meaning},
#include "base/env.def"
#undef ENV
};
enum { ROWS = sizeof rows / sizeof *rows, ENV_ROWS = sizeof env_rows / sizeof *env_rows };

static const char *const option_types[] = {
  [OPT_INT] = "int", [OPT_REAL] = "real", [OPT_BOOL] = "bool", [OPT_NAME] = "text", [OPT_TEXT] = "text"};

bool record_kind_known(const char *kind)
{
  for (int i = 0; i < ROWS; i++)
    if (rows[i].type == NULL && strcmp(rows[i].name, kind) == 0) return true;
  return false;
}

const char *record_key_type(const char *kind, const char *key)
{
  if (strncmp(key, "set.", 4) == 0) {
    const struct opt *o = opt_find(run_options, run_options_count, key + 4);
    return o ? option_types[o->type] : NULL;
  }
  for (int i = 0; i < ENV_ROWS; i++)
    if (strcmp(env_rows[i].name, key) == 0) return env_rows[i].type;
  bool inside = false;
  for (int i = 0; i < ROWS; i++) {
    if (rows[i].type == NULL)
      inside = strcmp(rows[i].name, kind) == 0;
    else if (inside && strcmp(rows[i].name, key) == 0)
      return rows[i].type;
  }
  return NULL;
}

static bool real_fits(const json_t *value)
{
  if (json_is_number(value)) return true;
  const char *text = json_string_value(value);
  return text && (strcmp(text, "nan") == 0 || strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0);
}

bool record_type_fits(const char *type, const json_t *value)
{
  const size_t letters = strlen(type);
  if (type[letters - 1] == 's') { /* ints, reals, texts: a list of the singular */
    char one[8] = "";
    BUG_IF(letters > sizeof one);
    memcpy(one, type, letters - 1);
    if (!json_is_array(value)) return false;
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item)
      if (!record_type_fits(one, item)) return false;
    return true;
  }
  if (strcmp(type, "int") == 0) return json_is_integer(value);
  if (strcmp(type, "real") == 0) return real_fits(value);
  if (strcmp(type, "bool") == 0) return json_is_boolean(value);
  if (strcmp(type, "text") == 0) return json_is_string(value);
  BUG_IF(strcmp(type, "json") != 0);
  return value != NULL;
}

static void print_rows(const struct row *list, int n, FILE *out)
{
  bool table = false;
  for (int i = 0; i < n; i++) {
    const struct row *r = &list[i];
    if (r->type == NULL) {
      fprintf(out, "\n### `%s` (%s)\n\n%s.\n", r->name, r->about, r->meaning);
      table = false;
      continue;
    }
    if (!table) fputs("\n| key | type | unit | meaning |\n|---|---|---|---|\n", out);
    table = true;
    fprintf(out, "| `%s` | %s | %s | %s |\n", r->name, r->type, r->about, r->meaning);
  }
}

enum err record_schema_markdown(FILE *out)
{
  fprintf(out,
          "# Records, schema %d\n\n"
          "Generated from `reference/base/keys.def`, `env.def` and the table of options; not edited by hand.\n\n"
          "A record is one JSON object a line (`*.jsonl`). Every one has `schema` (%d), `kind` and `case`; `rank` when a rank\n"
          "wrote it, `step` (from 0) and `microbatch` (its global number in the step) where they apply. Numbers are printed so that\n"
          "they read back equal; a real that is not finite is the text `nan`, `inf` or `-inf`; a hash is 16 hexadecimal digits. A\n"
          "last line without an end was cut short by a kill and does not count.\n\n"
          "## Kinds and their `got.*` keys\n",
          RECORD_SCHEMA, RECORD_SCHEMA);
  print_rows(rows, ROWS, out);
  fputs("\n## `env.*`: machine, versions, launch\n", out);
  print_rows(env_rows, ENV_ROWS, out);
  fputs("\n## `set.*`: what was asked\n\nThe key of an option with `set.` in front.\n\n", out);
  opt_table_markdown(run_options, run_options_count, out);
  if (fflush(out) != 0 || ferror(out)) FAIL(ERR_IO, "the schema could not be written: %s", strerror(errno));
  return ERR_OK;
}
