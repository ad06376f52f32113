/* dev_mirror.h - which devices a test runs on, and their memory as the host sees it.
 *
 * Only tests include this.  On a device whose memory the host reaches, a mirror is that memory and
 * nothing here does anything.  On a cuda device it is a copy of the host's: mirror_push after the
 * host wrote, mirror_sync instead of dev_sync before it reads.
 */
#ifndef DEVICE_DEV_MIRROR_H
#define DEVICE_DEV_MIRROR_H

#include "device/dev.h"
#include "testing/check.h"

#include <stdlib.h>
#include <string.h>

/* --- kinds ------------------------------------------------------------------ */

/* SHARDMARK_TEST_DEVICE: cuda, or nothing for cpu and lazy. */
static inline bool mirror_cuda(void)
{
  const char *name = getenv("SHARDMARK_TEST_DEVICE");
  return name != NULL && strcmp(name, "cuda") == 0;
}
/* What stands in the place of a kind: cuda in that of cpu.  lazy, which finds what is not ordered, is itself. */
static inline enum dev_kind mirror_kind(enum dev_kind kind) { return mirror_cuda() && kind == DEV_CPU ? DEV_CUDA : kind; }
/* How many of {DEV_CPU, DEV_LAZY} a test of both has to go through. */
static inline int mirror_kinds(void) { return mirror_cuda() ? 1 : 2; }

/* d, or the cuda device in its place, lazy's too: for what must come out alike on every kind.  Ranks of this
 * host take its devices in turn. */
static inline struct dev_config mirror_config(const struct dev_config *d)
{
  struct dev_config c = *d;
  if (mirror_cuda()) c.kind = DEV_CUDA;
  if (c.kind == DEV_CUDA) c.index = dev_count(DEV_CUDA) > 0 ? check_rank() % dev_count(DEV_CUDA) : 0;
  return c;
}

/* --- memory ------------------------------------------------------------------- */

enum { MIRRORS = 1024 };
struct mirror {
  struct dev_stream *stream;
  char *at, *host;
  size_t bytes;
};
struct mirrors {
  int n;
  struct mirror at[MIRRORS];
};
static inline struct mirrors *mirror_all(void)
{
  static struct mirrors all;
  return &all;
}

static inline struct mirror *mirror_find(const void *at)
{
  struct mirrors *all = mirror_all();
  for (int i = 0; i < all->n; i++)
    if ((const char *)at >= all->at[i].at && (const char *)at <= all->at[i].at + all->at[i].bytes) return &all->at[i];
  return NULL;
}

/* The host's address of an address of the device. */
static inline void *mirror_of(const void *at)
{
  struct mirror *m = mirror_find(at);
  return m ? m->host + ((const char *)at - m->at) : (void *)(uintptr_t)at;
}
static inline struct tensor mirror_view(const struct tensor *t)
{
  struct tensor v = *t;
  v.at = mirror_of(t->at);
  return v;
}

/* As dev_alloc; its copies go on `stream`. */
static inline enum err mirror_alloc(struct dev_stream *stream, size_t bytes, const char *owner, void **out)
{
  struct mirrors *all = mirror_all();
  TRY(dev_alloc(dev_of(stream), bytes, DEV_OTHER, owner, out));
  if (dev_kind_of(dev_of(stream)) != DEV_CUDA) return ERR_OK;
  char *host = malloc(bytes + 1);
  BUG_IF(host == NULL || all->n == MIRRORS);
  memset(host, 0xFF, bytes + 1);
  all->at[all->n++] = (struct mirror){stream, *out, host, bytes};
  return ERR_OK;
}
static inline void mirror_free(struct dev *d, void *at)
{
  struct mirrors *all = mirror_all();
  for (int i = 0; i < all->n; i++)
    if (at != NULL && all->at[i].at == at) {
      free(all->at[i].host);
      all->at[i] = all->at[--all->n];
      break;
    }
  dev_free(d, at);
}

/* The whole block that `at` is in, to the device; waits. */
static inline void mirror_push(const void *at)
{
  struct mirror *m = mirror_find(at);
  if (m == NULL) return;
  CHECK_OK(dev_copy_in(m->stream, m->at, m->host, m->bytes));
  CHECK_OK(dev_sync_stream(m->stream));
}

/* A copy of memory of the device, which the caller frees; waits. */
static inline void *mirror_read(struct dev_stream *s, const void *at, size_t bytes)
{
  void *out = malloc(bytes + 1);
  BUG_IF(out == NULL);
  CHECK_OK(dev_copy_out(s, out, at, bytes));
  CHECK_OK(dev_sync_stream(s));
  return out;
}

/* dev_sync, then all blocks of the device to the host. */
static inline enum err mirror_sync(struct dev *d)
{
  struct mirrors *all = mirror_all();
  TRY(dev_sync(d));
  for (int i = 0; i < all->n; i++)
    if (dev_of(all->at[i].stream) == d) TRY(dev_copy_out(all->at[i].stream, all->at[i].host, all->at[i].at, all->at[i].bytes));
  if (dev_kind_of(d) == DEV_CUDA) TRY(dev_sync(d));
  return ERR_OK;
}

#endif
