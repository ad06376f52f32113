/* adapters.c - names of programs and environments become paths. */
#include "harness/adapters.h"
#include "harness/export.h"
#include "harness/place.h"

#include "base/fault.h"
#include "base/nearest.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void folder_of(const struct suite *s, char *out, size_t bytes)
{
  const char *slash = strrchr(s->path, '/');
  snprintf(out, bytes, "%.*sframeworks", slash ? (int)(slash + 1 - s->path) : 0, s->path);
}

/* FOLDER/NAME.ENDING.  Fails: ERR_CONFIG with the nearest names that there are. */
static enum err find(const struct suite *s, const struct suite_case *c, const char *key, const char *name, const char *ending,
                     char *out, size_t bytes)
{
  char folder[CONFIG_PATH], near[256], names[64][CONFIG_NAME];
  int count = 0;
  folder_of(s, folder, sizeof folder);
  if (*name == '\0')
    FAIL(ERR_CONFIG, "%s: case '%s' has no `%s`: a case of kind frameworks names a program and its environment", c->where, c->name, key);
  if (snprintf(out, bytes, "%s/%s%s", folder, name, ending) >= (int)bytes) FAIL(ERR_CONFIG, "%s: path too long: %s", c->where, folder);
  if (strchr(name, '/') == NULL && access(out, R_OK) == 0) return ERR_OK;
  struct nearest n = nearest_to(name);
  DIR *d = opendir(folder);
  for (struct dirent *e; d && count < 64 && (e = readdir(d));) {
    const char *dot = strrchr(e->d_name, '.');
    if (dot == NULL || strcmp(dot, ending) != 0 || dot - e->d_name >= CONFIG_NAME) continue;
    snprintf(names[count], sizeof names[count], "%.*s", (int)(dot - e->d_name), e->d_name);
    nearest_offer(&n, names[count++]);
  }
  if (d) closedir(d);
  FAIL(ERR_CONFIG, "%s: case '%s': %s '%s': no %s%s in %s; nearest: %s", c->where, c->name, key, name, name, ending, folder,
       count ? nearest_text(&n, near, sizeof near) : "none is there");
}

void adapters_default(struct run_config *c)
{
  export_defaults(c);
  c->dp = 1;
}

/* Every key that neither a case depends on nor an adapter is told has its default. */
static enum err check_keys(const struct suite_case *c)
{
  static const char *const told[] = {"name", "model", "precision", "dp", "tp", "pp", "zero", "schedule", "chunks"};
  struct run_config defaults;
  adapters_default(&defaults);
  for (int i = 0; i < run_options_count; i++) {
    const struct opt *o = &run_options[i];
    char have[CONFIG_PATH], initial[CONFIG_PATH];
    const char *why;
    bool known = false;
    for (size_t k = 0; k < sizeof told / sizeof *told; k++) known = known || strcmp(o->key, told[k]) == 0;
    if (known || export_may_set(o->key, &why)) continue;
    opt_text(o, &c->config, have, sizeof have);
    opt_text(o, &defaults, initial, sizeof initial);
    if (strcmp(have, initial) != 0) FAIL(ERR_CONFIG, "%s: case '%s': %s: %s in a suite of kind frameworks", c->where, c->name, o->key, why);
  }
  return ERR_OK;
}

/* A fault of the catalogue, or one of the causes that only foreign runs have. */
static enum err check_cause(const struct suite_case *c)
{
  char near[256];
  struct nearest n = nearest_to(c->cause);
  if (*c->cause == '\0') return ERR_OK;
  for (int i = 1; i < FAULT_COUNT; i++) {
    if (strcmp(fault_rows[i].name, c->cause) == 0) return ERR_OK;
    nearest_offer(&n, fault_rows[i].name);
  }
  for (int i = 0; i < judge_causes_count; i++) {
    if (strcmp(judge_causes[i].name, c->cause) == 0) return ERR_OK;
    nearest_offer(&n, judge_causes[i].name);
  }
  FAIL(ERR_CONFIG, "%s: case '%s': cause '%s' is not known; nearest: %s", c->where, c->name, c->cause, nearest_text(&n, near, sizeof near));
}

enum err adapters_check(const struct suite *s, const struct suite_case *c)
{
  char path[CONFIG_PATH];
  if (s->kind != KIND_FRAMEWORKS) {
    if (*c->adapter || *c->environment || *c->plant || *c->cause || *c->note)
      FAIL(ERR_CONFIG, "%s: case '%s': adapter, environment, plant, cause and note are keys of suites of kind frameworks", c->where, c->name);
    return ERR_OK;
  }
  TRY(find(s, c, "adapter", c->adapter, ".py", path, sizeof path));
  TRY(find(s, c, "environment", c->environment, ".txt", path, sizeof path));
  if (*c->plant && *c->cause == '\0')
    FAIL(ERR_CONFIG, "%s: case '%s': plant '%s' without `cause`: which of `shardmark list faults` or `list causes` it has to be taken for",
         c->where, c->name, c->plant);
  TRY(check_cause(c));
  if (c->n_checks)
    FAIL(ERR_CONFIG, "%s: case '%s': `checks` are found by what its run wrote; name none in a suite of kind frameworks", c->where, c->name);
  TRY(check_keys(c));
  if (c->config.precision != PRECISION_F32 && c->config.precision != PRECISION_BF16)
    FAIL(ERR_CONFIG, "%s: case '%s': precision: an exported case has bounds for float32 and bf16 only", c->where, c->name);
  return ERR_OK;
}

enum err adapters_program(const struct suite *s, const struct suite_case *c, char *out, size_t bytes)
{
  return find(s, c, "adapter", c->adapter, ".py", out, bytes);
}

enum err adapters_python(const struct suite_case *c, char *out, size_t bytes)
{
  char folder[CONFIG_PATH];
  TRY(place_environments(folder, sizeof folder));
  if (snprintf(out, bytes, "%s/%s/bin/python", folder, c->environment) >= (int)bytes) FAIL(ERR_CONFIG, "path too long: %.80s...", folder);
  if (access(out, X_OK) == 0) return ERR_OK;
  FAIL(ERR_UNAVAILABLE, "environment '%s' is not there (%s); make it: ci/frameworks %s", c->environment, out, c->environment);
}
