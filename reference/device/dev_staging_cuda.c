/* dev_staging_cuda.c - copies between the host and the device.
 *
 * CUDA copies pinned memory while the host goes on.  Pageable memory passes through a ring of
 * pinned bytes: on the way in it is read at once, on the way out it is written when the
 * piece is passed over.  Larger copies go in parts, each a piece of work of its own.
 */
#include "device/dev_cuda_state.h"

#include <stdlib.h>
#include <string.h>

enum { PART_BYTES = DEV_CUDA_STAGING_BYTES / 8 };

/* --- pinned memory -------------------------------------------------------------------- */

enum err dev_cuda_host_alloc(struct dev *d, size_t bytes, void **out)
{
  struct dev_pinned *p = bytes <= SIZE_MAX / 2 ? calloc(1, sizeof *p) : NULL;
  if (p == NULL) FAIL(ERR_MEMORY, "no host memory for %zu bytes", bytes);
  void *at = NULL;
  const enum err e = CUDA_ERR(cudaHostAlloc(&at, bytes > 0 ? bytes : 1, cudaHostAllocDefault));
  if (e) {
    free(p);
    return err_trace(e, __FILE__, __LINE__);
  }
  *p = (struct dev_pinned){d->cuda->pinned, at, bytes};
  d->cuda->pinned = p;
  *out = at;
  return ERR_OK;
}

void dev_cuda_host_free(struct dev *d, void *at, size_t bytes)
{
  (void)bytes;
  struct dev_pinned **p = &d->cuda->pinned;
  while (*p != NULL && (*p)->at != at) p = &(*p)->next;
  BUG_IF(*p == NULL);
  struct dev_pinned *gone = *p;
  *p = gone->next;
  (void)cudaFreeHost(at);
  free(gone);
}

static bool is_pinned(const struct dev *d, const void *at, size_t bytes)
{
  for (const struct dev_pinned *p = d->cuda->pinned; p != NULL; p = p->next)
    if ((const char *)at >= p->at && (const char *)at + bytes <= p->at + p->bytes) return true;
  return false;
}

/* --- the ring ----------------------------------------------------------------------------- */

static bool fits(const struct dev_staging *r, size_t bytes)
{
  return r->held + bytes <= DEV_CUDA_STAGING_BYTES && r->n < DEV_QUEUE_SLOTS;
}

/* A part of `bytes` for the next piece of s; the host waits while there is no room. */
static enum err take(struct dev_stream *s, size_t bytes, char **out)
{
  struct dev_staging *r = &s->cuda->staging;
  struct dev_cuda_device *c = s->dev->cuda;
  if (r->room == NULL) {
    void *at = NULL;
    CUDA_TRY(cudaHostAlloc(&at, DEV_CUDA_STAGING_BYTES, cudaHostAllocDefault));
    r->room = at;
  }
  const size_t padded = (bytes + 63) / 64 * 64;
  const bool wraps = r->head + padded > DEV_CUDA_STAGING_BYTES;
  const size_t skipped = wraps ? DEV_CUDA_STAGING_BYTES - r->head : 0;
  dev_cuda_lock(c);
  while (!fits(r, skipped + padded)) {
    const struct dev_point oldest = {s, r->parts[r->first % DEV_QUEUE_SLOTS].number};
    dev_cuda_unlock(c);
    s->dev->backend->await(s->dev, &oldest, 1);
    if (atomic_load(&s->dev->cuda->lost)) return err_restore(&s->failure);
    dev_cuda_lock(c);
  }
  r->parts[(r->first + r->n++) % DEV_QUEUE_SLOTS] = (struct dev_staged){s->submitted + 1, skipped + padded};
  r->held += skipped + padded;
  dev_cuda_unlock(c);
  r->head = (wraps ? 0 : r->head) + padded;
  *out = r->room + r->head - padded;
  return ERR_OK;
}

void dev_staging_release(struct dev_stream *s)
{
  if (s->cuda->staging.room != NULL) (void)cudaFreeHost(s->cuda->staging.room);
}

/* --- copies ---------------------------------------------------------------------------------- */

struct copy_args {
  void *to;
  const void *from;
  size_t bytes;
  void *host; /* on the way out through the ring: where it goes in the end */
};

static enum err issue_in(const struct dev_cuda *at, void *args)
{
  const struct copy_args *a = args;
  if (a->bytes > 0) CUDA_TRY(cudaMemcpyAsync(a->to, a->from, a->bytes, cudaMemcpyHostToDevice, at->stream));
  return ERR_OK;
}

static enum err issue_out(const struct dev_cuda *at, void *args)
{
  const struct copy_args *a = args;
  if (a->bytes > 0) CUDA_TRY(cudaMemcpyAsync(a->to, a->from, a->bytes, cudaMemcpyDeviceToHost, at->stream));
  return ERR_OK;
}

static enum err issue_fill(const struct dev_cuda *at, void *args)
{
  const struct copy_args *a = args;
  if (a->bytes > 0) CUDA_TRY(cudaMemsetAsync(a->to, 0xFF, a->bytes, at->stream));
  return ERR_OK;
}

void dev_staging_passed(struct dev_stream *s, const struct dev_work *w, int64_t number, bool dropped)
{
  struct dev_staging *r = &s->cuda->staging;
  const struct dev_staged *part = &r->parts[r->first % DEV_QUEUE_SLOTS];
  if (part->number != number) return;
  const struct copy_args *a = (const void *)w->args;
  if (!dropped && w->kernel.cuda == issue_out) memcpy(a->host, a->to, a->bytes);
  r->held -= part->bytes;
  r->first++;
  r->n--;
}

enum err dev_cuda_copy(struct dev_stream *s, const char *name, enum dev_way way, void *to, const void *from, size_t bytes)
{
  const struct dev_kernel kernel = {.name = name, .cuda = way == DEV_COPY_IN ? issue_in : way == DEV_COPY_OUT ? issue_out : issue_fill};
  const bool direct = way == DEV_FILL || bytes == 0 || is_pinned(s->dev, way == DEV_COPY_IN ? from : to, bytes);
  const struct dev_range all = {to, bytes, bytes, 1, true};
  TRY(dev_range_check(&all));
  if (direct) {
    const struct copy_args args = {to, from, bytes, NULL};
    return dev_submit(s, &kernel, &args, sizeof args, NULL, 0);
  }
  for (size_t done = 0; done < bytes;) {
    const size_t here = bytes - done < PART_BYTES ? bytes - done : PART_BYTES;
    struct copy_args args = {(char *)to + done, (const char *)from + done, here, NULL};
    char *part = NULL;
    TRY(take(s, here, &part));
    if (way == DEV_COPY_IN) {
      args.from = memcpy(part, args.from, here);
    } else {
      args.host = args.to;
      args.to = part;
    }
    TRY(dev_submit(s, &kernel, &args, sizeof args, NULL, 0));
    done += here;
  }
  return ERR_OK;
}
