/* ops_bench.c - where a training step of gpt2-124m goes, operation by operation.
 *
 *   ops_bench [threads [repeats]]
 *
 * Every operation of one step (4 sequences of 256 tokens, float32) runs alone on a compute stream
 * with the shapes and the number of calls that the step has; medians over repeats, of the wall clock
 * and of processor time per thread (what the wall clock would say if nobody else used the cores).
 * The last line is the fraction of the matrix-product rate that a step reaches which spends its time
 * in these alone.
 */
#include "base/clock.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { B = 4, T = 256, N = B * T, C = 768, H = 12, V = 50257, L = 12, POSITIONS = 1024, REPEATS_MAX = 99 };

static struct dev *dev;
static struct dev_stream *stream;
static int threads = 1, repeats = 7;
static double total_ms, total_cpu_ms, total_flop;

static void need(enum err e)
{
  if (e == ERR_OK) return;
  fprintf(stderr, "ops_bench: %s (%s)\n", err_text(), err_trail());
  exit((int)err_status(e));
}

/* Small values, never zero: like activations, without the slow range below 1e-38. */
static struct tensor matrix(enum dtype type, int64_t rows, int64_t cols)
{
  void *at;
  need(dev_alloc(dev, (size_t)(rows * cols) * dtype_bytes(type), DEV_OTHER, "bench", &at));
  const struct rng_key key = {1, RNG_TEST, 0};
  uint32_t words[4];
  for (int64_t i = 0; i < rows * cols; i++) {
    if (i % 4 == 0) rng_block(key, (uint64_t)(i / 4), words);
    const uint32_t w = words[i % 4];
    if (type == DTYPE_F32) ((float *)at)[i] = (float)((double)(w | 1) * 0x1p-31 - 1);
    if (type == DTYPE_F64) ((double *)at)[i] = 0.001;
    if (type == DTYPE_I32) ((int32_t *)at)[i] = (int32_t)(w % 1024);
    if (type == DTYPE_I64) ((int64_t *)at)[i] = 3;
  }
  return tensor_at(at, type, rows, cols);
}

static double cpu_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return ((double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6) / threads;
}

static int by_size(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *samples)
{
  qsort(samples, (size_t)repeats, sizeof *samples, by_size);
  return samples[repeats / 2];
}

static double last_ms, last_cpu_ms;
static void report(const char *name, double calls, double flop, double bytes, double *ms, double *cpu)
{
  last_ms = median(ms);
  last_cpu_ms = median(cpu);
  total_ms += calls * last_ms;
  total_cpu_ms += calls * last_cpu_ms;
  total_flop += calls * flop;
  const double work = (flop > 0 ? flop : bytes) * 1e-6;
  printf("%-24s %3.0f x %9.3f ms = %8.1f ms   cpu %9.3f ms = %8.1f ms  %7.1f %s\n", name, calls, last_ms,
         calls * last_ms, last_cpu_ms, calls * last_cpu_ms, work / last_cpu_ms, flop > 0 ? "GFLOP/s" : "GB/s");
  fflush(stdout);
}

/* One row of the table: `call` as often as a step has it; work in FLOP or bytes a call. */
#define ROW(name, calls, flop, bytes, call)                              \
  do {                                                                   \
    double ms_[REPEATS_MAX], cpu_[REPEATS_MAX];                          \
    need(call);                                                          \
    need(dev_sync(dev));                                                 \
    for (int r_ = 0; r_ < repeats; r_++) {                               \
      const double start_ = clock_ms(), cpu_start_ = cpu_ms();           \
      need(call);                                                        \
      need(dev_sync(dev));                                               \
      ms_[r_] = clock_ms() - start_;                                     \
      cpu_[r_] = cpu_ms() - cpu_start_;                                  \
    }                                                                    \
    report((name), (calls), (double)(flop), (double)(bytes), ms_, cpu_); \
  } while (0)

static void linear(const char *name, const struct tensor *y, const struct tensor *x, const struct tensor *w,
                   const struct tensor *b, bool transposed, double calls)
{
  char row[64];
  const double flop = 2.0 * (double)x->rows * (double)x->cols * (double)y->cols;
  snprintf(row, sizeof row, "%s fwd", name);
  ROW(row, calls, flop, 0, op_linear_fwd(stream, y, x, w, b, transposed));
  snprintf(row, sizeof row, "%s bwd_x", name);
  ROW(row, calls, flop, 0, op_linear_bwd_x(stream, x, y, w, transposed));
  snprintf(row, sizeof row, "%s bwd_w", name);
  ROW(row, calls, flop, 0, op_linear_bwd_w(stream, w, b, y, x, transposed));
}

/* The best rate by wall clock, and by processor time. */
static void matmul_rate(const struct tensor *a, const struct tensor *b, const struct tensor *c, double *rate,
                        double *cpu_rate)
{
  *rate = *cpu_rate = 0;
  for (int64_t n = 1024; n <= 4096; n *= 2) {
    const struct tensor x = tensor_at(a->at, DTYPE_F32, n, n), y = tensor_at(b->at, DTYPE_F32, n, n),
                        z = tensor_at(c->at, DTYPE_F32, n, n);
    const double flop = 2.0 * (double)n * (double)n * (double)n;
    char row[64];
    snprintf(row, sizeof row, "sgemm %" PRId64, n);
    ROW(row, 0, flop, 0, op_matmul(stream, &z, &x, false, &y, false, false));
    if (flop / last_ms * 1e-6 > *rate) *rate = flop / last_ms * 1e-6;
    if (flop / last_cpu_ms * 1e-6 > *cpu_rate) *cpu_rate = flop / last_cpu_ms * 1e-6;
  }
}

int main(int argc, char **argv)
{
  threads = argc > 1 ? atoi(argv[1]) : threads;
  repeats = argc > 2 ? atoi(argv[2]) : repeats;
  if (threads < 1 || repeats < 1 || repeats > REPEATS_MAX) {
    fprintf(stderr, "usage: ops_bench [threads [repeats, at most %d]]\n", REPEATS_MAX);
    return STATUS_USAGE;
  }
  const struct dev_config config = {.kind = DEV_CPU, .threads = threads};
  need(dev_open(&config, &dev));
  need(dev_stream_open(dev, "compute", DEV_COMPUTE, &stream));

  const struct tensor x = matrix(DTYPE_F32, N, C), y = matrix(DTYPE_F32, N, C), dx = matrix(DTYPE_F32, N, C);
  const struct tensor wide = matrix(DTYPE_F32, N, 4 * C), dwide = matrix(DTYPE_F32, N, 4 * C),
                      dwide2 = matrix(DTYPE_F32, N, 4 * C);
  const struct tensor qkv = tensor_at(wide.at, DTYPE_F32, N, 3 * C), dqkv = tensor_at(dwide.at, DTYPE_F32, N, 3 * C);
  const struct tensor w = matrix(DTYPE_F32, C, 4 * C), bias = matrix(DTYPE_F32, 1, 4 * C),
                      lse = matrix(DTYPE_F32, N, H);
  const struct tensor wq = tensor_at(w.at, DTYPE_F32, C, 3 * C), wo = tensor_at(w.at, DTYPE_F32, C, C);
  const struct tensor wd = tensor_at(w.at, DTYPE_F32, 4 * C, C);
  const struct tensor b1 = tensor_at(bias.at, DTYPE_F32, 1, C), b3 = tensor_at(bias.at, DTYPE_F32, 1, 3 * C);
  const struct tensor b0 = matrix(DTYPE_F32, 1, C);
  const struct tensor mean = matrix(DTYPE_F32, N, 1), rstd = matrix(DTYPE_F32, N, 1), row_lse = matrix(DTYPE_F32, N, 1);
  const struct tensor wte = matrix(DTYPE_F32, V, C), wpe = matrix(DTYPE_F32, POSITIONS, C),
                      logits = matrix(DTYPE_F32, N, V);
  const struct tensor m = matrix(DTYPE_F32, V, C), v = matrix(DTYPE_F32, V, C), g = matrix(DTYPE_F32, V, C);
  const struct tensor tokens = matrix(DTYPE_I32, B, T), docs = matrix(DTYPE_I32, B, T),
                      samples = matrix(DTYPE_I32, B, 1);
  const struct tensor step = matrix(DTYPE_I32, 1, 1), number = matrix(DTYPE_I64, 1, 1),
                      scalar = matrix(DTYPE_F64, 1, 1);
  const struct tensor losses = matrix(DTYPE_F64, N, 1), sum = matrix(DTYPE_F64, 1, 1), norm = matrix(DTYPE_F64, 1, 1);
  const struct tensor sums = matrix(DTYPE_F64, N, 2), out = matrix(DTYPE_F64, N, 1);
  const struct op_adamw rule = {0.9, 0.95, 1e-8, 0.1};
  const struct rng_key key = {1, RNG_DROPOUT, 0};
  memset(docs.at, 0, (size_t)N * 4); /* one document a sequence */
  for (int64_t i = 0; i < V * (int64_t)C; i++) ((float *)v.at)[i] *= ((float *)v.at)[i];

  printf("%s, %d threads, median of %d\n", op_matmul_library(DEV_CPU), threads, repeats);
  double rate, cpu_rate;
  matmul_rate(&wte, &m, &logits, &rate, &cpu_rate);
  const double bytes = 4.0 * N * C, all = 124439808.0 / ((double)V * C);

  linear("qkv", &qkv, &x, &wq, &b3, false, L);
  linear("attention out", &y, &x, &wo, &b1, false, L);
  linear("mlp up", &wide, &x, &w, &bias, false, L);
  linear("mlp down", &y, &wide, &wd, &b1, false, L);
  linear("head", &logits, &x, &wte, NULL, true, 1);
  printf("%-24s %21.1f ms   cpu %26.1f ms\n\n", "matrix products", total_ms, total_cpu_ms);

  const double attention = 4.0 * N * T * C / 2; /* causal half */
  ROW("attention fwd", L, attention, 0, op_attention_fwd(stream, &y, &lse, &qkv, &docs, H));
  ROW("attention bwd", L, 2.5 * attention, 0, op_attention_bwd(stream, &dqkv, &dx, &y, &lse, &qkv, &docs, H));
  ROW("layernorm fwd", 2 * L + 1, 0, 2 * bytes, op_layernorm_fwd(stream, &y, &mean, &rstd, &x, &b1, &b0, 1e-5));
  ROW("layernorm bwd_x", 2 * L + 1, 0, 3 * bytes, op_layernorm_bwd_x(stream, &dx, &y, &x, &b1, &mean, &rstd));
  ROW("layernorm bwd_w", 2 * L + 1, 0, 2 * bytes, op_layernorm_bwd_w(stream, &b0, &b1, &y, &x, &mean, &rstd));
  ROW("gelu fwd", L, 0, 8 * bytes, op_gelu_fwd(stream, &dwide, &wide));
  ROW("gelu bwd", L, 0, 12 * bytes, op_gelu_bwd(stream, &dwide2, &dwide, &wide));
  ROW("dropout fwd or bwd", 4 * L + 2, 0, 2 * bytes,
      op_dropout(stream, &y, &x, 0.1, key, &step, &samples, POSITIONS, T, 0));
  ROW("residual add", 4 * L, 0, 3 * bytes, op_add(stream, &y, &x, &dx));
  ROW("embedding fwd", 1, 0, 2 * bytes, op_embedding_fwd(stream, &y, &wte, &tokens, 0, V));
  ROW("embedding bwd_w", 1, 0, 3 * bytes, op_embedding_bwd_w(stream, &wte, &y, &tokens, 0, V));
  ROW("position fwd", 1, 0, 3 * bytes, op_position_fwd(stream, &y, &wpe, &tokens, 0));
  ROW("position bwd_w", 1, 0, 3 * bytes, op_position_bwd_w(stream, &wpe, &y, &tokens, 0));
  ROW("cross entropy fwd", 1, 0, 4.0 * N * V, op_cross_entropy_fwd(stream, &losses, &row_lse, &logits, &tokens));
  ROW("cross entropy bwd", 1, 0, 8.0 * N * V,
      op_cross_entropy_bwd(stream, &logits, &logits, &row_lse, &tokens, &scalar, 0, V));
  ROW("cut vocabulary: max", 0, 0, 4.0 * N * V, op_cross_entropy_max(stream, &losses, &logits, V));
  ROW("cut vocabulary: sums", 0, 0, 4.0 * N * V, op_cross_entropy_sums(stream, &sums, &logits, &losses, &tokens, 0, V));
  ROW("cut vocabulary: join", 0, 0, 40.0 * N,
      op_cross_entropy_join(stream, &out, &row_lse, &losses, &sums, &tokens, V));
  ROW("sum of squares", all, 0, 4.0 * V * C, op_sum_squares(stream, &sum, &g));
  ROW("clip factor", 1, 0, 8, op_clip_factor(stream, &scalar, &norm, &sum, 1.0));
  ROW("adamw", all, 0, 28.0 * V * C, op_adamw(stream, &wte, NULL, &m, &v, &g, &scalar, &number, &scalar, NULL, &rule));
  ROW("clear gradients", all, 0, 4.0 * V * C, op_fill(stream, &g, 0));
  ROW("hash (not in a step)", 0, 0, 4.0 * V * C, op_hash(stream, &number, &wte));

  const struct tensor wa = tensor_at(m.at, DTYPE_F64, 1024, 1024), wb = tensor_at(v.at, DTYPE_F64, 1024, 1024);
  const struct tensor wc = tensor_at(g.at, DTYPE_F64, 1024, 1024);
  memset(m.at, 1, 8 << 20), memset(v.at, 1, 8 << 20); /* as doubles: tiny, normal */
  ROW("float64 product 1024", 0, 2.0 * 1024 * 1024 * 1024, 0, op_matmul(stream, &wc, &wa, false, &wb, false, false));
  ROW("float64 product 1024 T", 0, 2.0 * 1024 * 1024 * 1024, 0, op_matmul(stream, &wc, &wa, true, &wb, true, false));
  printf("%-24s %21.1f ms   cpu %26.1f ms\n", "a step", total_ms, total_cpu_ms);
  printf("fraction of the sgemm rate: %.1f %% of %.1f GFLOP/s by wall clock, %.1f %% of %.1f by processor time\n",
         100 * total_flop / total_ms * 1e-6 / rate, rate, 100 * total_flop / total_cpu_ms * 1e-6 / cpu_rate, cpu_rate);
  dev_stream_close(stream);
  dev_close(dev);
  return STATUS_PASS;
}
