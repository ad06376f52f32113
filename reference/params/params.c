/* params.c - GPT-2's rows (Radford et al. 2019; names of Hugging Face's GPT2LMHeadModel).
 *
 * Weight decay: matrices (the embeddings included) yes; biases and norms no.
 */
#include "params/params.h"

#include "base/f16.h"
#include "base/nearest.h"
#include "base/rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One parameter as a pattern: sizes are multiples of hidden, or one of the two special
 * lengths.  Within a block the order is that of use in forward. */
enum { BY_VOCAB = -1, BY_POSITIONS = -2, AS_VECTOR = 0 };
struct pattern {
  const char *name;
  int rows, cols; /* times hidden; or BY_...; rows AS_VECTOR: rank 1 */
  enum param_init init;
  enum param_cut cut;
  int blocks;
  bool zero_gradient;
};

static const struct pattern block_rows[] = {
  {"ln_1.weight", AS_VECTOR, 1, PARAM_GAIN, PARAM_WHOLE, 1, false},
  {"ln_1.bias", AS_VECTOR, 1, PARAM_BIAS, PARAM_WHOLE, 1, false},
  {"attn.c_attn.weight", 1, 3, PARAM_NORMAL, PARAM_CUT_COLS, 3, false},
  /* softmax does not change when all keys move by one vector: that third has gradient zero */
  {"attn.c_attn.bias", AS_VECTOR, 3, PARAM_BIAS, PARAM_CUT_COLS, 3, true},
  {"attn.c_proj.weight", 1, 1, PARAM_NORMAL_RESIDUAL, PARAM_CUT_ROWS, 1, false},
  {"attn.c_proj.bias", AS_VECTOR, 1, PARAM_BIAS, PARAM_WHOLE, 1, false},
  {"ln_2.weight", AS_VECTOR, 1, PARAM_GAIN, PARAM_WHOLE, 1, false},
  {"ln_2.bias", AS_VECTOR, 1, PARAM_BIAS, PARAM_WHOLE, 1, false},
  {"mlp.c_fc.weight", 1, 4, PARAM_NORMAL, PARAM_CUT_COLS, 1, false},
  {"mlp.c_fc.bias", AS_VECTOR, 4, PARAM_BIAS, PARAM_CUT_COLS, 1, false},
  {"mlp.c_proj.weight", 4, 1, PARAM_NORMAL_RESIDUAL, PARAM_CUT_ROWS, 1, false},
  {"mlp.c_proj.bias", AS_VECTOR, 1, PARAM_BIAS, PARAM_WHOLE, 1, false},
};
enum { PER_BLOCK = sizeof block_rows / sizeof *block_rows };

static const struct pattern wte = {"transformer.wte.weight", BY_VOCAB, 1, PARAM_NORMAL, PARAM_CUT_ROWS, 1, false};
static const struct pattern wpe = {"transformer.wpe.weight", BY_POSITIONS, 1, PARAM_NORMAL, PARAM_WHOLE, 1, false};
static const struct pattern ln_f[] = {
  {"transformer.ln_f.weight", AS_VECTOR, 1, PARAM_GAIN, PARAM_WHOLE, 1, false},
  {"transformer.ln_f.bias", AS_VECTOR, 1, PARAM_BIAS, PARAM_WHOLE, 1, false},
};
static const struct pattern lm_head = {"lm_head.weight", BY_VOCAB, 1, PARAM_NORMAL, PARAM_CUT_ROWS, 1, false};

enum { UNUSED_COUNT = 7 }; /* odd, so that it fits no alignment */

/* Parts of names, for who misspelt one. */
static const char *const name_parts[] = {"wte", "wpe", "ln_1", "ln_2", "ln_f", "c_attn", "c_fc", "c_proj",
                                         "attn", "mlp", "lm_head", "bias", "weight", "unused"};

static int64_t extent(int code, const struct run_config *c)
{
  if (code == BY_VOCAB) return c->vocab;
  if (code == BY_POSITIONS) return c->positions;
  return code * c->hidden;
}

static struct param *append(struct param_table *t, const struct run_config *c, const struct pattern *p,
                            enum param_stage stage, int layer)
{
  struct param *row = &t->rows[t->n++];
  *row = (struct param){.rank = p->rows == AS_VECTOR ? 1 : 2,
                        .rows = p->rows == AS_VECTOR ? 1 : extent(p->rows, c),
                        .cols = extent(p->cols, c),
                        .init = p->init,
                        .cut = p->cut,
                        .blocks = p->blocks,
                        .pad = p->rows == BY_VOCAB ? (int)c->tp : 1,
                        .stage = stage,
                        .layer = layer,
                        .decay = p->rows != AS_VECTOR,
                        .zero_gradient = p->zero_gradient,
                        .shared_with = -1};
  if (layer < 0)
    snprintf(row->name, sizeof row->name, "%s", p->name);
  else
    snprintf(row->name, sizeof row->name, "transformer.h.%d.%s", layer, p->name);
  return row;
}

static void append_all(struct param_table *t, const struct run_config *c)
{
  append(t, c, &wte, c->tied ? PARAM_FIRST_AND_LAST : PARAM_FIRST, -1);
  append(t, c, &wpe, PARAM_FIRST, -1);
  const int first_block = t->n;
  for (int l = 0; l < c->layers; l++)
    for (int k = 0; k < PER_BLOCK; k++) {
      struct param *row = append(t, c, &block_rows[k], PARAM_BLOCK, l);
      const int64_t twin = l - (c->layers - c->reused); /* block of the first `reused` whose storage this one has */
      if (twin >= 0) row->shared_with = first_block + (int)twin * PER_BLOCK + k;
    }
  append(t, c, &ln_f[0], PARAM_LAST, -1);
  append(t, c, &ln_f[1], PARAM_LAST, -1);
  if (!c->tied) append(t, c, &lm_head, PARAM_LAST, -1);
  if (c->unused) {
    struct param *row = &t->rows[t->n++];
    *row = (struct param){.name = "extra.unused", .rank = 1, .rows = 1, .cols = UNUSED_COUNT, .init = PARAM_BIAS,
                          .blocks = 1, .pad = 1, .stage = PARAM_FIRST, .layer = -1, .unused = true, .shared_with = -1};
  }
}

/* A storage is frozen as a whole when any of its names matches. */
static enum err freeze(struct param_table *t, const char *pattern)
{
  if (pattern[0] == '\0') return ERR_OK;
  int matches = 0;
  for (int i = 0; i < t->n; i++) {
    if (strstr(t->rows[i].name, pattern) == NULL) continue;
    const int owner = t->rows[i].shared_with;
    t->rows[owner >= 0 ? owner : i].frozen = true;
    matches++;
  }
  if (matches == 0) {
    struct nearest near = nearest_to(pattern);
    char text[256];
    for (size_t i = 0; i < sizeof name_parts / sizeof *name_parts; i++) nearest_offer(&near, name_parts[i]);
    FAIL(ERR_CONFIG, "frozen: '%s' is part of no parameter's name; nearest parts: %s", pattern,
         nearest_text(&near, text, sizeof text));
  }
  for (int i = 0; i < t->n; i++)
    if (t->rows[i].shared_with >= 0) t->rows[i].frozen = t->rows[t->rows[i].shared_with].frozen;
  return ERR_OK;
}

enum err params_create(const struct run_config *c, struct param_table **out)
{
  enum err err;
  *out = NULL;
  if (c->layers < 1 || c->hidden < 1 || c->vocab < 1 || c->positions < 1)
    FAIL(ERR_CONFIG, "layers %" PRId64 ", hidden %" PRId64 ", vocab %" PRId64 ", positions %" PRId64 ": all must be at least 1",
         c->layers, c->hidden, c->vocab, c->positions);
  if (c->reused < 0 || 2 * c->reused > c->layers)
    FAIL(ERR_CONFIG, "reused: %" PRId64 "; valid: 0 to half of the %" PRId64 " layers", c->reused, c->layers);

  const size_t most = (size_t)c->layers * PER_BLOCK + 6;
  struct param_table *t = calloc(1, sizeof *t);
  if (t == NULL) FAIL(ERR_MEMORY, "parameter table: %zu bytes", sizeof *t);
  t->rows = calloc(most, sizeof *t->rows);
  if (t->rows == NULL) FAIL_TO(destroy, ERR_MEMORY, "parameter table: %zu bytes", most * sizeof *t->rows);
  append_all(t, c);
  TRY_TO(destroy, freeze(t, c->frozen));
  *out = t;
  return ERR_OK;

destroy:
  params_destroy(t);
  return err;
}

void params_destroy(struct param_table *t)
{
  if (t == NULL) return;
  free(t->rows);
  free(t);
}

int params_find(const struct param_table *t, const char *name)
{
  for (int i = 0; i < t->n; i++)
    if (strcmp(t->rows[i].name, name) == 0) return i;
  return -1;
}

int64_t params_count(const struct param_table *t)
{
  int64_t count = 0;
  for (int i = 0; i < t->n; i++)
    if (t->rows[i].shared_with < 0 && !t->rows[i].unused) count += t->rows[i].rows * t->rows[i].cols;
  return count;
}

/* --- initial contents ---------------------------------------------------------- */

static int blocks_of(const struct param_table *t)
{
  int last = -1;
  for (int i = 0; i < t->n; i++)
    if (t->rows[i].layer > last) last = t->rows[i].layer;
  return last + 1;
}

/* value = offset + deviation * normal */
static void rule(const struct param_table *t, const struct param *row, bool revealing, double *offset, double *deviation)
{
  const double usual = 0.02, gain = 0.1;
  *offset = row->init == PARAM_GAIN ? 1.0 : 0.0;
  switch (row->init) {
  case PARAM_NORMAL: *deviation = usual; break;
  case PARAM_NORMAL_RESIDUAL: *deviation = usual / sqrt(2.0 * blocks_of(t)); break;
  case PARAM_BIAS: *deviation = revealing ? usual : 0.0; break;
  case PARAM_GAIN: *deviation = revealing ? gain : 0.0; break;
  }
}

void params_store(void *at, enum dtype type, enum dtype as, int64_t i, double x)
{
  const double rounded = as == DTYPE_BF16   ? (double)bf16_widen(bf16_round_f64(x))
                         : as == DTYPE_F16 ? (double)f16_widen(f16_round_f64(x))
                         : as == DTYPE_F32 ? (double)(float)x
                                           : x;
  BUG_IF((as != DTYPE_BF16 && as != DTYPE_F16 && as != DTYPE_F32 && as != DTYPE_F64) || (type != DTYPE_F32 && type != DTYPE_F64));
  if (type == DTYPE_F64)
    ((double *)at)[i] = rounded;
  else
    ((float *)at)[i] = (float)rounded;
}

void params_initial(const struct param_table *t, int i, uint64_t seed, bool revealing, enum dtype as, enum dtype type,
                    int64_t first, int64_t n, void *out)
{
  const int owner = t->rows[i].shared_with >= 0 ? t->rows[i].shared_with : i;
  const struct rng_key key = {seed, RNG_INIT + (uint32_t)owner, 0};
  double offset = 0.0, deviation = 0.0;
  rule(t, &t->rows[owner], revealing, &offset, &deviation);
  for (int64_t k = 0; k < n; k++) {
    const double x = deviation == 0.0 ? offset : offset + deviation * rng_normal(key, (uint64_t)(first + k));
    params_store(out, type, as, k, x);
  }
}
