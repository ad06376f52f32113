/* op_rig.h - the device that this room's tests run on, and its memory seen from the host.
 *
 * Only tests include this.  The environment variable SHARDMARK_TEST_DEVICE names it: cpu (the default, with lazy where
 * a test says so) or cuda.  Tests place tensors in host memory and look at them there.  rig_at() gives the same tensor
 * as the device sees it, rig_sync() waits and makes what the device wrote visible.  On cuda a whole arena goes over
 * and comes back, so that a byte changed around a tensor is seen; on the others both are the memory itself.
 */
#ifndef OPS_OP_RIG_H
#define OPS_OP_RIG_H

#include "device/dev.h"
#include "ops/op_arena.h"

/* Host memory and its twin on the device. */
struct rig_twin {
  char *host, *device;
  size_t bytes;
};
enum { RIG_TWINS = 16, RIG_TENSORS = 64 };
struct rig {
  struct dev *dev;
  struct dev_stream *compute, *other; /* the device's one compute stream, and one more */
  struct rig_twin twin[RIG_TWINS];
  int twins;
  bool ahead;                        /* the device may have written since the last rig_sync() */
  struct tensor tensor[RIG_TENSORS]; /* that rig_at() gave, the oldest lost first */
  int given;
};

static inline bool rig_on_cuda(void)
{
  const char *name = getenv("SHARDMARK_TEST_DEVICE");
  return name != NULL && strcmp(name, "cuda") == 0;
}

/* A GPU itself, not the host build of its kernels. */
static inline bool rig_on_gpu(void)
{
#ifdef SHARDMARK_CUDA_HOST
  return false;
#else
  return rig_on_cuda();
#endif
}

static inline void rig_open_on(struct rig *g, enum dev_kind kind, int threads)
{
#ifdef SHARDMARK_TSAN
  threads = 1; /* it does not know the barriers of OpenMP */
#endif
  const struct dev_config config = {.kind = kind, .threads = threads, .lazy_seed = 1};
  *g = (struct rig){0};
  CHECK_OK(dev_open(&config, &g->dev));
  CHECK_OK(dev_stream_open(g->dev, "compute", DEV_COMPUTE, &g->compute));
  CHECK_OK(dev_stream_open(g->dev, "other", DEV_TRANSFER, &g->other));
}
/* A device of this kind; on a CUDA device where that is what is tested. */
static inline void rig_open(struct rig *g, enum dev_kind kind, int threads)
{
  rig_open_on(g, rig_on_cuda() ? DEV_CUDA : kind, threads);
}
static inline void rig_close(struct rig *g)
{
  for (int i = 0; i < g->twins; i++) dev_free(g->dev, g->twin[i].device);
  dev_stream_close(g->compute);
  dev_stream_close(g->other);
  dev_close(g->dev);
}

static inline void rig_send(struct rig *g, const struct rig_twin *twin)
{
  CHECK_OK(dev_copy_in(g->other, twin->device, twin->host, twin->bytes));
  CHECK_OK(dev_sync_stream(g->other));
}
/* Only what has changed is written: the host's side may be constant. */
static inline void rig_fetch(struct rig *g, const struct rig_twin *twin)
{
  char *now = malloc(twin->bytes);
  CHECK(now != NULL);
  CHECK_OK(dev_copy_out(g->other, now, twin->device, twin->bytes));
  CHECK_OK(dev_sync_stream(g->other));
  if (memcmp(now, twin->host, twin->bytes) != 0) memcpy(twin->host, now, twin->bytes);
  free(now);
}

/* Device memory for a twin, with the host's contents if the device is ahead already. */
static inline void rig_twin_open(struct rig *g, struct rig_twin *twin)
{
  void *device = NULL;
  CHECK_OK(dev_alloc(g->dev, twin->bytes, DEV_OTHER, "twin", &device));
  twin->device = device;
  if (g->ahead) rig_send(g, twin);
}
/* The twin that holds [at, at + bytes): of the arena that it lies in, or its own.  An arena may have grown. */
static inline const struct rig_twin *rig_twin_of(struct rig *g, char *at, size_t bytes)
{
  for (int i = 0; i < g->twins; i++)
    if (at >= g->twin[i].host && at + bytes <= g->twin[i].host + g->twin[i].bytes) return &g->twin[i];
  const struct arena *a = arena_of(at);
  int i = a != NULL ? 0 : g->twins;
  while (i < g->twins && g->twin[i].host != (char *)a->at) i++;
  if (i < g->twins) {
    CHECK_OK(dev_sync(g->dev));
    if (g->ahead) rig_fetch(g, &g->twin[i]);
    dev_free(g->dev, g->twin[i].device);
  } else {
    BUG_IF(g->twins == RIG_TWINS);
    g->twins++;
  }
  g->twin[i] = (struct rig_twin){a ? (char *)a->at : at, NULL, a ? a->used : bytes};
  rig_twin_open(g, &g->twin[i]);
  return &g->twin[i];
}

/* t, or NULL, for an operation on this rig. */
static inline const struct tensor *rig_at(struct rig *g, const struct tensor *t)
{
  if (t == NULL || tensor_count(t) == 0 || dev_kind_of(g->dev) != DEV_CUDA) return t;
  const size_t bytes = (size_t)((t->rows - 1) * t->stride + t->cols) * dtype_bytes(t->type);
  const struct rig_twin *twin = rig_twin_of(g, t->at, bytes);
  if (!g->ahead) {
    for (int i = 0; i < g->twins; i++) rig_send(g, &g->twin[i]);
    g->ahead = true;
  }
  struct tensor *there = &g->tensor[g->given++ % RIG_TENSORS];
  *there = *t;
  there->at = twin->device + ((char *)t->at - twin->host);
  return there;
}

/* dev_sync(), after which the host sees what the device has written, also up to an error. */
static inline enum err rig_sync(struct rig *g)
{
  const enum err e = dev_sync(g->dev);
  struct err_saved why;
  err_save(&why, e);
  for (int i = 0; g->ahead && i < g->twins; i++) rig_fetch(g, &g->twin[i]);
  g->ahead = false;
  return err_restore(&why);
}

#endif
