/* dev_submit.c - work given to a stream: the contract, and the kinds of work that a
 * device brings itself (fill, copy).
 */
#include "device/dev_internal.h"

#include <string.h>

#ifdef SHARDMARK_TSAN
void __tsan_read_range(void *at, long bytes);
void __tsan_write_range(void *at, long bytes);
#endif

/* What neither MPI nor generated code shows ThreadSanitizer: the declared ranges. */
void dev_work_declare(const struct dev_work *w)
{
#ifdef SHARDMARK_TSAN
  for (int r = 0; r < w->n_ranges; r++)
    for (int64_t i = 0; i < w->ranges[r].rows; i++) {
      char *row = (char *)(uintptr_t)w->ranges[r].at + (size_t)i * w->ranges[r].stride_bytes;
      if (w->ranges[r].write)
        __tsan_write_range(row, (long)w->ranges[r].row_bytes);
      else
        __tsan_read_range(row, (long)w->ranges[r].row_bytes);
    }
#else
  (void)w;
#endif
}

static enum err check(const struct dev_stream *s, const struct dev_kernel *kernel, const void *args, size_t args_bytes,
                      const struct dev_range *ranges, int n)
{
  if (kernel == NULL || kernel->name == NULL) FAIL(ERR_ARG, "stream '%s': a kernel without a name", s->name);
  const bool whole = kernel->run != NULL, split = kernel->start != NULL && kernel->test != NULL;
  const bool on_cuda = s->dev->config.kind == DEV_CUDA, own = on_cuda && kernel->cuda != NULL && !whole && !split;
  if ((whole == split && !own) || (!split && (kernel->start || kernel->test)))
    FAIL(ERR_ARG, "'%s': exactly one of run and start+test must be set", kernel->name);
  if (on_cuda && whole && kernel->cuda == NULL) FAIL(ERR_UNAVAILABLE, "'%s' cannot run on the cuda device", kernel->name);
  if (args_bytes > DEV_ARGS_MAX || (args_bytes > 0 && args == NULL))
    FAIL(ERR_ARG, "'%s': %zu bytes of arguments, at most %d", kernel->name, args_bytes, (int)DEV_ARGS_MAX);
  if (n < 0 || n > DEV_RANGES_MAX || (n > 0 && ranges == NULL))
    FAIL(ERR_ARG, "'%s': %d ranges, at most %d", kernel->name, n, (int)DEV_RANGES_MAX);
  for (int i = 0; i < n; i++) TRY(dev_range_check(&ranges[i]));
  return ERR_OK;
}

static enum err declare(struct dev_stream *s, const char *kernel, const struct dev_range *ranges, int n)
{
  struct dev *d = s->dev;
  if (d->clocks == NULL) return ERR_OK;
  const struct dev_accessor by = {1 + s->index, kernel, s->name, d->step, d->microbatch};
  return dev_clocks_access(d->clocks, &by, ranges, n);
}

static enum err stopped(struct dev_stream *s)
{
  if (!dev_stream_stopped(s)) return ERR_OK;
  s->surfaced = true;
  return err_restore(&s->failure);
}

enum err dev_submit(struct dev_stream *s, const struct dev_kernel *kernel, const void *args, size_t args_bytes,
                    const struct dev_range *ranges, int n)
{
  TRY(check(s, kernel, args, args_bytes, ranges, n));
  TRY(stopped(s));
  TRY(declare(s, kernel->name, ranges, n));
  struct dev_work *w = dev_stream_slot(s);
  w->kind = DEV_WORK_KERNEL;
  w->kernel = *kernel;
  w->phase = s->dev->phase;
  w->step = s->dev->step;
  w->microbatch = s->dev->microbatch;
  w->action = s->dev->action;
  w->n_ranges = n;
  if (n > 0) memcpy(w->ranges, ranges, (size_t)n * sizeof *ranges);
  if (args_bytes > 0) memcpy(w->args, args, args_bytes);
  dev_stream_push(s);
  return ERR_OK;
}

/* --- work of the device itself --------------------------------------------------- */

enum err dev_copy_in(struct dev_stream *s, void *device, const void *host, size_t bytes)
{
  if (host == NULL && bytes > 0) FAIL(ERR_ARG, "copy_in: %zu bytes from NULL", bytes);
  TRY(dev_delay(s, DEV_DELAY_COPIES));
  return s->dev->backend->copy(s, "copy_in", DEV_COPY_IN, device, host, bytes);
}

enum err dev_copy_out(struct dev_stream *s, void *host, const void *device, size_t bytes)
{
  if (device == NULL && bytes > 0) FAIL(ERR_ARG, "copy_out: %zu bytes from NULL", bytes);
  TRY(dev_delay(s, DEV_DELAY_COPIES));
  return s->dev->backend->copy(s, "copy_out", DEV_COPY_OUT, host, device, bytes);
}

enum err dev_begin(struct dev_stream *s, void *at, size_t bytes)
{
  return s->dev->backend->copy(s, "begin", DEV_FILL, at, NULL, bytes);
}

enum err dev_retire(struct dev_stream *s, void *at, size_t bytes)
{
  if (s->dev->config.poison_end) return s->dev->backend->copy(s, "retire", DEV_FILL, at, NULL, bytes);
  const struct dev_range range = {at, bytes, bytes, 1, true};
  TRY(dev_range_check(&range));
  TRY(stopped(s));
  return declare(s, "retire", &range, 1);
}

enum err dev_host_touch(struct dev *d, const void *at, size_t bytes, bool write)
{
  const struct dev_range range = {at, bytes, bytes, 1, write};
  TRY(dev_range_check(&range));
  if (d->clocks == NULL) return ERR_OK;
  const struct dev_accessor by = {.kernel = "the host", .step = d->step, .microbatch = d->microbatch};
  return dev_clocks_access(d->clocks, &by, &range, 1);
}
