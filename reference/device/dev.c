/* dev.c - opening and closing a device, and the names of things. */
#include "device/dev_internal.h"

#include <stdlib.h>

const char *dev_category_name(enum dev_category c)
{
  static const char *const names[DEV_CATEGORIES] = {"parameters",    "gradients", "optimizer", "activations",
                                                    "communication", "other",     "host"};
  return c >= 0 && c < DEV_CATEGORIES ? names[c] : "unknown";
}

const char *dev_phase_name(enum dev_phase p)
{
  static const char *const names[DEV_PHASES] = {"data", "forward", "backward", "optimizer", "eval", "other"};
  return p >= 0 && p < DEV_PHASES ? names[p] : "unknown";
}

static enum err backend_of(enum dev_kind kind, const struct dev_backend **out)
{
  switch (kind) {
  case DEV_CPU: *out = &dev_cpu_backend; return ERR_OK;
  case DEV_LAZY: *out = &dev_lazy_backend; return ERR_OK;
  case DEV_CUDA:
#ifdef SHARDMARK_HAS_CUDA
    *out = &dev_cuda_backend;
    return ERR_OK;
#else
    FAIL(ERR_UNAVAILABLE, "device cuda: this build has no CUDA; available: cpu, lazy");
#endif
  }
  FAIL(ERR_ARG, "device kind %d", (int)kind);
}

enum err dev_open(const struct dev_config *config, struct dev **out)
{
  enum err err;
  const struct dev_backend *backend;
  *out = NULL;
  TRY(backend_of(config->kind, &backend));
  if (config->index != 0 && config->kind != DEV_CUDA) FAIL(ERR_UNAVAILABLE, "device index %d: cpu and lazy have only 0", config->index);
  if (config->threads < 1) FAIL(ERR_ARG, "device: %d threads, at least 1 is needed", config->threads);

  struct dev *d = calloc(1, sizeof *d);
  if (d == NULL) FAIL(ERR_MEMORY, "device: %zu bytes", sizeof *d);
  d->config = *config;
  d->backend = backend;
  d->phase = DEV_PHASE_OTHER;
  d->action = -1;
  d->step = d->microbatch = -1;
  dev_memory_init(&d->memory, config->kind);
  pthread_mutex_init(&d->trace.lock, NULL);
  for (int i = 0; i < DEV_STREAMS_MAX; i++) {
    d->streams[i].dev = d;
    d->streams[i].index = i;
    atomic_store(&d->streams[i].failed_at, INT64_MAX);
  }
  TRY_TO(free_dev, backend->open(d));
  if (config->kind == DEV_LAZY) TRY_TO(free_dev, dev_clocks_create(&d->memory, &d->clocks));
  *out = d;
  return ERR_OK;

free_dev:
  pthread_mutex_destroy(&d->trace.lock);
  free(d);
  return err;
}

bool dev_is_idle(const struct dev *d)
{
  for (int i = 0; i < DEV_STREAMS_MAX; i++)
    if (d->streams[i].open) return false;
  return d->memory.n == 0;
}

void dev_close(struct dev *d)
{
  if (d == NULL) return;
  for (int i = 0; i < DEV_STREAMS_MAX; i++)
    if (d->streams[i].open) dev_stream_close(&d->streams[i]);
  dev_trace_release(&d->trace);
  pthread_mutex_destroy(&d->trace.lock);
  dev_clocks_destroy(d->clocks);
  dev_memory_release(d);
  d->backend->close(d);
  free(d);
}

int dev_count(enum dev_kind kind)
{
  if (kind != DEV_CUDA) return 1;
#ifdef SHARDMARK_HAS_CUDA
  return dev_cuda_count();
#else
  return 0;
#endif
}

enum dev_kind dev_kind_of(const struct dev *d) { return d->config.kind; }

const char *dev_uuid(const struct dev *d) { return d->uuid; }
size_t dev_card_bytes(const struct dev *d) { return d->card_bytes; }

enum err dev_watch(struct dev *d, enum err (*fn)(void *arg), void *arg)
{
  int i = 0;
  while (i < DEV_WATCHERS && d->watchers[i].fn != NULL) i++;
  if (fn == NULL || i == DEV_WATCHERS) FAIL(ERR_ARG, "watch: no function, or %d are registered already", (int)DEV_WATCHERS);
  d->watchers[i] = (struct dev_watcher){fn, arg};
  return ERR_OK;
}

void dev_unwatch(struct dev *d, enum err (*fn)(void *arg), void *arg)
{
  for (int i = 0; i < DEV_WATCHERS; i++)
    if (d->watchers[i].fn == fn && d->watchers[i].arg == arg) d->watchers[i].fn = NULL;
}

void dev_set_phase(struct dev *d, enum dev_phase phase, int64_t step, int microbatch)
{
  d->phase = phase;
  d->step = step;
  d->microbatch = microbatch;
}

void dev_set_action(struct dev *d, int action) { d->action = action; }

const char *dev_findings(const struct dev *d) { return d->clocks ? dev_clocks_text(d->clocks) : ""; }
