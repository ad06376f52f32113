/* update_shown.c - what a foreign run shows of its updates, and what holds of those that it does not show. */
#include "bound.h"
#include "evidence.h"
#include "update.h"

#include <math.h>
#include <stdlib.h>

bool update_wide(const struct run_data *run, const char *what, int64_t step)
{
  struct safetensors *f;
  bool wide = true;
  if (evidence_tensors(run, what, step, &f) != ERR_OK) {
    err_clear();
    return true;
  }
  for (int i = 0; i < safetensors_count(f); i++) wide = wide && update_stored(safetensors_get(f, i)) == 0.0;
  safetensors_close(f);
  return wide;
}

static bool has(const struct run_data *run, const char *what, int64_t step, bool wide)
{
  return evidence_has_tensors(run, what, step) && (!wide || update_wide(run, what, step));
}

bool update_by_gradients(const struct run_data *run, bool wide)
{
  if (!has(run, "weights", 0, wide) || has(run, "moments2", 1, wide)) return false; /* moments tell it nearer */
  for (int64_t step = 0; step < run->config.steps; step++)
    if (!has(run, "gradients", step, wide)) return false;
  return true;
}

bool update_shown(const struct run_data *run, int64_t step, bool wide)
{
  if (!has(run, "weights", step, wide) || !has(run, "weights", step + 1, wide)) return false;
  return (has(run, "moments1", step + 1, wide) && has(run, "moments2", step + 1, wide)) || update_by_gradients(run, wide);
}

/* --- squares ------------------------------------------------------------------------------- */

/* False: a verdict is said. */
static bool none_negative(const struct safetensors *f, int64_t step, struct verdict *out)
{
  for (int i = 0; i < safetensors_count(f); i++) {
    const struct safetensor *t = safetensors_get(f, i);
    const int64_t n = tensor_count(&t->data);
    double *x = malloc(((size_t)n + 1) * sizeof *x), bad = 0.0;
    int64_t place = -1;
    if (x != NULL && evidence_elements(&t->data, x) == ERR_OK)
      for (int64_t k = 0; k < n && place < 0; k++)
        if (x[k] < 0.0) bad = x[place = k];
    free(x);
    if (place < 0) continue;
    verdict_first(out, step - 1, "second moment of %s[%lld] at step %lld", t->name, (long long)place, (long long)(step - 1));
    verdict_say(out, OUTCOME_FAIL, "second moment of %s[%lld] before step %lld is %.3g; a mean of squares is never negative", t->name, (long long)place,
                (long long)step, bad);
    return false;
  }
  return true;
}

bool update_squares(const struct run_data *run, struct verdict *out)
{
  for (int64_t step = 0; step <= run->config.steps; step++) {
    struct safetensors *f;
    if (!evidence_has_tensors(run, "moments2", step) || evidence_tensors(run, "moments2", step, &f) != ERR_OK) continue;
    const bool good = none_negative(f, step, out);
    safetensors_close(f);
    if (!good) return false;
  }
  err_clear();
  return true;
}

/* --- how far weights can move ---------------------------------------------------------------- */

/* Largest |m^| / sqrt(v^) of update t, whatever its gradients g_i were: m^ = sum a_i g_i, v^ = sum b_i g_i^2 with weights that sum up to
 * one, so that by Cauchy and Schwarz its square is at most sum a_i^2 / b_i. */
static double longest(const struct run_config *c, int64_t t)
{
  double sum = 0.0;
  for (int64_t back = 0; back < t; back++) {
    const double a = (1.0 - c->beta1) * pow(c->beta1, (double)back) / (1.0 - pow(c->beta1, (double)t));
    const double b = (1.0 - c->beta2) * pow(c->beta2, (double)back) / (1.0 - pow(c->beta2, (double)t));
    sum += a * a / b;
  }
  return sqrt(sum);
}

/* A weight w is moved by updates by at most fixed + relative |w|. */
struct span {
  int64_t from, to; /* the updates of steps from .. to - 1 */
  double fixed, relative;
};

static struct span span_of(const struct run_data *run, int64_t from, int64_t to)
{
  const struct update_rule asked = {0};
  struct span s = {.from = from, .to = to};
  for (int64_t step = from; step < to; step++) {
    const double lr = fabs(update_rate(run, &asked, step)), ulp4 = bound_ceiling(BOUND_UPDATE, PRECISION_F32, step);
    const double of_size = lr * run->config.weight_decay + ulp4;
    s.fixed += lr * (longest(&run->config, step + 1) + ulp4) + of_size * s.fixed;
    s.relative += of_size * (1.0 + s.relative);
  }
  return s;
}

/* False: a verdict is said. */
static bool in_reach(const struct safetensor *t, const struct safetensor *u, const struct span *s, struct verdict *out)
{
  const int64_t n = tensor_count(&t->data);
  const double stored = fmax(update_stored(t), update_stored(u));
  double *x = malloc((2 * (size_t)n + 1) * sizeof *x), *y = x + n;
  bool good = true;
  const bool read = x != NULL && evidence_elements(&t->data, x) == ERR_OK && evidence_elements(&u->data, y) == ERR_OK;
  for (int64_t k = 0; read && k < n && good; k++) {
    const double most = s->fixed + s->relative * fabs(x[k]) + stored * (fabs(x[k]) + fabs(y[k]));
    good = fabs(y[k] - x[k]) <= most;
    if (good) continue;
    verdict_first(out, s->to - 1, "weight %s[%lld] at step %lld", t->name, (long long)k, (long long)(s->to - 1));
    out->value = fabs(y[k] - x[k]);
    out->bound = most;
    verdict_say(out, OUTCOME_FAIL, "weight %s[%lld] went from %.6g before step %lld to %.6g after step %lld; updates of Adam reach %.3g at most", t->name,
                (long long)k, x[k], (long long)s->from, y[k], (long long)(s->to - 1), most);
  }
  free(x);
  if (!read) verdict_say(out, OUTCOME_INVALID, "weights of %s cannot be compared: %s", t->name, x ? err_text() : "no memory");
  return good && read;
}

static bool all_in_reach(const struct run_data *run, int64_t from, int64_t to, struct verdict *out)
{
  struct safetensors *before = NULL, *after = NULL;
  const struct span span = span_of(run, from, to);
  bool good = true;
  if (evidence_tensors(run, "weights", from, &before) == ERR_OK && evidence_tensors(run, "weights", to, &after) == ERR_OK)
    for (int i = 0; good && i < safetensors_count(before); i++) {
      const struct safetensor *t = safetensors_get(before, i), *u = safetensors_find(after, t->name);
      if (u != NULL && tensor_count(&u->data) == tensor_count(&t->data)) good = in_reach(t, u, &span, out);
    }
  err_clear();
  safetensors_close(before);
  safetensors_close(after);
  return good;
}

bool update_reaches(const struct run_data *run, struct verdict *out)
{
  int64_t from = -1;
  if (run->config.optimizer != OPTIMIZER_ADAMW) return true;
  for (int64_t to = 0; to <= run->config.steps; to++) {
    if (!evidence_has_tensors(run, "weights", to)) continue;
    const bool judged = from >= 0 && from == to - 1 && update_shown(run, from, true);
    if (from >= 0 && !judged && !all_in_reach(run, from, to, out)) return false;
    from = to;
  }
  return true;
}
