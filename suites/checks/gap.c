/* gap.c - norms and products over two gradient dumps, summed in float64 in element order. */
#include "gap.h"

#include "observed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sums {
  double gg, rr, gr, dd;
  int64_t n;
};

static void add(struct sums *s, double g, double r)
{
  s->gg += g * g;
  s->rr += r * r;
  s->gr += g * r;
  s->dd += (g - r) * (g - r);
  s->n++;
}

/* Columns whose gradient is zero: the middle third of the fused bias, or all. */
static bool is_zero_column(bool fused, int64_t col, int64_t cols) { return !fused || (col >= cols / 3 && col < cols / 3 * 2); }

static double touched(const double *g, const double *r, int64_t n)
{
  double largest = 0.0;
  int64_t many = 0;
  for (int64_t k = 0; k < n; k++) largest = fmax(largest, fabs(g[k] - r[k]));
  for (int64_t k = 0; k < n; k++) many += fabs(g[k] - r[k]) > 1e-3 * largest;
  return n > 0 ? (double)many / (double)n : 0.0;
}

static void finish(struct gap *row, const struct sums *s, double rms, const char *name, const char *suffix, bool zero)
{
  const double typical = rms * sqrt((double)s->n);
  snprintf(row->name, sizeof row->name, "%s%s", name, suffix);
  row->zero = zero;
  row->got = sqrt(s->gg);
  row->want = sqrt(s->rr);
  row->unit = zero ? typical : fmax(row->want, 0.01 * typical);
  const double distance = sqrt(s->dd);
  row->error = distance == 0.0 ? 0.0 : distance / row->unit;
  row->ratio = s->rr > 0.0 ? s->gr / s->rr : NAN;
  row->cosine = s->gg > 0.0 && s->rr > 0.0 ? s->gr / sqrt(s->gg) / sqrt(s->rr) : NAN;
}

static double sum_of_squares(const double *x, int64_t n)
{
  double sum = 0.0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sum;
}

/* Largest tensor of the file, in elements. */
static int64_t largest(const struct safetensors *f)
{
  int64_t most = 1;
  for (int i = 0; i < safetensors_count(f); i++) {
    const int64_t n = tensor_count(&safetensors_get(f, i)->data);
    if (n > most) most = n;
  }
  return most;
}

static enum err measure(const struct run_data *truth, const struct observed *mine, const struct safetensors *theirs, double *g, double *r,
                        struct gaps *out)
{
  double all = 0.0, got = 0.0;
  int64_t elements = 0;
  for (int i = 0; i < safetensors_count(theirs); i++) {
    const struct tensor *t = &safetensors_get(theirs, i)->data;
    TRY(evidence_elements(t, r));
    all += sum_of_squares(r, tensor_count(t));
    elements += tensor_count(t);
  }
  const double rms = elements > 0 ? sqrt(all / (double)elements) : 0.0;

  for (int i = 0; i < safetensors_count(theirs); i++) {
    const struct safetensor *want = safetensors_get(theirs, i), *have = safetensors_find(mine->now, want->name);
    if (have == NULL) FAIL(ERR_FORMAT, "the run has no gradient of %s", want->name);
    if (have->data.rows != want->data.rows || have->data.cols != want->data.cols)
      FAIL(ERR_FORMAT, "gradient of %s is [%lld, %lld], the truth's [%lld, %lld]", want->name, (long long)have->data.rows,
           (long long)have->data.cols, (long long)want->data.rows, (long long)want->data.cols);
    TRY(evidence_elements(&want->data, r));
    TRY(observed_elements(mine, want->name, g));
    const json_t *facts = evidence_parameter(truth, want->name);
    const bool zero = facts != NULL && evidence_flag(facts, "got.zero_gradient");
    const bool fused = strstr(want->name, "c_attn.bias") != NULL;
    struct sums rest = {0}, nothing = {0};
    for (int64_t k = 0; k < tensor_count(&want->data); k++)
      add(zero && is_zero_column(fused, k % want->data.cols, want->data.cols) ? &nothing : &rest, g[k], r[k]);
    got += rest.gg + nothing.gg;
    if (rest.n > 0) {
      out->rows[out->n].touched = touched(g, r, tensor_count(&want->data));
      finish(&out->rows[out->n++], &rest, rms, want->name, "", false);
    }
    if (nothing.n > 0) finish(&out->rows[out->n++], &nothing, rms, want->name, fused ? "[key]" : "", true);
  }
  out->got = sqrt(got);
  out->want = sqrt(all);
  return ERR_OK;
}

enum err gap_measure(const struct run_data *run, const struct run_data *truth, int64_t step, struct gaps *out)
{
  enum err err = ERR_OK;
  struct observed mine;
  struct safetensors *theirs = NULL;
  double *g = NULL, *r = NULL;
  memset(out, 0, sizeof *out);

  TRY(observed_open(run, step, &mine));
  TRY_TO(close_mine, evidence_tensors(truth, "gradients", step, &theirs));
  if (run->foreign) TRY_TO(close_theirs, observed_same_names(mine.now, theirs, "gradients"));
  else if (safetensors_count(mine.now) != safetensors_count(theirs))
    FAIL_TO(close_theirs, ERR_FORMAT, "the run has %d gradients, the truth %d", safetensors_count(mine.now), safetensors_count(theirs));
  const size_t most = (size_t)largest(theirs);
  g = malloc(most * sizeof *g);
  r = malloc(most * sizeof *r);
  out->rows = calloc(2 * (size_t)safetensors_count(theirs) + 1, sizeof *out->rows);
  if (g == NULL || r == NULL || out->rows == NULL) FAIL_TO(free_all, ERR_MEMORY, "gradients of %zu elements", most);
  TRY_TO(free_all, measure(truth, &mine, theirs, g, r, out));
  goto free_work;

free_all:
  gap_free(out);
free_work:
  free(g);
  free(r);
close_theirs:
  safetensors_close(theirs);
close_mine:
  observed_close(&mine);
  return err;
}

void gap_free(struct gaps *g)
{
  free(g->rows);
  memset(g, 0, sizeof *g);
}

/* --- what step 0 may have left behind ------------------------------------------------- */

/* Adds the products of one tensor; x[0]: this run at step 0, x[1] at step 1, x[2]: the truth at step 1. */
static enum err add_leftover(const struct observed files[3], const char *name, double *const x[3], struct sums *s)
{
  int64_t n = -1;
  for (int i = 0; i < 3; i++) {
    const struct safetensor *t = safetensors_find(files[i].now, name);
    if (t == NULL || (n >= 0 && tensor_count(&t->data) != n)) FAIL(ERR_FORMAT, "gradient of %s is not in all dumps", name);
    n = tensor_count(&t->data);
    TRY(observed_elements(&files[i], name, x[i]));
  }
  for (int64_t k = 0; k < n; k++) add(s, x[1][k] - x[2][k], x[0][k]);
  return ERR_OK;
}

enum err gap_leftover(const struct run_data *run, const struct run_data *truth, double *cosine, double *share)
{
  enum err err = ERR_OK;
  struct observed files[3] = {{0}};
  double *x[3] = {NULL};
  struct sums s = {0};
  TRY_TO(release, observed_open(run, 0, &files[0]));
  TRY_TO(release, observed_open(run, 1, &files[1]));
  TRY_TO(release, observed_open(truth, 1, &files[2]));
  const size_t most = (size_t)largest(files[2].now);
  for (int i = 0; i < 3; i++)
    if ((x[i] = malloc(most * sizeof **x)) == NULL) FAIL_TO(release, ERR_MEMORY, "gradients of %zu elements", most);
  const int parameters = safetensors_count(files[2].now);
  int alike = 0;
  for (int i = 0; i < parameters; i++) {
    const struct sums before = s;
    TRY_TO(release, add_leftover(files, safetensors_get(files[2].now, i)->name, x, &s));
    const double gg = s.gg - before.gg, rr = s.rr - before.rr;
    alike += gg > 0.0 && rr > 0.0 && s.gr - before.gr > 0.99 * sqrt(gg) * sqrt(rr);
  }
  *share = (double)alike / (double)parameters;
  *cosine = s.gg > 0.0 && s.rr > 0.0 ? s.gr / sqrt(s.gg) / sqrt(s.rr) : NAN;
release:
  for (int i = 0; i < 3; i++) {
    free(x[i]);
    observed_close(&files[i]);
  }
  return err;
}
