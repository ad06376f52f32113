/* tasks_comm.c - collectives whose every element is known beforehand.
 *
 * Element i of rank r is i % 61 + r: sums over ranks are small whole numbers, exact in every type.
 */
#include "train/tasks_comm.h"

#include "comm/comm.h"
#include "train/device.h"

#include <stdlib.h>
#include <string.h>

enum collective { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST };

struct trial {
  const char *what;
  enum collective collective;
  enum dtype type;
  int64_t gap; /* elements between rows of a strided view */
};
static const struct trial trials[] = {
  {"allreduce", ALLREDUCE, DTYPE_F32, 0},
  {"allreduce.float64", ALLREDUCE, DTYPE_F64, 0},
  {"allreduce.int32", ALLREDUCE, DTYPE_I32, 0},
  {"allreduce.strided", ALLREDUCE, DTYPE_F32, 3},
  {"reduce_scatter", REDUCE_SCATTER, DTYPE_F32, 0},
  {"allgather", ALLGATHER, DTYPE_F32, 0},
  {"broadcast", BROADCAST, DTYPE_F32, 0},
};

static double value(int64_t i, int rank) { return (double)(i % 61 + rank); }

static void put(void *at, enum dtype type, int64_t i, double x)
{
  if (type == DTYPE_F64) ((double *)at)[i] = x;
  else if (type == DTYPE_F32) ((float *)at)[i] = (float)x;
  else ((int32_t *)at)[i] = (int32_t)x;
}

static double get(const void *at, enum dtype type, int64_t i)
{
  return type == DTYPE_F64 ? ((const double *)at)[i] : type == DTYPE_F32 ? (double)((const float *)at)[i] : ((const int32_t *)at)[i];
}

/* What rank `me` of n finds at row r, column c once it is over; a value below 0: anything. */
static double expected(const struct trial *t, int64_t rows, int64_t cols, int64_t r, int64_t c, int me, int n)
{
  const int64_t i = r * cols + c, part = r / (rows / n);
  const double sum = n * value(i, 0) + (double)n * (n - 1) / 2.0;
  switch (t->collective) {
  case ALLREDUCE: return sum;
  case REDUCE_SCATTER: return part == me ? sum : -1.0;
  case ALLGATHER: return value(i, (int)part);
  case BROADCAST: return value(i, n - 1);
  }
  return -1.0;
}

static enum err collective(struct comm *c, const struct trial *t, const struct tensor *all, int me, int n)
{
  const struct tensor mine = tensor_part(all, all->rows / n * me, all->rows / n, 0, all->cols);
  switch (t->collective) {
  case ALLREDUCE: TRY(comm_allreduce(c, all, COMM_SUM)); break;
  case REDUCE_SCATTER: TRY(comm_reduce_scatter(c, &mine, all, COMM_SUM)); break;
  case ALLGATHER: TRY(comm_allgather(c, all, &mine)); break;
  case BROADCAST: TRY(comm_broadcast(c, all, n - 1)); break;
  }
  return ERR_OK;
}

/* Wrong elements of the last repeat; what lies between strided rows must be as it was. */
static int64_t count_wrong(const struct trial *t, const void *host, int64_t rows, int64_t cols, int me, int n)
{
  int64_t wrong = 0;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols + t->gap; c++) {
      const double want = c < cols ? expected(t, rows, cols, r, c, me, n) : -2.0;
      wrong += want != -1.0 && get(host, t->type, r * (cols + t->gap) + c) != want;
    }
  return wrong;
}

static enum err one_trial(const struct output *o, struct dev *d, struct comm *c, const struct trial *t, int me, int n)
{
  enum err err;
  struct dev_stream *s = comm_stream(c);
  const int64_t elements = o->run->size / (int64_t)dtype_bytes(t->type), rows = 7 * n, cols = elements / rows > 0 ? elements / rows : 1;
  const int64_t stride = cols + t->gap;
  const size_t bytes = (size_t)(rows * stride) * dtype_bytes(t->type);
  void *host = malloc(bytes), *device = NULL;
  if (host == NULL) FAIL(ERR_MEMORY, "task comm: %zu bytes", bytes);
  TRY_TO(free_host, dev_alloc(d, bytes, DEV_OTHER, "collectives", &device));
  struct tensor all = tensor_at(device, t->type, rows, cols);
  all.stride = stride;
  for (int64_t repeat = 0; repeat <= o->run->repeats; repeat++) {
    for (int64_t i = 0; i < rows * stride; i++)
      put(host, t->type, i, i % stride < cols ? value(i / stride * cols + i % stride, me) : -2.0);
    TRY_TO(free_host, dev_copy_in(s, device, host, bytes));
    TRY_TO(free_host, comm_barrier(c));
    dev_set_phase(d, (enum dev_phase)TASKS_TIMED, repeat, -1);
    TRY_TO(free_host, collective(c, t, &all, me, n));
    dev_set_phase(d, DEV_PHASE_OTHER, repeat, -1);
    TRY_TO(free_host, dev_copy_out(s, host, device, bytes));
    TRY_TO(free_host, dev_sync_stream(s));
    slots_say(o->slots, "comm", repeat);
  }
  const int64_t size = rows * cols * (int64_t)dtype_bytes(t->type);
  const struct tasks_measure m = {.what = t->what, .size = size, .bytes = size,
                                  .wrong = count_wrong(t, host, rows, cols, me, n)};
  TRY_TO(free_host, tasks_say(o, d, &m));

free_host:
  dev_sync_stream(s); /* also of what was queued before a failure */
  if (device) dev_free(d, device);
  free(host);
  return err;
}

enum err tasks_comm(const struct output *o, struct dev *d, struct dev_stream *compute, bool *fatal)
{
  enum err err;
  (void)compute;
  const int n = comm_size(o->world), me = comm_rank(o->world);
  const struct comm_config config = device_comm_config(o->run, "world");
  struct dev_stream *s = NULL;
  struct comm *c = NULL;
  int *ranks = malloc((size_t)n * sizeof *ranks);
  if (ranks == NULL) FAIL(ERR_MEMORY, "list of %d ranks", n);
  for (int i = 0; i < n; i++) ranks[i] = i;
  TRY_TO(free_ranks, dev_stream_open(d, "transfer", DEV_TRANSFER, &s));
  *fatal = n > 1; /* from here on the others may wait for this rank */
  TRY_TO(free_ranks, comm_create(o->world, s, ranks, n, (size_t)o->run->size + 4096, &config, &c));
  for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) TRY_TO(free_ranks, one_trial(o, d, c, &trials[i], me, n));
  comm_destroy(c);
  *fatal = false;

free_ranks:
  if (!*fatal) dev_stream_close(s);
  free(ranks);
  return err;
}
