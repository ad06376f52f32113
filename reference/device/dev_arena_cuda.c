/* dev_arena_cuda.c - blocks out of segments that cudaMalloc gave.  What is freed stays for
 * the next block; a segment with nothing in it goes back only when the card has no more.
 */
#include "device/dev_cuda_state.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef SHARDMARK_CUDA_HOST
#include <cuda_host.h>
enum { SEGMENT_BYTES = 1 << 20, GAP_BYTES = DEV_ALIGNMENT }; /* the gap shows AddressSanitizer who runs over */
static void forbid(const void *at, size_t bytes) { cuda_host_poison(at, bytes); }
static void permit(const void *at, size_t bytes) { cuda_host_unpoison(at, bytes); }
#else
enum { SEGMENT_BYTES = 32 << 20, GAP_BYTES = 0 };
static void forbid(const void *at, size_t bytes) { (void)at, (void)bytes; }
static void permit(const void *at, size_t bytes) { (void)at, (void)bytes; }
#endif

static struct dev_span *span_create(struct dev_arena *a, char *at, size_t bytes)
{
  struct dev_span *s = calloc(1, sizeof *s);
  if (s == NULL) return NULL;
  *s = (struct dev_span){.next = a->spans, .at = at, .bytes = bytes};
  a->spans = s;
  return s;
}

static void span_destroy(struct dev_arena *a, struct dev_span *s)
{
  struct dev_span **p = &a->spans;
  while (*p != s) p = &(*p)->next;
  *p = s->next;
  free(s);
}

/* The smallest that is free and large enough; of equal ones that with the lowest address, so that
 * the same calls give the same addresses within a segment. */
static struct dev_span *best_fit(const struct dev_arena *a, size_t bytes)
{
  struct dev_span *best = NULL;
  for (struct dev_span *s = a->spans; s != NULL; s = s->next)
    if (!s->used && s->bytes >= bytes &&
        (best == NULL || s->bytes < best->bytes || (s->bytes == best->bytes && s->at < best->at)))
      best = s;
  return best;
}

/* Gives segments that hold nothing back to the card; whether there was one. */
static bool trim(struct dev_arena *a)
{
  bool any = false;
  for (struct dev_span *s = a->spans, *next; s != NULL; s = next) {
    next = s->next;
    if (s->used || s->before != NULL || s->after != NULL) continue;
    permit(s->at, s->bytes);
    a->bytes -= s->bytes;
    (void)cudaFree(s->at); /* an error of earlier work surfaces where that is waited for */
    span_destroy(a, s);
    any = true;
  }
  return any;
}

static enum err segment(struct dev *d, size_t bytes, struct dev_span **out)
{
  struct dev_arena *a = &d->cuda->arena;
  const size_t want = bytes > SEGMENT_BYTES ? bytes : SEGMENT_BYTES;
  void *at = NULL;
  cudaError_t code = cudaMalloc(&at, want);
  if (code == cudaErrorMemoryAllocation && trim(a)) {
    (void)cudaGetLastError();
    code = cudaMalloc(&at, want);
  }
  if (code == cudaErrorMemoryAllocation) {
    size_t free_bytes = 0, total_bytes = 0;
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    FAIL(ERR_MEMORY, " (device cuda %d, %s: %zu bytes, %zu of them free)", d->cuda->index, d->cuda->name, total_bytes, free_bytes);
  }
  TRY(dev_cuda_check(code, "cudaMalloc", __FILE__, __LINE__));
  *out = span_create(a, at, want);
  if (*out == NULL) {
    (void)cudaFree(at);
    FAIL(ERR_MEMORY, "%s", "");
  }
  forbid(at, want);
  a->segments++;
  a->bytes += want;
  return ERR_OK;
}

/* What s does not need becomes a free span behind it. */
static enum err split(struct dev_arena *a, struct dev_span *s, size_t bytes)
{
  if (s->bytes == bytes) return ERR_OK;
  struct dev_span *rest = span_create(a, s->at + bytes, s->bytes - bytes);
  if (rest == NULL) FAIL(ERR_MEMORY, "%s", "");
  rest->before = s;
  rest->after = s->after;
  if (rest->after != NULL) rest->after->before = rest;
  s->after = rest;
  s->bytes = bytes;
  return ERR_OK;
}

enum err dev_arena_take(struct dev *d, size_t bytes, void **out)
{
  struct dev_arena *a = &d->cuda->arena;
  *out = NULL;
  if (bytes > SIZE_MAX / 2) FAIL(ERR_MEMORY, " (device cuda %d, %s: %zu bytes)", d->cuda->index, d->cuda->name, d->card_bytes);
  const size_t whole = (bytes / DEV_ALIGNMENT + (bytes % DEV_ALIGNMENT != 0 || bytes == 0)) * DEV_ALIGNMENT + GAP_BYTES;
  struct dev_span *s = best_fit(a, whole);
  if (s == NULL) TRY(segment(d, whole, &s));
  TRY(split(a, s, whole));
  s->used = true;
  permit(s->at, bytes);
  *out = s->at;
  return ERR_OK;
}

static void join(struct dev_arena *a, struct dev_span *s, struct dev_span *behind)
{
  s->bytes += behind->bytes;
  s->after = behind->after;
  if (s->after != NULL) s->after->before = s;
  span_destroy(a, behind);
}

void dev_arena_give(struct dev *d, void *at)
{
  struct dev_arena *a = &d->cuda->arena;
  struct dev_span *s = a->spans;
  while (s != NULL && s->at != at) s = s->next;
  BUG_IF(s == NULL || !s->used);
  s->used = false;
  forbid(s->at, s->bytes);
  if (s->after != NULL && !s->after->used) join(a, s, s->after);
  if (s->before != NULL && !s->before->used) join(a, s->before, s);
}

void dev_arena_release(struct dev *d)
{
  struct dev_arena *a = &d->cuda->arena;
  for (const struct dev_span *s = a->spans; s != NULL; s = s->next) BUG_IF(s->used);
  (void)trim(a);
}
