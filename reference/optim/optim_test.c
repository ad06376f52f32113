/* optim_test.c - norm, clipping, rules and learning rate against plain recomputation. */
#include "optim/optim.h"

#include "base/bf16.h"
#include "base/fault.h"
#include "base/rng.h"
#include "device/dev_mirror.h"
#include "optim/offload.h"
#include "testing/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct rig {
  struct run_config run;
  struct param_table *table;
  struct flat *flat;
  struct dev *dev;
  struct dev_stream *compute;
  struct optim *optim;
  void *weights, *gradients, *rounded; /* rounded: with bf16, where weights may be offloaded */
  bool masters_offloaded;
  enum dtype type;
  size_t bytes;
  double *w, *g; /* host copies of what was put in, as double */
};

static const struct dev_config cpu = {.kind = DEV_CPU, .threads = 1};

static struct run_config settings(enum precision precision)
{
  struct run_config c;
  config_default(&c);
  c.precision = precision;
  c.layers = 2;
  c.heads = 2;
  c.hidden = 6;
  c.positions = 5;
  c.vocab = 11;
  c.sequence = 5;
  c.micro_batch = 2;
  c.global_batch = 6;
  c.steps = 10;
  c.clip = 0.0;
  c.revealing = true;
  CHECK_OK(config_finish(&c));
  return c;
}

static bool put(struct rig *r, void *device, const double *values)
{
  char *host = calloc(1, r->bytes);
  if (!CHECK(host != NULL)) return false;
  for (int64_t i = 0; i < r->flat->count; i++) params_store(host, r->type, r->type, i, values[i]);
  const bool ok = CHECK_OK(dev_copy_in(r->compute, device, host, r->bytes)) && CHECK_OK(dev_sync(r->dev));
  free(host);
  return ok;
}

/* The device's flat buffer as double; the caller frees. */
static double *take(struct rig *r, const void *device)
{
  char *host = malloc(r->bytes);
  double *out = malloc((size_t)r->flat->count * sizeof *out);
  if (CHECK(host != NULL && out != NULL)) {
    CHECK_OK(dev_copy_out(r->compute, host, device, r->bytes));
    CHECK_OK(dev_sync(r->dev));
    for (int64_t i = 0; i < r->flat->count; i++) out[i] = r->type == DTYPE_F64 ? ((double *)host)[i] : (double)((float *)host)[i];
  }
  free(host);
  return out;
}

static double scalar(struct rig *r, struct tensor t)
{
  double x = NAN;
  CHECK_OK(dev_copy_out(r->compute, &x, t.at, sizeof x));
  CHECK_OK(dev_sync(r->dev));
  return x;
}

static struct optim_config config_of(const struct rig *r)
{
  return (struct optim_config){.run = &r->run, .table = r->table, .flat = r->flat, .place = &params_place_alone, .dev = r->dev,
                               .compute = r->compute,
                               .weights = {.at = r->weights, .type = r->type, .hold = FLAT_WHOLE, .offloaded = r->masters_offloaded},
                               .gradients = {.at = r->gradients, .type = r->type, .hold = FLAT_WHOLE},
                               .rounded = {.at = r->rounded, .type = DTYPE_BF16, .hold = FLAT_WHOLE}};
}

/* Random weights and gradients of about the same size; unused rows have gradient zero. */
static bool rig_open(struct rig *r, const struct run_config *c, const struct dev_config *d)
{
  memset(r, 0, sizeof *r);
  r->run = *c;
  r->type = run_state_type(c);
  const struct dev_config here = mirror_config(d);
  if (!CHECK_OK(dev_open(&here, &r->dev)) || !CHECK_OK(dev_stream_open(r->dev, "compute", DEV_COMPUTE, &r->compute)) ||
      !CHECK_OK(params_create(c, &r->table)) || !CHECK_OK(flat_create(r->table, &params_place_alone, 16, 1, false, c->bucket, &r->flat)))
    return false;
  r->bytes = (size_t)r->flat->count * dtype_bytes(r->type);
  r->w = calloc((size_t)r->flat->count, sizeof *r->w);
  r->g = calloc((size_t)r->flat->count, sizeof *r->g);
  if (!CHECK(r->w != NULL && r->g != NULL)) return false;
  for (int i = 0; i < r->table->n; i++)
    for (int64_t k = 0; k < r->flat->length[i]; k++) {
      const struct rng_key key = {11, RNG_TEST, (uint32_t)i};
      r->w[r->flat->offset[i] + k] = (float)rng_normal(key, (uint64_t)(2 * k));
      r->g[r->flat->offset[i] + k] = r->table->rows[i].unused ? 0.0 : (float)rng_normal(key, (uint64_t)(2 * k + 1));
    }
  r->masters_offloaded = c->offload == OFFLOAD_OPTIMIZER && run_work_type(c) != r->type;
  struct flat_buffer masters = {.at = NULL};
  if (r->masters_offloaded ? !CHECK_OK(offload_buffer(r->dev, r->flat, "masters", r->type, FLAT_WHOLE, &masters))
                           : !CHECK_OK(dev_alloc(r->dev, r->bytes, DEV_PARAMETERS, "weights", &r->weights)))
    return false;
  if (r->masters_offloaded) r->weights = masters.at;
  if (!CHECK_OK(dev_alloc(r->dev, r->bytes, DEV_GRADIENTS, "gradients", &r->gradients)))
    return false;
  if (run_work_type(c) != r->type &&
      !CHECK_OK(dev_alloc(r->dev, (size_t)r->flat->count * sizeof(uint16_t), DEV_PARAMETERS, "rounded", &r->rounded)))
    return false;
  const struct optim_config config = config_of(r);
  for (int64_t i = 0; r->masters_offloaded && i < r->flat->count; i++) params_store(r->weights, r->type, r->type, i, r->w[i]);
  return (r->masters_offloaded || put(r, r->weights, r->w)) && put(r, r->gradients, r->g) && CHECK_OK(optim_create(&config, &r->optim));
}

static void rig_close(struct rig *r)
{
  optim_destroy(r->optim);
  if (r->dev) {
    if (r->masters_offloaded) dev_host_free(r->dev, r->weights);
    else dev_free(r->dev, r->weights);
    dev_free(r->dev, r->gradients);
    dev_free(r->dev, r->rounded);
  }
  dev_stream_close(r->compute);
  dev_close(r->dev);
  flat_destroy(r->flat);
  params_destroy(r->table);
  free(r->w);
  free(r->g);
}

static double plain_norm(const struct rig *r)
{
  double sum = 0.0;
  for (int i = 0; i < r->table->n; i++)
    if (r->table->rows[i].shared_with < 0 && !r->table->rows[i].frozen)
      for (int64_t k = 0; k < r->flat->length[i]; k++) sum += r->g[r->flat->offset[i] + k] * r->g[r->flat->offset[i] + k];
  return sqrt(sum);
}

/* The update written out, in double, on the host copies. */
static void plain_step(const struct rig *r, double *w, double *m, double *v, double factor, int64_t t)
{
  const struct run_config *c = &r->run;
  const double lr = optim_lr_at(c, t);
  for (int i = 0; i < r->table->n; i++) {
    const struct param *p = &r->table->rows[i];
    if (p->shared_with >= 0 || p->frozen) continue;
    const double decay = p->rank == 2 ? c->weight_decay : 0.0;
    for (int64_t k = r->flat->offset[i]; k < r->flat->offset[i] + r->flat->length[i]; k++) {
      const double g = r->g[k] * factor;
      if (c->optimizer == OPTIMIZER_SGD) {
        w[k] -= lr * (g + decay * w[k]);
        continue;
      }
      m[k] = c->beta1 * m[k] + (1.0 - c->beta1) * g;
      v[k] = c->beta2 * v[k] + (1.0 - c->beta2) * g * g;
      const double m_hat = m[k] / (1.0 - pow(c->beta1, (double)t)), v_hat = v[k] / (1.0 - pow(c->beta2, (double)t));
      w[k] = w[k] * (1.0 - lr * decay) - lr * m_hat / (sqrt(v_hat) + c->eps);
    }
  }
}

/* Five steps with the gradient halved and its sign turned each time, against the plain update. */
static void check_against_plain(const struct run_config *c, double bound)
{
  struct rig r;
  if (rig_open(&r, c, &cpu)) {
    const size_t count = (size_t)r.flat->count;
    double *w = malloc(count * sizeof *w), *m = calloc(count, sizeof *m), *v = calloc(count, sizeof *v);
    if (CHECK(w && m && v)) {
      memcpy(w, r.w, count * sizeof *w);
      for (int64_t t = 1; t <= 5; t++) {
        const double norm = plain_norm(&r), factor = c->clip > 0.0 ? fmin(1.0, c->clip / (norm + 1e-6)) : 1.0;
        CHECK_OK(optim_step(r.optim, t));
        CHECK_NEAR(scalar(&r, optim_norm(r.optim)), norm, bound * norm);
        CHECK_NEAR(scalar(&r, optim_factor(r.optim)), factor, bound);
        CHECK(scalar(&r, optim_lr(r.optim)) == optim_lr_at(c, t));
        plain_step(&r, w, m, v, factor, t);
        for (size_t i = 0; i < count; i++) r.g[i] *= -0.5;
        put(&r, r.gradients, r.g);
      }
      double *got = take(&r, r.weights), worst = 0.0, moved = 0.0;
      for (int i = 0; i < r.table->n; i++)
        for (int64_t k = r.flat->offset[i]; got && k < r.flat->offset[i] + r.flat->length[i]; k++) {
          worst = fmax(worst, fabs(got[k] - w[k]));
          moved = fmax(moved, fabs(got[k] - r.w[k]));
        }
      CHECK_NEAR(worst, 0.0, bound);
      CHECK(moved > 1e3 * bound);
      free(got);
    }
    free(w);
    free(m);
    free(v);
  }
  rig_close(&r);
}

static void adamw_matches_the_plain_update(void)
{
  struct run_config c = settings(PRECISION_F64);
  c.lr = 0.01;
  check_against_plain(&c, 1e-13);
  c.clip = 0.7;
  c.lr_schedule = LR_COSINE;
  c.lr_warmup = 2;
  c.lr_decay = 4;
  c.lr_min = 0.002;
  c.reused = 1;
  strcpy(c.frozen, "ln_1");
  check_against_plain(&c, 1e-13);
  struct run_config narrow = settings(PRECISION_F32);
  narrow.lr = 0.01;
  narrow.clip = 0.7;
  check_against_plain(&narrow, 2e-6);
}

static void sgd_matches_the_plain_update(void)
{
  struct run_config c = settings(PRECISION_F64);
  c.optimizer = OPTIMIZER_SGD;
  c.lr = 0.5;
  check_against_plain(&c, 1e-13);
  c.clip = 3.0;
  check_against_plain(&c, 1e-13);
}

/* A constant gradient g has mean g and mean square g^2 after bias correction, so each step is
 * w (1 - lr decay) - lr g / (|g| + eps): literal numbers for three steps. */
static void three_steps_of_a_constant_gradient_are_literal(void)
{
  struct run_config c = settings(PRECISION_F64);
  struct rig r;
  c.lr = 0.125;
  c.weight_decay = 0.5;
  c.eps = 0.25;
  if (rig_open(&r, &c, &cpu)) {
    for (int64_t i = 0; i < r.flat->count; i++) {
      r.w[i] = 2.0;
      r.g[i] = 0.75;
    }
    put(&r, r.weights, r.w);
    put(&r, r.gradients, r.g);
    for (int64_t t = 1; t <= 3; t++) CHECK_OK(optim_step(r.optim, t));
    double *w = take(&r, r.weights);
    const int bias = params_find(r.table, "transformer.ln_f.bias");
    /* lr g / (g + eps) = 0.09375; matrices also shrink by 15/16: 2, 1.78125, 1.576171875, 1.3839111328125 */
    if (w) CHECK_NEAR(w[0], 1.3839111328125, 1e-14);
    if (w) CHECK_NEAR(w[r.flat->offset[bias]], 2.0 - 3 * 0.09375, 1e-14);
    free(w);
  }
  rig_close(&r);
}

static void a_norm_below_the_limit_changes_no_bit(void)
{
  struct run_config off = settings(PRECISION_F32), above = off;
  struct rig a, b;
  above.clip = 1e6;
  const bool ok = rig_open(&a, &off, &cpu);
  if (rig_open(&b, &above, &cpu) && ok) {
    CHECK_OK(optim_step(a.optim, 1));
    CHECK_OK(optim_step(b.optim, 1));
    CHECK(scalar(&b, optim_factor(b.optim)) == 1.0);
    double *x = take(&a, a.weights), *y = take(&b, b.weights);
    if (x && y) CHECK_SAME_BITS(x, y, (size_t)a.flat->count * sizeof *x);
    free(x);
    free(y);
  }
  rig_close(&a);
  rig_close(&b);
}

static void frozen_and_unused_parameters_keep_their_bits(void)
{
  struct run_config c = settings(PRECISION_F32);
  struct rig r;
  c.unused = true;
  strcpy(c.frozen, "c_proj.weight");
  if (rig_open(&r, &c, &cpu)) {
    for (int64_t t = 1; t <= 3; t++) CHECK_OK(optim_step(r.optim, t));
    CHECK_NEAR(scalar(&r, optim_norm(r.optim)), plain_norm(&r), 1e-12 * plain_norm(&r)); /* without the frozen rows */
    double *w = take(&r, r.weights);
    int kept = 0;
    for (int i = 0; w && i < r.table->n; i++) {
      const bool still = r.table->rows[i].frozen || r.table->rows[i].unused;
      const int64_t at = r.flat->offset[i], n = r.flat->length[i];
      CHECK((memcmp(w + at, r.w + at, (size_t)n * sizeof *w) == 0) == still);
      kept += still;
    }
    CHECK(kept == 5);
    free(w);
  }
  rig_close(&r);

  strcpy(c.frozen, "e"); /* in every name */
  memset(&r, 0, sizeof r);
  CHECK(params_create(&c, &r.table) == ERR_OK && flat_create(r.table, &params_place_alone, 1, 1, false, 0, &r.flat) == ERR_OK);
  CHECK_OK(dev_open(&cpu, &r.dev));
  CHECK_OK(dev_stream_open(r.dev, "compute", DEV_COMPUTE, &r.compute));
  r.run = c;
  const struct optim_config config = config_of(&r);
  CHECK_ERR(optim_create(&config, &r.optim), ERR_CONFIG);
  CHECK_TEXT_HAS(err_text(), "frozen: 'e'");
  CHECK(r.optim == NULL);
  rig_close(&r);
}

/* bf16: the weights' bits are float32's; the copy is exactly their rounding where an update was, else untouched. */
static void the_rounded_copy_follows_the_weights(void)
{
  for (int rule = 0; rule < 2; rule++) {
    struct run_config wide = settings(PRECISION_F32), narrow;
    struct rig a, b;
    wide.optimizer = rule ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
    wide.unused = true;
    strcpy(wide.frozen, "c_proj.weight");
    narrow = wide;
    narrow.precision = PRECISION_BF16;
    const bool ok = rig_open(&a, &wide, &cpu);
    if (rig_open(&b, &narrow, &cpu) && ok) {
      const size_t count = (size_t)b.flat->count;
      uint16_t *copy = calloc(count, sizeof *copy);
      for (int64_t t = 1; t <= 3; t++) CHECK(CHECK_OK(optim_step(a.optim, t)) && CHECK_OK(optim_step(b.optim, t)));
      double *x = take(&a, a.weights), *y = take(&b, b.weights);
      CHECK_OK(dev_copy_out(b.compute, copy, b.rounded, count * sizeof *copy));
      CHECK_OK(dev_sync(b.dev));
      if (CHECK(copy && x && y)) CHECK_SAME_BITS(x, y, count * sizeof *x);
      int updated = 0;
      for (int i = 0; copy && y && i < b.table->n; i++) {
        const bool still = b.table->rows[i].frozen;
        for (int64_t k = b.flat->offset[i]; k < b.flat->offset[i] + b.flat->length[i]; k++)
          CHECK(copy[k] == (still ? 0xFFFF : bf16_round((float)y[k]))); /* as allocated */
        updated += !still;
      }
      CHECK(updated > 5);
      free(copy);
      free(x);
      free(y);
    }
    rig_close(&a);
    rig_close(&b);
  }
}

static void learning_rate_has_its_closed_form_at_the_borders(void)
{
  struct run_config c = {.lr = 8.0, .lr_min = 2.0, .lr_warmup = 4, .lr_decay = 10, .lr_schedule = LR_COSINE};
  CHECK(optim_lr_at(&c, 1) == 2.0 && optim_lr_at(&c, 3) == 6.0 && optim_lr_at(&c, 4) == 8.0);
  CHECK_NEAR(optim_lr_at(&c, 5), 2.0 + 3.0 * (1.0 + sqrt(3.0) / 2.0), 1e-14); /* cos(pi / 6) */
  CHECK_NEAR(optim_lr_at(&c, 6), 6.5, 1e-14);                                 /* cos(pi / 3) */
  CHECK_NEAR(optim_lr_at(&c, 7), 5.0, 1e-14);
  CHECK(optim_lr_at(&c, 9) > 2.0 && optim_lr_at(&c, 10) == 2.0 && optim_lr_at(&c, 1000) == 2.0);
  c.lr_warmup = 0;
  CHECK_NEAR(optim_lr_at(&c, 5), 5.0, 1e-14);
  CHECK(optim_lr_at(&c, 1) < 8.0);
  c.lr_warmup = 20; /* decays at once after the warm-up */
  CHECK(optim_lr_at(&c, 20) == 8.0 && optim_lr_at(&c, 21) == 2.0);
  c.lr_schedule = LR_CONSTANT;
  CHECK(optim_lr_at(&c, 10) == 4.0 && optim_lr_at(&c, 21) == 8.0);
}

/* Many more steps than OPTIM_AHEAD are queued without a wait of ours: each must still see its own
 * numbers.  lazy runs the copies as late as it may, and checks that the host's writes are ordered. */
static void steps_queued_far_ahead_see_their_own_learning_rate(void)
{
  struct run_config c = settings(PRECISION_F64);
  c.optimizer = OPTIMIZER_SGD;
  c.weight_decay = 0.0;
  c.lr_warmup = 40;
  c.lr = 40.0;
  for (int kind = 0; kind < 4; kind++) {
    const struct dev_config d = {.kind = kind ? DEV_LAZY : DEV_CPU, .threads = 1, .lazy_seed = (uint64_t)kind};
    struct rig r;
    if (rig_open(&r, &c, &d)) {
      for (int64_t i = 0; i < r.flat->count; i++) r.g[i] = 1.0;
      put(&r, r.gradients, r.g);
      for (int64_t t = 1; t <= 3 * OPTIM_AHEAD; t++) CHECK_OK(optim_step(r.optim, t));
      double *w = take(&r, r.weights);
      if (w) CHECK_NEAR(w[0], r.w[0] - 3 * OPTIM_AHEAD * (3 * OPTIM_AHEAD + 1) / 2, 1e-9);
      CHECK(strcmp(dev_findings(r.dev), "") == 0);
      free(w);
    }
    rig_close(&r);
  }
}

static void a_schedule_stepped_by_every_micro_batch_shows_in_the_learning_rate(void)
{
  struct run_config c = settings(PRECISION_F64);
  struct rig r;
  c.lr_schedule = LR_COSINE;
  c.lr_decay = 30;
  if (rig_open(&r, &c, &cpu)) {
    CHECK_OK(fault_plant("opt-lr-steps-by-world", 1.0, 0));
    CHECK_OK(optim_step(r.optim, 2));
    CHECK(scalar(&r, optim_lr(r.optim)) == optim_lr_at(&c, 2 * 3)); /* 6 sequences in micro-batches of 2 */
    CHECK_OK(fault_plant("none", 1.0, 0));
    CHECK_OK(optim_step(r.optim, 3));
    CHECK(scalar(&r, optim_lr(r.optim)) == optim_lr_at(&c, 3));
  }
  rig_close(&r);
}

static void moments_are_of_the_clipped_gradient(void)
{
  struct run_config c = settings(PRECISION_F64);
  struct rig r;
  c.clip = 0.5;
  if (rig_open(&r, &c, &cpu)) {
    const double factor = 0.5 / (plain_norm(&r) + 1e-6);
    CHECK_OK(optim_step(r.optim, 1));
    double *m = take(&r, optim_moments1(r.optim).at), *v = take(&r, optim_moments2(r.optim).at);
    for (int64_t i = 0; m && v && i < r.flat->count; i++) { /* padding: both zero */
      const double g = r.g[i] * factor;
      CHECK_NEAR(m[i], (1.0 - c.beta1) * g, 1e-15);
      CHECK_NEAR(v[i], (1.0 - c.beta2) * g * g, 1e-15);
    }
    free(m);
    free(v);
  }
  rig_close(&r);
}

static void destroy_waits_for_queued_steps(void)
{
  struct run_config c = settings(PRECISION_F32);
  const struct dev_config lazy = {.kind = DEV_LAZY, .threads = 1, .lazy_seed = 5};
  struct rig r;
  if (rig_open(&r, &c, &lazy)) {
    CHECK_OK(optim_step(r.optim, 1));
    optim_destroy(r.optim);
    r.optim = NULL;
    CHECK_OK(dev_host_touch(r.dev, r.weights, r.bytes, false)); /* lazy: ordered after the update, or a finding */
    CHECK(strcmp(dev_findings(r.dev), "") == 0);
  }
  rig_close(&r);
}

static void a_step_allocates_nothing_and_sgd_has_no_moments(void)
{
  struct run_config c = settings(PRECISION_F32);
  struct rig r;
  struct dev_usage before, after;
  if (rig_open(&r, &c, &cpu)) {
    CHECK(optim_moments1(r.optim).at != NULL && optim_moments2(r.optim).at != NULL);
    dev_usage(r.dev, &before);
    CHECK(before.now[DEV_OPTIMIZER] >= 2 * r.bytes && before.now[DEV_OPTIMIZER] < 2 * r.bytes + 4096);
    for (int64_t t = 1; t <= 2 * OPTIM_AHEAD; t++) CHECK_OK(optim_step(r.optim, t));
    CHECK_OK(dev_sync(r.dev));
    dev_usage(r.dev, &after);
    CHECK(after.allocations == before.allocations && after.host_allocations == before.host_allocations);
    CHECK_ERR(optim_step(r.optim, 0), ERR_ARG);
  }
  rig_close(&r);
  c.optimizer = OPTIMIZER_SGD;
  if (rig_open(&r, &c, &cpu)) {
    CHECK(optim_moments1(r.optim).at == NULL && optim_moments2(r.optim).at == NULL);
    dev_usage(r.dev, &after);
    CHECK(after.now[DEV_OPTIMIZER] < 4096);
  }
  rig_close(&r);
}

/* What an update keeps, wherever it is, in bits. */
static void same_state(struct rig *a, const void *x, struct rig *b, const void *y, bool offloaded)
{
  char *in = malloc(a->bytes), *out = malloc(a->bytes);
  if (CHECK(in != NULL && out != NULL) && CHECK_OK(optim_settle(b->optim))) {
    CHECK_OK(dev_copy_out(a->compute, in, x, a->bytes));
    CHECK_OK(dev_sync(a->dev));
    if (!offloaded) CHECK_OK(dev_copy_out(b->compute, out, y, b->bytes));
    CHECK_OK(dev_sync_stream(b->compute));
    CHECK_OK(dev_host_touch(b->dev, offloaded ? y : out, b->bytes, false));
    CHECK_SAME_BITS(in, offloaded ? y : out, a->bytes);
  }
  free(in);
  free(out);
}

static void state_on_the_host_gives_the_same_bits(void)
{
  static const enum precision precisions[] = {PRECISION_F32, PRECISION_F64, PRECISION_BF16};
  static const int64_t buckets[] = {0, 1, 36, 108, 100}; /* one; a row each; around the sizes of rows */
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < 5; k++)
      for (int rule = 0; rule < 2; rule++) {
        struct run_config c = settings(precisions[i]);
        const struct dev_config lazy = {.kind = DEV_LAZY, .threads = 1, .lazy_seed = (uint64_t)k};
        struct rig a, b;
        c.clip = 0.5;
        c.bucket = buckets[k];
        c.unused = true;
        strcpy(c.frozen, "c_proj.weight");
        c.optimizer = rule ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
        if (rule && i < 2) continue; /* keeps nothing */
        bool ok = rig_open(&a, &c, &cpu);
        c.offload = OFFLOAD_OPTIMIZER;
        ok = rig_open(&b, &c, k % 2 ? &lazy : &cpu) && ok;
        for (int64_t t = 1; ok && t <= 4; t++) ok = CHECK_OK(optim_step(a.optim, t)) && CHECK_OK(optim_step(b.optim, t));
        if (ok) {
          same_state(&a, a.weights, &b, b.weights, b.masters_offloaded);
          if (!rule) same_state(&a, optim_moments1(a.optim).at, &b, optim_moments1(b.optim).at, true);
          if (!rule) same_state(&a, optim_moments2(a.optim).at, &b, optim_moments2(b.optim).at, true);
          CHECK(optim_moments1(b.optim).offloaded == !rule && !optim_moments1(a.optim).offloaded);
          CHECK(strcmp(dev_findings(b.dev), "") == 0);
        }
        rig_close(&a);
        rig_close(&b);
      }
}

static void create_survives_every_failed_allocation_of(int64_t offload)
{
  struct run_config c = settings(PRECISION_F32);
  struct rig r;
  c.offload = offload;
  if (rig_open(&r, &c, &cpu)) {
    const struct optim_config config = config_of(&r);
    struct dev_usage before, after;
    dev_usage(r.dev, &before);
    int failures = 0;
    bool done = false;
    for (long n = 1; n < 200 && !done; n++) {
      struct optim *o = NULL;
      check_fail_allocation(n);
      const enum err e = optim_create(&config, &o);
      done = !check_allocation_failed();
      check_fail_allocation(0);
      CHECK(done ? e == ERR_OK && o != NULL : e == ERR_MEMORY && o == NULL);
      failures += !done;
      optim_destroy(o);
      dev_usage(r.dev, &after);
      CHECK(after.now[DEV_OPTIMIZER] == before.now[DEV_OPTIMIZER] && after.now[DEV_ON_HOST] == before.now[DEV_ON_HOST]);
    }
    CHECK(done && failures > 4);
  }
  rig_close(&r);
}
static void create_survives_every_failed_allocation(void)
{
  create_survives_every_failed_allocation_of(OFFLOAD_NONE);
  create_survives_every_failed_allocation_of(OFFLOAD_OPTIMIZER);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(adamw_matches_the_plain_update),
    TEST(sgd_matches_the_plain_update),
    TEST(three_steps_of_a_constant_gradient_are_literal),
    TEST(a_norm_below_the_limit_changes_no_bit),
    TEST(frozen_and_unused_parameters_keep_their_bits),
    TEST(the_rounded_copy_follows_the_weights),
    TEST(learning_rate_has_its_closed_form_at_the_borders),
    TEST(steps_queued_far_ahead_see_their_own_learning_rate),
    TEST(a_schedule_stepped_by_every_micro_batch_shows_in_the_learning_rate),
    TEST(moments_are_of_the_clipped_gradient),
    TEST(destroy_waits_for_queued_steps),
    TEST(a_step_allocates_nothing_and_sgd_has_no_moments),
    TEST(state_on_the_host_gives_the_same_bits),
    TEST(create_survives_every_failed_allocation),
  };
  return test_main("optim", tests, sizeof tests / sizeof *tests);
}
