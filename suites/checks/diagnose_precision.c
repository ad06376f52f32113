/* diagnose_precision.c - signatures of faults of narrow types and of the loss scale. */
#include "base/f16.h"
#include "signs.h"

#include <math.h>
#include <string.h>

/* Ranks disagree on whether a step was to be skipped, or on who overflowed. */
bool precision_ranks_decide_apart(const struct signs *s)
{
  const struct verdict *scale = signs_failed(s, "scale");
  return scale != NULL && strstr(scale->worst, "decision") != NULL;
}

/* Weights before and after step 0 are equal in bits. */
static bool nothing_changed(const struct run_data *run)
{
  struct safetensors *before = NULL, *after = NULL;
  bool same = evidence_tensors(run, "weights", 0, &before) == ERR_OK && evidence_tensors(run, "weights", 1, &after) == ERR_OK;
  for (int i = 0; same && i < safetensors_count(before); i++) {
    const struct safetensor *t = safetensors_get(before, i), *u = safetensors_find(after, t->name);
    const size_t bytes = (size_t)tensor_count(&t->data) * dtype_bytes(t->data.type);
    same = u != NULL && tensor_count(&u->data) == tensor_count(&t->data) && memcmp(t->data.at, u->data.at, bytes) == 0;
  }
  safetensors_close(after);
  safetensors_close(before);
  return same;
}

/* A step that was not skipped left every weight as it was. */
bool precision_every_step_is_skipped(const struct signs *s)
{
  return s->run->config.loss_scale > 0.0 && signs_failed(s, "update") != NULL && !evidence_skipped(s->run, 0) && nothing_changed(s->run);
}

/* All gradients are the truth's over one power of two, far from 1, in a run that scales no loss. */
bool precision_divided_by_a_scale(const struct signs *s)
{
  int exponent = 0, seen = 0;
  if (s->run->config.loss_scale > 0.0 || !s->clean_loss) return false;
  for (int i = 0; i < s->first.n; i++) {
    const struct gap *row = &s->first.rows[i];
    int mine;
    if (row->zero || !(row->want > 0.0)) continue;
    if (!(row->ratio > 0.0) || !(row->cosine > 0.9)) return false;
    frexp(row->ratio * 1.4142135623730951, &mine); /* nearest power of two: 2^(mine - 1) */
    if (seen++ > 0 && mine != exponent) return false;
    exponent = mine;
  }
  return seen > 0 && exponent <= -7;
}

/* The gradients are right, and the square of their norm is a half, or infinite. */
bool precision_norm_is_a_half(const struct signs *s)
{
  const struct verdict *finite = signs_failed(s, "finite");
  if (s->run->config.precision != PRECISION_F16 || s->first.n == 0 || signs_count_off(s, &s->first) > 0) return false;
  if (finite != NULL) return strstr(finite->worst, "norm") != NULL;
  if (signs_failed(s, "norm") == NULL) return false;
  const double norm = evidence_value(s->run, "step", 0, 0, -1, "got.norm"), squares = norm * norm;
  return signs_near(squares, (double)f16_widen(f16_round_f64(squares)), 1e-12);
}
