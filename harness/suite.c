/* suite.c - the suite reader: levels of settings, cases, and errors with a place; sweeps are sweep.c's. */
#include "harness/suite_reader.h"
#include "harness/adapters.h"
#include "harness/export.h"

#include "base/nearest.h"
#include "base/yaml.h"
#include "harness/place.h"
#include "harness/sweep.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const suite_kind_names[KIND_COUNT] = {"conformance", "scaling", "memory", "faults", "pipeline", "overlap", "imbalance", "blame", "frameworks"};

#define AT(field) offsetof(struct suite_case, field), sizeof(((struct suite_case *)0)->field)
const struct opt suite_options[] = {
  {"quick", OPT_BOOL, AT(quick), "false", "true|false", "", "the case belongs to the quick form"},
  {"correctness_only", OPT_BOOL, AT(correctness_only), "false", "true|false", "",
   "ranks may share cores; the case never gives a speed"},
  {"priority", OPT_INT, AT(priority), "5", "1..9", "", "1 runs first; --budget leaves out the other end"},
  {"scale", OPT_NAME, AT(scale), "none", "none|strong|weak|layout", "",
   "how the case grows with ranks: strong keeps the global batch, weak keeps the batch of a rank; layout: has the ranks of its "
   "own degrees, beside one rank with the same global batch"},
  {"hosts", OPT_INT, AT(hosts), "1", "1..65536", "hosts", "above 1: as many ranks on each of so many hosts; two are emulated where no host file names any"},
  {"seconds", OPT_REAL, AT(seconds), "30", "0.1..86400", "s", "without progress for so long the case is stopped"},
  {"adapter", OPT_TEXT, AT(adapter), "", "a file of suites/frameworks", "", "kind frameworks: the program that trains with it"},
  {"environment", OPT_TEXT, AT(environment), "", "a list of suites/frameworks", "", "kind frameworks: the Python that runs it, made by ci/frameworks"},
  {"plant", OPT_TEXT, AT(plant), "", "a fault that the adapter knows", "", "kind frameworks: what it is told to do wrong"},
  {"cause", OPT_TEXT, AT(cause), "", "a name of `list faults` or `list causes`", "", "kind frameworks: the case has to go red, and this is what it has to be taken for"},
  {"note", OPT_TEXT, AT(note), "", "text", "", "kind frameworks: what a reader of the report has to know"},
};
const int suite_options_count = (int)(sizeof suite_options / sizeof *suite_options);

enum err reader_refuse(const struct reader *r, const struct yaml *at, const char *text)
{
  FAIL(ERR_CONFIG, "%s:%d:%d: %s", r->path, at->line, at->column, text);
}

enum err reader_expect(const struct reader *r, const struct yaml *y, enum yaml_kind kind, const char *what)
{
  static const char *const names[] = {"a single value", "a list", "a map"};
  if (y->kind == kind) return ERR_OK;
  FAIL(ERR_CONFIG, "%s:%d:%d: '%s' is %s, expected %s", r->path, y->line, y->column, what, names[y->kind], names[kind]);
}

/* --- one setting -------------------------------------------------------------- */

static enum err unknown_key(const struct reader *r, const struct yaml *key)
{
  char near[256];
  struct nearest n = nearest_to(key->text);
  for (int i = 0; i < suite_options_count; i++) nearest_offer(&n, suite_options[i].key);
  for (int i = 0; i < run_options_count; i++) nearest_offer(&n, run_options[i].key);
  nearest_offer(&n, "checks");
  FAIL(ERR_CONFIG, "%s:%d:%d: unknown key '%s'; nearest: %s", r->path, key->line, key->column, key->text,
       nearest_text(&n, near, sizeof near));
}

static enum err set_checks(const struct reader *r, const struct yaml *list, struct suite_case *c)
{
  TRY(reader_expect(r, list, YAML_LIST, "checks"));
  c->n_checks = 0;
  for (int i = 0; i < list->n; i++) {
    const struct yaml *y = list->values[i];
    TRY(reader_expect(r, y, YAML_SCALAR, "check"));
    const struct check *found = judge_find(y->text);
    if (found == NULL) {
      char near[256];
      struct nearest n = nearest_to(y->text);
      for (int k = 0; k < judge_checks_count; k++) nearest_offer(&n, judge_checks[k].name);
      FAIL(ERR_CONFIG, "%s:%d:%d: no check is named '%s'; nearest: %s", r->path, y->line, y->column, y->text,
           nearest_text(&n, near, sizeof near));
    }
    if (c->n_checks == SUITE_CHECKS_MAX) return reader_refuse(r, y, "too many checks for one case");
    for (int k = 0; k < c->n_checks; k++)
      if (c->checks[k] == found) return reader_refuse(r, y, "the check is named twice");
    c->checks[c->n_checks++] = found;
  }
  return ERR_OK;
}

enum err reader_set(const struct reader *r, const struct yaml *key, const struct yaml *value, struct suite_case *c)
{
  if (strcmp(key->text, "checks") == 0) return set_checks(r, value, c);
  char where[CONFIG_PATH + 32];
  snprintf(where, sizeof where, "%s:%d:%d", r->path, value->line, value->column);
  const struct opt *mine = opt_find(suite_options, suite_options_count, key->text);
  const struct opt *run = opt_find(run_options, run_options_count, key->text);
  if (mine == NULL && run == NULL) return unknown_key(r, key);
  TRY(reader_expect(r, value, YAML_SCALAR, key->text));
  if (mine) return opt_set(mine, c, value->text, where);
  if (strcmp(key->text, "name") == 0 || strcmp(key->text, "out") == 0)
    return reader_refuse(r, key, "'name' and 'out' are the harness's: a case's name is its key in `cases`");
  return opt_set(run, &c->config, value->text, where);
}

enum err reader_set_all(const struct reader *r, const struct yaml *map, const char *what, struct suite_case *c)
{
  if (map == NULL) return ERR_OK;
  TRY(reader_expect(r, map, YAML_MAP, what));
  for (int i = 0; i < map->n; i++) TRY(reader_set(r, map->keys[i], map->values[i], c));
  return ERR_OK;
}

/* --- cases -------------------------------------------------------------------- */

enum err reader_append(struct reader *r, const struct yaml *at, const char *name, const struct suite_case *made)
{
  if (name[0] == '\0' || strlen(name) >= CONFIG_NAME) return reader_refuse(r, at, "a case's name has 1 to 127 characters");
  for (const char *s = name; *s; s++)
    if (!isalnum((unsigned char)*s) && !strchr("-_.", *s))
      return reader_refuse(r, at, "a case's name becomes a folder: letters, digits, '-', '_' and '.' only");
  if (name[0] == '.') return reader_refuse(r, at, "a case's name does not start with '.'");
  const struct suite_case *twin = suite_find(r->suite, name);
  if (twin)
    FAIL(ERR_CONFIG, "%s:%d:%d: case '%s' stands already at %s", r->path, at->line, at->column, name, twin->where);
  if (r->suite->n == r->room) {
    const int room = r->room ? 2 * r->room : 16;
    struct suite_case *more = realloc(r->suite->cases, (size_t)room * sizeof *more);
    if (more == NULL) FAIL(ERR_MEMORY, "%d cases of %s", room, r->path);
    r->suite->cases = more;
    r->room = room;
  }
  struct suite_case *c = &r->suite->cases[r->suite->n++];
  *c = *made;
  snprintf(c->name, sizeof c->name, "%s", name);
  snprintf(c->where, sizeof c->where, "%s:%d:%d", r->path, at->line, at->column);
  return ERR_OK;
}

static enum err read_cases(struct reader *r, const struct yaml *cases, const struct suite_case *every)
{
  if (cases == NULL) return ERR_OK;
  TRY(reader_expect(r, cases, YAML_MAP, "cases"));
  for (int i = 0; i < cases->n; i++) {
    struct suite_case c = *every;
    TRY(reader_set_all(r, cases->values[i], cases->keys[i]->text, &c));
    TRY(reader_append(r, cases->keys[i], cases->keys[i]->text, &c));
  }
  return ERR_OK;
}

/* --- the file ----------------------------------------------------------------- */

static enum err read_head(struct reader *r, const struct yaml *top)
{
  static const char *const known[] = {"question", "kind", "every_case", "evidence", "cases", "sweeps"};
  TRY(reader_expect(r, top, YAML_MAP, "suite"));
  for (int i = 0; i < top->n; i++) {
    char near[128];
    bool ok = false;
    struct nearest n = nearest_to(top->keys[i]->text);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
      ok = ok || strcmp(top->keys[i]->text, known[k]) == 0;
      nearest_offer(&n, known[k]);
    }
    if (!ok)
      FAIL(ERR_CONFIG, "%s:%d:%d: unknown key '%s'; nearest: %s", r->path, top->keys[i]->line, top->keys[i]->column,
           top->keys[i]->text, nearest_text(&n, near, sizeof near));
  }
  const struct yaml *question = yaml_get(top, "question"), *kind = yaml_get(top, "kind");
  if (question == NULL || kind == NULL) return reader_refuse(r, top, "a suite needs question and kind");
  TRY(reader_expect(r, question, YAML_SCALAR, "question"));
  TRY(reader_expect(r, kind, YAML_SCALAR, "kind"));
  snprintf(r->suite->question, sizeof r->suite->question, "%s", question->text);
  for (int k = 0; k < KIND_COUNT; k++)
    if (strcmp(kind->text, suite_kind_names[k]) == 0) {
      r->suite->kind = (enum suite_kind)k;
      return ERR_OK;
    }
  char near[256];
  struct nearest n = nearest_to(kind->text);
  for (int k = 0; k < KIND_COUNT; k++) nearest_offer(&n, suite_kind_names[k]);
  FAIL(ERR_CONFIG, "%s:%d:%d: kind '%s' is not known; nearest: %s", r->path, kind->line, kind->column, kind->text, nearest_text(&n, near, sizeof near));
}

static enum err read_tree(struct reader *r)
{
  struct suite *s = r->suite;
  TRY(read_head(r, s->tree));
  struct suite_case every = {.n_checks = 0};
  config_default(&every.config);
  if (s->kind == KIND_FRAMEWORKS) adapters_default(&every.config);
  opt_defaults(suite_options, suite_options_count, &every);
  TRY(reader_set_all(r, yaml_get(s->tree, "every_case"), "every_case", &every));
  TRY(read_cases(r, yaml_get(s->tree, "cases"), &every));
  const struct yaml *sweeps = yaml_get(s->tree, "sweeps");
  if (sweeps) TRY(reader_expect(r, sweeps, YAML_LIST, "sweeps"));
  for (int i = 0; sweeps && i < sweeps->n; i++) TRY(sweep_read(r, sweeps->values[i], &every));
  if (s->n == 0 && !r->left_out && s->kind != KIND_FAULTS) return reader_refuse(r, s->tree, "the suite has no case");

  for (int i = 0; i < s->n; i++)
    if ((s->cases[i].scale != SCALE_NONE) != (s->kind == KIND_SCALING))
      FAIL(ERR_CONFIG, "%s: case '%s': scale is strong, weak or layout in a suite of kind scaling, none elsewhere",
           s->cases[i].where, s->cases[i].name);
  for (int i = 0; i < s->n; i++) {
    if (s->kind == KIND_FRAMEWORKS) export_decay(&s->cases[i].config);
    TRY(adapters_check(s, &s->cases[i]));
  }
  s->evidence = every;
  s->evidence.n_checks = 0;
  const struct yaml *evidence = yaml_get(s->tree, "evidence");
  if ((evidence != NULL) != suite_has_evidence(s->kind))
    return reader_refuse(r, evidence ? evidence : s->tree, "`evidence` stands in every suite of kind scaling, pipeline, overlap or imbalance and in no other");
  TRY(reader_set_all(r, evidence, "evidence", &s->evidence));
  if (evidence && s->evidence.n_checks == 0) return reader_refuse(r, evidence, "`evidence` names no checks");
  return ERR_OK;
}

enum err suite_read(const char *path, enum suite_form form, struct suite **out)
{
  enum err err;
  *out = NULL;
  TRY(yaml_look("suite", path));
  struct suite *s = calloc(1, sizeof *s);
  if (s == NULL) FAIL(ERR_MEMORY, "suite %s: %zu bytes", path, sizeof *s);
  const char *slash = strrchr(path, '/'), *stem = slash ? slash + 1 : path;
  snprintf(s->path, sizeof s->path, "%s", path);
  snprintf(s->name, sizeof s->name, "%.*s", (int)strcspn(stem, "."), stem);
  struct reader r = {.path = path, .suite = s, .form = form};
  TRY_TO(free_suite, yaml_read(path, &s->tree));
  TRY_TO(free_suite, read_tree(&r));
  *out = s;
  return ERR_OK;

free_suite:
  suite_free(s);
  return err;
}

void suite_free(struct suite *s)
{
  if (s == NULL) return;
  yaml_destroy(s->tree);
  free(s->cases);
  free(s);
}

const struct suite_case *suite_find(const struct suite *s, const char *name)
{
  for (int i = 0; i < s->n; i++)
    if (strcmp(s->cases[i].name, name) == 0) return &s->cases[i];
  return NULL;
}

enum err suite_lay_evidence(const struct suite *s, struct run_config *c)
{
  struct reader r = {.path = s->path};
  struct suite_case over = {.config = *c};
  TRY(reader_set_all(&r, yaml_get(s->tree, "evidence"), "evidence", &over));
  *c = over.config;
  return ERR_OK;
}

enum err suite_path(const char *name, char *out, size_t bytes)
{
  const size_t length = strlen(name);
  if (strchr(name, '/') || (length > 5 && strcmp(name + length - 5, ".yaml") == 0)) {
    snprintf(out, bytes, "%s", name);
    return ERR_OK;
  }
  char folder[CONFIG_PATH], near[256];
  TRY(place_source("suites", folder, sizeof folder));
  struct stat st;
  snprintf(out, bytes, "%s/%s.yaml", folder, name);
  if (stat(out, &st) == 0) return ERR_OK;
  struct nearest n = nearest_to(name);
  char names[64][CONFIG_NAME];
  int count = 0;
  DIR *d = opendir(folder);
  for (struct dirent *e; d && count < 64 && (e = readdir(d));) {
    const char *dot = strrchr(e->d_name, '.');
    if (dot == NULL || strcmp(dot, ".yaml") != 0) continue;
    snprintf(names[count], sizeof names[count], "%.*s", (int)(dot - e->d_name), e->d_name);
    nearest_offer(&n, names[count++]);
  }
  if (d) closedir(d);
  FAIL(ERR_CONFIG, "no suite is named '%s' in %s; nearest: %s", name, folder, nearest_text(&n, near, sizeof near));
}
