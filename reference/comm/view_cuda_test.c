/* view_cuda_test.c - packing and rank-ordered sums on the device give the bits of those on the host. */
#include "base/f16.h"
#include "base/rng.h"
#include "comm/view.h"
#include "comm/view_cuda.h"
#include "device/dev_cuda.h"
#include "device/dev_mirror.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 16 };

struct bench {
  struct dev *d;
  struct dev_stream *s;
  unsigned char *device[2], *host[2]; /* two blocks there, and what must come out */
};

static bool open_bench(struct bench *b)
{
  const struct dev_config config = {.kind = DEV_CUDA, .threads = 1};
  bool ok = CHECK_OK(dev_open(&config, &b->d)) && CHECK_OK(dev_stream_open(b->d, "test", DEV_COMPUTE, &b->s));
  for (int i = 0; i < 2 && ok; i++) {
    b->host[i] = malloc(BYTES);
    ok = CHECK(b->host[i] != NULL) && CHECK_OK(dev_alloc(b->d, BYTES, DEV_OTHER, "test", (void **)&b->device[i]));
  }
  return ok;
}

static void close_bench(struct bench *b)
{
  for (int i = 0; i < 2; i++) {
    dev_free(b->d, b->device[i]);
    free(b->host[i]);
  }
  dev_stream_close(b->s);
  dev_close(b->d);
}

/* Both blocks with bytes of their own, on the host and on the device alike. */
static void refill(struct bench *b)
{
  for (int k = 0; k < 2; k++) {
    const struct rng_key key = {5, RNG_TEST, (uint32_t)k};
    for (int i = 0; i < BYTES; i++) b->host[k][i] = (unsigned char)rng_below(key, (uint64_t)i, 251);
    CHECK_OK(dev_copy_in(b->s, b->device[k], b->host[k], BYTES));
  }
  CHECK_OK(dev_sync(b->d));
}

/* To the last byte, also where nothing was to be written. */
static bool alike(struct bench *b, int k)
{
  CHECK_OK(dev_sync(b->d));
  unsigned char *got = mirror_read(b->s, b->device[k], BYTES);
  const bool same = memcmp(got, b->host[k], BYTES) == 0;
  free(got);
  return same;
}

/* Each width of access, begun in the middle of a row and at odd places. */
static void views_are_packed_and_unpacked_as_on_the_host(void)
{
  static const enum dtype types[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16, DTYPE_U8};
  static const struct { int64_t rows, cols, stride, first, count, shift; } shapes[] = {
    {1, 1, 1, 0, 1, 0},     {4, 16, 32, 0, 64, 0},  {4, 16, 32, 16, 32, 0},  {4, 16, 48, 0, 64, 1}, {3, 7, 9, 0, 21, 0},
    {3, 7, 9, 5, 11, 3},    {5, 8, 12, 8, 25, 0},   {1, 1000, 1000, 3, 996, 0}, {37, 3, 4, 1, 110, 1}, {2, 2, 1000, 0, 4, 0},
    {20, 64, 66, 0, 1280, 0}, {6, 32, 40, 30, 4, 2}};
  struct bench b = {0};
  if (open_bench(&b))
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
      for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t at = (size_t)shapes[i].shift * dtype_bytes(types[t]);
        const struct tensor there = {b.device[0] + at, types[t], shapes[i].rows, shapes[i].cols, shapes[i].stride};
        const struct tensor here = {b.host[0] + at, types[t], shapes[i].rows, shapes[i].cols, shapes[i].stride};
        const struct tensor run = tensor_at(b.device[1] + at, types[t], 1, shapes[i].count);
        bool ok = true;
        refill(&b);
        ok = CHECK_OK(view_cuda_copy(dev_cuda_of(b.s), &run, 0, &there, shapes[i].first, shapes[i].count)) && ok;
        view_pack(&here, shapes[i].first, shapes[i].count, b.host[1] + at);
        ok = CHECK(alike(&b, 1)) && CHECK(alike(&b, 0)) && ok;
        refill(&b);
        ok = CHECK_OK(view_cuda_copy(dev_cuda_of(b.s), &there, shapes[i].first, &run, 0, shapes[i].count)) && ok;
        view_unpack(&here, shapes[i].first, shapes[i].count, b.host[1] + at);
        ok = CHECK(alike(&b, 0)) && CHECK(alike(&b, 1)) && ok;
        if (!ok) fprintf(stderr, "%s, shape %zu\n", dtype_name(types[t]), i);
      }
  close_bench(&b);
}

/* More than all blocks of a grid do at once, so that threads go round. */
static void a_long_copy_goes_round(void)
{
  enum { LONG = 3 << 20 };
  struct bench b = {0};
  void *from = NULL, *to = NULL;
  unsigned char *x = malloc(LONG);
  if (CHECK(x != NULL) && open_bench(&b) && CHECK_OK(dev_alloc(b.d, LONG, DEV_OTHER, "test", &from)) &&
      CHECK_OK(dev_alloc(b.d, LONG, DEV_OTHER, "test", &to))) {
    for (int i = 0; i < LONG; i++) x[i] = (unsigned char)(i % 253);
    CHECK_OK(dev_copy_in(b.s, from, x, LONG));
    const struct tensor a = tensor_at(from, DTYPE_U8, 1, LONG - 1), c = tensor_at(to, DTYPE_U8, 1, LONG - 1);
    CHECK_OK(view_cuda_copy(dev_cuda_of(b.s), &c, 0, &a, 0, LONG - 1));
    unsigned char *got = mirror_read(b.s, to, LONG);
    CHECK_SAME_BITS(got, x, LONG - 1);
    CHECK(got[LONG - 1] == 0xFF);
    free(got);
  }
  dev_free(b.d, to);
  dev_free(b.d, from);
  free(x);
  close_bench(&b);
}

static void set(void *at, enum dtype type, int64_t i, double x)
{
  switch (type) {
  case DTYPE_F64: ((double *)at)[i] = x; break;
  case DTYPE_F32: ((float *)at)[i] = (float)x; break;
  case DTYPE_BF16: ((uint16_t *)at)[i] = isnan(x) ? 0x7fff : bf16_round((float)x); break; /* the NaN that CUDA rounds to */
  case DTYPE_F16: ((uint16_t *)at)[i] = isnan(x) ? 0x7fff : f16_round((float)x); break;
  case DTYPE_I32: ((int32_t *)at)[i] = isfinite(x) ? (int32_t)(x * 1e9) : INT32_MIN; break;
  default: ((int64_t *)at)[i] = isfinite(x) ? (int64_t)(x * 4e18) : INT64_MIN; break;
  }
}

/* Sums that wrap around, maxima of negative numbers, NaN in each place, tails of every length. */
static void reductions_give_the_hosts_bits(void)
{
  static const enum dtype types[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I32, DTYPE_I64};
  static const int64_t counts[] = {1, 2, 3, 7, 8, 64, 257, 1000};
  struct bench b = {0};
  if (open_bench(&b))
    for (size_t t = 0; t < 5; t++)
      for (size_t k = 0; k < 8; k++)
        for (int n = 1; n <= 4; n++)
          for (int way = 0; way < 4; way++) { /* sum or max, on a multiple of 16 bytes or not */
            const int64_t count = counts[k];
            const size_t shift = way & 2 ? dtype_bytes(types[t]) : 0;
            const struct rng_key key = {7, RNG_TEST, (uint32_t)k};
            refill(&b);
            for (int64_t i = 0; i < n * count; i++) {
              const double x = rng_uniform(key, (uint64_t)i) * 4 - (way & 1 ? 4.1 : 2);
              set(b.host[0] + shift, types[t], i, i % 13 == 5 ? NAN : x);
            }
            CHECK_OK(dev_copy_in(b.s, b.device[0], b.host[0], BYTES));
            CHECK_OK(view_cuda_reduce(dev_cuda_of(b.s), b.device[0] + shift, n, count, types[t], way & 1));
            view_reduce(b.host[0] + shift, n, count, types[t], way & 1 ? COMM_MAX : COMM_SUM);
            if (!CHECK(alike(&b, 0))) fprintf(stderr, "%s, %d of %d, way %d\n", dtype_name(types[t]), n, (int)count, way);
          }
  CHECK_ERR(view_cuda_reduce(dev_cuda_of(b.s), b.device[0], 2, 4, DTYPE_U8, false), ERR_ARG);
  close_bench(&b);
}

static void one_bit_of_one_byte_is_flipped(void)
{
  struct bench b = {0};
  if (open_bench(&b)) {
    refill(&b);
    CHECK_OK(view_cuda_flip(dev_cuda_of(b.s), b.device[0] + 77, 0x40));
    b.host[0][77] ^= 0x40;
    CHECK(alike(&b, 0));
  }
  close_bench(&b);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(views_are_packed_and_unpacked_as_on_the_host),
    TEST(a_long_copy_goes_round),
    TEST(reductions_give_the_hosts_bits),
    TEST(one_bit_of_one_byte_is_flipped),
  };
  return test_main("view on cuda", tests, sizeof tests / sizeof *tests);
}
