/* parts.c - normal equations of a few unknowns, by Cholesky's method. */
#include "parts.h"
#include "observed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct equations {
  int n;
  double matrix[PARTS_MAX][PARTS_MAX], right[PARTS_MAX], squares; /* <R_i, R_k>, <R_i, G>, <G, G> */
};

static void add(struct equations *e, const double *parts, const double *g, int64_t cols)
{
  for (int i = 0; i < e->n; i++) {
    const double *r = parts + i * cols;
    for (int64_t c = 0; c < cols; c++) e->right[i] += r[c] * g[c];
    for (int k = 0; k <= i; k++)
      for (int64_t c = 0; c < cols; c++) e->matrix[i][k] += r[c] * parts[k * cols + c];
  }
  for (int64_t c = 0; c < cols; c++) e->squares += g[c] * g[c];
}

/* In place; false where a pivot is lost in rounding. */
static bool solve(struct equations *e, double *a)
{
  double (*m)[PARTS_MAX] = e->matrix;
  for (int i = 0; i < e->n; i++) {
    const double whole = m[i][i];
    for (int k = 0; k <= i; k++) {
      double sum = m[i][k];
      for (int j = 0; j < k; j++) sum -= m[i][j] * m[k][j];
      if (i == k && !(sum > 1e-10 * whole)) return false;
      m[i][k] = i == k ? sqrt(sum) : sum / m[k][k];
    }
  }
  for (int i = 0; i < e->n; i++) {
    a[i] = e->right[i];
    for (int k = 0; k < i; k++) a[i] -= m[i][k] * a[k];
    a[i] /= m[i][i];
  }
  for (int i = e->n - 1; i >= 0; i--) {
    for (int k = i + 1; k < e->n; k++) a[i] -= m[k][i] * a[k];
    a[i] /= m[i][i];
  }
  return true;
}

static enum err gather(const struct safetensors *parts, const struct observed *mine, struct equations *e)
{
  for (int i = 0; i < safetensors_count(parts); i++) {
    const struct safetensor *t = safetensors_get(parts, i), *g = safetensors_find(mine->now, t->name);
    const int64_t rows = t->data.rows, cols = t->data.cols;
    enum err err = ERR_OK;
    if (rows != e->n || g == NULL || tensor_count(&g->data) != cols) FAIL(ERR_FORMAT, "parts of %s", t->name);
    double *x = malloc(((size_t)rows + 1) * (size_t)cols * sizeof *x);
    if (x == NULL) FAIL(ERR_MEMORY, "parts of %s", t->name);
    TRY_TO(release, evidence_elements(&t->data, x));
    TRY_TO(release, observed_elements(mine, t->name, x + rows * cols));
    add(e, x, x + rows * cols, cols);
  release:
    free(x);
    if (err) return err;
  }
  return ERR_OK;
}

bool parts_solve(const struct run_data *run, const struct run_data *truth, struct parts *out)
{
  char path[CONFIG_PATH + 32];
  struct safetensors *parts = NULL;
  struct observed mine = {0};
  bool ok = false;
  struct equations *e = calloc(1, sizeof *e);
  snprintf(path, sizeof path, "%s/parts.safetensors", truth->dir);
  if (e && observed_open(run, 0, &mine) == ERR_OK && safetensors_open(path, &parts) == ERR_OK && safetensors_count(parts) > 0) {
    e->n = (int)safetensors_get(parts, 0)->data.rows;
    ok = e->n >= 1 && e->n <= PARTS_MAX && gather(parts, &mine, e) == ERR_OK && e->squares > 0.0;
  }
  out->n = ok ? e->n : 0;
  struct equations *whole = ok ? malloc(sizeof *whole) : NULL;
  if (whole) *whole = *e;
  ok = whole && solve(e, out->a);
  if (ok) { /* |G - sum|^2 = <G,G> - <a, right> at the solution */
    double rest = whole->squares;
    for (int i = 0; i < out->n; i++) rest -= out->a[i] * whole->right[i];
    out->rest = sqrt(fmax(rest, 0.0) / whole->squares);
  }
  err_clear();
  free(whole);
  free(e);
  safetensors_close(parts);
  observed_close(&mine);
  return ok;
}
