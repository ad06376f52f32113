/* model_bench.c - where the time of one micro-batch goes, by kernel.
 *
 *   model_bench [model] [sequences] [tokens] [threads] [repeats]
 *
 * Prints the median time of forward and backward, the FLOP rate of the model's matrix products
 * and the share of each kernel.  Float32, normal random weights, all targets valid.
 */
#include "model/model.h"

#include "base/clock.h"
#include "base/rng.h"
#include "ops/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS = 64 };
struct share {
  const char *name;
  double ms;
  int64_t calls;
};

struct bench {
  struct run_config run;
  struct param_table *table;
  struct flat *flat;
  struct dev *dev;
  struct dev_stream *compute;
  struct model *model;
  struct model_input in;
  struct tensor loss, scale;
  struct share shares[KERNELS];
};

static enum err fill_weights(struct bench *b, void *weights)
{
  for (int i = 0; i < b->table->n; i++)
    params_initial(b->table, i, 1, true, DTYPE_F32, DTYPE_F32, 0, b->flat->length[i], (float *)weights + b->flat->offset[i]);
  return ERR_OK;
}

static enum err fill_input(struct bench *b)
{
  const int64_t B = b->run.micro_batch, T = b->run.sequence;
  void *at = NULL;
  TRY(dev_alloc(b->dev, (size_t)(4 * B * T + B) * sizeof(int32_t), DEV_OTHER, "input", &at));
  int32_t *x = at;
  for (int64_t n = 0; n < B * T; n++) {
    const struct rng_key key = {1, RNG_TEST, 0};
    x[n] = (int32_t)rng_below(key, (uint64_t)n, (uint64_t)b->run.vocab);
    x[B * T + n] = (int32_t)rng_below(key, (uint64_t)(B * T + n), (uint64_t)b->run.vocab);
    x[2 * B * T + n] = (int32_t)(n % T);
    x[3 * B * T + n] = (int32_t)(n / T);
  }
  for (int64_t s = 0; s < B; s++) x[4 * B * T + s] = (int32_t)s;
  b->in = (struct model_input){tensor_at(x, DTYPE_I32, B, T), tensor_at(x + B * T, DTYPE_I32, B, T),
                               tensor_at(x + 2 * B * T, DTYPE_I32, B, T), tensor_at(x + 3 * B * T, DTYPE_I32, B, T),
                               tensor_at(x + 4 * B * T, DTYPE_I32, B, 1)};
  return ERR_OK;
}

static enum err open_all(struct bench *b, int argc, char **argv)
{
  struct model_config m = {.run = &b->run, .place = params_place_alone, .tp = {.size = 1}, .slots = 1};
  void *scalars = NULL, *weights = NULL, *gradients = NULL;
  config_default(&b->run);
  TRY(config_set(&b->run, "model", argc > 1 ? argv[1] : "gpt2-124m"));
  TRY(config_set(&b->run, "micro_batch", argc > 2 ? argv[2] : "4"));
  TRY(config_set(&b->run, "global_batch", argc > 2 ? argv[2] : "4"));
  TRY(config_set(&b->run, "sequence", argc > 3 ? argv[3] : "256"));
  TRY(config_set(&b->run, "threads", argc > 4 ? argv[4] : "1"));
  TRY(config_finish(&b->run));
  const struct dev_config d = {.kind = DEV_CPU, .threads = (int)b->run.threads};
  TRY(dev_open(&d, &b->dev));
  TRY(dev_stream_open(b->dev, "compute", DEV_COMPUTE, &b->compute));
  TRY(params_create(&b->run, &b->table));
  TRY(flat_create(b->table, &params_place_alone, 16, 1, false, 0, &b->flat));
  TRY(dev_alloc(b->dev, (size_t)b->flat->count * sizeof(float), DEV_PARAMETERS, "weights", &weights));
  TRY(dev_alloc(b->dev, (size_t)b->flat->count * sizeof(float), DEV_GRADIENTS, "gradients", &gradients));
  TRY(dev_alloc(b->dev, 1024, DEV_OTHER, "scalars", &scalars));
  b->loss = tensor_at(scalars, DTYPE_F64, 1, 1);
  b->scale = tensor_at((char *)scalars + 256, DTYPE_F64, 1, 1);
  m.step = tensor_at((char *)scalars + 512, DTYPE_I32, 1, 1);
  *(double *)b->scale.at = 1.0 / (double)(b->run.micro_batch * b->run.sequence);
  *(int32_t *)m.step.at = 0;
  TRY(fill_weights(b, weights));
  memset(gradients, 0, (size_t)b->flat->count * sizeof(float));
  TRY(fill_input(b));
  m.table = b->table;
  m.flat = b->flat;
  m.dev = b->dev;
  m.compute = b->compute;
  const struct zero_config zero = {.run = &b->run, .table = b->table, .flat = b->flat, .compute = b->compute, .weights = weights};
  TRY(zero_create(&zero, &m.zero));
  const struct ddp_config ddp = {.run = &b->run, .table = b->table, .flat = b->flat, .compute = b->compute, .gradients = gradients};
  TRY(ddp_create(&ddp, &m.ddp));
  TRY(model_create(&m, &b->model));
  return dev_trace(b->dev, 1 << 16);
}

static enum err one(struct bench *b, double *forward_ms, double *backward_ms)
{
  const struct model_pass pass = {.in = &b->in};
  const double start = clock_ms();
  TRY(model_forward(b->model, &pass, true, &b->loss));
  TRY(dev_sync(b->dev));
  const double middle = clock_ms();
  TRY(model_backward(b->model, &pass, &b->scale, true, NULL, NULL));
  TRY(model_finish(b->model, NULL, NULL));
  TRY(dev_sync(b->dev));
  *forward_ms = middle - start;
  *backward_ms = clock_ms() - middle;
  return ERR_OK;
}

static enum err take_shares(struct bench *b)
{
  const struct dev_interval *list;
  int64_t n, lost;
  TRY(dev_trace_take(b->dev, &list, &n, &lost));
  for (int64_t i = 0; i < n; i++) {
    int k = 0;
    while (k < KERNELS - 1 && b->shares[k].name && strcmp(b->shares[k].name, list[i].kernel) != 0) k++;
    b->shares[k].name = list[i].kernel;
    b->shares[k].ms += list[i].end_ms - list[i].start_ms;
    b->shares[k].calls++;
  }
  return ERR_OK;
}

static int by_value(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }
static int by_ms(const void *a, const void *b)
{
  const struct share *x = a, *y = b;
  return (x->ms < y->ms) - (x->ms > y->ms);
}

static enum err bench(int argc, char **argv)
{
  static struct bench b;
  const int repeats = argc > 5 ? atoi(argv[5]) : 3;
  double forward[64], backward[64], total = 0.0;
  if (repeats < 1 || repeats > 64) FAIL(ERR_CONFIG, "repeats: %s; valid: 1 to 64", argv[5]);
  TRY(open_all(&b, argc, argv));
  TRY(one(&b, &forward[0], &backward[0])); /* first touch */
  TRY(take_shares(&b));
  memset(b.shares, 0, sizeof b.shares);
  for (int i = 0; i < repeats; i++) TRY(one(&b, &forward[i], &backward[i]));
  TRY(take_shares(&b));

  const double N = (double)(b.run.micro_batch * b.run.sequence), C = (double)b.run.hidden;
  const double flops = 2.0 * N * ((double)b.run.layers * 12.0 * C * C + C * (double)b.run.vocab);
  qsort(forward, (size_t)repeats, sizeof *forward, by_value);
  qsort(backward, (size_t)repeats, sizeof *backward, by_value);
  const double f = forward[repeats / 2], g = backward[repeats / 2];
  printf("%s, %lld x %lld tokens, %lld threads: forward %.0f ms, backward %.0f ms, %.1f GFLOP/s in weight products; activations %.1f MiB\n",
         b.run.model, (long long)b.run.micro_batch, (long long)b.run.sequence, (long long)b.run.threads, f, g,
         3.0 * flops / (f + g) / 1e6, (double)model_activation_bytes(b.model) / 1048576.0);
  qsort(b.shares, KERNELS, sizeof *b.shares, by_ms);
  for (int k = 0; k < KERNELS; k++) total += b.shares[k].ms;
  for (int k = 0; k < KERNELS && b.shares[k].name; k++)
    printf("%5.1f %%  %8.1f ms  %6lld calls  %s\n", 100.0 * b.shares[k].ms / total, b.shares[k].ms / repeats,
           (long long)b.shares[k].calls / repeats, b.shares[k].name);
  return ERR_OK; /* the process ends: nothing is taken down */
}

int main(int argc, char **argv)
{
  const enum err e = bench(argc, argv);
  if (e) fprintf(stderr, "model_bench: %s (%s)\n", err_text(), err_trail());
  return err_status(e);
}
