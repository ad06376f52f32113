/* warm.c - products and exchanges whose results nobody reads. */
#include "train/warm.h"

#include "ops/ops.h"
#include "train/device.h"

#include <stdlib.h>

enum { EDGE = 96, SHARE = 16384 };

static enum err multiply(struct dev *d, struct dev_stream *s, enum dtype type)
{
  enum err err;
  char *block = NULL;
  const size_t bytes = EDGE * EDGE * dtype_bytes(type);
  TRY(dev_alloc(d, 3 * bytes, DEV_OTHER, "warm-up", (void **)&block));
  const struct tensor a = tensor_at(block, type, EDGE, EDGE), b = tensor_at(block + bytes, type, EDGE, EDGE);
  const struct tensor c = tensor_at(block + 2 * bytes, type, EDGE, EDGE);
  TRY_TO(free_block, op_fill(s, &a, 1.0));
  TRY_TO(free_block, op_fill(s, &b, 1.0));
  TRY_TO(free_block, op_matmul(s, &c, &a, false, &b, false, false));
  TRY_TO(free_block, op_matmul(s, &c, &a, false, &b, true, false));
  TRY_TO(free_block, op_matmul(s, &c, &a, true, &b, false, true));
  TRY_TO(free_block, dev_sync_stream(s));

free_block:
  dev_sync_stream(s); /* also of what was queued before a failure */
  dev_free(d, block);
  return err;
}

/* Each rank with each: MPI connects two at their first message, and keeps what it needed for a large one. */
static enum err exchange(struct dev *d, struct comm_world *w)
{
  enum err err;
  const int n = comm_size(w);
  struct dev_stream *s = NULL;
  struct comm *all = NULL;
  void *block = NULL;
  int *ranks = calloc((size_t)n, sizeof *ranks);
  for (int i = 0; ranks && i < n; i++) ranks[i] = i;
  err = ranks ? ERR_OK : err_set(ERR_MEMORY, __FILE__, __LINE__, "%d ranks", n);
  if (err == ERR_OK) err = dev_stream_open(d, "transfer", DEV_TRANSFER, &s);
  if (err == ERR_OK) err = dev_alloc(d, (size_t)n * SHARE * sizeof(float), DEV_OTHER, "warm-up", &block);
  TRY_TO(close_stream, comm_agree(w, err));
  const struct tensor t = tensor_at(block, DTYPE_F32, n, SHARE);
  TRY_TO(close_stream, comm_create(w, s, ranks, n, (size_t)n * SHARE * sizeof(float), &(struct comm_config){.name = "warm-up", .reduce = COMM_ORDERED}, &all));
  TRY_TO(destroy_comm, op_fill(s, &t, 1.0));
  TRY_TO(destroy_comm, comm_allreduce(all, &t, COMM_SUM));
  TRY_TO(destroy_comm, dev_sync_stream(s));

destroy_comm:
  comm_destroy(all);
close_stream:
  dev_stream_close(s);
  dev_free(d, block);
  free(ranks);
  return err;
}

static enum err open_and_multiply(const struct run_config *run, const struct comm_world *w, struct dev **d, struct dev_stream **s)
{
  const struct dev_config config = device_config(run, w);
  TRY(dev_open(&config, d));
  TRY(dev_stream_open(*d, "compute", DEV_COMPUTE, s));
  return multiply(*d, *s, run_work_type(run));
}

enum err warm_libraries(const struct run_config *run, struct comm_world *w)
{
  enum err err;
  struct dev *d = NULL;
  struct dev_stream *s = NULL;
  TRY_TO(close_device, comm_agree(w, open_and_multiply(run, w, &d, &s)));
  if (run->device != DEVICE_CUDA && comm_size(w) > 1) TRY_TO(close_device, exchange(d, w));

close_device:
  dev_stream_close(s);
  dev_close(d);
  return err;
}
