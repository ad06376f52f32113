/* dev_host.c - what cpu and lazy share: their memory is the host's, their copies are work
 * like any other, and an event is its point.
 */
#include "device/dev_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- memory ------------------------------------------------------------------------ */

static enum err aligned(size_t bytes, void **out)
{
  const size_t units = bytes / DEV_ALIGNMENT + (bytes % DEV_ALIGNMENT != 0 || bytes == 0);
  *out = units <= SIZE_MAX / DEV_ALIGNMENT ? aligned_alloc(DEV_ALIGNMENT, units * DEV_ALIGNMENT) : NULL;
  if (*out == NULL) FAIL(ERR_MEMORY, "no host memory for %zu bytes", bytes);
  return ERR_OK;
}

/* What the system could give without taking it from others; SIZE_MAX where it does not say. */
static size_t host_available(void)
{
  char line[128];
  unsigned long long kib = 0;
  bool known = false;
  FILE *f = fopen("/proc/meminfo", "r");
  while (f && !known && fgets(line, sizeof line, f)) known = sscanf(line, "MemAvailable: %llu", &kib) == 1;
  if (f) fclose(f);
  return known ? (size_t)kib * 1024 : SIZE_MAX;
}

/* Small blocks are not worth asking for.  A large one that the system promises and has not would end the
 * process with a signal when it is first written, and name nobody. */
enum { WORTH_ASKING = 64 << 20 };

enum err dev_host_block(struct dev *d, size_t bytes, void **out)
{
  (void)d;
  const size_t there = bytes < WORTH_ASKING ? SIZE_MAX : host_available();
  *out = NULL;
  if (bytes > there || aligned(bytes, out) != ERR_OK) FAIL(ERR_MEMORY, " (host: %zu bytes available)", host_available());
  memset(*out, 0xFF, bytes);
  return ERR_OK;
}

void dev_host_unblock(struct dev *d, void *at, size_t bytes)
{
  (void)d;
  (void)bytes;
  free(at);
}

enum err dev_host_buffer(struct dev *d, size_t bytes, void **out)
{
  (void)d;
  return aligned(bytes, out);
}

void dev_host_unbuffer(struct dev *d, void *at)
{
  (void)d;
  free(at);
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
