/* update_moments.c - O6 from the optimizer's own state, step by step: m and v before and after, weights before and after.
 *
 *   g        the gradient times the clip factor: dumped, or (m' - beta1 m) / (1 - beta1), which needs no factor
 *   m'       = beta1 m + (1 - beta1) g, where g is dumped
 *   v'       = beta2 v + (1 - beta2) g^2
 *   weights  from m' and v' by the rule
 *
 * Each step begins from what was stored before it, so errors do not add up.  Bounds count roundings of float32: 4 ulp of the largest
 * term for m', twice that for v', which squares a rounded number; a g that is made of two moments has their roundings, made larger by
 * 1 / (1 - beta1).  A dumped g may have been added up from parts after these were clipped, or in another order for the dump: parts that
 * cancel are of the tensor's typical size, so it has 4 ulp of that.  Below float32's smallest normal number there is no ulp, and devices
 * may flush to zero: what is less counts as zero.  Types narrower than float32 are no evidence (update.h).
 */
#include "bound.h"
#include "observed.h"
#include "update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double smallest = 0x1p-126; /* normal float32 */

enum { M, M_AFTER, V, V_AFTER, W, W_AFTER, G, FILES };

struct state {
  const struct run_data *run;
  const struct update_rule *rule;
  int64_t step;
  double factor, lr;
  struct safetensors *files[FILES];
  double typical;           /* root mean square of the tensor's gradient times the factor; 0: not dumped */
  double *x[FILES];         /* of one tensor; NULL where it is not shown; m and v before step 0 are zero */
  struct worst *worst;
};

/* What of the step is there to be read. */
static enum err open_step(struct state *s)
{
  static const struct {
    const char *what;
    int after;
  } kinds[FILES] = {{"moments1", 0}, {"moments1", 1}, {"moments2", 0}, {"moments2", 1}, {"weights", 0}, {"weights", 1}, {"gradients", 0}};
  for (int i = 0; i < FILES; i++)
    if (evidence_has_tensors(s->run, kinds[i].what, s->step + kinds[i].after) && update_wide(s->run, kinds[i].what, s->step + kinds[i].after))
      TRY(evidence_tensors(s->run, kinds[i].what, s->step + kinds[i].after, &s->files[i]));
  return ERR_OK;
}

static void close_step(struct state *s)
{
  for (int i = 0; i < FILES; i++) {
    safetensors_close(s->files[i]);
    s->files[i] = NULL;
  }
}

static void release(struct state *s)
{
  for (int i = 0; i < FILES; i++) {
    free(s->x[i]);
    s->x[i] = NULL;
  }
}

static enum err read_tensor(struct state *s, const char *name, int64_t n)
{
  for (int i = 0; i < FILES; i++) {
    const bool begins = (i == M || i == V) && s->step == 0;
    const struct safetensor *t = s->files[i] ? safetensors_find(s->files[i], name) : NULL;
    if (s->files[i] == NULL && !begins) continue;
    if (s->files[i] != NULL && (t == NULL || tensor_count(&t->data) != n))
      FAIL(ERR_FORMAT, "%s is not in all files of step %lld with one shape", name, (long long)s->step);
    s->x[i] = calloc((size_t)n + 1, sizeof **s->x);
    if (s->x[i] == NULL) FAIL(ERR_MEMORY, "%lld elements", (long long)n);
    if (t == NULL) continue;
    TRY(evidence_elements(&t->data, s->x[i]));
  }
  double squares = 0.0;
  for (int64_t k = 0; s->x[G] && k < n; k++) squares += s->x[G][k] * s->x[G][k];
  s->typical = n > 0 ? sqrt(squares / (double)n) * fabs(s->factor) : 0.0;
  return ERR_OK;
}

/* Largest |got - want| / limit over a tensor. */
struct largest {
  double value, bound;
  int64_t place;
};
static void see(struct largest *l, double away, double limit, int64_t k)
{
  if (l->place >= 0 && isfinite(away) && away * l->bound <= l->value * limit) return;
  if (l->place >= 0 && !isfinite(l->value)) return;
  *l = (struct largest){away, limit, k};
}
static void tell(const struct largest *l, struct state *s, const char *what, const char *name)
{
  if (l->place < 0) return;
  s->worst->step = s->step;
  worst_see(s->worst, l->value, l->bound, "%s%s[%lld] at step %lld", what, name, (long long)l->place, (long long)s->step);
}

static void judge_tensor(struct state *s, const char *name, int64_t n, bool decay, bool frozen)
{
  const struct run_config *c = &s->run->config;
  const double ulp4 = bound_ceiling(BOUND_UPDATE, PRECISION_F32, s->step), *const *x = (const double *const *)s->x;
  struct largest first = {.place = -1}, second = {.place = -1}, weight = {.place = -1};
  for (int64_t k = 0; k < n; k++) {
    const double keep = x[M] ? c->beta1 * x[M][k] : NAN, after = x[M_AFTER] ? x[M_AFTER][k] : NAN;
    const bool dumped = x[G] != NULL;
    double g = dumped ? x[G][k] * s->factor : (after - keep) / (1.0 - c->beta1); /* NaN: not known */
    if (dumped && s->rule->coupled && x[W]) g += update_decay(c, s->rule, decay) * x[W][k];
    const double off = dumped ? ulp4 * s->typical : (ulp4 / 2 * (fabs(after) + fabs(keep)) + 2.0 * smallest) / (1.0 - c->beta1);
    if (frozen) continue;
    if (dumped && x[M] && x[M_AFTER])
      see(&first, fabs(after - keep - (1.0 - c->beta1) * g), ulp4 * (fabs(keep) + fabs((1.0 - c->beta1) * g)) + 2.0 * smallest + (1.0 - c->beta1) * off, k);
    if ((dumped || (x[M] && x[M_AFTER])) && x[V] && x[V_AFTER]) {
      const double want = c->beta2 * x[V][k] + (1.0 - c->beta2) * g * g;
      see(&second, fabs(x[V_AFTER][k] - want), 2.0 * ulp4 * want + 2.0 * smallest + (1.0 - c->beta2) * (2.0 * fabs(g) + off) * off, k);
    }
    if (x[W] && x[W_AFTER] && x[M_AFTER] && x[V_AFTER]) {
      const double want = update_weight(c, s->rule, s->step + 1, s->lr, decay, x[W][k], after, x[V_AFTER][k]);
      see(&weight, fabs(x[W_AFTER][k] - want), ulp4 * fmax(fmax(fabs(x[W][k]), fabs(x[W_AFTER][k])), s->lr), k);
    }
  }
  tell(&first, s, "first moment of ", name);
  tell(&second, s, "second moment of ", name);
  tell(&weight, s, "", name);
}

static enum err judge_step(struct state *s)
{
  enum err err = ERR_OK;
  TRY_TO(close, open_step(s));
  const struct safetensors *list = s->files[M_AFTER];
  for (int i = 0; list != NULL && i < safetensors_count(list); i++) {
    const struct safetensor *t = safetensors_get(list, i);
    const json_t *facts = evidence_parameter(s->run, t->name);
    if (facts == NULL) continue; /* the tied matrix once more; of other names the check of gradients speaks */
    err = read_tensor(s, t->name, tensor_count(&t->data));
    if (!err) judge_tensor(s, t->name, tensor_count(&t->data), evidence_flag(facts, "got.decay"), evidence_flag(facts, "got.frozen"));
    release(s);
    if (err) break;
  }
close:
  close_step(s);
  return err;
}

enum err update_by_moments(const struct run_data *run, const struct update_rule *rule, struct worst *w)
{
  if (run->config.optimizer != OPTIMIZER_ADAMW) return ERR_OK;
  for (int64_t step = 0; step < run->config.steps; step++) {
    struct state s = {.run = run, .rule = rule, .step = step, .worst = w, .lr = update_rate(run, rule, step)};
    s.factor = rule->unclipped ? 1.0 : observed_factor(run, step);
    TRY(judge_step(&s));
  }
  return ERR_OK;
}

/* Of step 0, over all tensors or those that decay: m' / (1 - beta1) = f g + d with the dumped gradient g; <x, y> with x = that, y = g, or
 * with x = d for the factor f, y = the decay that is due. */
struct products {
  double xy, yy, xx;
};

static enum err add_products(const struct run_data *run, const struct safetensors *const files[3], double factor, struct products *p)
{
  for (int i = 0; i < safetensors_count(files[1]); i++) {
    const char *name = safetensors_get(files[1], i)->name;
    const struct safetensor *t[3];
    const json_t *facts = evidence_parameter(run, name);
    double *x[3] = {NULL};
    enum err err = ERR_OK;
    if (files[2] && !evidence_flag(facts, "got.decay")) continue;
    for (int k = 0; k < 3; k++) {
      t[k] = files[k] ? safetensors_find(files[k], name) : NULL;
      if (files[k] == NULL) continue;
      const int64_t n = t[k] ? tensor_count(&t[k]->data) : -1;
      if (t[k] == NULL || (k > 0 && n != tensor_count(&t[0]->data))) FAIL_TO(release, ERR_FORMAT, "%s is not in all files with one shape", name);
      x[k] = malloc(((size_t)n + 1) * sizeof **x);
      if (x[k] == NULL) FAIL_TO(release, ERR_MEMORY, "%lld elements", (long long)n);
      TRY_TO(release, evidence_elements(&t[k]->data, x[k]));
    }
    for (int64_t k = 0; k < tensor_count(&t[0]->data); k++) {
      const double m = x[0][k] / (1.0 - run->config.beta1), a = files[2] ? m - factor * x[1][k] : m,
                   b = files[2] ? run->config.weight_decay * x[2][k] : x[1][k];
      p->xy += a * b;
      p->yy += b * b;
      p->xx += a * a;
    }
  release:
    for (int k = 0; k < 3; k++) free(x[k]);
    if (err) return err;
  }
  return ERR_OK;
}

/* True: the one is a multiple of the other, *ratio. */
static bool seen(const struct run_data *run, bool decay, double *ratio)
{
  struct safetensors *files[3] = {NULL};
  struct products p = {0};
  bool shown = evidence_tensors(run, "moments1", 1, &files[0]) == ERR_OK && evidence_tensors(run, "gradients", 0, &files[1]) == ERR_OK &&
               (!decay || evidence_tensors(run, "weights", 0, &files[2]) == ERR_OK);
  shown = shown && add_products(run, (const struct safetensors *const *)files, observed_factor(run, 0), &p) == ERR_OK;
  err_clear();
  for (int i = 0; i < 3; i++) safetensors_close(files[i]);
  *ratio = p.xy / p.yy;
  const double straight = decay ? 0.999 : 1.0 - 1e-5; /* what is left of a difference is rounded more */
  return shown && p.yy > 0.0 && p.xy > straight * sqrt(p.xx * p.yy);
}

bool update_factor_seen(const struct run_data *run, double *factor) { return seen(run, false, factor); }
bool update_decay_seen(const struct run_data *run, double *share) { return seen(run, true, share); }
