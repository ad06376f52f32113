/* observed.c - gradients from dumps or from first moments, and the names that foreign files use. */
#include "observed.h"

#include "schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool observed_by_moments(const struct run_data *run, int64_t step)
{
  if (!run->foreign || evidence_has_tensors(run, "gradients", step) || run->config.optimizer != OPTIMIZER_ADAMW) return false;
  return evidence_has_tensors(run, "moments1", step + 1) && (step == 0 || evidence_has_tensors(run, "moments1", step)) &&
         isfinite(1.0 / observed_factor(run, step));
}

bool observed_has(const struct run_data *run, int64_t step)
{
  return evidence_has_tensors(run, "gradients", step) || observed_by_moments(run, step);
}

double observed_factor(const struct run_data *run, int64_t step)
{
  const double factor = evidence_value(run, "step", 0, step, -1, "got.clip_factor");
  return isnan(factor) ? schedule_clip(&run->config, evidence_value(run, "step", 0, step, -1, "got.norm")) : factor;
}

enum err observed_open(const struct run_data *run, int64_t step, struct observed *o)
{
  const double beta1 = run->config.beta1;
  *o = (struct observed){.scale = 1.0};
  if (!observed_by_moments(run, step)) {
    TRY(evidence_tensors(run, "gradients", step, &o->now));
    return ERR_OK;
  }
  o->by_moments = true;
  o->scale = 1.0 / (1.0 - beta1) / observed_factor(run, step);
  TRY(evidence_tensors(run, "moments1", step + 1, &o->now));
  if (step == 0) return ERR_OK;
  o->keep = beta1;
  const enum err err = evidence_tensors(run, "moments1", step, &o->before);
  if (err) observed_close(o);
  return err;
}

void observed_close(struct observed *o)
{
  safetensors_close(o->now);
  safetensors_close(o->before);
  *o = (struct observed){0};
}

enum err observed_elements(const struct observed *o, const char *name, double *out)
{
  const struct safetensor *t = safetensors_find(o->now, name), *before = o->before ? safetensors_find(o->before, name) : NULL;
  if (t == NULL || (o->before && (before == NULL || tensor_count(&before->data) != tensor_count(&t->data))))
    FAIL(ERR_FORMAT, "%s is not in both files of moments with one shape", name);
  const int64_t n = tensor_count(&t->data);
  TRY(evidence_elements(&t->data, out));
  if (before != NULL) {
    double *less = malloc(((size_t)n + 1) * sizeof *less);
    if (less == NULL) FAIL(ERR_MEMORY, "%lld elements", (long long)n);
    const enum err err = evidence_elements(&before->data, less);
    for (int64_t k = 0; !err && k < n; k++) out[k] -= o->keep * less[k];
    free(less);
    TRY(err);
  }
  for (int64_t k = 0; o->by_moments && k < n; k++) out[k] *= o->scale;
  return ERR_OK;
}

/* --- names ------------------------------------------------------------------------------- */

/* The name under which a file has what is wanted but for a prefix ("module.", "transformer."); NULL: none. */
static const char *under_another_prefix(const struct safetensors *mine, const char *want)
{
  for (int i = 0; i < safetensors_count(mine); i++) {
    const char *name = safetensors_get(mine, i)->name;
    const size_t n = strlen(name), w = strlen(want);
    if (n > w && strcmp(name + n - w, want) == 0) return name;
    if (w > n && want[w - n - 1] == '.' && strcmp(want + w - n, name) == 0) return name;
  }
  return NULL;
}

static bool is_tied_head(const struct safetensor *t, const struct safetensors *wanted);

/* The first name that the case lacks; NULL: none. */
static const char *foreign_name(const struct safetensors *mine, const struct safetensors *wanted)
{
  for (int i = 0; i < safetensors_count(mine); i++) {
    const struct safetensor *t = safetensors_get(mine, i);
    if (safetensors_find(wanted, t->name) == NULL && !is_tied_head(t, wanted)) return t->name;
  }
  return NULL;
}

static bool has_shape(const struct safetensor *t, int64_t rows, int64_t cols) { return t->data.rows == rows && t->data.cols == cols; }

static bool is_tied_head(const struct safetensor *t, const struct safetensors *wanted)
{
  const struct safetensor *wte = safetensors_find(wanted, "transformer.wte.weight");
  return strcmp(t->name, "lm_head.weight") == 0 && wte != NULL && has_shape(t, wte->data.rows, wte->data.cols);
}

enum err observed_same_names(const struct safetensors *mine, const struct safetensors *wanted, const char *what)
{
  for (int i = 0; i < safetensors_count(wanted); i++) {
    const struct safetensor *want = safetensors_get(wanted, i), *have = safetensors_find(mine, want->name);
    const int64_t rows = want->data.rows, cols = want->data.cols;
    if (have == NULL) {
      const char *near = under_another_prefix(mine, want->name), *other = near ? near : foreign_name(mine, wanted);
      FAIL(ERR_FORMAT, "the %s have no %s%s%s%s", what, want->name, near ? "; they call it '" : other ? "; the case has no '" : "", other ? other : "",
           other ? "'" : "");
    }
    if (!has_shape(have, rows, cols))
      FAIL(ERR_FORMAT, "%s of the %s is [%lld, %lld], the case's [%lld, %lld]%s", want->name, what, (long long)have->data.rows,
           (long long)have->data.cols, (long long)rows, (long long)cols,
           has_shape(have, cols, rows) ? ": transposed; a case has matrices as Hugging Face's Conv1D, [in, out], torch.nn.Linear has [out, in]" : "");
  }
  for (int i = 0; i < safetensors_count(mine); i++) {
    const struct safetensor *t = safetensors_get(mine, i);
    if (safetensors_find(wanted, t->name) == NULL && !is_tied_head(t, wanted))
      FAIL(ERR_FORMAT, "%s of the %s is no parameter of the case", t->name, what);
  }
  return ERR_OK;
}
