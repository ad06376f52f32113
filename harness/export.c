/* export.c - the runs of a case, and the folder that appears whole. */
#include "harness/export.h"

#include "harness/case.h"
#include "harness/env.h"
#include "harness/folder.h"
#include "harness/interrupt.h"
#include "harness/memory.h"
#include "harness/place.h"
#include "harness/runner.h"
#include "suites/checks/evidence.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 2 * CONFIG_PATH };
static const double seconds = 300; /* without progress: a step of a large model in float64 is slow */

struct exporting {
  struct run_config config;
  char dir[CONFIG_PATH];     /* the case, when it is whole        */
  char scratch[CONFIG_PATH]; /* beside it, "" while there is none */
  struct launch_world world;
  struct plan plan;
  struct results results;
  struct progress progress;
  struct runner runner;
  int truth, parts, noise[CASE_PRECISIONS][COMPANIONS_NOISE]; /* runs of the plan; parts -1: none */
  const struct run *broken;                            /* the first that did not end well */
};

/* --- folders ------------------------------------------------------------------------------------ */

/* Where the case goes: new, or an empty folder. */
static enum err look_at(const char *asked, char out[CONFIG_PATH])
{
  struct stat st;
  size_t n = strlen(asked);
  while (n > 1 && asked[n - 1] == '/') n--;
  if (n == 0) FAIL(ERR_CONFIG, "export: no directory is named; valid: a new or empty one");
  if (n + 200 > CONFIG_PATH) FAIL(ERR_CONFIG, "%.80s...: %zu bytes of path; valid: up to %d", asked, n, CONFIG_PATH - 200);
  snprintf(out, CONFIG_PATH, "%.*s", (int)n, asked);
  if (lstat(out, &st) != 0) return ERR_OK;
  if (!S_ISDIR(st.st_mode)) FAIL(ERR_CONFIG, "%s: there, and no directory; valid: a new or empty one", out);
  if (!folder_is_empty(out)) FAIL(ERR_CONFIG, "%s: not empty; valid: a new or empty directory", out);
  return ERR_OK;
}

/* DIR.tmp-XXXXXX, so that a rename is all that is left to do. */
static enum err make_scratch(struct exporting *e)
{
  char parent[CONFIG_PATH], name[CONFIG_PATH + 16];
  double bytes = 1 << 20;
  snprintf(parent, sizeof parent, "%s", e->dir);
  char *slash = strrchr(parent, '/');
  if (slash && slash != parent) {
    *slash = '\0';
    TRY(place_make(parent));
  }
  snprintf(name, sizeof name, "%s.tmp-XXXXXX", e->dir);
  if (mkdtemp(name) == NULL) FAIL(ERR_IO, "no folder can be made beside %s: %s", e->dir, strerror(errno));
  memcpy(e->scratch, name, strlen(name) + 1);
  for (int i = 0; i < e->plan.n_runs; i++) bytes += e->plan.runs[i].disk_bytes;
  return results_create(e->scratch, "", bytes, &e->results);
}

static const char *name_of(int precision) { return precision ? "bf16" : "float32"; }

/* --- the runs ----------------------------------------------------------------------------------- */

static enum err add(struct exporting *e, struct companion *c, const char *name, int *out)
{
  snprintf(c->config.name, sizeof c->config.name, "%s", name);
  TRY(config_finish(&c->config));
  TRY(plan_add_run(&e->plan, name, &c->config, seconds, out));
  e->plan.runs[*out].users = 1;
  return ERR_OK;
}

static enum err add_precision(struct exporting *e, int which)
{
  struct companion wanted[JUDGE_COMPANIONS_MAX];
  struct run_config c = e->config;
  int noise = 0;
  c.precision = case_precisions[which];
  const int n = companions_noise(&c, wanted, JUDGE_COMPANIONS_MAX);
  for (int i = 0; i < n; i++) {
    char name[CONFIG_NAME];
    if (strcmp(wanted[i].role, "truth") != 0) {
      snprintf(name, sizeof name, "%s-%s", name_of(which), wanted[i].role);
      TRY(add(e, &wanted[i], name, &e->noise[which][noise++]));
    } else if (which == 0) { /* of all precisions the same */
      wanted[i].config.dump_batches = true;
      TRY(add(e, &wanted[i], "truth", &e->truth));
    }
  }
  BUG_IF(noise != COMPANIONS_NOISE);
  return ERR_OK;
}

/* Of the truth's settings, as they are finished. */
static enum err add_parts(struct exporting *e)
{
  const struct run_config *truth = &e->plan.runs[e->truth].config;
  struct companion parts = {.role = "parts"};
  if (!case_parts_wanted(truth)) return ERR_OK;
  case_parts_config(truth, &parts.config);
  return add(e, &parts, "parts", &e->parts);
}

static enum err check_memory(const struct exporting *e)
{
  struct env env;
  env_look(0, &env);
  for (int i = 0; i < e->plan.n_runs; i++) {
    const struct run *r = &e->plan.runs[i];
    char why[700];
    if (memory_needed(&r->config, 1) <= env.available_bytes) continue;
    memory_refusal(&r->config, 1, env.available_bytes, why, sizeof why);
    FAIL(ERR_MEMORY, "run %s: %s", r->name, why);
  }
  return ERR_OK;
}

/* After the first that broke there is nothing to be had. */
static enum err on_ended(void *context, int run)
{
  struct exporting *e = context;
  const struct run *r = &e->plan.runs[run];
  if (evidence_ended(&r->data) || e->broken) return ERR_OK;
  e->broken = r;
  e->runner.enough = true;
  return ERR_OK;
}

static enum err run_all(struct exporting *e)
{
  enum err err;
  int *list = malloc((size_t)e->plan.n_runs * sizeof *list);
  if (list == NULL) FAIL(ERR_MEMORY, "a list of %d runs", e->plan.n_runs);
  for (int i = 0; i < e->plan.n_runs; i++) list[i] = i;
  e->runner = (struct runner){.plan = &e->plan, .world = &e->world, .results = &e->results, .progress = &e->progress,
                              .started_ms = clock_ms(), .on_ended = on_ended, .context = e};
  progress_start(&e->progress);
  runner_phase(&e->runner, e->plan.n_runs, false);
  err = runner_all(&e->runner, list, e->plan.n_runs);
  progress_end(&e->progress);
  free(list);
  if (err || interrupt_seen()) return err;
  if (e->runner.unusable) FAIL(ERR_INVALID, "%s", e->runner.why_unusable);
  if (e->broken) FAIL(ERR_INVALID, "run %s did not end well (%s): %s", e->broken->name, e->broken->data.end, e->broken->data.text);
  return ERR_OK;
}

/* --- the case ----------------------------------------------------------------------------------- */

static void say_written(const struct exporting *e, const struct case_bounds said[CASE_PRECISIONS])
{
  for (int p = 0; p < CASE_PRECISIONS; p++)
    printf("%s: %d bounds, nearest to its ceiling: %s, %.2g of %.2g\n", name_of(p), said[p].n, said[p].place, said[p].bound, said[p].ceiling);
  printf("case: %s (%.1f MiB, %.1f s)\nread: %s/README.md\n", e->dir, folder_bytes(e->dir) / 1048576, (clock_ms() - e->runner.started_ms) / 1e3,
         e->dir);
}

/* Bounds first, since the files of the truth are moved. */
static enum err write_case(struct exporting *e, bool say, enum status *status)
{
  enum err err = ERR_OK;
  struct case_bounds said[CASE_PRECISIONS];
  json_t *bounds[CASE_PRECISIONS] = {NULL};
  struct case_source s = {.config = &e->config, .truth = &e->plan.runs[e->truth].data};
  if (e->parts >= 0) s.parts = &e->plan.runs[e->parts].data;
  char made[PATH_BYTES];
  for (int p = 0; p < CASE_PRECISIONS; p++) {
    for (int i = 0; i < COMPANIONS_NOISE; i++) s.noise[p][i] = &e->plan.runs[e->noise[p][i]].data;
    TRY_TO(release, case_bounds_json(&s, p, &bounds[p], &said[p]));
    if (!(said[p].bound <= said[p].ceiling))
      FAIL_TO(release, ERR_INVALID, "legal serial runs in %s differ too much to decide: the bound of %s is %.2g, its ceiling %.2g; "
              "no case is written", name_of(p), said[p].place, said[p].bound, said[p].ceiling);
  }
  snprintf(made, sizeof made, "%s/case", e->scratch);
  if (mkdir(made, 0777) != 0) FAIL_TO(release, ERR_IO, "%s: %s", made, strerror(errno));
  TRY_TO(release, case_write(&s, bounds, made));
  if (interrupt_seen()) goto release;
  if (rename(made, e->dir) != 0) FAIL_TO(release, ERR_IO, "%s: %s", e->dir, strerror(errno));
  *status = STATUS_PASS; /* from here on a signal comes too late */
  if (say) say_written(e, said);
release:
  for (int p = 0; p < CASE_PRECISIONS; p++) json_decref(bounds[p]);
  return err;
}

/* What neither the truth nor a bound depends on. */
static void settle(struct run_config *c)
{
  struct run_config defaults;
  config_default(&defaults);
  snprintf(c->name, sizeof c->name, "case");
  c->precision = case_precisions[0];
  c->device = defaults.device;
  c->reduce_type = defaults.reduce_type;
  c->loss_scale = defaults.loss_scale;
  c->inf_step = defaults.inf_step;
  c->evaluate_each = defaults.evaluate_each;
  c->records_each = defaults.records_each;
  c->compute = defaults.compute;
}

enum err export_run(const struct run_config *c, const char *dir, bool say, enum status *status)
{
  enum err err = ERR_OK;
  struct exporting *e = calloc(1, sizeof *e);
  if (e == NULL) FAIL(ERR_MEMORY, "an export: %zu bytes", sizeof *e);
  interrupt_watch();
  *status = STATUS_INTERRUPTED;
  e->config = *c;
  e->parts = -1;
  settle(&e->config);
  TRY_TO(done, export_check(&e->config));
  TRY_TO(done, look_at(dir, e->dir));
  TRY_TO(done, launch_look(NULL, &e->world));
  for (int p = 0; p < CASE_PRECISIONS; p++) TRY_TO(done, add_precision(e, p));
  TRY_TO(done, add_parts(e));
  TRY_TO(done, check_memory(e));
  TRY_TO(done, make_scratch(e));
  snprintf(e->plan.cases_dir, sizeof e->plan.cases_dir, "%s/cases", e->results.dir);
  for (int i = 0; i < e->plan.n_runs; i++) TRY_TO(done, plan_place(&e->plan, i));
  TRY_TO(done, run_all(e));
  if (!interrupt_seen()) TRY_TO(done, write_case(e, say, status));
done:
  if (*e->scratch) folder_remove(e->scratch);
  plan_free(&e->plan);
  free(e);
  return err;
}

enum err export_case(const struct export_asked *a, enum status *status)
{
  struct run_config c;
  TRY(export_settings(a, &c));
  return export_run(&c, a->dir, true, status);
}
