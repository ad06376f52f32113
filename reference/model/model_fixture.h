/* model_fixture.h - what the tests of this room share.
 *
 * A rig is a device, a table, weights, one rank's part of a model and micro-batches with two
 * documents a sequence, ignored targets and padding.  Sizes are odd so that nothing divides.
 */
#ifndef MODEL_MODEL_FIXTURE_H
#define MODEL_MODEL_FIXTURE_H

#include "base/f16.h"
#include "model/stage.h"

#include "base/rng.h"
#include "device/dev_mirror.h"
#include "ops/ops.h"
#include "testing/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 7, V = 11, BATCHES = 4 };

struct rig {
  struct run_config run;
  struct param_table *table;
  struct flat *flat;
  struct dev *dev;
  struct dev_stream *compute;
  struct model *model;
  void *weights, *gradients, *scalars, *inputs;
  struct zero *zero;
  struct ddp *ddp;
  struct model_input in[BATCHES];
  struct tensor loss, scale, step;
  enum dtype type, state; /* of weights and activations, of gradients */
  struct model_config part; /* as the model was created */
  int64_t count; /* elements of the flat buffers */
  size_t bytes, gradient_bytes;
};

static inline struct run_config tiny(enum precision precision)
{
  struct run_config c;
  config_default(&c);
  c.precision = precision;
  if (precision == PRECISION_F16) c.loss_scale = 1; /* which nothing here multiplies by */
  c.weights_as = precision == PRECISION_BF16 ? DTYPE_BF16 : precision == PRECISION_F16 ? DTYPE_F16 : DTYPE_F32;
  c.layers = 2;
  c.heads = 2;
  c.hidden = 6;
  c.positions = 9;
  c.vocab = V;
  c.micro_batch = B;
  c.global_batch = B * BATCHES;
  c.sequence = T;
  c.revealing = true;
  CHECK_OK(config_finish(&c));
  return c;
}

static inline void fill_batch(int64_t seed, int64_t vocab, int number, int32_t *tokens, int32_t *targets, int32_t *positions,
                              int32_t *documents, int32_t *samples)
{
  const struct rng_key key = {(uint64_t)seed, RNG_TEST, (uint32_t)number};
  for (int b = 0; b < B; b++) {
    const int border = 3 + b, end = T - b; /* first document, second, padding */
    samples[b] = number * B + b;
    for (int t = 0; t < T; t++) {
      const int n = b * T + t;
      const bool padding = t >= end;
      tokens[n] = padding ? 0 : (int32_t)rng_below(key, (uint64_t)n, (uint64_t)vocab);
      targets[n] = padding || t == border - 1 || (number == 0 && t == 1) ? -1 : (int32_t)rng_below(key, (uint64_t)n + 100, (uint64_t)vocab);
      documents[n] = padding ? -1 : 2 * b + (t >= border);
      positions[n] = padding ? 0 : t < border ? t : t - border;
    }
  }
}

static inline bool put_inputs(struct rig *r)
{
  enum { PER = 4 * B * T + B };
  int32_t host[BATCHES * PER];
  if (!CHECK_OK(dev_alloc(r->dev, sizeof host, DEV_OTHER, "inputs", &r->inputs))) return false;
  for (int k = 0; k < BATCHES; k++) {
    int32_t *h = host + k * PER, *d = (int32_t *)r->inputs + k * PER;
    fill_batch(r->run.seed, r->run.vocab, k, h, h + B * T, h + 2 * B * T, h + 3 * B * T, h + 4 * B * T);
    r->in[k] = (struct model_input){tensor_at(d, DTYPE_I32, B, T), tensor_at(d + B * T, DTYPE_I32, B, T),
                                    tensor_at(d + 2 * B * T, DTYPE_I32, B, T), tensor_at(d + 3 * B * T, DTYPE_I32, B, T),
                                    tensor_at(d + 4 * B * T, DTYPE_I32, B, 1)};
  }
  return CHECK_OK(dev_copy_in(r->compute, r->inputs, host, sizeof host)) && CHECK_OK(dev_sync(r->dev));
}

static inline bool put_weights(struct rig *r)
{
  char *host = calloc(1, r->gradient_bytes);
  if (host == NULL) return CHECK(host != NULL);
  for (int i = 0; i < r->table->n; i++) {
    char *at = host + (size_t)r->flat->offset[i] * dtype_bytes(r->state);
    params_initial_part(r->table, i, &r->part.place, (uint64_t)r->run.seed, r->run.revealing, (enum dtype)r->run.weights_as, r->state, at);
    const double factor = r->table->rows[i].rank == 2 ? 16.0 : 1.0; /* larger than GPT-2's: every path carries weight */
    for (int64_t k = 0; k < r->flat->length[i]; k++) {
      if (r->state == DTYPE_F64) ((double *)at)[k] *= factor;
      if (r->state == DTYPE_F32) ((float *)at)[k] *= (float)factor;
    }
  }
  for (int64_t i = 0; i < r->count && (r->type == DTYPE_BF16 || r->type == DTYPE_F16); i++) /* in place: from the front, to half the room */
    ((uint16_t *)host)[i] = r->type == DTYPE_F16 ? f16_round(((float *)host)[i]) : bf16_round(((float *)host)[i]);
  const bool ok = CHECK_OK(dev_copy_in(r->compute, r->weights, host, r->bytes)) && CHECK_OK(dev_sync(r->dev));
  free(host);
  return ok;
}

/* The device, the whole batch and this place's part of the weights; the model is still to be created. */
static inline bool rig_prepare(struct rig *r, const struct run_config *c, const struct dev_config *d, const struct params_place *place)
{
  memset(r, 0, sizeof *r);
  r->run = *c;
  r->type = run_work_type(c);
  r->state = run_state_type(c);
  const struct dev_config here = mirror_config(d);
  if (!CHECK_OK(dev_open(&here, &r->dev)) || !CHECK_OK(dev_stream_open(r->dev, "compute", DEV_COMPUTE, &r->compute))) return false;
  if (!CHECK_OK(params_create(c, &r->table)) || !CHECK_OK(flat_create(r->table, place, 16, 1, false, 0, &r->flat))) return false;
  r->count = r->flat->count;
  r->bytes = (size_t)r->count * dtype_bytes(r->type);
  r->gradient_bytes = (size_t)r->count * dtype_bytes(r->state);
  if (!CHECK_OK(dev_alloc(r->dev, r->bytes, DEV_PARAMETERS, "weights", &r->weights)) ||
      !CHECK_OK(dev_alloc(r->dev, r->gradient_bytes, DEV_GRADIENTS, "gradients", &r->gradients)) ||
      !CHECK_OK(dev_alloc(r->dev, 3 * 256, DEV_OTHER, "scalars", &r->scalars)))
    return false;
  char *s = r->scalars;
  r->loss = tensor_at(s, DTYPE_F64, 1, 1);
  r->scale = tensor_at(s + 256, DTYPE_F64, 1, 1);
  r->step = tensor_at(s + 512, DTYPE_I32, 1, 1);
  const struct zero_config zero = {.run = &r->run, .table = r->table, .flat = r->flat, .compute = r->compute, .weights = r->weights};
  struct run_config alone = r->run; /* nothing is reduced here */
  alone.dp = 1;
  const struct ddp_config ddp = {.run = &alone, .table = r->table, .flat = r->flat, .compute = r->compute, .gradients = r->gradients};
  if (!CHECK_OK(zero_create(&zero, &r->zero)) || !CHECK_OK(ddp_create(&ddp, &r->ddp)))
    return false;
  const double scale = 1.0 / 20;
  const int32_t step = 3;
  const struct tensor g = tensor_at(r->gradients, r->state, 1, r->count);
  if (!CHECK_OK(dev_copy_in(r->compute, r->scale.at, &scale, sizeof scale)) ||
      !CHECK_OK(dev_copy_in(r->compute, r->step.at, &step, sizeof step)) || !CHECK_OK(op_fill(r->compute, &g, 0.0)) ||
      !CHECK_OK(dev_sync(r->dev)))
    return false;
  r->part = (struct model_config){.run = &r->run, .table = r->table, .flat = r->flat, .place = *place, .dev = r->dev,
                                  .compute = r->compute, .zero = r->zero, .ddp = r->ddp, .step = r->step,
                                  .tp = {.size = 1}, .slots = 1};
  return put_inputs(r) && put_weights(r);
}

static inline bool rig_open_as(struct rig *r, const struct run_config *c, const struct dev_config *d, bool separate)
{
  if (!rig_prepare(r, c, d, &params_place_alone)) return false;
  r->part.separate = separate;
  return CHECK_OK(model_create(&r->part, &r->model));
}

static inline bool rig_open(struct rig *r, const struct run_config *c, const struct dev_config *d) { return rig_open_as(r, c, d, false); }

static inline void rig_close(struct rig *r)
{
  model_destroy(r->model);
  ddp_destroy(r->ddp);
  zero_destroy(r->zero);
  if (r->dev) {
    dev_free(r->dev, r->weights);
    dev_free(r->dev, r->gradients);
    dev_free(r->dev, r->scalars);
    dev_free(r->dev, r->inputs);
  }
  dev_stream_close(r->compute);
  dev_close(r->dev);
  flat_destroy(r->flat);
  params_destroy(r->table);
}

static const struct dev_config cpu = {.kind = DEV_CPU, .threads = 1};

/* Micro-batch k in the first places. */
static inline struct model_pass pass_of(const struct rig *r, int k) { return (struct model_pass){.in = &r->in[k]}; }

/* Sum of the micro-batches' losses, times the scale. */
static inline double loss_of(struct rig *r, bool train)
{
  double sum = 0.0;
  for (int k = 0; k < BATCHES; k++) {
    double loss = NAN;
    const struct model_pass p = pass_of(r, k);
    CHECK_OK(model_forward(r->model, &p, train, &r->loss));
    CHECK_OK(dev_copy_out(r->compute, &loss, r->loss.at, sizeof loss));
    CHECK_OK(dev_sync(r->dev));
    sum += loss;
  }
  return sum / 20;
}

static inline bool one_step(struct rig *r, model_ready ready, void *arg)
{
  bool ok = true;
  for (int k = 0; k < BATCHES && ok; k++) {
    const struct model_pass p = pass_of(r, k);
    ok = CHECK_OK(model_forward(r->model, &p, true, &r->loss)) &&
         CHECK_OK(model_backward(r->model, &p, &r->scale, k == BATCHES - 1, ready, arg));
  }
  ok = ok && CHECK_OK(model_finish(r->model, ready, arg));
  return CHECK_OK(dev_sync(r->dev)) && ok;
}

/* All gradients as double; the caller frees. */
static inline double *gradients_of(struct rig *r)
{
  double *out = malloc((size_t)r->count * sizeof *out);
  char *raw = malloc(r->gradient_bytes);
  if (out == NULL || raw == NULL || !CHECK_OK(dev_copy_out(r->compute, raw, r->gradients, r->gradient_bytes)) ||
      !CHECK_OK(dev_sync(r->dev))) {
    free(raw);
    free(out);
    return NULL;
  }
  for (int64_t i = 0; i < r->count; i++) out[i] = r->state == DTYPE_F64 ? ((double *)raw)[i] : (double)((float *)raw)[i];
  free(raw);
  return out;
}

/* gradients after one step of a fresh rig */
static inline double *gradients_with(const struct run_config *c, const struct dev_config *d, int64_t *count)
{
  struct rig r;
  double *g = NULL;
  if (rig_open(&r, c, d) && one_step(&r, NULL, NULL)) g = gradients_of(&r);
  *count = r.count;
  rig_close(&r);
  return g;
}

/* Each byte of activations has ended its life, on a device opened with poison_end. */
static inline void check_all_retired(const struct rig *r)
{
  const size_t bytes = model_activation_bytes(r->model);
  unsigned char *at = mirror_read(r->compute, r->model->memory.block, bytes);
  size_t alive = 0;
  for (size_t i = 0; i < bytes; i++) alive += at[i] != 0xFF;
  CHECK(alive == 0);
  free(at);
}

#endif
