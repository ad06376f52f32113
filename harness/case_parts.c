/* case_parts.c - truth/parts.safetensors: what each micro-batch contributes to the gradient of step 0, for vector parameters. */
#include "harness/case.h"

#include "suites/checks/evidence.h"
#include "suites/checks/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void case_parts_config(const struct run_config *truth, struct run_config *out)
{
  *out = *truth;
  out->steps = evidence_microbatches(truth);
  out->global_batch = truth->micro_batch;
  out->lr_schedule = LR_CONSTANT;
  out->lr = out->lr_min = 0.0; /* each step begins from the first weights */
  out->lr_warmup = out->lr_decay = 0;
  out->dump = DUMP_GRADIENTS;
  out->dump_batches = false;
  out->evaluate_each = 0;
}

bool case_parts_wanted(const struct run_config *truth)
{
  const int64_t M = evidence_microbatches(truth);
  return M > 1 && M <= PARTS_MAX;
}

/* Its step m is the truth's micro-batch m: not so where a policy deals batches by their size. */
static bool same_batches(const struct run_data *truth, const struct run_data *parts)
{
  for (int64_t m = 0; m < evidence_microbatches(&truth->config); m++) {
    const json_t *want = evidence_record(truth, "batch", -1, 0, m), *have = evidence_record(parts, "batch", -1, m, 0);
    if (want == NULL || have == NULL || evidence_text(want, "got.hash")[0] == '\0' || !evidence_same_text(want, have, "got.hash")) return false;
  }
  return true;
}

/* Row m: the gradient of the mean loss of micro-batch m, times its share of the step's tokens. */
static enum err fill(const struct run_data *truth, const struct run_data *parts, const char *name, int64_t cols, double *rows)
{
  const double all = evidence_value(truth, "step", 0, 0, -1, "got.valid_tokens");
  for (int64_t m = 0; m < parts->config.steps; m++) {
    struct safetensors *f;
    enum err err = ERR_OK;
    double *row = rows + m * cols;
    TRY(evidence_tensors(parts, "gradients", m, &f));
    const struct safetensor *t = safetensors_find(f, name);
    if (t == NULL || tensor_count(&t->data) != cols) err = err_set(ERR_FORMAT, __FILE__, __LINE__, "micro-batch %lld has no gradient of %s", (long long)m, name);
    else err = evidence_elements(&t->data, row);
    safetensors_close(f);
    if (err) return err_trace(err, __FILE__, __LINE__);
    for (int64_t k = 0; k < cols; k++) row[k] *= evidence_value(truth, "microbatch", -1, 0, m, "got.valid_tokens") / all;
  }
  return ERR_OK;
}

/* Rows sum up to the truth's gradient, but for rounding of float64. */
static enum err check_sum(const struct safetensor *whole, const double *rows, int64_t M)
{
  const int64_t cols = tensor_count(&whole->data);
  double *g = malloc(((size_t)cols + 1) * sizeof *g), away = 0.0, size = 0.0;
  if (g == NULL) FAIL(ERR_MEMORY, "%lld elements", (long long)cols);
  const enum err err = evidence_elements(&whole->data, g);
  for (int64_t k = 0; !err && k < cols; k++) {
    double sum = 0.0;
    for (int64_t m = 0; m < M; m++) sum += rows[m * cols + k], size += fabs(rows[m * cols + k]);
    away += fabs(sum - g[k]);
  }
  free(g);
  if (!err && !(away <= 1e-9 * size)) FAIL(ERR_FORMAT, "micro-batches' gradients of %s do not sum up to the step's", whole->name);
  return err;
}

enum err case_write_parts(const struct run_data *truth, const struct run_data *parts, const char *dir)
{
  enum err err = ERR_OK;
  struct safetensors *whole;
  int n = 0;
  char path[CONFIG_PATH + 64];
  const int64_t M = evidence_microbatches(&truth->config);
  if (!same_batches(truth, parts)) return ERR_OK;
  TRY(evidence_tensors(truth, "gradients", 0, &whole));
  struct safetensor *list = calloc((size_t)safetensors_count(whole) + 1, sizeof *list);
  if (list == NULL) FAIL_TO(close_whole, ERR_MEMORY, "a list of %d tensors", safetensors_count(whole));
  for (int i = 0; i < safetensors_count(whole); i++) {
    const struct safetensor *t = safetensors_get(whole, i);
    const int64_t cols = tensor_count(&t->data);
    if (t->rank != 1) continue;
    double *rows = malloc(((size_t)M * (size_t)cols + 1) * sizeof *rows);
    if (rows == NULL) FAIL_TO(free_list, ERR_MEMORY, "%lld elements", (long long)(M * cols));
    list[n++] = (struct safetensor){t->name, tensor_at(rows, DTYPE_F64, M, cols), 2};
    TRY_TO(free_list, fill(truth, parts, t->name, cols, rows));
    TRY_TO(free_list, check_sum(t, rows, M));
  }
  snprintf(path, sizeof path, "%s/parts.safetensors", dir);
  err = safetensors_write(path, list, n, NULL);
free_list:
  for (int i = 0; i < n; i++) free(list[i].data.at);
  free(list);
close_whole:
  safetensors_close(whole);
  return err;
}
