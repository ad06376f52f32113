/* noise.c - Q from eight runs, or from what was written down of them. */
#include "noise.h"

#include "bound.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a number is called among records of kind "noise". */
static const struct {
  const char *kind, *key, *of;
} told[] = {{"step", "got.loss", "loss"},
            {"step", "got.loss_sum", "loss"}, /* over the same count */
            {"microbatch", "got.loss_sum", "loss_sum"},
            {"eval", "got.loss", "evaluation"},
            {"step", "got.norm", "norm"}};
enum { TOLD = sizeof told / sizeof *told };

bool noise_have(const struct companion *wanted, const struct run_data *const *companions, int n, const struct run_data **truth,
                struct noise *noise, struct verdict *v)
{
  memset(noise, 0, sizeof *noise);
  if (!companions_have_truth(wanted, companions, n, truth, v)) return false;
  noise->bounds = evidence_companion(wanted, companions, n, "bounds");
  if (noise->bounds != NULL) return true;
  for (int i = 0; i < COMPANIONS_NOISE; i++) {
    char role[32];
    snprintf(role, sizeof role, "noise%d", i);
    if (!companions_have(wanted, companions, n, role, &noise->runs[i], v)) return false;
  }
  return true;
}

static double written(const struct run_data *bounds, const char *of, int64_t step, int64_t microbatch)
{
  for (size_t i = 0; i < json_array_size(bounds->records); i++) {
    const json_t *r = json_array_get(bounds->records, i);
    if (evidence_step(r) == step && evidence_microbatch(r) == microbatch && strcmp(evidence_text(r, "got.of"), of) == 0)
      return evidence_real(r, "got.q");
  }
  return NAN;
}

double noise_of(const struct noise *noise, const struct run_data *truth, const char *kind, int64_t step, int64_t microbatch,
                const char *key)
{
  for (int i = 0; noise->bounds != NULL && i < TOLD; i++)
    if (strcmp(told[i].kind, kind) == 0 && strcmp(told[i].key, key) == 0) return written(noise->bounds, told[i].of, step, microbatch);
  if (noise->bounds != NULL) return NAN;
  const double want = evidence_value(truth, kind, -1, step, microbatch, key);
  double q = 0.0;
  for (int i = 0; i < COMPANIONS_NOISE; i++) {
    const double d = bound_relative(evidence_value(noise->runs[i], kind, -1, step, microbatch, key), want);
    q = isnan(d) || isnan(q) ? NAN : fmax(q, d);
  }
  return q;
}

enum err noise_gradients(const struct noise *noise, const struct run_data *truth, int64_t step, const struct gaps *rows, double *q)
{
  for (int p = 0; p < rows->n; p++) q[p] = noise->bounds ? written(noise->bounds, rows->rows[p].name, step, -1) : 0.0;
  for (int i = 0; noise->bounds == NULL && i < COMPANIONS_NOISE; i++) {
    struct gaps drawn;
    TRY(gap_measure(noise->runs[i], truth, step, &drawn));
    const bool same = drawn.n == rows->n;
    for (int p = 0; same && p < rows->n; p++) {
      const double error = drawn.rows[p].error;
      q[p] = isnan(q[p]) || !isfinite(error) ? NAN : fmax(q[p], error);
    }
    gap_free(&drawn);
    if (!same) FAIL(ERR_FORMAT, "a legal serial run has other gradients than the %d of the run", rows->n);
  }
  return ERR_OK;
}

/* F = 4 sqrt(K) u (sum over k of |g_k|^2)^1/2 over the K partial gradients that are added.  The
 * partial ones are not dumped, but by Cauchy-Schwarz that root is at least |R| / sqrt(K): the
 * floor used is 4 u |R|, never above F.  Where the true gradient is zero, R is what rounding left of parts that
 * cancel: they are of a typical gradient's size, which is what the row is measured in. */
double noise_floor(const struct gap *row, enum precision precision)
{
  const double floor = bound_floor(BOUND_GRADIENT, precision, 1.0);
  if (row->zero) return floor;
  return row->unit > 0.0 ? floor * row->want / row->unit : 0.0;
}

/* One entry of a list of a bounds file. */
static enum err take(json_t *records, const char *list, size_t index, const json_t *entry)
{
  const json_t *step = json_object_get(entry, "step"), *m = json_object_get(entry, "microbatch"), *q = json_object_get(entry, "q");
  const bool gradient = strcmp(list, "gradients") == 0;
  const char *of = gradient ? json_string_value(json_object_get(entry, "name")) : list;
  if (!json_is_integer(step) || !json_is_number(q) || (m && !json_is_integer(m)) || of == NULL)
    FAIL(ERR_FORMAT, "%s[%zu]: valid: an object with an integer `step`, a number `q`%s", list, index,
         gradient ? " and the text `name`" : ", and `microbatch` where it applies");
  json_t *r = json_pack("{s:s, s:O, s:s, s:O}", "kind", "noise", "step", step, "got.of", of, "got.q", q);
  if (r == NULL || (m && json_object_set(r, "microbatch", (json_t *)m) != 0) || json_array_append_new(records, r) != 0)
    FAIL(ERR_MEMORY, "%s[%zu]", list, index);
  return ERR_OK;
}

enum err noise_records(const json_t *bounds, json_t **out)
{
  static const char *const lists[] = {"loss", "loss_sum", "evaluation", "norm", "gradients"};
  enum err err = ERR_OK;
  *out = NULL;
  json_t *records = json_array();
  if (records == NULL) FAIL(ERR_MEMORY, "bounds");
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    const json_t *list = json_object_get(bounds, lists[i]), *entry;
    size_t k;
    if (list == NULL && strcmp(lists[i], "evaluation") == 0) continue; /* of a run that evaluates */
    if (!json_is_array(list)) FAIL_TO(release, ERR_FORMAT, "no list `%s`", lists[i]);
    json_array_foreach(list, k, entry) TRY_TO(release, take(records, lists[i], k, entry));
  }
  *out = records;
  return ERR_OK;

release:
  json_decref(records);
  return err;
}
