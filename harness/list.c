/* list.c - each list is made once as JSON; the text is a walk over it. */
#include "harness/list.h"
#include "harness/case.h"
#include "harness/place.h"
#include "harness/suite.h"

#include "base/fault.h"
#include "base/nearest.h"
#include "base/record.h"
#include "base/record.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum err add_suite(json_t *list, const char *name)
{
  char path[CONFIG_PATH];
  struct suite *s;
  TRY(suite_path(name, path, sizeof path));
  TRY(suite_read(path, SUITE_FULL, &s));
  json_t *cases = json_array();
  int quick = 0;
  for (int i = 0; i < s->n; i++) {
    quick += s->cases[i].quick;
    json_array_append_new(cases, json_pack("{s:s,s:b,s:i}", "name", s->cases[i].name, "quick", s->cases[i].quick, "priority",
                                           (int)s->cases[i].priority));
  }
  json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:i,s:i,s:o}", "name", s->name, "kind", suite_kind_names[s->kind], "question",
                                        s->question, "quick", quick, "full", s->n, "cases", cases));
  suite_free(s);
  return ERR_OK;
}

static int is_yaml(const struct dirent *e)
{
  const char *dot = strrchr(e->d_name, '.');
  return dot && strcmp(dot, ".yaml") == 0;
}

static enum err suites(json_t *list)
{
  char folder[CONFIG_PATH];
  struct dirent **files = NULL;
  enum err err = ERR_OK;
  TRY(place_source("suites", folder, sizeof folder));
  const int n = scandir(folder, &files, is_yaml, alphasort);
  if (n < 0) FAIL(ERR_IO, "%s: cannot be listed", folder);
  for (int i = 0; i < n; i++) {
    *strrchr(files[i]->d_name, '.') = '\0';
    if (!err) err = add_suite(list, files[i]->d_name);
    free(files[i]);
  }
  free(files);
  return err;
}

static enum err faults(json_t *list)
{
  static const char *const status[] = {"planted", "impossible", "later"};
  for (int i = 1; i < FAULT_COUNT; i++) {
    const struct fault_row *r = &fault_rows[i];
    json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "name", r->name, "status", status[r->status], "suite",
                                          r->suite, "observable", r->observable, "smallest_case", r->smallest, "cause", r->cause, "note",
                                          r->note));
  }
  return ERR_OK;
}

/* What only foreign runs are diagnosed with, beside the faults. */
static enum err causes(json_t *list)
{
  for (int i = 0; i < judge_causes_count; i++)
    json_array_append_new(list, json_pack("{s:s,s:s}", "name", judge_causes[i].name, "cause", judge_causes[i].sentence));
  return ERR_OK;
}

static enum err options(json_t *list)
{
  json_t *run = opt_table_json(run_options, run_options_count);
  json_array_extend(list, run);
  json_decref(run);
  return ERR_OK;
}

static enum err checks(json_t *list)
{
  for (int i = 0; i < judge_checks_count; i++)
    json_array_append_new(list, json_pack("{s:s,s:s,s:s}", "name", judge_checks[i].name, "observable", judge_checks[i].observable,
                                          "meaning", judge_checks[i].meaning));
  return ERR_OK;
}

static enum err models(json_t *list)
{
  for (int i = 0; i < model_shapes_count; i++) {
    const struct model_shape *m = &model_shapes[i];
    json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:f,s:s}", "name", m->name, "layers", (json_int_t)m->layers, "heads",
                                          (json_int_t)m->heads, "hidden", (json_int_t)m->hidden, "positions", (json_int_t)m->positions,
                                          "vocab", (json_int_t)m->vocab, "published_parameters", m->published_parameters, "source",
                                          m->source));
  }
  return ERR_OK;
}

static const struct {
  const char *name;
  enum err (*make)(json_t *list);
} lists[] = {{"suites", suites}, {"faults", faults}, {"causes", causes}, {"options", options}, {"checks", checks}, {"models", models}};
enum { LISTS = sizeof lists / sizeof *lists };

/* "name  value  value ...": scalars only, in the order made. */
static void print_text(const char *title, const json_t *list)
{
  size_t i;
  json_t *row, *value;
  const char *key;
  printf("%s:\n", title);
  json_array_foreach(list, i, row)
  {
    bool first = true;
    json_object_foreach(row, key, value)
    {
      if (json_is_string(value) && first) printf("  %-34s", json_string_value(value));
      else if (json_is_string(value) && *json_string_value(value)) printf("  %s", json_string_value(value));
      else if (json_is_number(value)) printf("  %s=%.10g", key, json_number_value(value));
      else if (json_is_boolean(value)) printf("  %s=%s", key, json_is_true(value) ? "true" : "false");
      first = false;
    }
    putchar('\n');
  }
}

enum err list_print(const char *what, enum list_form form)
{
  const bool json = form == LIST_JSON;
  if (what && strcmp(what, "schema") == 0 && !json) {
    TRY(record_schema_markdown(stdout));
    case_schema_markdown(stdout);
    return ERR_OK;
  }
  if (what && strcmp(what, "schema") == 0) FAIL(ERR_CONFIG, "list schema: there is no JSON of it; valid: `list schema`, as Markdown");
  if (form == LIST_MARKDOWN && (what == NULL || strcmp(what, "options") != 0))
    FAIL(ERR_CONFIG, "list %s: only `list options` is printed as Markdown", what ? what : "");
  if (form == LIST_MARKDOWN) {
    opt_table_markdown(run_options, run_options_count, stdout);
    return ERR_OK;
  }
  bool found = false;
  json_t *all = json_object();
  enum err err = ERR_OK;
  for (int i = 0; i < LISTS && !err; i++) {
    if (what && strcmp(what, lists[i].name) != 0) continue;
    found = true;
    json_t *list = json_array();
    err = lists[i].make(list);
    if (!err && !json) print_text(lists[i].name, list);
    json_object_set_new(all, lists[i].name, list);
  }
  if (!err && found && json) {
    json_dumpf(what ? json_object_get(all, what) : all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    putchar('\n');
  }
  json_decref(all);
  if (err) return err_trace(err, __FILE__, __LINE__);
  if (!found) {
    char near[128];
    struct nearest n = nearest_to(what);
    for (int i = 0; i < LISTS; i++) nearest_offer(&n, lists[i].name);
    FAIL(ERR_CONFIG, "list '%s': there is no such list; nearest: %s", what, nearest_text(&n, near, sizeof near));
  }
  return ERR_OK;
}
