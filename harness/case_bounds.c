/* case_bounds.c - what legal serial runs leave between them and the truth, place by place. */
#include "harness/case.h"

#include "suites/checks/bound.h"
#include "suites/checks/evidence.h"
#include "suites/checks/noise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const enum precision case_precisions[CASE_PRECISIONS] = {PRECISION_F32, PRECISION_BF16};

struct made {
  const struct run_data *truth;
  struct noise noise;
  struct run_config config; /* in the precision that is bounded */
  struct case_bounds *said;
};

/* Adds floor, q, bound and ceiling to a row; a ceiling of 0: none, where the true gradient is zero. */
static enum err close_row(const struct made *m, json_t *row, double floor, double q, double ceiling, const char *place)
{
  const double bound = bound_measured(floor, q);
  if (!isfinite(bound)) FAIL(ERR_FORMAT, "%s: a legal serial run is not finite there, or told nothing", place);
  json_object_set_new(row, "q", json_real(q));
  json_object_set_new(row, "floor", json_real(floor));
  json_object_set_new(row, "bound", json_real(bound));
  json_object_set_new(row, "ceiling", ceiling > 0.0 ? json_real(ceiling) : json_null());
  if (ceiling <= 0.0) return ERR_OK;
  if (m->said->n++ == 0 || bound / ceiling > m->said->bound / m->said->ceiling) {
    m->said->bound = bound;
    m->said->ceiling = ceiling;
    snprintf(m->said->place, sizeof m->said->place, "%s", place);
  }
  return ERR_OK;
}

/* One number that records tell. */
static enum err add_told(const struct made *m, json_t *list, enum bound_kind kind, const char *record, int64_t step, int64_t micro,
                         const char *key, double terms)
{
  const enum precision precision = bound_precision(&m->config, kind, step);
  const double q = noise_of(&m->noise, m->truth, record, step, micro, key);
  char place[96];
  json_t *row = json_pack("{s:I}", "step", (json_int_t)step);
  if (micro >= 0) json_object_set_new(row, "microbatch", json_integer(micro));
  if (json_array_append_new(list, row) != 0) FAIL(ERR_MEMORY, "bounds of step %lld", (long long)step);
  if (micro < 0) snprintf(place, sizeof place, "%s at step %lld", key + strlen("got."), (long long)step);
  else snprintf(place, sizeof place, "loss sum of micro-batch %lld at step %lld", (long long)micro, (long long)step);
  return close_row(m, row, bound_floor(kind, precision, terms), q, bound_ceiling(kind, precision, step), place);
}

static enum err add_gradient(const struct made *m, json_t *list, const struct gap *row, double q, int64_t step)
{
  const enum precision precision = bound_precision(&m->config, BOUND_GRADIENT, step);
  char place[160];
  snprintf(place, sizeof place, "gradient of %s at step %lld", row->name, (long long)step);
  json_t *said = json_pack("{s:s, s:I}", "name", row->name, "step", (json_int_t)step);
  if (json_array_append_new(list, said) != 0) FAIL(ERR_MEMORY, "bounds of step %lld", (long long)step);
  return close_row(m, said, noise_floor(row, precision), q, row->zero ? 0.0 : bound_ceiling(BOUND_GRADIENT, precision, step), place);
}

/* Rows of the truth against itself: their units and names are all that is wanted of them. */
static enum err add_gradients(const struct made *m, json_t *list, int64_t step)
{
  struct gaps rows = {0};
  enum err err = ERR_OK;
  TRY(gap_measure(m->truth, m->truth, step, &rows));
  double *q = malloc((size_t)rows.n * sizeof *q + 1);
  if (q == NULL) FAIL_TO(free_rows, ERR_MEMORY, "noise of %d gradients", rows.n);
  TRY_TO(free_rows, noise_gradients(&m->noise, m->truth, step, &rows, q));
  for (int p = 0; p < rows.n; p++) TRY_TO(free_rows, add_gradient(m, list, &rows.rows[p], q[p], step));
free_rows:
  free(q);
  gap_free(&rows);
  return err;
}

static enum err add_step(const struct made *m, json_t *all, int64_t step)
{
  const int64_t M = evidence_microbatches(&m->config);
  TRY(add_told(m, json_object_get(all, "loss"), BOUND_LOSS, "step", step, -1, "got.loss", 1.0));
  for (int64_t i = 0; i < M; i++)
    TRY(add_told(m, json_object_get(all, "loss_sum"), BOUND_LOSS, "microbatch", step, i, "got.loss_sum", 1.0));
  TRY(add_told(m, json_object_get(all, "norm"), BOUND_NORM, "step", step, -1, "got.norm", (double)M));
  return add_gradients(m, json_object_get(all, "gradients"), step);
}

enum err case_bounds_json(const struct case_source *s, int which, json_t **out, struct case_bounds *said)
{
  static const char *const lists[] = {"loss", "loss_sum", "norm", "gradients"};
  enum err err = ERR_OK;
  struct made m = {.truth = s->truth, .config = *s->config, .said = said};
  char precision[CONFIG_NAME];
  *out = NULL;
  *said = (struct case_bounds){0};
  memcpy(m.noise.runs, s->noise[which], sizeof m.noise.runs);
  m.config.precision = case_precisions[which];
  opt_text(opt_find(run_options, run_options_count, "precision"), &m.config, precision, sizeof precision);
  json_t *all = json_pack("{s:s, s:i, s:s}", "format", CASE_FORMAT, "version", CASE_VERSION, "precision", precision);
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    if (json_object_set_new(all, lists[i], json_array()) != 0) FAIL_TO(release, ERR_MEMORY, "bounds of %s", precision);
  for (int64_t step = 0; step < m.config.steps; step++) TRY_TO(release, add_step(&m, all, step));
  *out = all;
  return ERR_OK;

release:
  json_decref(all);
  return err;
}
