/* model_test.c - gradients, lifetimes, order of `ready`, accumulators, equal bits.
 *
 * A rig is a device, a table, weights, one model and two micro-batches with two documents a
 * sequence, ignored targets and padding.  Sizes are odd so that nothing divides.
 */
#include "model/model.h"

#include "base/fault.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "testing/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 7, V = 11, BATCHES = 2 };

struct rig {
  struct run_config run;
  struct param_table *table;
  struct flat *flat;
  struct dev *dev;
  struct dev_stream *compute;
  struct model *model;
  void *weights, *gradients, *scalars, *inputs;
  struct model_input in[BATCHES];
  struct tensor loss, scale, step;
  enum dtype type;
  int64_t count; /* elements of the flat buffers */
  size_t bytes;
};

static struct run_config tiny(enum dtype precision)
{
  struct run_config c;
  config_default(&c);
  c.precision = precision;
  c.weights_as = DTYPE_F32;
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

static void fill_batch(int64_t seed, int number, int32_t *tokens, int32_t *targets, int32_t *positions, int32_t *documents,
                       int32_t *samples)
{
  const struct rng_key key = {(uint64_t)seed, RNG_TEST, (uint32_t)number};
  for (int b = 0; b < B; b++) {
    const int border = 3 + b, end = T - b; /* first document, second, padding */
    samples[b] = number * B + b;
    for (int t = 0; t < T; t++) {
      const int n = b * T + t;
      const bool padding = t >= end;
      tokens[n] = padding ? 0 : (int32_t)rng_below(key, (uint64_t)n, V);
      targets[n] = padding || t == border - 1 || (number == 0 && t == 1) ? -1 : (int32_t)rng_below(key, (uint64_t)n + 100, V);
      documents[n] = padding ? -1 : 2 * b + (t >= border);
      positions[n] = padding ? 0 : t < border ? t : t - border;
    }
  }
}

static bool put_inputs(struct rig *r)
{
  enum { PER = 4 * B * T + B };
  int32_t host[BATCHES * PER];
  if (!CHECK_OK(dev_alloc(r->dev, sizeof host, DEV_OTHER, "inputs", &r->inputs))) return false;
  for (int k = 0; k < BATCHES; k++) {
    int32_t *h = host + k * PER, *d = (int32_t *)r->inputs + k * PER;
    fill_batch(r->run.seed, k, h, h + B * T, h + 2 * B * T, h + 3 * B * T, h + 4 * B * T);
    r->in[k] = (struct model_input){tensor_at(d, DTYPE_I32, B, T), tensor_at(d + B * T, DTYPE_I32, B, T),
                                    tensor_at(d + 2 * B * T, DTYPE_I32, B, T), tensor_at(d + 3 * B * T, DTYPE_I32, B, T),
                                    tensor_at(d + 4 * B * T, DTYPE_I32, B, 1)};
  }
  return CHECK_OK(dev_copy_in(r->compute, r->inputs, host, sizeof host)) && CHECK_OK(dev_sync(r->dev));
}

static bool put_weights(struct rig *r)
{
  char *host = calloc(1, r->bytes);
  if (host == NULL) return CHECK(host != NULL);
  for (int i = 0; i < r->table->n; i++) {
    char *at = host + (size_t)r->flat->offset[i] * dtype_bytes(r->type);
    params_initial(r->table, i, (uint64_t)r->run.seed, r->run.revealing, DTYPE_F32, r->type, 0, r->flat->length[i], at);
    const double factor = r->table->rows[i].rank == 2 ? 16.0 : 1.0; /* larger than GPT-2's: every path carries weight */
    for (int64_t k = 0; k < r->flat->length[i]; k++) {
      if (r->type == DTYPE_F64) ((double *)at)[k] *= factor;
      if (r->type == DTYPE_F32) ((float *)at)[k] *= (float)factor;
    }
  }
  const bool ok = CHECK_OK(dev_copy_in(r->compute, r->weights, host, r->bytes)) && CHECK_OK(dev_sync(r->dev));
  free(host);
  return ok;
}

static bool rig_open(struct rig *r, const struct run_config *c, const struct dev_config *d)
{
  memset(r, 0, sizeof *r);
  r->run = *c;
  r->type = (enum dtype)c->precision;
  if (!CHECK_OK(dev_open(d, &r->dev)) || !CHECK_OK(dev_stream_open(r->dev, "compute", DEV_COMPUTE, &r->compute))) return false;
  if (!CHECK_OK(params_create(c, &r->table)) || !CHECK_OK(flat_create(r->table, 16, 1, 0, &r->flat))) return false;
  r->count = r->flat->count;
  r->bytes = (size_t)r->count * dtype_bytes(r->type);
  if (!CHECK_OK(dev_alloc(r->dev, r->bytes, DEV_PARAMETERS, "weights", &r->weights)) ||
      !CHECK_OK(dev_alloc(r->dev, r->bytes, DEV_GRADIENTS, "gradients", &r->gradients)) ||
      !CHECK_OK(dev_alloc(r->dev, 3 * 256, DEV_OTHER, "scalars", &r->scalars)))
    return false;
  char *s = r->scalars;
  r->loss = tensor_at(s, DTYPE_F64, 1, 1);
  r->scale = tensor_at(s + 256, DTYPE_F64, 1, 1);
  r->step = tensor_at(s + 512, DTYPE_I32, 1, 1);
  const double scale = 1.0 / 20;
  const int32_t step = 3;
  const struct tensor g = tensor_at(r->gradients, r->type, 1, r->count);
  if (!CHECK_OK(dev_copy_in(r->compute, r->scale.at, &scale, sizeof scale)) ||
      !CHECK_OK(dev_copy_in(r->compute, r->step.at, &step, sizeof step)) || !CHECK_OK(op_fill(r->compute, &g, 0.0)) ||
      !CHECK_OK(dev_sync(r->dev)))
    return false;
  const struct model_config m = {&r->run, r->table, r->flat, r->dev, r->compute, r->weights, r->gradients, r->step};
  return put_inputs(r) && put_weights(r) && CHECK_OK(model_create(&m, &r->model));
}

static void rig_close(struct rig *r)
{
  model_destroy(r->model);
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

/* Sum of the micro-batches' losses, times the scale. */
static double loss_of(struct rig *r, bool train)
{
  double sum = 0.0;
  for (int k = 0; k < BATCHES; k++) {
    double loss = NAN;
    CHECK_OK(model_forward(r->model, &r->in[k], train, &r->loss));
    CHECK_OK(dev_copy_out(r->compute, &loss, r->loss.at, sizeof loss));
    CHECK_OK(dev_sync(r->dev));
    sum += loss;
  }
  return sum / 20;
}

static bool one_step(struct rig *r, model_ready ready, void *arg)
{
  bool ok = true;
  for (int k = 0; k < BATCHES && ok; k++)
    ok = CHECK_OK(model_forward(r->model, &r->in[k], true, &r->loss)) &&
         CHECK_OK(model_backward(r->model, &r->in[k], &r->scale, k == BATCHES - 1, ready, arg));
  return CHECK_OK(dev_sync(r->dev)) && ok;
}

/* All gradients as double; the caller frees. */
static double *gradients_of(struct rig *r)
{
  double *out = malloc((size_t)r->count * sizeof *out);
  char *raw = malloc(r->bytes);
  if (out == NULL || raw == NULL || !CHECK_OK(dev_copy_out(r->compute, raw, r->gradients, r->bytes)) ||
      !CHECK_OK(dev_sync(r->dev))) {
    free(raw);
    free(out);
    return NULL;
  }
  for (int64_t i = 0; i < r->count; i++) out[i] = r->type == DTYPE_F64 ? ((double *)raw)[i] : (double)((float *)raw)[i];
  free(raw);
  return out;
}

/* gradients after one step of a fresh rig */
static double *gradients_with(const struct run_config *c, const struct dev_config *d, int64_t *count)
{
  struct rig r;
  double *g = NULL;
  if (rig_open(&r, c, d) && one_step(&r, NULL, NULL)) g = gradients_of(&r);
  *count = r.count;
  rig_close(&r);
  return g;
}

/* Along two random directions of every row: (L(w + h v) - L(w - h v)) / 2h against g . v. */
static void check_against_differences(const struct run_config *c)
{
  struct rig r;
  double *g = NULL, *w = NULL, *moved = NULL;
  if (!rig_open(&r, c, &cpu) || !one_step(&r, NULL, NULL) || (g = gradients_of(&r)) == NULL) goto close;
  w = malloc(r.bytes);
  moved = malloc(r.bytes);
  if (w == NULL || moved == NULL || !CHECK_OK(dev_copy_out(r.compute, w, r.weights, r.bytes)) || !CHECK_OK(dev_sync(r.dev)))
    goto close;

  const double h = 1e-5;
  int moving = 0;
  for (int i = 0; i < r.table->n; i++) {
    if (r.table->rows[i].shared_with >= 0 || r.table->rows[i].frozen) continue;
    for (uint32_t direction = 0; direction < 2; direction++) {
      const struct rng_key key = {7, RNG_TEST + 1 + (uint32_t)i, direction};
      double side[2], along = 0.0, size = 0.0;
      for (int64_t k = 0; k < r.flat->length[i]; k++) {
        const double v = rng_normal(key, (uint64_t)k);
        along += g[r.flat->offset[i] + k] * v;
        size += fabs(g[r.flat->offset[i] + k] * v);
      }
      for (int sign = 0; sign < 2; sign++) {
        memcpy(moved, w, r.bytes);
        for (int64_t k = 0; k < r.flat->length[i]; k++)
          moved[r.flat->offset[i] + k] += (sign ? -h : h) * rng_normal(key, (uint64_t)k);
        CHECK_OK(dev_copy_in(r.compute, r.weights, moved, r.bytes));
        side[sign] = loss_of(&r, true);
      }
      if (!CHECK_NEAR(along, (side[0] - side[1]) / (2.0 * h), 1e-7 * (1.0 + size)))
        fprintf(stderr, "  %s\n", r.table->rows[i].name);
      if (size > 1e-3) moving++;
    }
  }
  CHECK(moving > r.table->n / 2); /* the gradients are far above the bound */
close:
  free(g);
  free(w);
  free(moved);
  rig_close(&r);
}

static void gradients_match_central_differences_tied(void)
{
  const struct run_config c = tiny(DTYPE_F64);
  check_against_differences(&c);
}

static void gradients_match_central_differences_untied_with_dropout(void)
{
  struct run_config c = tiny(DTYPE_F64);
  c.tied = false;
  c.dropout = 0.2;
  check_against_differences(&c);
}

static void gradients_match_central_differences_reused_frozen_unused(void)
{
  struct run_config c = tiny(DTYPE_F64);
  c.layers = 3;
  c.reused = 1;
  c.unused = true;
  c.dropout = 0.1;
  strcpy(c.frozen, "c_fc.bias");
  check_against_differences(&c);
}

static void gradients_match_central_differences_with_a_frozen_embedding(void)
{
  struct run_config c = tiny(DTYPE_F64);
  strcpy(c.frozen, "wte");
  check_against_differences(&c);
}

static void unused_and_frozen_parameters_get_no_gradient(void)
{
  struct run_config c = tiny(DTYPE_F64);
  struct rig r;
  double *g = NULL;
  c.unused = true;
  strcpy(c.frozen, "ln_2");
  if (rig_open(&r, &c, &cpu) && one_step(&r, NULL, NULL) && (g = gradients_of(&r)) != NULL) {
    int looked = 0;
    for (int i = 0; i < r.table->n; i++) {
      double size = 0.0;
      for (int64_t k = 0; k < r.flat->length[i]; k++) size += fabs(g[r.flat->offset[i] + k]);
      const bool none = r.table->rows[i].unused || r.table->rows[i].frozen;
      CHECK(none ? size == 0.0 : size > 0.0);
      looked += none;
    }
    CHECK(looked == 1 + 2 * 2);
  }
  free(g);
  rig_close(&r);
}

/* --- order of ready ------------------------------------------------------------------ */

struct told {
  int n, rows[128];
};
static void note(void *arg, int row)
{
  struct told *t = arg;
  if (t->n < 128) t->rows[t->n++] = row;
}

static void rows_are_told_once_from_the_last_to_the_first_after_the_last_backward(void)
{
  for (int tied = 0; tied < 2; tied++) {
    struct run_config c = tiny(DTYPE_F64);
    struct rig r;
    struct told told = {0};
    c.tied = tied;
    c.layers = 4;
    c.reused = 1;
    c.unused = true;
    strcpy(c.frozen, "wpe");
    if (rig_open(&r, &c, &cpu)) {
      CHECK_OK(model_forward(r.model, &r.in[0], true, &r.loss));
      CHECK_OK(model_backward(r.model, &r.in[0], &r.scale, false, note, &told));
      CHECK(told.n == 0);
      CHECK_OK(model_forward(r.model, &r.in[1], true, &r.loss));
      CHECK_OK(model_backward(r.model, &r.in[1], &r.scale, true, note, &told));
      CHECK_OK(dev_sync(r.dev));
      int k = 0;
      for (int row = r.table->n - 1; row >= 0; row--)
        if (r.table->rows[row].shared_with < 0) {
          CHECK(k < told.n && told.rows[k] == row);
          k++;
        }
      CHECK(told.n == k);
    }
    rig_close(&r);
  }
}

/* --- tied uses ------------------------------------------------------------------------ */

static void tied_gradient_is_the_embeddings_use_plus_the_heads_in_bits(void)
{
  struct run_config c = tiny(DTYPE_F32);
  struct rig tied, untied;
  double *sum = NULL, *parts = NULL;
  c.dropout = 0.1;
  const bool a = rig_open(&tied, &c, &cpu);
  c.tied = false;
  const bool b = rig_open(&untied, &c, &cpu);
  if (!a || !b) goto close;

  /* the same weights: the untied head is a copy of the embedding */
  const int head = params_find(untied.table, "lm_head.weight");
  const struct tensor copy = tensor_at((float *)untied.weights + untied.flat->offset[head], DTYPE_F32, V, 6);
  const struct tensor wte = tensor_at(untied.weights, DTYPE_F32, V, 6);
  CHECK_OK(op_copy(untied.compute, &copy, &wte));
  if (!one_step(&tied, NULL, NULL) || !one_step(&untied, NULL, NULL)) goto close;
  sum = gradients_of(&tied);
  parts = gradients_of(&untied);
  if (sum == NULL || parts == NULL) goto close;
  int rounded = 0;
  for (int k = 0; k < V * 6; k++) {
    const float added = (float)parts[k] + (float)parts[untied.flat->offset[head] + k];
    CHECK((float)sum[k] == added);
    rounded += parts[k] != 0.0 && parts[untied.flat->offset[head] + k] != 0.0;
  }
  CHECK(rounded > V);
close:
  free(sum);
  free(parts);
  rig_close(&tied);
  rig_close(&untied);
}

static void the_heads_accumulator_starts_each_step_empty(void)
{
  struct run_config c = tiny(DTYPE_F64);
  struct rig r;
  double *first = NULL, *second = NULL;
  if (rig_open(&r, &c, &cpu) && one_step(&r, NULL, NULL) && (first = gradients_of(&r)) != NULL) {
    const struct tensor g = tensor_at(r.gradients, r.type, 1, r.count);
    CHECK_OK(op_fill(r.compute, &g, 0.0));
    if (one_step(&r, NULL, NULL) && (second = gradients_of(&r)) != NULL)
      CHECK_SAME_BITS(first, second, (size_t)r.count * sizeof *first);
  }
  free(first);
  free(second);
  rig_close(&r);
}

static void one_slot_for_a_tied_matrix_loses_the_heads_use(void)
{
  struct run_config c = tiny(DTYPE_F64);
  int64_t count = 0;
  double *clean = gradients_with(&c, &cpu, &count);
  CHECK_OK(fault_plant("gr-tied-param-one-slot", 1.0, 0));
  double *faulty = gradients_with(&c, &cpu, &count);
  CHECK_OK(fault_plant("none", 1.0, 0));
  if (clean && faulty) {
    double off = 0.0;
    for (int k = 0; k < V * 6; k++) off += fabs(clean[k] - faulty[k]);
    CHECK(off > 0.1);
    CHECK_SAME_BITS(clean + V * 6 + 14, faulty + V * 6 + 14, (size_t)(count - V * 6 - 14) * sizeof *clean);
  }
  free(clean);
  free(faulty);
}

/* --- memory --------------------------------------------------------------------------- */

static void check_equal_runs(const struct run_config *a, const struct dev_config *on_a, const struct run_config *b,
                             const struct dev_config *on_b)
{
  int64_t n = 0, m = 0;
  double *x = gradients_with(a, on_a, &n), *y = gradients_with(b, on_b, &m);
  if (CHECK(x != NULL && y != NULL && n == m)) CHECK_SAME_BITS(x, y, (size_t)n * sizeof *x);
  free(x);
  free(y);
}

static void poison_at_the_end_of_lifetimes_changes_no_bit(void)
{
  struct run_config c = tiny(DTYPE_F32);
  struct dev_config poison = cpu;
  poison.poison_end = true;
  c.dropout = 0.1;
  c.layers = 4;
  c.reused = 1;
  check_equal_runs(&c, &cpu, &c, &poison);
}

static void keeping_block_outputs_changes_no_bit(void)
{
  struct run_config c = tiny(DTYPE_F32), keep = c;
  struct dev_config poison = cpu;
  poison.poison_end = true;
  keep.dump = DUMP_ALL;
  check_equal_runs(&c, &cpu, &keep, &cpu);
  check_equal_runs(&c, &cpu, &keep, &poison);
}

static void lazy_finds_nothing_and_gives_the_same_bits(void)
{
  struct run_config c = tiny(DTYPE_F32);
  c.dropout = 0.1;
  for (uint64_t seed = 1; seed <= 4; seed++) {
    const struct dev_config lazy = {.kind = DEV_LAZY, .threads = 1, .lazy_seed = seed, .poison_end = seed % 2};
    check_equal_runs(&c, &cpu, &c, &lazy); /* its syncs fail on a finding */
  }
}

static void nothing_is_allocated_after_create(void)
{
  struct run_config c = tiny(DTYPE_F32);
  struct rig r;
  struct dev_usage before, after;
  c.dump = DUMP_ALL;
  if (rig_open(&r, &c, &cpu)) {
    dev_usage(r.dev, &before);
    CHECK(before.now[DEV_ACTIVATIONS] == model_activation_bytes(r.model));
    one_step(&r, NULL, NULL);
    loss_of(&r, false);
    one_step(&r, NULL, NULL);
    dev_usage(r.dev, &after);
    CHECK(after.allocations == before.allocations);
  }
  rig_close(&r);
}

static size_t padded(int64_t elements, size_t each) { return ((size_t)elements * each + 255) / 256 * 256; }

/* The closed form of activations.h, at the head's backward and inside the last block's. */
static void activation_memory_follows_its_formula(void)
{
  for (int variant = 0; variant < 2; variant++) {
    struct run_config c = tiny(DTYPE_F32);
    struct rig r;
    c.layers = 3;
    c.hidden = 12;
    c.vocab = variant ? 200 : V; /* the peak at the head, or in the last block */
    if (rig_open(&r, &c, &cpu)) {
      const int64_t N = B * T, C = c.hidden, H = c.heads, L = c.layers;
      const size_t s = sizeof(float), stream = padded(N * C, s), one = padded(N, s);
      const size_t attention = 2 * stream + padded(N * 3 * C, s) + 2 * one + padded(N * H, s);
      const size_t mlp = 2 * stream + 2 * padded(N * 4 * C, s) + 2 * one;
      const size_t blocks = (size_t)L * (attention + mlp + stream) + stream;
      const size_t head = stream + 2 * one + padded(N * c.vocab, s) + one + stream;
      const size_t half = padded(N * 4 * C, s) + stream;
      const size_t at_head = blocks + head, at_block = blocks - stream + stream + half;
      CHECK(variant ? at_head > at_block : at_block > at_head);
      CHECK(model_activation_bytes(r.model) == (variant ? at_head : at_block));
    }
    rig_close(&r);
  }
}

/* --- precision, evaluation, O15, refusals ---------------------------------------------- */

static void float32_is_near_float64(void)
{
  struct run_config wide = tiny(DTYPE_F64), narrow = tiny(DTYPE_F32);
  int64_t n = 0, m = 0;
  double *x = gradients_with(&wide, &cpu, &n), *y = gradients_with(&narrow, &cpu, &m);
  if (CHECK(x != NULL && y != NULL && n == m)) {
    double off = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
      off += (x[i] - y[i]) * (x[i] - y[i]);
      size += x[i] * x[i];
    }
    CHECK_NEAR(sqrt(off / size), 0.0, 1e-5);
    CHECK(off > 0.0);
  }
  free(x);
  free(y);
}

static void evaluation_has_no_dropout(void)
{
  struct run_config with = tiny(DTYPE_F64), without = with;
  struct rig a, b;
  with.dropout = 0.5;
  const bool ok = rig_open(&a, &with, &cpu);
  if (rig_open(&b, &without, &cpu) && ok) {
    const double eval = loss_of(&a, false), plain = loss_of(&b, true), dropped = loss_of(&a, true);
    CHECK(eval == plain);
    CHECK(fabs(dropped - plain) > 1e-3);
  }
  rig_close(&a);
  rig_close(&b);
}

static void masks_follow_the_step(void)
{
  struct run_config c = tiny(DTYPE_F64);
  struct rig r;
  c.dropout = 0.5;
  if (rig_open(&r, &c, &cpu)) {
    const double now = loss_of(&r, true), again = loss_of(&r, true);
    const int32_t step = 4;
    CHECK_OK(dev_copy_in(r.compute, r.step.at, &step, sizeof step));
    const double next = loss_of(&r, true);
    CHECK(now == again && next != now);
  }
  rig_close(&r);
}

static double *host_copy(struct rig *r, const struct tensor *t)
{
  double *out = malloc((size_t)tensor_count(t) * sizeof *out);
  if (out) {
    CHECK_OK(dev_copy_out(r->compute, out, t->at, (size_t)tensor_count(t) * sizeof *out));
    CHECK_OK(dev_sync(r->dev));
  }
  return out;
}

/* A bias that is added to what a block puts out has the column sums of the gradient there. */
static void check_bias_is_the_sum_of(struct rig *r, int layer, const char *bias)
{
  struct tensor t;
  const int row = params_find(r->table, bias);
  double *g = gradients_of(r);
  if (!CHECK_OK(model_block(r->model, layer, true, &t)) || g == NULL) return;
  double *d = host_copy(r, &t);
  if (d) {
    CHECK(t.rows == B * T && t.cols == r->run.hidden);
    for (int c = 0; c < t.cols; c++) {
      double sum = 0.0;
      for (int64_t n = 0; n < t.rows; n++) sum += d[n * t.cols + c];
      CHECK_NEAR(g[r->flat->offset[row] + c], sum, 1e-13);
    }
  }
  free(d);
  free(g);
}

static void kept_outputs_and_gradients_are_those_of_their_blocks(void)
{
  struct run_config c = tiny(DTYPE_F64);
  struct rig r;
  struct tensor t;
  c.dump = DUMP_ALL;
  if (rig_open(&r, &c, &(struct dev_config){.kind = DEV_CPU, .threads = 1, .poison_end = true})) {
    double loss = NAN, sum = 0.0;
    CHECK_OK(model_forward(r.model, &r.in[0], true, &r.loss));
    CHECK_OK(model_backward(r.model, &r.in[0], &r.scale, true, NULL, NULL));
    CHECK_OK(dev_copy_out(r.compute, &loss, r.loss.at, sizeof loss));
    CHECK_OK(model_block(r.model, 3, false, &t));
    double *losses = host_copy(&r, &t);
    for (int64_t n = 0; losses && n < t.rows; n++) sum += losses[n];
    CHECK(t.rows == B * T && t.cols == 1 && sum == loss && loss > 0.0);
    free(losses);

    check_bias_is_the_sum_of(&r, 2, "transformer.ln_f.bias");
    check_bias_is_the_sum_of(&r, 1, "transformer.h.1.mlp.c_proj.bias");
    check_bias_is_the_sum_of(&r, 0, "transformer.h.0.mlp.c_proj.bias");

    /* the embedding's output is wte[token] + wpe[position]; its gradient summed over all is wpe's */
    double *w = host_copy(&r, &(struct tensor){r.weights, DTYPE_F64, 1, r.count, r.count}), *g = gradients_of(&r);
    CHECK_OK(model_block(r.model, -1, false, &t));
    double *x = host_copy(&r, &t);
    CHECK_OK(model_block(r.model, -1, true, &t));
    double *d = host_copy(&r, &t);
    int32_t tokens[B * T], targets[B * T], positions[B * T], documents[B * T], samples[B];
    fill_batch(r.run.seed, 0, tokens, targets, positions, documents, samples);
    for (int k = 0; w && g && x && d && k < 6; k++) {
      double over_positions = 0.0, over_rows = 0.0;
      const int64_t wpe = r.flat->offset[1];
      for (int n = 0; n < B * T; n++) {
        CHECK(x[n * 6 + k] == w[tokens[n] * 6 + k] + w[wpe + positions[n] * 6 + k]);
        over_rows += d[n * 6 + k];
      }
      for (int p = 0; p < c.positions; p++) over_positions += g[wpe + p * 6 + k];
      CHECK_NEAR(over_positions, over_rows, 1e-13);
    }
    free(w);
    free(g);
    free(x);
    free(d);

    CHECK_ERR(model_block(r.model, 3, true, &t), ERR_ARG);
    CHECK_ERR(model_block(r.model, -2, false, &t), ERR_ARG);
    CHECK_ERR(model_block(r.model, 4, false, &t), ERR_ARG);
  }
  rig_close(&r);
  c.dump = DUMP_NONE;
  if (rig_open(&r, &c, &cpu)) {
    CHECK_ERR(model_block(r.model, 0, false, &t), ERR_ARG);
    CHECK_TEXT_HAS(err_text(), "dump");
  }
  rig_close(&r);
}

static void micro_batches_of_another_shape_are_refused(void)
{
  struct run_config c = tiny(DTYPE_F32);
  struct rig r;
  if (rig_open(&r, &c, &cpu)) {
    struct model_input in = r.in[0];
    in.targets.cols--;
    CHECK_ERR(model_forward(r.model, &in, true, &r.loss), ERR_ARG);
    CHECK_TEXT_HAS(err_text(), "targets");
    CHECK_ERR(model_backward(r.model, &in, &r.scale, true, NULL, NULL), ERR_ARG);
  }
  rig_close(&r);
}

static void create_survives_every_failed_allocation(void)
{
  struct run_config c = tiny(DTYPE_F32);
  struct rig r;
  if (rig_open(&r, &c, &cpu)) {
    const struct model_config config = {&r.run, r.table, r.flat, r.dev, r.compute, r.weights, r.gradients, r.step};
    struct dev_usage before, after;
    dev_usage(r.dev, &before);
    int failures = 0;
    bool done = false;
    for (long n = 1; n < 200 && !done; n++) {
      struct model *m = NULL;
      check_fail_allocation(n);
      const enum err e = model_create(&config, &m);
      done = !check_allocation_failed();
      check_fail_allocation(0);
      CHECK(done ? e == ERR_OK && m != NULL : e == ERR_MEMORY && m == NULL);
      failures += !done;
      model_destroy(m);
      dev_usage(r.dev, &after);
      CHECK(after.now[DEV_ACTIVATIONS] == before.now[DEV_ACTIVATIONS] && after.now[DEV_GRADIENTS] == before.now[DEV_GRADIENTS]);
    }
    CHECK(done && failures > 4);
  }
  rig_close(&r);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(gradients_match_central_differences_tied),
    TEST(gradients_match_central_differences_untied_with_dropout),
    TEST(gradients_match_central_differences_reused_frozen_unused),
    TEST(gradients_match_central_differences_with_a_frozen_embedding),
    TEST(unused_and_frozen_parameters_get_no_gradient),
    TEST(rows_are_told_once_from_the_last_to_the_first_after_the_last_backward),
    TEST(tied_gradient_is_the_embeddings_use_plus_the_heads_in_bits),
    TEST(the_heads_accumulator_starts_each_step_empty),
    TEST(one_slot_for_a_tied_matrix_loses_the_heads_use),
    TEST(poison_at_the_end_of_lifetimes_changes_no_bit),
    TEST(keeping_block_outputs_changes_no_bit),
    TEST(lazy_finds_nothing_and_gives_the_same_bits),
    TEST(nothing_is_allocated_after_create),
    TEST(activation_memory_follows_its_formula),
    TEST(float32_is_near_float64),
    TEST(evaluation_has_no_dropout),
    TEST(masks_follow_the_step),
    TEST(kept_outputs_and_gradients_are_those_of_their_blocks),
    TEST(micro_batches_of_another_shape_are_refused),
    TEST(create_survives_every_failed_allocation),
  };
  return test_main("model", tests, sizeof tests / sizeof *tests);
}
