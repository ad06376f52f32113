/* divergence.c - O15: where a run first leaves the truth: outputs of blocks in forward order, then gradients in
 * them in backward order, of the last micro-batch of step 0: the last replica's last, and so the last of the serial
 * float64 run ("blocks"), whatever the batch policy.  What comes after the backward pass (reduction, update) is not
 * looked at: if nothing diverges here, it is there.
 */
#include "bound.h"
#include "evidence.h"
#include "verdict.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct place {
  char name[48];
  const char *pass;
};

/* Place i in the order in which a step computes them; false behind the last. */
static bool place_at(const struct run_config *c, int i, struct place *out)
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
    const double d = fabs(x[k] - y[k]);
    dd += d * d;
    yy += y[k] * y[k];
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
static bool first_divergence(const struct run_data *run, const struct safetensors *mine, const struct safetensors *theirs, int *seen,
                             struct verdict *out)
{
  const double limit = bound_ceiling(BOUND_GRADIENT, (enum precision)run->config.precision, 0);
  struct place p;
  for (int i = 0; place_at(&run->config, i, &p); i++) {
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
                ", in the last micro-batch of step 0",
                p.pass, p.name, d.relative, limit, d.row, d.col);
    return true;
  }
  return false;
}

void divergence_judge(const struct run_data *run, const struct companion *wanted, const struct run_data *const *companions, int n,
                      struct verdict *out)
{
  verdict_start(out, "divergence", "O15");
  const struct run_data *serial;
  struct safetensors *mine = NULL, *theirs = NULL;
  if (!companions_have(wanted, companions, n, "blocks", &serial, out)) return;
  if (evidence_tensors(run, "blocks", 0, &mine) != ERR_OK || evidence_tensors(serial, "blocks", 0, &theirs) != ERR_OK) {
    verdict_say(out, OUTCOME_INVALID, "blocks cannot be compared: %s", err_text());
  } else {
    int seen = 0;
    if (!first_divergence(run, mine, theirs, &seen, out))
      verdict_say(out, OUTCOME_PASS, "%d outputs and gradients of blocks agree: forward and backward of the last micro-batch leave the truth nowhere", seen);
  }
  safetensors_close(mine);
  safetensors_close(theirs);
}
