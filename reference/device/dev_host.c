/* dev_host.c - what cpu and lazy share: their memory is the host's, their copies are work
 * like any other, and an event is its point.
 */
#include "base/available.h"
#include "device/dev_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* --- memory ------------------------------------------------------------------------ */

static enum err aligned(size_t bytes, void **out)
{
  const size_t units = bytes / DEV_ALIGNMENT + (bytes % DEV_ALIGNMENT != 0 || bytes == 0);
  *out = units <= SIZE_MAX / DEV_ALIGNMENT ? aligned_alloc(DEV_ALIGNMENT, units * DEV_ALIGNMENT) : NULL;
  if (*out == NULL) FAIL(ERR_MEMORY, "no host memory for %zu bytes", bytes);
  return ERR_OK;
}

/* A large block is the system's own, not the heap's: what a run frees goes back whole, and the next one in the process
 * finds no holes between what libraries keep.  Asked for first, since one that the system promises and has not would
 * end the process with a signal when it is first written, and name nobody. */
enum { LARGE = 1 << 20 };

static enum err mapped(size_t bytes, void **out)
{
  *out = bytes > available_to_map() ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*out == MAP_FAILED) FAIL(ERR_MEMORY, "no host memory for %zu bytes", bytes);
  return ERR_OK;
}

enum err dev_host_block(struct dev *d, size_t bytes, void **out)
{
  (void)d;
  const enum err e = bytes < LARGE ? aligned(bytes, out) : mapped(bytes, out);
  if (e) {
    *out = NULL;
    FAIL(ERR_MEMORY, " (host: %zu bytes available)", available_to_map());
  }
  memset(*out, 0xFF, bytes);
  return ERR_OK;
}

void dev_host_unblock(struct dev *d, void *at, size_t bytes)
{
  (void)d;
  if (bytes < LARGE) free(at);
  else munmap(at, bytes);
}

/* --- copies -------------------------------------------------------------------------- */

struct copy_args {
  void *to;
  const void *from; /* NULL: fill with 0xFF */
  size_t bytes;
};

static enum err copy(void *at)
{
  const struct copy_args *a = at;
  if (a->bytes == 0) return ERR_OK;
  if (a->from)
    memcpy(a->to, a->from, a->bytes);
  else
    memset(a->to, 0xFF, a->bytes);
  return ERR_OK;
}

enum err dev_host_copy(struct dev_stream *s, const char *name, enum dev_way way, void *to, const void *from, size_t bytes)
{
  const struct dev_kernel kernel = {.name = name, .run = copy};
  const struct copy_args args = {to, way == DEV_FILL ? NULL : from, bytes};
  const struct dev_range ranges[] = {{to, bytes, bytes, 1, true}, {from, bytes, bytes, 1, false}};
  return dev_submit(s, &kernel, &args, sizeof args, ranges, args.from ? 2 : 1);
}

/* --- what needs nothing here ------------------------------------------------------------ */

enum err dev_host_open(struct dev *d)
{
  (void)d;
  return ERR_OK;
}

void dev_host_close(struct dev *d) { (void)d; }

enum err dev_host_event(struct dev_event *e)
{
  (void)e;
  return ERR_OK;
}

void dev_host_unevent(struct dev_event *e) { (void)e; }

void dev_host_await_event(struct dev_event *e) { e->dev->backend->await(e->dev, &e->point, 1); }

bool dev_host_driver_usage(const struct dev *d, struct dev_driver_usage *out)
{
  (void)d;
  *out = (struct dev_driver_usage){0};
  return false;
}

void dev_host_health(struct dev *d, struct dev_health *out)
{
  (void)d;
  (void)out;
}

void dev_host_describe(const struct dev *d, char *out, size_t bytes)
{
  (void)d;
  (void)out;
  (void)bytes;
}
