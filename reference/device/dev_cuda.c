/* dev_cuda.c - the cuda device: opened and closed, its streams, events and memory. */
#include "device/dev_cuda_state.h"

#include "base/clock.h"
#include "device/dev_versions_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SHARDMARK_CUDA_HOST
#include <cuda_host.h>
enum { WORKSPACE_BYTES = 2 << 20 };
#define NVML_IS_HERE (cuda_host_has_nvml())
#define NVML_LIBRARY NULL /* this program */
#else
#define NVML_IS_HERE (true)
#define NVML_LIBRARY "libnvidia-ml.so.1"
enum { WORKSPACE_BYTES = 32 << 20 }; /* what cuBLAS itself takes for its handles on Hopper */
#endif

/* --- errors --------------------------------------------------------------------------- */

/* After these the context is dead, and whatever is called next reports them. */
static bool is_of_earlier_work(cudaError_t code) { return code == cudaErrorIllegalAddress || code == cudaErrorLaunchFailure; }

enum err dev_cuda_check(cudaError_t code, const char *call, const char *file, int line)
{
  if (code == cudaSuccess) return ERR_OK;
  int device = -1;
  const char *slash = strrchr(file, '/');
  const enum err kind = code == cudaErrorMemoryAllocation   ? ERR_MEMORY
                        : code == cudaErrorECCUncorrectable ? ERR_INVALID
                                                            : ERR_DEVICE;
  (void)cudaGetLastError(); /* it is told here: the next launch must not tell it again */
  (void)cudaGetDevice(&device);
  return err_set(kind, file, line, "%s: %s (%s:%d, device %d)%s", call, cudaGetErrorString(code), slash ? slash + 1 : file, line, device,
                 is_of_earlier_work(code) ? "; the cause is this or earlier work: CUDA_LAUNCH_BLOCKING=1 tells" : "");
}

/* --- the device ------------------------------------------------------------------------- */

static void write_uuid(const cudaUUID_t *uuid, char out[64])
{
  int used = snprintf(out, 64, "GPU");
  for (int i = 0; i < 16; i++)
    used += snprintf(out + used, (size_t)(64 - used), "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                     (unsigned int)(unsigned char)uuid->bytes[i]);
}

static enum err look_at(struct dev *d)
{
  struct dev_cuda_device *c = d->cuda;
  struct cudaDeviceProp p;
  int least;
  CUDA_TRY(cudaSetDevice(c->index));
  CUDA_TRY(cudaGetDeviceProperties(&p, c->index));
  snprintf(c->name, sizeof c->name, "%s", p.name);
  d->card_bytes = p.totalGlobalMem;
  c->capability = 10 * p.major + p.minor;
  c->multiprocessors = p.multiProcessorCount;
  write_uuid(&p.uuid, d->uuid);
  CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &c->priority));
  return dev_capability_check(c->index, c->name, c->capability);
}

static void cuda_close(struct dev *d)
{
  struct dev_cuda_device *c = d->cuda;
  if (c == NULL) return;
  while (c->pinned != NULL) dev_cuda_host_free(d, c->pinned->at, c->pinned->bytes);
  dev_arena_release(d);
  if (c->epoch != NULL) (void)cudaEventDestroy(c->epoch);
  if (c->own != NULL) (void)cudaStreamDestroy(c->own);
  dev_nvml_close(&c->nvml);
  pthread_mutex_destroy(&c->lock);
  free(c);
  d->cuda = NULL;
}

static enum err bytes_in_use(int64_t *out)
{
  size_t free_bytes, total_bytes;
  CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes));
  *out = (int64_t)(total_bytes - free_bytes);
  return ERR_OK;
}

static enum err open_on(struct dev *d)
{
  struct dev_cuda_device *c = d->cuda;
  TRY(look_at(d));
  CUDA_TRY(cudaStreamCreateWithPriority(&c->own, cudaStreamNonBlocking, 0));
  CUDA_TRY(cudaEventCreateWithFlags(&c->epoch, cudaEventDefault));
  TRY(bytes_in_use(&c->before_bytes));
  if (NVML_IS_HERE && dev_nvml_open(NVML_LIBRARY, &c->nvml)) err_clear(); /* records then say "unknown" */
  return ERR_OK;
}

static enum err cuda_open(struct dev *d)
{
  const struct dev_versions v = dev_versions_now();
  TRY(dev_versions_check(&v));
  if (d->config.index < 0 || d->config.index >= v.devices)
    FAIL(ERR_UNAVAILABLE, "device cuda %d: this machine shows %d, numbered from 0", d->config.index, v.devices);
  d->cuda = calloc(1, sizeof *d->cuda);
  if (d->cuda == NULL) FAIL(ERR_MEMORY, "device cuda: %zu bytes", sizeof *d->cuda);
  d->cuda->index = d->config.index;
  pthread_mutexattr_t checked;
  pthread_mutexattr_init(&checked);
  pthread_mutexattr_settype(&checked, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_init(&d->cuda->lock, &checked);
  pthread_mutexattr_destroy(&checked);
  const enum err e = open_on(d);
  if (e) cuda_close(d);
  return e ? err_trace(e, __FILE__, __LINE__) : ERR_OK;
}

int dev_cuda_count(void)
{
  const struct dev_versions v = dev_versions_now();
  return v.counted == cudaSuccess ? v.devices : 0;
}

/* The arena gives nothing back while the card has more, so what is in use now is the most that was. */
static bool cuda_driver_usage(const struct dev *d, struct dev_driver_usage *out)
{
  struct dev_usage asked;
  int64_t now_bytes = 0;
  *out = (struct dev_driver_usage){0};
  if (bytes_in_use(&now_bytes)) {
    err_clear();
    return false;
  }
  dev_usage(d, &asked);
  *out = (struct dev_driver_usage){now_bytes - d->cuda->before_bytes, (int64_t)d->cuda->arena.bytes - (int64_t)asked.peak};
  return true;
}

static void cuda_health(struct dev *d, struct dev_health *out)
{
  if (d->cuda->nvml.library != NULL && dev_nvml_read(&d->cuda->nvml, d->uuid, out)) err_clear(); /* all stay unknown */
}

static void cuda_describe(const struct dev *d, char *out, size_t bytes)
{
  const struct dev_versions v = dev_versions_now();
  const struct dev_nvml *n = &d->cuda->nvml;
  char driver[80] = "unknown";
  if (n->library != NULL && n->driver != NULL && n->driver(driver, sizeof driver) != DEV_NVML_OK)
    snprintf(driver, sizeof driver, "unknown");
  snprintf(out, bytes, "%s, driver %s (CUDA %d.%d), built with CUDA %d.%d", d->cuda->name, driver, v.driver / 1000,
           v.driver % 1000 / 10, v.runtime / 1000, v.runtime % 1000 / 10);
}

static const double EPOCH_WITHIN_MS = 0.1;
enum { EPOCH_TRIES = 20 };

/* Device clock and host clock are compared while nothing runs, each time anew: they drift. */
static enum err cuda_traced(struct dev *d)
{
  struct dev_cuda_device *c = d->cuda;
  if (d->trace.capacity == 0 || atomic_load(&c->lost)) return ERR_OK;
  double around_ms = EPOCH_WITHIN_MS + 1;
  for (int i = 0; i < EPOCH_TRIES && around_ms > EPOCH_WITHIN_MS; i++) { /* one that the system cut into says little */
    const double before_ms = clock_ms();
    CUDA_TRY(cudaEventRecord(c->epoch, c->own));
    CUDA_TRY(cudaStreamSynchronize(c->own));
    around_ms = clock_ms() - before_ms;
    c->epoch_ms = before_ms + around_ms / 2;
  }
  return ERR_OK;
}

/* --- memory --------------------------------------------------------------------------------- */

static enum err cuda_alloc(struct dev *d, size_t bytes, void **out)
{
  void *at;
  TRY(dev_arena_take(d, bytes, &at));
  enum err e = CUDA_ERR(cudaMemsetAsync(at, 0xFF, bytes, d->cuda->own));
  if (!e) e = CUDA_ERR(cudaStreamSynchronize(d->cuda->own));
  if (e) {
    dev_arena_give(d, at);
    return err_trace(e, __FILE__, __LINE__);
  }
  *out = at;
  return ERR_OK;
}

static void cuda_free(struct dev *d, void *at, size_t bytes)
{
  (void)bytes;
  dev_arena_give(d, at);
}

/* --- streams ---------------------------------------------------------------------------------- */

static void cuda_stream_close(struct dev_stream *s)
{
  struct dev_cuda_stream *c = s->cuda;
  dev_hosted_stop(s);
  if (c->products.at != NULL) c->products.destroy(c->products.at);
  if (c->at.workspace != NULL) dev_arena_give(s->dev, c->at.workspace);
  dev_staging_release(s);
  for (int i = 0; i < DEV_CUDA_FENCES; i++)
    if (c->fences[i].event != NULL) (void)cudaEventDestroy(c->fences[i].event);
  for (int i = 0; i < DEV_QUEUE_SLOTS; i++)
    if (c->marks[i] != NULL) (void)cudaEventDestroy(c->marks[i]);
  if (c->at.stream != NULL) (void)cudaStreamDestroy(c->at.stream);
  if (c->shared != NULL) (void)cudaFreeHost(c->shared);
  free(c);
  s->cuda = NULL;
}

static enum err open_stream(struct dev_stream *s)
{
  const struct dev_cuda_device *d = s->dev->cuda;
  struct dev_cuda_stream *c = s->cuda;
  cudaStream_t stream;
  void *shared;
  CUDA_TRY(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, s->role == DEV_TRANSFER ? d->priority : 0));
  c->at = (struct dev_cuda){.stream = stream,
                            .products = &c->products,
                            .multiprocessors = d->multiprocessors,
                            .capability = d->capability,
                            .tf32 = s->dev->config.tf32,
                            .device = d->index};
  CUDA_TRY(cudaHostAlloc(&shared, sizeof *c->shared, cudaHostAllocDefault));
  c->shared = memset(shared, 0, sizeof *c->shared);
  for (int i = 0; i < DEV_CUDA_FENCES; i++)
    CUDA_TRY(cudaEventCreateWithFlags(&c->fences[i].event, cudaEventDisableTiming));
  if (s->role != DEV_COMPUTE) return ERR_OK;
  TRY(dev_arena_take(s->dev, WORKSPACE_BYTES, &c->at.workspace));
  c->at.workspace_bytes = WORKSPACE_BYTES;
  return ERR_OK;
}

static enum err cuda_stream_open(struct dev_stream *s)
{
  if (atomic_load(&s->dev->cuda->lost)) FAIL(ERR_DEVICE, "stream '%s': the device is lost", s->name);
  s->cuda = calloc(1, sizeof *s->cuda);
  if (s->cuda == NULL) FAIL(ERR_MEMORY, "stream '%s': %zu bytes", s->name, sizeof *s->cuda);
  const enum err e = open_stream(s);
  if (e) cuda_stream_close(s);
  return e ? err_trace(e, __FILE__, __LINE__) : ERR_OK;
}

const struct dev_cuda *dev_cuda_of(struct dev_stream *s) { return s->cuda != NULL ? &s->cuda->at : NULL; }

/* --- events -------------------------------------------------------------------------------------- */

static enum err cuda_event_create(struct dev_event *e)
{
  cudaEvent_t event;
  CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  e->cuda = event;
  return ERR_OK;
}

static void cuda_event_destroy(struct dev_event *e) { (void)cudaEventDestroy(e->cuda); }

static enum err cuda_record(struct dev_event *e)
{
  if (atomic_load(&e->dev->cuda->lost)) return ERR_OK; /* whoever waits for it hears of that */
  CUDA_TRY(cudaEventRecord(e->cuda, e->point.stream->cuda->at.stream));
  return ERR_OK;
}

const struct dev_backend dev_cuda_backend = {
    .open = cuda_open,
    .close = cuda_close,
    .stream_open = cuda_stream_open,
    .stream_close = cuda_stream_close,
    .publish = dev_cuda_publish,
    .await = dev_cuda_await,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .record = cuda_record,
    .await_event = dev_cuda_await_event,
    .traced = cuda_traced,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_alloc = dev_cuda_host_alloc,
    .host_free = dev_cuda_host_free,
    .copy = dev_cuda_copy,
    .driver_usage = cuda_driver_usage,
    .health = cuda_health,
    .describe = cuda_describe,
};
