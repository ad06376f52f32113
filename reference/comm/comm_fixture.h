/* comm_fixture.h - what the tests of this room share: one world, a device, matrices with guards. */
#ifndef COMM_COMM_FIXTURE_H
#define COMM_COMM_FIXTURE_H

#include "base/f16.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/rng.h"
#include "comm/comm_state.h"
#include "comm/comm_testing.h"
#include "comm/pmpi_shim.h"
#include "testing/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct comm_world *world; /* MPI starts once a process */

enum { GUARD = 3 }; /* elements between the rows of a strided view */

/* A device with the two streams of a step. */
struct bench {
  struct dev *d;
  struct dev_stream *compute, *transfer;
};

static inline void bench_open(struct bench *b, enum dev_kind kind, uint64_t seed)
{
  CHECK_OK(test_dev(kind, seed, &b->d));
  CHECK_OK(dev_stream_open(b->d, "compute", DEV_COMPUTE, &b->compute));
  CHECK_OK(dev_stream_open(b->d, "transfer", DEV_TRANSFER, &b->transfer));
}

static inline void bench_close(struct bench *b)
{
  dev_stream_close(b->transfer);
  dev_stream_close(b->compute);
  dev_close(b->d);
}

static inline void everyone(int *ranks)
{
  for (int i = 0; i < comm_size(world); i++) ranks[i] = i;
}

/* Over all ranks, on the transfer stream. */
static inline struct comm *comm_of(struct bench *b, size_t scratch, const struct comm_config *config)
{
  int ranks[64];
  struct comm *c = NULL;
  everyone(ranks);
  CHECK_OK(test_comm(world, b->transfer, ranks, comm_size(world), scratch, config, &c));
  return c;
}

/* Element i of rank r: full mantissas of both signs, so that every order of additions shows. */
static inline double value(int r, int64_t i, enum dtype type)
{
  const struct rng_key key = {11, RNG_TEST, (uint32_t)r};
  const double x = rng_uniform(key, (uint64_t)i) * 2 - 1;
  if (type == DTYPE_F64) return x * 3;
  if (type == DTYPE_F32) return (double)(float)(x * 3);
  if (type == DTYPE_BF16) return (double)bf16_widen(bf16_round_f64(x * 3));
  if (type == DTYPE_F16) return (double)f16_widen(f16_round_f64(x * 3));
  return floor(x * 1000);
}

static inline void element_set(const struct tensor *t, int64_t i, double x)
{
  const struct tensor v = mirror_view(t);
  char *at = tensor_row(&v, i / t->cols) + (size_t)(i % t->cols) * dtype_bytes(t->type);
  switch (t->type) {
  case DTYPE_F64: *(double *)at = x; break;
  case DTYPE_F32: *(float *)at = (float)x; break;
  case DTYPE_BF16: *(uint16_t *)at = bf16_round_f64(x); break;
  case DTYPE_F16: *(uint16_t *)at = f16_round_f64(x); break;
  case DTYPE_I32: *(int32_t *)at = (int32_t)x; break;
  case DTYPE_I64: *(int64_t *)at = (int64_t)x; break;
  default: memset(at, (int)x & 0xFF, dtype_bytes(t->type)); break;
  }
}

static inline double element_get(const struct tensor *t, int64_t i)
{
  const struct tensor v = mirror_view(t);
  const char *at = tensor_row(&v, i / t->cols) + (size_t)(i % t->cols) * dtype_bytes(t->type);
  switch (t->type) {
  case DTYPE_F64: return *(const double *)at;
  case DTYPE_F32: return *(const float *)at;
  case DTYPE_BF16: return bf16_widen(*(const uint16_t *)at);
  case DTYPE_F16: return f16_widen(*(const uint16_t *)at);
  case DTYPE_I32: return *(const int32_t *)at;
  case DTYPE_I64: return (double)*(const int64_t *)at;
  default: return *(const uint8_t *)at;
  }
}

/* The sum or maximum over ranks of element i in rank order, rounded to the type each time; bf16 and f16 are added in
 * float32 and rounded at the end. */
static inline double serial(int n, int64_t i, enum dtype type, enum comm_op op)
{
  const bool narrow = type == DTYPE_BF16 || type == DTYPE_F16;
  double sum = value(0, i, type);
  for (int r = 1; r < n; r++) {
    const double x = value(r, i, type);
    if (op == COMM_MAX) sum = x > sum ? x : sum;
    else sum = type == DTYPE_F32 || narrow ? (double)((float)sum + (float)x) : sum + x;
  }
  if (type == DTYPE_F16) return (double)f16_widen(f16_round((float)sum));
  return type == DTYPE_BF16 ? (double)bf16_widen(bf16_round((float)sum)) : sum;
}

/* A matrix on the device; strided ones have guards between rows.  Poisoned: every byte 0xFF. */
static inline struct tensor matrix(struct bench *b, enum dtype type, int64_t rows, int64_t cols, bool strided)
{
  struct tensor t = {NULL, type, rows, cols, strided ? cols + GUARD : cols};
  CHECK_OK(mirror_alloc(b->transfer, (size_t)(rows * t.stride) * dtype_bytes(type), "test", &t.at));
  return t;
}

static inline void fill(const struct tensor *t, int rank, int64_t first)
{
  for (int64_t i = 0; i < tensor_count(t); i++) element_set(t, i, value(rank, first + i, t->type));
  mirror_push(t->at);
}

static inline bool guards_intact(const struct tensor *t)
{
  const struct tensor v = mirror_view(t);
  for (int64_t r = 0; r < t->rows && t->stride > t->cols; r++) {
    const unsigned char *at = (unsigned char *)tensor_row(&v, r) + (size_t)t->cols * dtype_bytes(t->type);
    for (size_t i = 0; i < GUARD * dtype_bytes(t->type); i++)
      if (at[i] != 0xFF) return false;
  }
  return true;
}

static inline const char *kind_name(enum dev_kind k) { return k == DEV_LAZY ? "lazy" : mirror_cuda() ? "cuda" : "cpu"; }

/* True when element i of t, counted from `first` of the whole, is the reduction: to the bit
 * in rank order or where one order is as good as another, else within a bound of the type. */
static inline bool reduced(const struct tensor *t, int64_t i, int64_t at, enum comm_op op, bool ordered)
{
  const double want = serial(comm_size(world), at, t->type, op), got = element_get(t, i);
  const bool exact = ordered || op == COMM_MAX || comm_size(world) < 3 || t->type == DTYPE_I32 || t->type == DTYPE_I64;
  if (exact) return got == want;
  const int n = comm_size(world); /* each of a narrow type's n - 1 additions may lose half a unit of a sum of up to n terms below 3 */
  if (t->type == DTYPE_F16) return fabs(got - want) <= 0x1p-11 * 3 * n * (n + 1) / 2;
  if (t->type == DTYPE_BF16) return fabs(got - want) <= 0x1p-8 * 3 * n * (n + 1) / 2;
  return fabs(got - want) <= 64 * (t->type == DTYPE_F32 ? 6e-8 : 1.2e-16) * n;
}

static inline int run_all(const char *suite, const struct test *tests, size_t n)
{
  if (comm_world_open(&world) != ERR_OK) {
    fprintf(stderr, "%s\n", err_text());
    return 1;
  }
  const int status = test_main(suite, tests, n);
  comm_world_close(world);
  return status;
}

#endif
