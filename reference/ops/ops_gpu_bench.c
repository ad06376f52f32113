/* ops_gpu_bench.c - every operation of a bf16 training step against what the card can do at best.
 *
 *   ops_gpu_bench [repeats]
 *
 * Ceilings are measured first, in the same run and on random values: the rate at which op_copy moves memory, and that of
 * cuBLASLt's best of four square products.  Then each operation, at the shapes of gpt2-1558m on 32 sequences of
 * 1,024 tokens (attention also on 8 of 4,096): median over repeats of the time between events on its stream, the bytes that it must move
 * or the FLOPs that it must do, and the fraction of the ceiling.  On a device that is no GPU all of it runs, small, and no speed is
 * shown.
 */
#include "base/bf16.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD = 64, REPEATS_MAX = 99, INTERVALS = 4096, PIECE = 1 << 22 };

struct sizes {
  int64_t B, T, C, H, V, rows; /* rows: of the logits                         */
  int64_t flat;                /* elements of what the optimizer goes through */
};
static const struct sizes of_gpu = {32, 1024, 1600, 25, 50304, 8192, 1 << 27}, of_host = {2, 64, 128, 2, 136, 64, 4096};

static struct dev *dev;
static struct dev_stream *stream;
static bool gpu;
static int repeats = 10;
static double copy_rate, matrix_rate; /* bytes, FLOPs a second */

static void need(enum err e)
{
  if (e == ERR_OK) return;
  fprintf(stderr, "ops_gpu_bench: %s (%s)\n", err_text(), err_trail());
  exit((int)err_status(e));
}

/* --- inputs ---------------------------------------------------------------------- */

/* Uniform in -1 .. 1, never zero; whole numbers below `limit`. */
static void fill_piece(enum dtype type, int64_t n, uint32_t part, int64_t limit, void *out)
{
  const struct rng_key key = {1, RNG_TEST, part};
  uint32_t words[4] = {0};
  for (int64_t i = 0; i < n; i++) {
    if (i % 4 == 0) rng_block(key, (uint64_t)(i / 4), words);
    const uint32_t w = words[i % 4];
    const float x = (float)((double)(w | 1) * 0x1p-31 - 1);
    if (type == DTYPE_BF16) ((uint16_t *)out)[i] = bf16_round(x);
    if (type == DTYPE_F32) ((float *)out)[i] = x;
    if (type == DTYPE_F64) ((double *)out)[i] = 0.001;
    if (type == DTYPE_I32) ((int32_t *)out)[i] = (int32_t)(w % (uint32_t)limit);
    if (type == DTYPE_I64) ((int64_t *)out)[i] = 3;
  }
}

/* The same random piece over and over: no kernel gains from that, and the host is spared billions of draws. */
static struct tensor made(enum dtype type, int64_t rows, int64_t cols, int64_t limit)
{
  static uint32_t part;
  void *at, *piece;
  const int64_t count = rows * cols, here = count < PIECE ? count : PIECE;
  const size_t size = dtype_bytes(type);
  need(dev_alloc(dev, (size_t)count * size, DEV_OTHER, "bench", &at));
  need(dev_host_alloc(dev, (size_t)here * size, &piece));
  fill_piece(type, here, part++, limit, piece);
  for (int64_t first = 0; first < count; first += here)
    need(dev_copy_in(stream, (char *)at + (size_t)first * size, piece, (size_t)(count - first < here ? count - first : here) * size));
  need(dev_sync_stream(stream));
  dev_host_free(dev, piece);
  return tensor_at(at, type, rows, cols);
}
static struct tensor work(int64_t rows, int64_t cols) { return made(DTYPE_BF16, rows, cols, 1); }
static struct tensor state(int64_t rows, int64_t cols) { return made(DTYPE_F32, rows, cols, 1); }
/* The first part of what is there already. */
static struct tensor part(const struct tensor *t, int64_t rows, int64_t cols) { return tensor_at(t->at, t->type, rows, cols); }

/* --- time ------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Of the work queued since the last call, between its events. */
static double taken_ms(void)
{
  const struct dev_interval *list;
  int64_t n, lost;
  double ms = 0;
  need(dev_sync(dev));
  need(dev_trace_take(dev, &list, &n, &lost));
  for (int64_t i = 0; i < n; i++) ms += list[i].end_ms - list[i].start_ms;
  return ms;
}

static double median_ms(double *ms)
{
  qsort(ms, (size_t)repeats, sizeof *ms, by_size);
  return ms[repeats / 2];
}

/* ms = median over repeats of `call`, one for warming up left out. */
#define MEASURE(ms, call)                                \
  do {                                                   \
    double list_[REPEATS_MAX];                           \
    need(call);                                          \
    taken_ms();                                          \
    for (int r_ = 0; r_ < repeats; r_++) {               \
      need(call);                                        \
      list_[r_] = taken_ms();                            \
    }                                                    \
    (ms) = median_ms(list_);                             \
  } while (0)

static void row(const char *name, double flop, double bytes, double ms)
{
  const double ceiling = flop > 0 ? matrix_rate : copy_rate, rate = (flop > 0 ? flop : bytes) / ms * 1e3;
  if (!gpu) printf("%-28s ran; not a GPU: no speed\n", name);
  else
    printf("%-28s %9.3f ms  %8.1f %-8s %5.1f %% of the %s\n", name, ms, rate * (flop > 0 ? 1e-12 : 1e-9), flop > 0 ? "TFLOP/s" : "GB/s",
           100 * rate / ceiling, flop > 0 ? "matrix rate" : "copy rate");
  fflush(stdout);
}
#define ROW(name, flop, bytes, call)                        \
  do {                                                      \
    double ms_;                                             \
    MEASURE(ms_, call);                                     \
    row((name), (double)(flop), (double)(bytes), ms_);      \
  } while (0)

static void ceilings(const struct tensor *x, const struct tensor *y)
{
  double ms;
  MEASURE(ms, op_copy(stream, y, x));
  copy_rate = 2.0 * (double)tensor_count(x) * (double)dtype_bytes(x->type) / ms * 1e3;
  for (int64_t n = gpu ? 2048 : 32; n <= (gpu ? 16384 : 32); n *= 2) {
    const struct tensor a = work(n, n), b = work(n, n), c = work(n, n);
    MEASURE(ms, op_matmul(stream, &c, &a, false, &b, false, false));
    const double rate = 2.0 * (double)n * (double)n * (double)n / ms * 1e3;
    if (rate > matrix_rate) matrix_rate = rate;
    dev_free(dev, a.at);
    dev_free(dev, b.at);
    dev_free(dev, c.at);
  }
  if (gpu) printf("ceilings measured here: copy %.1f GB/s, matrix products %.1f TFLOP/s\n", copy_rate * 1e-9, matrix_rate * 1e-12);
}

/* --- the operations ---------------------------------------------------------------- */

static void linear(const char *name, const struct tensor *y, const struct tensor *x, const struct tensor *w, const struct tensor *dw,
                   const struct tensor *b, const struct tensor *db, bool transposed)
{
  char text[64];
  const double flop = 2.0 * (double)x->rows * (double)x->cols * (double)y->cols;
  snprintf(text, sizeof text, "%s fwd", name);
  ROW(text, flop, 0, op_linear_fwd(stream, y, x, w, b, transposed));
  snprintf(text, sizeof text, "%s bwd_x", name);
  ROW(text, flop, 0, op_linear_bwd_x(stream, x, y, w, transposed));
  snprintf(text, sizeof text, "%s bwd_w", name);
  ROW(text, flop, 0, op_linear_bwd_w(stream, dw, db, y, x, transposed));
}

static void attention(const struct tensor *qkv, const struct tensor *dqkv, const struct tensor *o, const struct tensor *d_o, int64_t B,
                      int64_t T, int64_t H)
{
  char text[64];
  const int64_t N = B * T;
  const struct tensor lse = state(N, H), docs = made(DTYPE_I32, B, T, 1); /* one document a sequence */
  const double flop = 4.0 * (double)N * (double)T * (double)(H * HEAD) / 2;
  snprintf(text, sizeof text, "attention %" PRId64 " fwd", T);
  ROW(text, flop, 0, op_attention_fwd(stream, o, &lse, qkv, &docs, (int)H));
  snprintf(text, sizeof text, "attention %" PRId64 " bwd", T);
  ROW(text, 2.5 * flop, 0, op_attention_bwd(stream, dqkv, d_o, o, &lse, qkv, &docs, (int)H));
}

static void layers(const struct sizes *z)
{
  const int64_t N = z->B * z->T, C = z->C;
  const struct tensor x = work(N, C), y = work(N, C), dx = work(N, C), wide = work(N, 4 * C), dwide = work(N, 4 * C),
                      dwide2 = work(N, 4 * C);
  const struct tensor w = work(C, 4 * C), dw = state(C, 4 * C), b = work(1, 4 * C), db = state(1, 4 * C);
  const struct tensor qkv = part(&wide, N, 3 * C), dqkv = part(&dwide, N, 3 * C), wq = part(&w, C, 3 * C), dwq = part(&dw, C, 3 * C);
  const struct tensor wo = part(&w, C, C), dwo = part(&dw, C, C), wd = part(&w, 4 * C, C), dwd = part(&dw, 4 * C, C);
  const struct tensor b1 = part(&b, 1, C), db1 = part(&db, 1, C), b3 = part(&b, 1, 3 * C), db3 = part(&db, 1, 3 * C), b0 = work(1, C),
                      db0 = state(1, C);
  const struct tensor mean = state(N, 1), rstd = state(N, 1), tokens = made(DTYPE_I32, z->B, z->T, z->V < 4096 ? z->V : 4096),
                      samples = made(DTYPE_I32, z->B, 1, 1000), step = made(DTYPE_I32, 1, 1, 10), wte = work(z->V, C), dwte = state(z->V, C);
  const struct rng_key key = {1, RNG_DROPOUT, 0};
  const int64_t longer = gpu ? 4 : 2;
  const double bytes = 2.0 * (double)(N * C);
  ceilings(&wide, &dwide);
  linear("qkv", &qkv, &x, &wq, &dwq, &b3, &db3, false);
  linear("attention out", &y, &x, &wo, &dwo, &b1, &db1, false);
  linear("mlp up", &wide, &x, &w, &dw, &b, &db, false);
  linear("mlp down", &y, &wide, &wd, &dwd, &b1, &db1, false);
  attention(&qkv, &dqkv, &y, &dx, z->B, z->T, z->H);
  attention(&qkv, &dqkv, &y, &dx, z->B / longer, z->T * longer, z->H);
  ROW("layernorm fwd", 0, 2 * bytes, op_layernorm_fwd(stream, &y, &mean, &rstd, &x, &b1, &b0, 1e-5));
  ROW("layernorm bwd_x", 0, 3 * bytes, op_layernorm_bwd_x(stream, &dx, &y, &x, &b1, &mean, &rstd));
  ROW("layernorm bwd_w", 0, 2 * bytes, op_layernorm_bwd_w(stream, &db0, &db1, &y, &x, &mean, &rstd));
  ROW("gelu fwd", 0, 8 * bytes, op_gelu_fwd(stream, &dwide, &wide));
  ROW("gelu bwd", 0, 12 * bytes, op_gelu_bwd(stream, &dwide2, &dwide, &wide));
  ROW("dropout", 0, 2 * bytes, op_dropout(stream, &y, &x, 0.1, key, &step, &samples, z->T, z->T, 0));
  ROW("residual add", 0, 3 * bytes, op_add(stream, &y, &x, &dx));
  ROW("embedding fwd", 0, 2 * bytes, op_embedding_fwd(stream, &y, &wte, &tokens, 0, z->V));
  ROW("embedding bwd_w", 0, bytes + 8.0 * (double)(C * (z->V < 4096 ? z->V : 4096)), op_embedding_bwd_w(stream, &dwte, &y, &tokens, 0, z->V));
}

static void head(const struct sizes *z)
{
  const struct tensor x = work(z->rows, z->C), wte = work(z->V, z->C), dwte = state(z->V, z->C), logits = work(z->rows, z->V);
  const struct tensor lse = state(z->rows, 1), losses = made(DTYPE_F64, z->rows, 1, 1), scale = made(DTYPE_F64, 1, 1, 1),
                      targets = made(DTYPE_I32, 1, z->rows, z->V);
  const double bytes = 2.0 * (double)(z->rows * z->V);
  linear("head", &logits, &x, &wte, &dwte, NULL, NULL, true);
  ROW("cross entropy fwd", 0, bytes, op_cross_entropy_fwd(stream, &losses, &lse, &logits, &targets));
  ROW("cross entropy bwd", 0, 2 * bytes, op_cross_entropy_bwd(stream, &logits, &logits, &lse, &targets, &scale, 0, z->V));
}

static void optimizer(const struct sizes *z)
{
  const double n = (double)z->flat;
  const struct tensor w = state(1, z->flat), m = state(1, z->flat), g = state(1, z->flat), v = state(1, z->flat), rounded = work(1, z->flat);
  const struct tensor number = made(DTYPE_I64, 1, 1, 1), scalar = made(DTYPE_F64, 1, 1, 1), sum = made(DTYPE_F64, 1, 1, 1);
  const struct op_adamw rule = {0.9, 0.95, 1e-8, 0.1};
  need(op_fill(stream, &v, 0.5)); /* a second moment is not negative */
  ROW("sum of squares", 0, 4 * n, op_sum_squares(stream, &sum, &g));
  ROW("adamw", 0, 30 * n, op_adamw(stream, &w, &rounded, &m, &v, &g, &scalar, &number, &scalar, NULL, &rule));
  ROW("clear gradients", 0, 4 * n, op_fill(stream, &g, 0));
}

int main(int argc, char **argv)
{
  char text[512];
  repeats = argc > 1 ? atoi(argv[1]) : repeats;
  if (argc > 2 || repeats < 1 || repeats > REPEATS_MAX) {
    fprintf(stderr, "usage: ops_gpu_bench [repeats, at most %d]\n", REPEATS_MAX);
    return STATUS_USAGE;
  }
  const struct dev_config config = {.kind = DEV_CUDA, .threads = 1};
  need(dev_open(&config, &dev));
  need(dev_stream_open(dev, "compute", DEV_COMPUTE, &stream));
  need(dev_trace(dev, INTERVALS));
  dev_describe(dev, text, sizeof text);
  gpu = strstr(text, "not a GPU") == NULL;
  const struct sizes *z = gpu ? &of_gpu : &of_host;
  if (!gpu) repeats = 1;
  printf("%s; bf16, median of %d\n", text, repeats);
  layers(z);
  head(z);
  optimizer(z);
  dev_stream_close(stream);
  dev_close(dev);
  return STATUS_PASS;
}
