/* gradients.c - O4: every parameter's reduced gradient, before clipping, at every step. */
#include "bound.h"
#include "noise.h"
#include "observed.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* One parameter at its worst step. */
struct row_worst {
  char name[112];
  int64_t step;
  double value, bound, excess;
};

struct tally {
  struct worst worst;
  struct row_worst *rows; /* in the truth's order; as many as `parameters` */
  double smallest; /* scale error of any one parameter that is sure to be seen */
  int off, parameters;
  int64_t first_step; /* with a parameter off; -1: none */
  double ratio, cosine;
  char capped[224];   /* a parameter whose measured bound is above its ceiling; "" none */
  int64_t by_moments; /* steps whose gradients were told by first moments */
};

static void see_row(struct row_worst *w, const struct gap *row, double bound, int64_t step)
{
  const double excess = bound > 0.0 && isfinite(row->error) ? row->error / bound : row->error == 0.0 ? 0.0 : INFINITY;
  if (w->name[0] != '\0' && excess <= w->excess) return;
  *w = (struct row_worst){.step = step, .value = row->error, .bound = bound, .excess = excess};
  snprintf(w->name, sizeof w->name, "%s", row->name);
}

static void see(struct tally *t, const struct run_data *run, const struct gap *row, double bound, int64_t step)
{
  const enum precision precision = bound_precision(&run->config, BOUND_GRADIENT, step);
  const double ceiling = bound_ceiling(BOUND_GRADIENT, precision, step), before = t->worst.excess;
  t->worst.step = step;
  const bool ok = worst_see(&t->worst, row->error, bound, "%s at step %lld", row->name, (long long)step);
  if (t->worst.excess > before) {
    t->ratio = row->ratio;
    t->cosine = row->cosine;
  }
  if (!ok) {
    t->off++;
    if (t->first_step < 0) t->first_step = step;
  }
  if (!row->zero && !(bound <= ceiling) && t->capped[0] == '\0')
    snprintf(t->capped, sizeof t->capped, "%s at step %lld: measured bound %.2g, ceiling %.2g", row->name, (long long)step, bound, ceiling);
  if (!row->zero && row->got > 0.0) t->smallest = fmax(t->smallest, (bound + row->error) * row->unit / row->got);
}

/* What it adds, in a gradient's own size, that first moments in float32 tell it: products by the clip factor, by 1 - beta1 and by
 * beta1, their sum, and the factor's own rounding are five roundings; the moment also holds what is left of each step before, of a
 * gradient's size again in units of (1 - beta1) times the factor. */
static double moments_rounding(int64_t step) { return 5.0 * (double)(step + 1) * bound_unit(PRECISION_F32); }

/* One step: the run and all noise against the truth. */
static enum err judge_step(const struct run_data *run, const struct run_data *truth, const struct noise *noise, int64_t step, struct tally *t)
{
  struct gaps mine = {0};
  enum err err = ERR_OK;
  double *q = NULL;
  TRY(gap_measure(run, truth, step, &mine));
  if (t->rows == NULL) {
    t->parameters = mine.n;
    t->rows = calloc((size_t)mine.n + 1, sizeof *t->rows);
    if (t->rows == NULL) FAIL_TO(free_gaps, ERR_MEMORY, "%d rows", mine.n);
  }
  if (mine.n != t->parameters) FAIL_TO(free_gaps, ERR_FORMAT, "%d parameters, %d at the step before", mine.n, t->parameters);
  q = malloc(((size_t)mine.n + 1) * sizeof *q);
  if (q == NULL) FAIL_TO(free_gaps, ERR_MEMORY, "%d rows", mine.n);
  TRY_TO(free_gaps, noise_gradients(noise, truth, step, &mine, q));
  const bool by_moments = observed_by_moments(run, step);
  t->by_moments += by_moments;
  for (int p = 0; p < mine.n; p++) {
    const double floor = noise_floor(&mine.rows[p], bound_precision(&run->config, BOUND_GRADIENT, step));
    const double bound = bound_measured(floor, q[p]) + (by_moments ? moments_rounding(step) : 0.0);
    see(t, run, &mine.rows[p], bound, step);
    see_row(&t->rows[p], &mine.rows[p], bound, step);
  }
free_gaps:
  free(q);
  gap_free(&mine);
  return err;
}

/* Of a foreign run: how many steps are to be judged.  Gradients that are dumped are of every step; moments may end where they were last
 * saved.  False: it shows none. */
static bool foreign_shows(const struct run_data *run, int64_t *steps, struct verdict *out)
{
  int64_t shown = 0;
  while (shown < *steps && observed_has(run, shown)) shown++;
  bool dumped = false;
  for (int64_t step = 0; step < *steps; step++) dumped = dumped || evidence_has_tensors(run, "gradients", step);
  if (shown == 0 && !dumped) {
    verdict_unseen(out, "no gradients and no first moments", "a gradient that is not reduced, scaled wrongly, stale, or lacks a part");
    return false;
  }
  if (!dumped) *steps = shown;
  return true;
}

/* What cannot be compared has other names or shapes: that is the run's fault. */
static bool names_differ(const struct run_data *run, const struct run_data *truth, int64_t step, struct verdict *out)
{
  struct observed mine = {0};
  struct safetensors *theirs = NULL;
  bool differ = false;
  err_clear();
  if (observed_open(run, step, &mine) == ERR_OK && evidence_tensors(truth, "gradients", step, &theirs) == ERR_OK)
    differ = observed_same_names(mine.now, theirs, mine.by_moments ? "first moments" : "gradients") == ERR_FORMAT;
  if (differ) {
    verdict_first(out, step, "gradients at step %lld", (long long)step);
    verdict_say(out, OUTCOME_FAIL, "at step %lld: %s", (long long)step, err_text());
  }
  safetensors_close(theirs);
  observed_close(&mine);
  return differ;
}

static void conclude(const struct run_data *run, const struct tally *t, int64_t steps, struct verdict *out)
{
  char direction[64] = "the true one is zero"; /* of a frozen parameter, say: there is no ratio to nothing */
  if (!isnan(t->ratio) || !isfinite(t->worst.value)) snprintf(direction, sizeof direction, "ratio %.6g, cosine %.6g", t->ratio, t->cosine);
  worst_to(&t->worst, out);
  if (t->off > 0)
    verdict_say(out, OUTCOME_FAIL, "gradient of %s is %.3g from the truth, bound %.2g (%s); %d of %lld comparisons off, first at step %lld",
                t->worst.place, t->worst.value, t->worst.bound, direction, t->off, (long long)t->worst.seen, (long long)t->first_step);
  else if ((steps < run->config.steps && t->by_moments == 0) || steps == 0)
    verdict_say(out, OUTCOME_INVALID, "only %lld of %lld steps left evidence", (long long)steps, (long long)run->config.steps);
  else if (t->capped[0] != '\0')
    verdict_say(out, OUTCOME_INVALID, "the legal serial runs differ too much to decide: %s", t->capped);
  else {
    out->smallest = t->smallest;
    verdict_say(out, OUTCOME_PASS, "%d parameters at %lld steps%s; nearest to its bound: %s, %.2g of %.2g", t->parameters, (long long)steps,
                t->by_moments > 0 ? " by first moments" : "", t->worst.place, t->worst.value, t->worst.bound);
  }
}

void gradients_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                     struct verdict *out)
{
  verdict_start(out, "gradients", "O4");
  const struct run_data *truth;
  struct noise noise;
  if (!noise_have(wanted, companions, n, &truth, &noise, out)) return;

  struct tally t = {.first_step = -1};
  worst_start(&t.worst);
  int64_t steps = evidence_steps(run);
  if (run->foreign && !foreign_shows(run, &steps, out)) return;
  for (int64_t step = 0; step < steps; step++)
    if (!evidence_skipped(truth, step) && judge_step(run, truth, &noise, step, &t) != ERR_OK) {
      if (run->foreign && names_differ(run, truth, step, out)) {
        free(t.rows);
        return;
      }
      verdict_say(out, OUTCOME_INVALID, "gradients of step %lld cannot be compared: %s", (long long)step, err_text());
      free(t.rows);
      return;
    }
  conclude(run, &t, steps, out);
  for (int p = 0; p < t.parameters; p++) verdict_detail(out, t.rows[p].name, t.rows[p].step, t.rows[p].value, t.rows[p].bound);
  free(t.rows);
}
