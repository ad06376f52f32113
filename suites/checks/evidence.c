/* evidence.c - lookups by linear scan: a case has some thousand records at most. */
#include "evidence.h"

#include "base/f16.h"
#include "base/record.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

int evidence_ranks(const struct run_data *r) { return r->ranks > 0 ? r->ranks : (int)(r->config.dp * r->config.tp * r->config.pp); }

int64_t evidence_microbatches(const struct run_config *c) { return c->micro_batch > 0 ? c->global_batch / c->micro_batch : 0; }

static int64_t place(const json_t *record, const char *key)
{
  const json_t *value = json_object_get(record, key);
  return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}
int64_t evidence_rank(const json_t *record) { return place(record, "rank"); }
int64_t evidence_step(const json_t *record) { return place(record, "step"); }
int64_t evidence_microbatch(const json_t *record) { return place(record, "microbatch"); }

bool evidence_is(const json_t *record, const char *kind)
{
  const char *text = json_string_value(json_object_get(record, "kind"));
  return text != NULL && strcmp(text, kind) == 0;
}

static bool at(const json_t *record, const char *kind, int64_t rank, int64_t step, int64_t microbatch)
{
  return evidence_is(record, kind) && (rank < 0 || evidence_rank(record) == rank) && (step < 0 || evidence_step(record) == step) &&
         (microbatch < 0 || evidence_microbatch(record) == microbatch);
}

const json_t *evidence_record(const struct run_data *r, const char *kind, int64_t rank, int64_t step, int64_t microbatch)
{
  for (size_t i = 0; i < json_array_size(r->records); i++) {
    const json_t *record = json_array_get(r->records, i);
    if (at(record, kind, rank, step, microbatch)) return record;
  }
  return NULL;
}

int evidence_count(const struct run_data *r, const char *kind, int64_t rank, int64_t step, int64_t microbatch)
{
  int n = 0;
  for (size_t i = 0; i < json_array_size(r->records); i++)
    n += at(json_array_get(r->records, i), kind, rank, step, microbatch);
  return n;
}

bool evidence_tells(const struct run_data *r, const char *kind, const char *key)
{
  for (size_t i = 0; i < json_array_size(r->records); i++) {
    const json_t *record = json_array_get(r->records, i);
    if (evidence_is(record, kind) && (key == NULL || json_object_get(record, key) != NULL)) return true;
  }
  return false;
}

double evidence_real(const json_t *record, const char *key) { return record_get_real(record, key, NAN); }

double evidence_value(const struct run_data *r, const char *kind, int64_t rank, int64_t step, int64_t microbatch, const char *key)
{
  const json_t *record = evidence_record(r, kind, rank, step, microbatch);
  return record ? evidence_real(record, key) : NAN;
}

const char *evidence_text(const json_t *record, const char *key)
{
  const char *text = record_get_text(record, key);
  return text ? text : "";
}

bool evidence_same_text(const json_t *a, const json_t *b, const char *key) { return strcmp(evidence_text(a, key), evidence_text(b, key)) == 0; }

bool evidence_flag(const json_t *record, const char *key) { return json_is_true(json_object_get(record, key)); }

double evidence_clock_error_ms(const struct run_data *r)
{
  double most_ms = 0;
  for (int rank = 0; rank < evidence_ranks(r); rank++) {
    most_ms = fmax(most_ms, evidence_value(r, "rank", rank, -1, -1, "got.clock_error_ms")); /* at the start */
    most_ms = fmax(most_ms, evidence_value(r, "clock", rank, -1, -1, "got.error_ms"));      /* and at the end */
  }
  return most_ms;
}

bool evidence_ended(const struct run_data *r) { return strcmp(r->end, "exited") == 0 && r->status == 0; }

int64_t evidence_steps(const struct run_data *r)
{
  for (int64_t step = 0; step < r->config.steps; step++)
    for (int rank = 0; rank < evidence_ranks(r); rank++)
      if (evidence_record(r, "step", rank, step, -1) == NULL) return step;
  return r->config.steps;
}

static const json_t *tensors_record(const struct run_data *r, const char *what, int64_t step)
{
  for (size_t i = 0; i < json_array_size(r->records); i++) {
    const json_t *record = json_array_get(r->records, i);
    if (at(record, "tensors", -1, step, -1) && strcmp(evidence_text(record, "got.what"), what) == 0) return record;
  }
  return NULL;
}

bool evidence_has_tensors(const struct run_data *r, const char *what, int64_t step) { return tensors_record(r, what, step) != NULL; }

enum err evidence_tensors(const struct run_data *r, const char *what, int64_t step, struct safetensors **out)
{
  const json_t *record = tensors_record(r, what, step);
  char path[2 * CONFIG_PATH + 2];
  *out = NULL;
  if (record == NULL) FAIL(ERR_FORMAT, "no record names the %s of step %lld", what, (long long)step);
  snprintf(path, sizeof path, "%s/%s", r->dir, evidence_text(record, "got.file"));
  TRY(safetensors_open(path, out));
  return ERR_OK;
}

enum err evidence_elements(const struct tensor *t, double *out)
{
  for (int64_t row = 0; row < t->rows; row++) {
    const char *from = tensor_row(t, row);
    double *to = out + row * t->cols;
    if (t->type == DTYPE_F64) {
      memcpy(to, from, (size_t)t->cols * sizeof *to);
    } else if (t->type == DTYPE_F32) {
      for (int64_t col = 0; col < t->cols; col++) {
        float value; /* a mapped file promises no alignment */
        memcpy(&value, from + (size_t)col * sizeof value, sizeof value);
        to[col] = (double)value;
      }
    } else if (t->type == DTYPE_BF16 || t->type == DTYPE_F16) {
      for (int64_t col = 0; col < t->cols; col++) {
        uint16_t value;
        memcpy(&value, from + (size_t)col * sizeof value, sizeof value);
        to[col] = (double)(t->type == DTYPE_F16 ? f16_widen(value) : bf16_widen(value));
      }
    } else {
      FAIL(ERR_FORMAT, "elements of type %s cannot be judged", dtype_name(t->type));
    }
  }
  return ERR_OK;
}

const json_t *evidence_parameter(const struct run_data *r, const char *name)
{
  for (size_t i = 0; i < json_array_size(r->records); i++) {
    const json_t *record = json_array_get(r->records, i);
    if (evidence_is(record, "parameter") && strcmp(evidence_text(record, "got.name"), name) == 0) return record;
  }
  return NULL;
}

const struct run_data *evidence_companion(const struct companion *wanted, const struct run_data *const *companions, int n,
                                          const char *role)
{
  for (int i = 0; i < n; i++)
    if (companions[i] != NULL && strcmp(wanted[i].role, role) == 0) return companions[i];
  return NULL;
}

bool evidence_skipped(const struct run_data *r, int64_t step)
{
  const json_t *record = evidence_record(r, "step", 0, step, -1);
  return record != NULL && evidence_flag(record, "got.skipped");
}
