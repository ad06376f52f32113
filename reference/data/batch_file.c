/* batch_file.c - tokens, targets, positions and documents as someone else wrote them. */
#include "data/batch_file.h"

#include "base/safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS, TARGETS, POSITIONS, DOCUMENTS, ARRAYS };
static const char *const names[ARRAYS] = {"tokens", "targets", "positions", "documents"};

struct batch_file {
  struct safetensors *file;
  struct tensor arrays[ARRAYS];
};

static int64_t value_at(const struct tensor *t, int64_t row, int64_t col)
{
  const char *at = tensor_row(t, row);
  int32_t narrow;
  int64_t wide;
  if (t->type == DTYPE_I32) {
    memcpy(&narrow, at + col * (int64_t)sizeof narrow, sizeof narrow);
    return narrow;
  }
  memcpy(&wide, at + col * (int64_t)sizeof wide, sizeof wide);
  return wide;
}

static enum err check_array(const struct run_config *c, int which, const struct tensor *t)
{
  const int64_t low[ARRAYS] = {0, -1, 0, -1};
  const int64_t high[ARRAYS] = {c->vocab - 1, c->vocab - 1, c->positions - 1, INT32_MAX};
  if (t->type != DTYPE_I32 && t->type != DTYPE_I64)
    FAIL(ERR_FORMAT, "batch_file %s: '%s' is %s; valid: int32, int64", c->batch_file, names[which], dtype_name(t->type));
  if (t->cols != c->sequence || t->rows < c->global_batch || t->rows % c->global_batch != 0)
    FAIL(ERR_FORMAT, "batch_file %s: '%s' is %lld x %lld; expected a multiple of global_batch %lld rows of sequence %lld",
         c->batch_file, names[which], (long long)t->rows, (long long)t->cols, (long long)c->global_batch, (long long)c->sequence);
  for (int64_t r = 0; r < t->rows; r++)
    for (int64_t i = 0; i < t->cols; i++) {
      const int64_t v = value_at(t, r, i);
      if (v < low[which] || v > high[which])
        FAIL(ERR_FORMAT, "batch_file %s: '%s' row %lld column %lld is %lld; valid: %lld..%lld", c->batch_file, names[which],
             (long long)r, (long long)i, (long long)v, (long long)low[which], (long long)high[which]);
    }
  return ERR_OK;
}

enum err batch_file_open(const struct run_config *c, struct batch_file **out)
{
  enum err err;
  *out = NULL;
  struct batch_file *f = calloc(1, sizeof *f);
  if (f == NULL) FAIL(ERR_MEMORY, "batch_file: %zu bytes", sizeof *f);
  TRY_TO(close_file, safetensors_open(c->batch_file, &f->file));
  for (int i = 0; i < ARRAYS; i++) {
    const struct safetensor *s = safetensors_find(f->file, names[i]);
    if (s == NULL) FAIL_TO(close_file, ERR_FORMAT, "batch_file %s: no tensor '%s'", c->batch_file, names[i]);
    f->arrays[i] = s->data;
    TRY_TO(close_file, check_array(c, i, &f->arrays[i]));
    if (f->arrays[i].rows != f->arrays[0].rows)
      FAIL_TO(close_file, ERR_FORMAT, "batch_file %s: '%s' has %lld rows, 'tokens' %lld", c->batch_file, names[i],
              (long long)f->arrays[i].rows, (long long)f->arrays[0].rows);
  }
  *out = f;
  return ERR_OK;

close_file:
  batch_file_close(f);
  return err;
}

void batch_file_close(struct batch_file *f)
{
  if (f == NULL) return;
  safetensors_close(f->file);
  free(f);
}

int64_t batch_file_rows(const struct batch_file *f) { return f->arrays[TOKENS].rows; }

void batch_file_row(const struct batch_file *f, int64_t row, int64_t b, struct batch *out)
{
  int32_t *const to[ARRAYS] = {out->tokens, out->targets, out->positions, out->documents};
  for (int i = 0; i < ARRAYS; i++)
    for (int64_t t = 0; t < out->T; t++) to[i][b * out->T + t] = (int32_t)value_at(&f->arrays[i], row, t);
}
