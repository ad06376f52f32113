/* divergence.c - O15: where a run first leaves the truth: outputs of blocks in forward order, then gradients in
 * them in backward order, of the last micro-batch of rank 0 in step 0.
 *
 * The truth of that micro-batch is a float64 run of rank 0's share of the batch alone ("part"): the same samples,
 * weights and masks, and a loss divided by fewer tokens, which scales its gradients by a known factor.  What comes
 * after the backward pass (reduction, update) is not looked at: if nothing diverges here, it is there.
 */
#include "bound.h"
#include "evidence.h"
#include "losses.h"
#include "verdict.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct place {
  char name[48];
  const char *pass;
  double scale; /* of the truth's values */
};

/* Place i in the order in which a step computes them; false behind the last. */
static bool place_at(const struct run_config *c, int i, double scale, struct place *out)
{
  const int L = (int)c->layers, outputs = L + 3; /* embedding, blocks, final norm, losses */
  const bool backward = i >= outputs;
  const int layer = backward ? L - (i - outputs) : i - 1;
  if (i < 0 || layer < -1) return false;
  const char *suffix = backward ? ".gradient" : "";
  if (layer < 0) snprintf(out->name, sizeof out->name, "embedding%s", suffix);
  else if (layer < L) snprintf(out->name, sizeof out->name, "h.%d%s", layer, suffix);
  else snprintf(out->name, sizeof out->name, "%s%s", layer == L ? "ln_f" : "losses", suffix);
  out->pass = backward ? "backward" : "forward";
  out->scale = backward ? scale : 1.0;
  return true;
}

struct difference {
  double relative;
  int64_t row, col; /* of the largest */
};

static enum err compare(const struct safetensors *mine, const struct safetensors *theirs, const struct place *p, struct difference *out)
{
  enum err err = ERR_OK;
  const struct safetensor *a = safetensors_find(mine, p->name), *b = safetensors_find(theirs, p->name);
  if (a == NULL || b == NULL || a->data.rows != b->data.rows || a->data.cols != b->data.cols)
    FAIL(ERR_FORMAT, "%s is not in both dumps with one shape", p->name);
  const int64_t n = tensor_count(&a->data);
  double *x = malloc(2 * (size_t)n * sizeof *x + 1), *y = x + n, largest = -1.0, dd = 0.0, yy = 0.0;
  if (x == NULL) FAIL(ERR_MEMORY, "%" PRId64 " elements", n);
  TRY_TO(release, evidence_elements(&a->data, x));
  TRY_TO(release, evidence_elements(&b->data, y));
  for (int64_t k = 0; k < n; k++) {
    const double d = fabs(x[k] - p->scale * y[k]);
    dd += d * d;
    yy += p->scale * p->scale * y[k] * y[k];
    if (!(d <= largest)) {
      largest = d;
      out->row = k / a->data.cols;
      out->col = k % a->data.cols;
    }
  }
  out->relative = dd == 0.0 ? 0.0 : sqrt(dd / yy);
release:
  free(x);
  return err;
}

/* Returns true when a place diverged or the dumps could not be read: the verdict is said. */
static bool first_divergence(const struct run_data *run, const struct safetensors *mine, const struct safetensors *theirs, double scale,
                             int *seen, struct verdict *out)
{
  const double limit = bound_ceiling(BOUND_GRADIENT, (enum precision)run->config.precision, 0);
  struct place p;
  for (int i = 0; place_at(&run->config, i, scale, &p); i++) {
    struct difference d = {0};
    if (compare(mine, theirs, &p, &d) != ERR_OK) {
      verdict_say(out, OUTCOME_INVALID, "%s", err_text());
      return true;
    }
    ++*seen;
    if (d.relative <= limit) continue;
    snprintf(out->worst, sizeof out->worst, "%s, %s pass", p.name, p.pass);
    out->value = d.relative;
    out->bound = limit;
    verdict_say(out, OUTCOME_FAIL,
                "the %s pass first leaves the truth at %s: %.3g (relative), bound %.0e; largest at token %" PRId64 ", channel %" PRId64
                ", rank 0, step 0, its last micro-batch",
                p.pass, p.name, d.relative, limit, d.row, d.col);
    return true;
  }
  return false;
}

void divergence_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                      struct verdict *out)
{
  verdict_start(out, "divergence", "O15");
  const struct run_data *part;
  struct safetensors *mine = NULL, *theirs = NULL;
  if (!companions_have(wanted, companions, n, "part", &part, out)) return;
  const double scale = losses_gather(part, 0, -1).tokens / losses_gather(run, 0, -1).tokens;
  if (evidence_tensors(run, "blocks", 0, &mine) != ERR_OK || evidence_tensors(part, "blocks", 0, &theirs) != ERR_OK || !isfinite(scale)) {
    verdict_say(out, OUTCOME_INVALID, "blocks cannot be compared: %s", isfinite(scale) ? err_text() : "no count of tokens");
  } else {
    int seen = 0;
    if (!first_divergence(run, mine, theirs, scale, &seen, out))
      verdict_say(out, OUTCOME_PASS, "%d outputs and gradients of blocks agree: forward and backward of rank 0 leave the truth nowhere", seen);
  }
  safetensors_close(mine);
  safetensors_close(theirs);
}
