/* predict_units.c - the parameters of a rank by what is gathered or reduced together. */
#include "predict.h"

#include "shapes.h"

#include <stdlib.h>

static int count_units(const struct run_config *c, const struct layout *at)
{
  const struct partition stages = predict_stages(c);
  int blocks = 0;
  for (int64_t l = 0; l < shapes_blocks(c); l++) blocks += layout_has_layer(c, &stages, at, l);
  return blocks + 2;
}

static void count_elements(const struct run_config *c, const struct layout *at, struct predicted_unit *out, int n)
{
  const struct partition stages = predict_stages(c);
  int64_t layer = -1;
  int block = 0;
  bool behind = false; /* the blocks, here or not */
  struct shape s;
  for (int i = 0; shapes_part(c, &stages, at, i, &s); i++) {
    behind = behind || s.layer >= 0;
    if (s.rows * s.cols == 0) continue;
    block += s.layer >= 0 && s.layer != layer;
    layer = s.layer;
    out[s.layer >= 0 ? block : behind ? n - 1 : 0].count += predict_padded(c, s.rows * s.cols);
  }
}

/* Buckets tile each unit, the last one first. */
static enum err count_buckets(const struct run_config *c, const struct layout *at, struct predicted_unit *out, int n)
{
  const int64_t n_buckets = predict_buckets(c, at, NULL, 0);
  int64_t *counts = calloc((size_t)n_buckets, sizeof *counts);
  if (counts == NULL) FAIL(ERR_MEMORY, "%lld buckets", (long long)n_buckets);
  predict_buckets(c, at, counts, n_buckets);
  int b = 0;
  for (int u = n - 1; u >= 0; u--) {
    out[u].first_bucket = b;
    for (int64_t left = out[u].count; left > 0 && b < n_buckets; left -= counts[b++]) out[u].buckets++;
  }
  free(counts);
  return ERR_OK;
}

enum err predict_units(const struct run_config *c, const struct layout *at, struct predicted_unit **out, int *n)
{
  *n = count_units(c, at);
  *out = calloc((size_t)*n, sizeof **out);
  if (*out == NULL) FAIL(ERR_MEMORY, "%d units", *n);
  count_elements(c, at, *out, *n);
  const enum err err = count_buckets(c, at, *out, *n);
  if (err == ERR_OK) return ERR_OK;
  free(*out);
  *out = NULL;
  return err;
}
