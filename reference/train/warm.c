/* warm.c - products whose results nobody reads. */
#include "train/warm.h"

#include "ops/ops.h"
#include "train/device.h"

enum { EDGE = 96 };

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

enum err warm_libraries(const struct run_config *run, const struct comm_world *w)
{
  enum err err;
  struct dev *d = NULL;
  struct dev_stream *s = NULL;
  const struct dev_config config = device_config(run, w);
  TRY(dev_open(&config, &d));
  TRY_TO(close_device, dev_stream_open(d, "compute", DEV_COMPUTE, &s));
  TRY_TO(close_device, multiply(d, s, run_work_type(run)));

close_device:
  dev_stream_close(s);
  dev_close(d);
  return err;
}
