/* gpu_bench.h - what benches of kernels share: a device, random inputs, times between events, ceilings.  Only *_bench.c include it.
 *
 * Ceilings are measured first, in the same run and on random values: the rate at which op_copy moves memory, and that of
 * cuBLASLt's best of four square products.  A time is the median over repeats of that between events on the stream.  On a device
 * that is no GPU all of it runs, small, and no speed is shown.
 */
#ifndef OPS_GPU_BENCH_H
#define OPS_GPU_BENCH_H

#include "base/bf16.h"
#include "base/f16.h"
#include "ops/ops.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS_MAX = 99, INTERVALS = 4096, PIECE = 1 << 22 };

static struct dev *dev;
static struct dev_stream *stream;
static bool gpu;
static int repeats = 10;
static double copy_rate, matrix_rate; /* bytes, FLOPs a second */

static inline void need(enum err e)
{
  if (e == ERR_OK) return;
  fprintf(stderr, "%s: %s (%s)\n", program_invocation_short_name, err_text(), err_trail());
  exit((int)err_status(e));
}

/* --- inputs ---------------------------------------------------------------------- */

/* Uniform in -1 .. 1, never zero; whole numbers below `limit`. */
static inline void fill_piece(enum dtype type, int64_t n, uint32_t part, int64_t limit, void *out)
{
  const struct rng_key key = {1, RNG_TEST, part};
  uint32_t words[4] = {0};
  for (int64_t i = 0; i < n; i++) {
    if (i % 4 == 0) rng_block(key, (uint64_t)(i / 4), words);
    const uint32_t w = words[i % 4];
    const float x = (float)((double)(w | 1) * 0x1p-31 - 1);
    if (type == DTYPE_BF16) ((uint16_t *)out)[i] = bf16_round(x);
    if (type == DTYPE_F16) ((uint16_t *)out)[i] = f16_round(x);
    if (type == DTYPE_F32) ((float *)out)[i] = x;
    if (type == DTYPE_F64) ((double *)out)[i] = 0.001;
    if (type == DTYPE_I32) ((int32_t *)out)[i] = (int32_t)(w % (uint32_t)limit);
    if (type == DTYPE_I64) ((int64_t *)out)[i] = 3;
  }
}

/* The same random piece over and over: no kernel gains from that, and the host is spared billions of draws. */
static inline struct tensor made(enum dtype type, int64_t rows, int64_t cols, int64_t limit)
{
  static uint32_t part;
  void *at, *piece;
  const int64_t count = rows * cols, here = count < PIECE ? count : PIECE;
  const size_t size = dtype_bytes(type);
  need(dev_alloc(dev, (size_t)count * size, DEV_OTHER, "bench", &at));
  need(dev_host_alloc(dev, (size_t)here * size, "piece", &piece));
  fill_piece(type, here, part++, limit, piece);
  for (int64_t first = 0; first < count; first += here)
    need(dev_copy_in(stream, (char *)at + (size_t)first * size, piece, (size_t)(count - first < here ? count - first : here) * size));
  need(dev_sync_stream(stream));
  dev_host_free(dev, piece);
  return tensor_at(at, type, rows, cols);
}
static inline struct tensor work(int64_t rows, int64_t cols) { return made(DTYPE_BF16, rows, cols, 1); }
static inline struct tensor state(int64_t rows, int64_t cols) { return made(DTYPE_F32, rows, cols, 1); }
/* The first part of what is there already. */
static inline struct tensor part(const struct tensor *t, int64_t rows, int64_t cols) { return tensor_at(t->at, t->type, rows, cols); }

/* --- time ------------------------------------------------------------------------ */

static inline int by_size(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Of the work queued since the last call, between its events. */
static inline double taken_ms(void)
{
  const struct dev_interval *list;
  int64_t n, lost;
  double ms = 0;
  need(dev_sync(dev));
  need(dev_trace_take(dev, &list, &n, &lost));
  for (int64_t i = 0; i < n; i++) ms += list[i].end_ms - list[i].start_ms;
  return ms;
}

static inline double median_ms(double *ms)
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

static inline void row(const char *name, double flop, double bytes, double ms)
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

static inline void ceilings(const struct tensor *x, const struct tensor *y)
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

/* The first thing that a bench's main does: the device, and how often. */
static inline int bench_open(int argc, char **argv)
{
  char text[512];
  repeats = argc > 1 ? atoi(argv[1]) : repeats;
  if (argc > 2 || repeats < 1 || repeats > REPEATS_MAX) {
    fprintf(stderr, "usage: %s [repeats, at most %d]\n", program_invocation_short_name, REPEATS_MAX);
    return STATUS_USAGE;
  }
  const struct dev_config config = {.kind = DEV_CUDA, .threads = 1};
  need(dev_open(&config, &dev));
  need(dev_stream_open(dev, "compute", DEV_COMPUTE, &stream));
  need(dev_trace(dev, INTERVALS));
  dev_describe(dev, text, sizeof text);
  gpu = strstr(text, "not a GPU") == NULL;
  if (!gpu) repeats = 1;
  printf("%s; median of %d\n", text, repeats);
  return STATUS_PASS;
}

static inline void bench_close(void)
{
  dev_stream_close(stream);
  dev_close(dev);
}

#endif
