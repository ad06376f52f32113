/* params_io.c - rows of the table to and from safetensors. */
#include "params/params_io.h"

#include "base/f16.h"
#include "base/nearest.h"
#include "base/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "transformer.";

static struct tensor row_of(const struct param_table *t, const struct flat *f, int i, enum dtype type, const void *host)
{
  BUG_IF(f->rows[i] != t->rows[i].rows || f->cols[i] != t->rows[i].cols); /* a file has whole rows */
  char *at = (char *)(uintptr_t)host + (size_t)f->offset[i] * dtype_bytes(type);
  return tensor_at(at, type, t->rows[i].rows, t->rows[i].cols);
}

enum err params_write(const char *path, const struct param_table *t, const struct flat *f, enum dtype type,
                      const void *host, const char *const *meta)
{
  struct safetensor *list = calloc((size_t)t->n, sizeof *list);
  if (list == NULL) FAIL(ERR_MEMORY, "%s: %zu bytes", path, (size_t)t->n * sizeof *list);
  int n = 0;
  for (int i = 0; i < t->n; i++)
    if (t->rows[i].shared_with < 0)
      list[n++] = (struct safetensor){t->rows[i].name, row_of(t, f, i, type, host), t->rows[i].rank};
  const enum err err = safetensors_write(path, list, n, meta);
  free(list);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

static double element(const struct tensor *t, int64_t i)
{
  if (t->type == DTYPE_BF16) return (double)bf16_widen(((const uint16_t *)t->at)[i]);
  if (t->type == DTYPE_F16) return (double)f16_widen(((const uint16_t *)t->at)[i]);
  return t->type == DTYPE_F64 ? ((const double *)t->at)[i] : (double)((const float *)t->at)[i];
}

static bool ends_with(const char *name, const char *end)
{
  const size_t n = strlen(name), m = strlen(end);
  return n >= m && strcmp(name + n - m, end) == 0;
}

/* Causal masks, which old releases of the format kept beside the weights. */
static bool is_mask(const char *name) { return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias"); }

/* The row of a tensor's name, with or without the prefix; -1: none. */
static int row_named(const struct param_table *t, const char *name)
{
  const int row = params_find(t, name);
  if (row >= 0) return row;
  for (int i = 0; i < t->n; i++)
    if (strncmp(t->rows[i].name, prefix, sizeof prefix - 1) == 0 && strcmp(t->rows[i].name + sizeof prefix - 1, name) == 0)
      return i;
  return -1;
}

static enum err unknown(const char *path, const struct param_table *t, const char *name)
{
  struct nearest near = nearest_to(name);
  char text[512];
  for (int i = 0; i < t->n; i++) nearest_offer(&near, t->rows[i].name);
  FAIL(ERR_CONFIG, "%s: tensor '%s' is no parameter of this model; nearest: %s", path, name,
       nearest_text(&near, text, sizeof text));
}

static enum err check_tensor(const char *path, const struct param *row, const struct safetensor *s)
{
  if (row->shared_with >= 0)
    FAIL(ERR_CONFIG, "%s: tensor '%s' shares its storage with an earlier block; leave it out", path, s->name);
  if (s->rank != row->rank || s->data.rows != row->rows || s->data.cols != row->cols)
    FAIL(ERR_CONFIG, "%s: tensor '%s' has rank %d, [%" PRId64 ", %" PRId64 "]; this model's has rank %d, [%" PRId64 ", %" PRId64 "]",
         path, s->name, s->rank, s->data.rows, s->data.cols, row->rank, row->rows, row->cols);
  if (s->data.type != DTYPE_F64 && s->data.type != DTYPE_F32 && s->data.type != DTYPE_BF16 && s->data.type != DTYPE_F16)
    FAIL(ERR_FORMAT, "%s: tensor '%s' is %s; valid: float64, float32, bfloat16, float16", path, s->name, dtype_name(s->data.type));
  return ERR_OK;
}

/* A tied head may be written out all the same; then it must be the embedding. */
static enum err check_tied_head(const char *path, const struct param_table *t, const struct safetensors *file,
                                const struct safetensor *head)
{
  for (int i = 0; i < safetensors_count(file); i++) {
    const struct safetensor *s = safetensors_get(file, i);
    if (row_named(t, s->name) != 0) continue;
    if (s->data.type == head->data.type && s->data.rows == head->data.rows && s->data.cols == head->data.cols &&
        memcmp(s->data.at, head->data.at, (size_t)tensor_count(&s->data) * dtype_bytes(s->data.type)) == 0)
      return ERR_OK;
  }
  FAIL(ERR_CONFIG, "%s: tensor '%s' differs from '%s', but the head is tied", path, head->name, t->rows[0].name);
}

static enum err read_all(const char *path, const struct param_table *t, const struct flat *f, enum dtype as, enum dtype type,
                         void *host, const struct safetensors *file, bool *seen)
{
  for (int i = 0; i < safetensors_count(file); i++) {
    const struct safetensor *s = safetensors_get(file, i);
    const int row = row_named(t, s->name);
    if (row < 0 && is_mask(s->name)) continue;
    if (row < 0 && strcmp(s->name, "lm_head.weight") == 0) { /* no such row: tied */
      TRY(check_tied_head(path, t, file, s));
      continue;
    }
    if (row < 0) TRY(unknown(path, t, s->name));
    TRY(check_tensor(path, &t->rows[row], s));
    if (seen[row]) FAIL(ERR_CONFIG, "%s: '%s' stands there twice, with and without '%s'", path, t->rows[row].name, prefix);
    seen[row] = true;
    const struct tensor out = row_of(t, f, row, type, host);
    for (int64_t k = 0; k < f->length[row]; k++) params_store(out.at, type, as, k, element(&s->data, k));
  }
  for (int i = 0; i < t->n; i++)
    if (t->rows[i].shared_with < 0 && !seen[i])
      FAIL(ERR_CONFIG, "%s: tensor '%s' is missing (or has neither one nor two dimensions)", path, t->rows[i].name);
  return ERR_OK;
}

enum err params_read(const char *path, const struct param_table *t, const struct flat *f, enum dtype as, enum dtype type,
                     void *host)
{
  enum err err;
  struct safetensors *file = NULL;
  bool *seen = calloc((size_t)t->n, sizeof *seen);
  if (seen == NULL) FAIL(ERR_MEMORY, "%s: %d names", path, t->n);
  TRY_TO(free_seen, safetensors_open(path, &file));
  TRY_TO(close, read_all(path, t, f, as, type, host, file, seen));
  err = ERR_OK;

close:
  safetensors_close(file);
free_seen:
  free(seen);
  return err;
}
