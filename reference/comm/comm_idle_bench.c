/* comm_idle_bench.c - does a communication thread that waits slow the compute beside it?
 *
 *   ci/mpirun 2 build/comm_idle_bench [pairs]
 *
 * Rank 0 multiplies matrices on one core that it shares with its communication thread:
 * A with nothing to communicate, B while an all-reduce waits for rank 1, which comes only
 * after the measurement.  A and B take turns, so that other load meets both alike.  Prints
 * the ratio of medians with a 90 % interval (bootstrap over pairs).  Exit status 1 when
 * the interval lies above the 1.08 that is allowed, 4 when it straddles it.
 */
#include "base/clock.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "ops/ops.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EDGE = 512, PRODUCTS = 12, PAIRS_MAX = 2000, RESAMPLES = 2000 };
static const double ALLOWED = 1.08;

static int by_size(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(const double *values, int n)
{
  double sorted[PAIRS_MAX];
  memcpy(sorted, values, (size_t)n * sizeof *values);
  qsort(sorted, (size_t)n, sizeof *sorted, by_size);
  return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* 5th and 95th percentile of the ratio of medians over pairs drawn again. */
static void interval(const double *a, const double *b, int n, double *low, double *high)
{
  static double ratios[RESAMPLES], x[PAIRS_MAX], y[PAIRS_MAX];
  for (int k = 0; k < RESAMPLES; k++) {
    const struct rng_key key = {1, RNG_TEST, (uint32_t)k};
    for (int i = 0; i < n; i++) {
      const uint64_t pick = rng_below(key, (uint64_t)i, (uint64_t)n);
      x[i] = a[pick];
      y[i] = b[pick];
    }
    ratios[k] = median(y, n) / median(x, n);
  }
  qsort(ratios, RESAMPLES, sizeof *ratios, by_size);
  *low = ratios[RESAMPLES / 20];
  *high = ratios[RESAMPLES - 1 - RESAMPLES / 20];
}

/* The rank's own core, of those that it may use, for all threads that follow. */
static void pin(int rank)
{
  cpu_set_t may, one;
  sched_getaffinity(0, sizeof may, &may);
  int skip = rank % CPU_COUNT(&may);
  for (int core = 0; core < CPU_SETSIZE; core++)
    if (CPU_ISSET(core, &may) && skip-- == 0) {
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
}

struct rig {
  struct comm_world *world;
  struct dev *d;
  struct dev_stream *compute, *transfer;
  struct comm *comm;
  struct tensor a, b, c, reduced;
};

static enum err matrix(struct rig *r, int64_t edge, struct tensor *out)
{
  void *at;
  TRY(dev_alloc(r->d, (size_t)(edge * edge) * sizeof(float), DEV_OTHER, "bench", &at));
  for (int64_t i = 0; i < edge * edge; i++) ((float *)at)[i] = (float)(i % 13) / 13;
  *out = tensor_at(at, DTYPE_F32, edge, edge);
  return ERR_OK;
}

static enum err open_rig(struct rig *r)
{
  const struct dev_config config = {.kind = DEV_CPU, .threads = 1};
  const struct comm_config dp = {.name = "dp"};
  const int ranks[] = {0, 1};
  TRY(comm_world_open(&r->world));
  if (comm_size(r->world) != 2) FAIL(ERR_CONFIG, "%d ranks; valid: 2", comm_size(r->world));
  pin(comm_rank(r->world));
  TRY(dev_open(&config, &r->d));
  TRY(dev_stream_open(r->d, "compute", DEV_COMPUTE, &r->compute));
  TRY(dev_stream_open(r->d, "transfer", DEV_TRANSFER, &r->transfer));
  TRY(comm_create(r->world, r->transfer, ranks, 2, 0, &dp, &r->comm));
  TRY(matrix(r, EDGE, &r->a));
  TRY(matrix(r, EDGE, &r->b));
  TRY(matrix(r, EDGE, &r->c));
  TRY(matrix(r, 64, &r->reduced));
  return ERR_OK;
}

static void close_rig(struct rig *r)
{
  comm_destroy(r->comm);
  dev_stream_close(r->transfer);
  dev_stream_close(r->compute);
  dev_close(r->d);
  comm_world_close(r->world);
}

/* One sample; `waiting`: beside an all-reduce that rank 1 joins only afterwards. */
static enum err sample(struct rig *r, bool waiting, double *ms)
{
  const bool measures = comm_rank(r->world) == 0;
  if (measures && waiting) TRY(comm_allreduce(r->comm, &r->reduced, COMM_SUM));
  if (measures) {
    const double begin = clock_ms();
    for (int i = 0; i < PRODUCTS; i++) TRY(op_matmul(r->compute, &r->c, &r->a, false, &r->b, false, false));
    TRY(dev_sync_stream(r->compute));
    *ms = clock_ms() - begin;
  }
  TRY(comm_host_barrier(r->world));
  if (!measures && waiting) TRY(comm_allreduce(r->comm, &r->reduced, COMM_SUM));
  TRY(dev_sync(r->d));
  return ERR_OK;
}

static enum err measure(struct rig *r, int pairs, int *status)
{
  static double a[PAIRS_MAX], b[PAIRS_MAX];
  double low, high, unused;
  for (int i = 0; i < 4; i++) TRY(sample(r, i % 2 == 1, &unused)); /* warm-up */
  for (int i = 0; i < pairs; i++) {
    TRY(sample(r, i % 2 == 1, i % 2 ? &b[i] : &a[i]));
    TRY(sample(r, i % 2 == 0, i % 2 ? &a[i] : &b[i]));
  }
  if (comm_rank(r->world) != 0) return ERR_OK;
  interval(a, b, pairs, &low, &high);
  printf("%s: %d pairs of %d sgemm of %d: alone %.2f ms, beside a waiting all-reduce %.2f ms, ratio %.3f (90 %%: %.3f to %.3f), allowed %.2f\n",
         comm_library(), pairs, PRODUCTS, EDGE, median(a, pairs), median(b, pairs), median(b, pairs) / median(a, pairs), low, high, ALLOWED);
  *status = low > ALLOWED ? STATUS_FAIL : high > ALLOWED ? STATUS_INCONCLUSIVE : STATUS_PASS;
  return ERR_OK;
}

int main(int argc, char **argv)
{
  struct rig r = {0};
  int status = STATUS_PASS;
  const int pairs = argc > 1 ? atoi(argv[1]) : 100;
  if (pairs < 10 || pairs > PAIRS_MAX) {
    fprintf(stderr, "pairs: '%s'; valid: 10..%d\n", argv[1], PAIRS_MAX);
    return STATUS_USAGE;
  }
  enum err e = open_rig(&r);
  if (e == ERR_OK) e = measure(&r, pairs, &status);
  if (e != ERR_OK) {
    fprintf(stderr, "comm_idle_bench: %s (%s)\n", err_text(), err_trail());
    if (r.world) comm_world_abort(r.world, (int)err_status(e));
    return (int)err_status(e);
  }
  close_rig(&r);
  return status;
}
