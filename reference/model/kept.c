/* kept.c - room for copies of outputs and gradients, by number of the block in the whole model. */
#include "model/stage.h"

#include "ops/ops.h"

#include <stdlib.h>

static int64_t layers_of(const struct model *m) { return m->config.run->layers; }
static int64_t number_of(const struct model *m, int64_t layer, bool gradient)
{
  return layer + 1 + (gradient ? layers_of(m) + 3 : 0);
}

bool model_has_block(const struct model *m, int layer)
{
  const int64_t L = layers_of(m);
  if (layer < 0) return layer == -1 && m->begins;
  if (layer >= L) return layer <= L + 1 && m->ends;
  for (int c = 0; c < m->chunks; c++)
    if (layer >= m->chunk[c].first && layer < m->chunk[c].first + m->chunk[c].layers) return true;
  return false;
}

/* Places of all that this rank has, from `at` on; at NULL: only their bytes. */
static size_t place(const struct model *m, char *at)
{
  const int64_t L = layers_of(m);
  size_t bytes = 0;
  for (int gradient = 0; gradient < 2; gradient++)
    for (int layer = -1; layer <= L + 1 - gradient; layer++) {
      const int64_t C = m->config.run->hidden;
      struct tensor t = layer == L + 1 ? tensor_at(at, DTYPE_F64, m->N, 1) : tensor_at(at, m->type, m->n, C);
      if (!model_has_block(m, layer)) continue;
      if (at) {
        t.at = at + bytes;
        m->kept.list[number_of(m, layer, gradient)] = t;
      }
      bytes += ((size_t)tensor_count(&t) * dtype_bytes(t.type) + 255) / 256 * 256;
    }
  return bytes;
}

enum err kept_create(struct model *m)
{
  const size_t n = (size_t)(2 * layers_of(m) + 5);
  if (m->config.run->dump != DUMP_ALL) return ERR_OK;
  m->kept.list = calloc(n, sizeof *m->kept.list);
  if (m->kept.list == NULL) FAIL(ERR_MEMORY, "model: list of %zu kept blocks", n);
  m->kept.bytes = place(m, NULL);
  TRY(dev_alloc(m->config.dev, m->kept.bytes, DEV_ACTIVATIONS, "kept blocks", &m->kept.block));
  place(m, m->kept.block);
  return ERR_OK;
}

void kept_destroy(struct model *m)
{
  dev_free(m->config.dev, m->kept.block);
  free(m->kept.list);
}

enum err kept_store(const struct model *m, int64_t layer, bool gradient, const struct tensor *x)
{
  if (m->kept.list == NULL) return ERR_OK;
  const struct tensor *t = &m->kept.list[number_of(m, layer, gradient)];
  TRY(dev_begin(m->config.compute, t->at, (size_t)tensor_count(t) * dtype_bytes(t->type)));
  return op_copy(m->config.compute, t, x);
}

enum err model_block(struct model *m, int layer, bool gradient, struct tensor *out)
{
  const int L = (int)layers_of(m);
  if (m->kept.list == NULL) FAIL(ERR_ARG, "block %d: outputs are kept only with dump: all", layer);
  if (layer < -1 || layer > L + 1 || (layer == L + 1 && gradient))
    FAIL(ERR_ARG, "block %d%s; valid: -1 to %d, and %d without gradient", layer, gradient ? ", gradient" : "", L,
         L + 1);
  if (!model_has_block(m, layer)) FAIL(ERR_ARG, "block %d is not on pipeline rank %d", layer, m->config.place.pp_rank);
  *out = m->kept.list[number_of(m, layer, gradient)];
  return ERR_OK;
}
