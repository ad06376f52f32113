/* plan.c - cases become trials and distinct runs. */
#include "harness/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- settings --------------------------------------------------------------------- */

static bool is_label(const struct opt *o) { return strcmp(o->key, "name") == 0 || strcmp(o->key, "out") == 0; }

/* FNV-1a, the end of the text included. */
static const uint64_t FNV_START = 14695981039346656037u;
static uint64_t add_text(uint64_t h, const char *s)
{
  for (;; s++) {
    h = (h ^ (unsigned char)*s) * 1099511628211u;
    if (*s == '\0') return h;
  }
}

uint64_t plan_key(const struct run_config *c)
{
  uint64_t h = FNV_START;
  for (int i = 0; i < run_options_count; i++) {
    char text[CONFIG_PATH];
    if (is_label(&run_options[i])) continue;
    opt_text(&run_options[i], c, text, sizeof text);
    h = add_text(h, text);
  }
  return h;
}

bool plan_same(const struct run_config *a, const struct run_config *b)
{
  for (int i = 0; i < run_options_count; i++) {
    char x[CONFIG_PATH], y[CONFIG_PATH];
    if (is_label(&run_options[i])) continue;
    opt_text(&run_options[i], a, x, sizeof x);
    opt_text(&run_options[i], b, y, sizeof y);
    if (strcmp(x, y) != 0) return false;
  }
  return true;
}

bool plan_wants(const struct asked *a, const struct suite_case *of, const struct run_config *c)
{
  if (!a->full && !of->quick) return false;
  if (*a->only && strstr(of->name, a->only) == NULL) return false;
  if (a->n_ranks == 0 || of->scale != SCALE_NONE) return true;
  for (int i = 0; i < a->n_ranks; i++)
    if (a->ranks[i] == config_ranks(c)) return true;
  return false;
}

enum err plan_settings(const struct asked *a, const struct suite_case *of, struct run_config *out, char *skip, size_t bytes)
{
  struct run_config c = of->config;
  snprintf(c.name, sizeof c.name, "%s", of->name);
  skip[0] = '\0';
  TRY(asked_lay_over(a, &c));
  const enum err err = config_finish(&c);
  if (err == ERR_CONFIG && asked_overrides(a) && model_shape_find(c.model)) snprintf(skip, bytes, "%s", err_text());
  else if (err) FAIL(err, "%s: case '%s': %s", of->where, of->name, err_text());
  *out = c;
  return ERR_OK;
}

/* --- runs and trials ---------------------------------------------------------------- */

static enum err grow(void **list, int n, int *room, size_t each)
{
  if (n < *room) return ERR_OK;
  const int wanted = *room ? 2 * *room : 64;
  void *more = realloc(*list, (size_t)wanted * each);
  if (more == NULL) FAIL(ERR_MEMORY, "a plan of %d cases: %zu bytes", wanted, (size_t)wanted * each);
  *list = more;
  *room = wanted;
  return ERR_OK;
}

/* Rough, and only for time left and --budget: what one core does a second in each precision. */
static double estimate_s(const struct run_config *c, const struct predicted *p)
{
  if (c->compute == COMPUTE_SLEEP) { /* the longest chain: every micro-batch through one stage, one through all */
    const double layer_ms = c->sleep_forward_ms + c->sleep_input_ms + c->sleep_weight_ms;
    const double stage_ms = (double)c->layers / (double)c->pp * layer_ms + 3 * c->sleep_head_ms;
    return 0.2 + (double)c->steps * (double)(config_accumulation(c) + c->pp - 1) * stage_ms / 1e3;
  }
  const double rate = c->device == DEVICE_LAZY ? 3e8 : c->precision == PRECISION_F64 ? 1.5e9 : 5e10;
  return 0.05 + p->flops_full * (double)(c->steps + (c->evaluate_each ? c->steps / c->evaluate_each : 0)) / rate /
                  (double)config_ranks(c);
}

static double disk_bytes(const struct run_config *c, const struct predicted *p)
{
  const double each = p->parameters * (double)dtype_bytes(run_state_type(c));
  const double kinds = c->dump == DUMP_ALL ? 4 : c->dump == DUMP_GRADIENTS ? 1 : 0;
  const double recorded = c->steps ? (double)((c->steps - 1) / c->records_each + 1) : 1;
  return kinds * each * (recorded + 1) + (double)config_ranks(c) * (65536 + 4096 * recorded);
}

static enum err add_run(struct plan *p, const char *name, const struct run_config *c, uint64_t key, int *out)
{
  TRY(grow((void **)&p->runs, p->n_runs, &p->room_runs, sizeof *p->runs));
  struct run *r = &p->runs[p->n_runs];
  struct predicted predicted;
  *r = (struct run){.key = key, .config = *c, .ranks = (int)config_ranks(c), .seconds = 30, .after = -1};
  snprintf(r->name, sizeof r->name, "%s", name);
  for (int i = 2;; i++) { /* equal names of two suites: the later gets a number */
    bool taken = false;
    for (int k = 0; k < p->n_runs; k++) taken = taken || strcmp(p->runs[k].name, r->name) == 0;
    if (!taken) break;
    snprintf(r->name, sizeof r->name, "%.110s-%d", name, i);
  }
  snprintf(r->config.name, sizeof r->config.name, "%s", r->name);
  predict(c, &predicted);
  r->estimate_s = estimate_s(c, &predicted);
  r->disk_bytes = disk_bytes(c, &predicted);
  *out = p->n_runs++;
  return ERR_OK;
}

enum err plan_place(struct plan *p, int index)
{
  struct run *r = &p->runs[index];
  if (snprintf(r->dir, sizeof r->dir, "%s/%s", p->cases_dir, r->name) >= (int)sizeof r->dir)
    FAIL(ERR_CONFIG, "path too long: %.80s...", p->cases_dir);
  memcpy(r->config.out, r->dir, sizeof r->config.out);
  return ERR_OK;
}

static enum err shared_run(struct plan *p, const char *name, const struct run_config *c, uint64_t salt, int *out)
{
  const uint64_t key = plan_key(c) ^ salt;
  for (int i = 0; i < p->n_runs; i++)
    if (p->runs[i].key == key) {
      *out = i;
      return ERR_OK;
    }
  return add_run(p, name, c, key, out);
}

enum err plan_add_run(struct plan *p, const char *name, const struct run_config *c, double seconds, int *out)
{
  TRY(add_run(p, name, c, 0, out));
  p->runs[*out].seconds = seconds;
  return ERR_OK;
}

static enum err add_trial(struct plan *p, const struct suite *s, const struct suite_case *of, const char *name, struct trial **out)
{
  TRY(grow((void **)&p->trials, p->n_trials, &p->room_trials, sizeof *p->trials));
  struct trial *t = &p->trials[p->n_trials];
  memset(t, 0, sizeof *t);
  t->suite = s;
  t->of = of;
  t->run = t->twin = -1;
  t->priority = of->priority;
  snprintf(t->name, sizeof t->name, "%s", name);
  for (int i = 0; i < p->n_trials; i++)
    if (strcmp(p->trials[i].name, t->name) == 0) {
      snprintf(t->name, sizeof t->name, "%.60s-%.60s", s->name, name);
      break;
    }
  p->n_trials++;
  *out = t;
  return ERR_OK;
}

enum err plan_add_skipped(struct plan *p, const struct suite *s, const struct suite_case *of, const char *why)
{
  struct trial *t;
  TRY(add_trial(p, s, of, of->name, &t));
  t->state = TRIAL_JUDGED;
  t->outcome = OUTCOME_SKIPPED;
  snprintf(t->reason, sizeof t->reason, "not here");
  snprintf(t->sentence, sizeof t->sentence, "%s", why);
  return ERR_OK;
}

/* A fault that shows as a hang needs a job of its own, and no patience.  One that shows in equal bits, too, ends. */
static const double hang_seconds = 5;

static bool may_hang(enum fault f)
{
  const char *shows = fault_rows[f].observable;
  return f != FAULT_NONE && strstr(shows, "O14") && !strstr(shows, "O8");
}

enum err plan_add_trial(struct plan *p, const struct suite *s, const struct suite_case *of, const char *name,
                        const struct run_config *c, enum trial_part part, int *out)
{
  struct trial *t;
  char label[CONFIG_NAME];
  TRY(add_trial(p, s, of, name, &t));
  t->part = part;
  t->n_checks = of->n_checks;
  memcpy(t->checks, of->checks, sizeof t->checks);
  TRY(fault_find(c->fault, &t->fault));
  /* The folder of a planted run does not tell which fault: judging is blind. */
  if (part == PART_PLANTED) snprintf(label, sizeof label, "planted-%08x", (unsigned)(plan_key(c) >> 32));
  else snprintf(label, sizeof label, "%s", t->name);
  TRY(shared_run(p, label, c, 0, &t->run));
  struct run *r = &p->runs[t->run];
  r->seconds = of->seconds;
  if (may_hang(t->fault)) {
    r->alone = true;
    if (r->seconds > hang_seconds) r->seconds = hang_seconds;
  }
  r->users++;
  if (out) *out = p->n_trials - 1;
  return ERR_OK;
}

/* Of a core for each rank: nearly all of it the framework's import (PyTorch 2.15: 15 s of two ranks together). */
static const double foreign_seconds = 7.5;

enum err plan_add_foreign(struct plan *p, const struct suite *s, const struct suite_case *of, const struct run_config *c)
{
  struct trial *t;
  TRY(add_trial(p, s, of, of->name, &t));
  t->part = PART_FOREIGN;
  TRY(plan_add_run(p, t->name, c, of->seconds, &t->run));
  p->runs[t->run].foreign = true;
  p->runs[t->run].estimate_s = foreign_seconds;
  return ERR_OK;
}

enum err plan_add_cases(struct plan *p, const struct asked *a, const struct suite *s, enum trial_part part)
{
  for (int i = 0; i < s->n; i++) {
    struct run_config c;
    char skip[512];
    TRY(plan_settings(a, &s->cases[i], &c, skip, sizeof skip));
    if (!plan_wants(a, &s->cases[i], &c)) continue;
    if (*skip) {
      TRY(plan_add_skipped(p, s, &s->cases[i], skip));
      continue;
    }
    bool repeats = false; /* an override can make two cases one: it is judged once */
    for (int k = 0; asked_overrides(a) && k < p->n_trials; k++)
      repeats = repeats || (p->trials[k].suite == s && p->trials[k].run >= 0 && plan_same(&p->runs[p->trials[k].run].config, &c));
    if (!repeats) TRY(plan_add_trial(p, s, &s->cases[i], s->cases[i].name, &c, part, NULL));
  }
  return ERR_OK;
}

/* --- companions ------------------------------------------------------------------------ */

static enum err add_companions(struct plan *p, int trial, int check)
{
  struct companion wanted[JUDGE_COMPANIONS_MAX];
  const struct check *how = p->trials[trial].checks[check];
  if (how->companions == NULL) return ERR_OK;
  const struct run_config own = p->runs[p->trials[trial].run].config;
  const int n = how->companions(&own, wanted, JUDGE_COMPANIONS_MAX);
  for (int i = 0; i < n; i++) {
    char name[CONFIG_NAME];
    int run;
    snprintf(wanted[i].config.name, sizeof wanted[i].config.name, "%.31s", wanted[i].role);
    if (config_finish(&wanted[i].config))
      FAIL(ERR_CONFIG, "%s: case '%s': companion '%s' of check '%s': %s", p->trials[trial].of->where, p->trials[trial].name,
           wanted[i].role, how->name, err_text());
    const bool rerun = strncmp(wanted[i].role, "rerun", 5) == 0;
    const uint64_t key = plan_key(&wanted[i].config), salt = rerun ? add_text(FNV_START, wanted[i].role) : 0;
    snprintf(name, sizeof name, "%.31s-%08x", wanted[i].role, (unsigned)(key >> 32));
    TRY(shared_run(p, name, &wanted[i].config, salt, &run));
    struct trial *t = &p->trials[trial];
    struct run *r = &p->runs[run];
    const struct run *mine = &p->runs[t->run];
    if (r->users == 0 || r->seconds < mine->seconds) r->seconds = mine->seconds;
    if (mine->alone && *wanted[i].config.fault) { /* it would hang as its case does: only if that did not */
      r->alone = true;
      r->after = t->run;
    }
    t->companions[check][i] = run;
    t->n_companions[check] = i + 1;
  }
  return ERR_OK;
}

int plan_runs_of(const struct trial *t, int *out, int max)
{
  int n = 0;
  if (t->run < 0) return 0;
  out[n++] = t->run;
  for (int c = 0; c < t->n_checks; c++)
    for (int i = 0; i < t->n_companions[c]; i++) {
      bool there = false;
      for (int k = 0; k < n; k++) there = there || out[k] == t->companions[c][i];
      if (!there && n < max) out[n++] = t->companions[c][i];
    }
  return n;
}

enum err plan_companions(struct plan *p)
{
  for (int i = 0; i < p->n_trials; i++)
    for (int c = 0; p->trials[i].run >= 0 && p->trials[i].part != PART_POINT && c < p->trials[i].n_checks; c++) TRY(add_companions(p, i, c));
  for (int i = 0; i < p->n_runs; i++) p->runs[i].users = 0;
  for (int i = 0; i < p->n_trials; i++) {
    int needed[SUITE_CHECKS_MAX * JUDGE_COMPANIONS_MAX + 1];
    if (p->trials[i].part == PART_POINT) continue; /* timed, not shared */
    const int n = plan_runs_of(&p->trials[i], needed, (int)(sizeof needed / sizeof *needed));
    for (int k = 0; k < n; k++) p->runs[needed[k]].users++;
  }
  return ERR_OK;
}

enum err plan_order(const struct plan *p, int *out, int *n)
{
  *n = 0;
  bool *listed = calloc((size_t)p->n_runs + 1, sizeof *listed);
  if (listed == NULL) FAIL(ERR_MEMORY, "a list of %d runs", p->n_runs);
  for (int64_t priority = 1; priority <= 9; priority++)
    for (int i = 0; i < p->n_trials; i++) {
      int needed[SUITE_CHECKS_MAX * JUDGE_COMPANIONS_MAX + 1];
      const struct trial *t = &p->trials[i];
      if (t->priority != priority || t->state != TRIAL_WAITING || t->part == PART_POINT || t->part == PART_TIMED || t->part == PART_FOREIGN) continue;
      const int count = plan_runs_of(t, needed, (int)(sizeof needed / sizeof *needed));
      for (int k = 0; k < count; k++) {
        if (listed[needed[k]] || p->runs[needed[k]].ended) continue;
        listed[needed[k]] = true;
        out[(*n)++] = needed[k];
      }
    }
  free(listed);
  return ERR_OK;
}

void plan_free(struct plan *p)
{
  for (int i = 0; i < p->n_runs; i++) json_decref((json_t *)p->runs[i].data.records);
  free(p->runs);
  free(p->trials);
  *p = (struct plan){0};
}
