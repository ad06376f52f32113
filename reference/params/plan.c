/* plan.c - offsets for buffers with lifetimes: first fit, largest first.
 *
 * Each buffer goes to the lowest offset where it meets no placed buffer whose interval
 * meets its own.  Placing the large ones first keeps the block close to the largest sum
 * of live bytes, below which no placement can be.
 */
#include "params/plan.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PLAN_ALIGN = 256 };

struct buffer {
  const char *name;
  size_t bytes, offset;
  int64_t first, last;
  int id;
};

struct plan {
  struct buffer *buffers; /* by id */
  int n, room;
  size_t bytes;
  bool placed;
};

enum err plan_create(struct plan **out)
{
  *out = NULL;
  struct plan *p = calloc(1, sizeof *p);
  if (p == NULL) FAIL(ERR_MEMORY, "plan: %zu bytes", sizeof *p);
  *out = p;
  return ERR_OK;
}

void plan_destroy(struct plan *p)
{
  if (p == NULL) return;
  free(p->buffers);
  free(p);
}

enum err plan_add(struct plan *p, const char *name, size_t bytes, int64_t first, int64_t last, int *id)
{
  if (p->placed) FAIL(ERR_ARG, "plan: '%s' was added after the placement", name);
  if (last < first) FAIL(ERR_ARG, "plan: '%s' lives from %" PRId64 " to %" PRId64, name, first, last);
  if (bytes > SIZE_MAX - PLAN_ALIGN) FAIL(ERR_MEMORY, "plan: '%s' wants %zu bytes", name, bytes);
  if (p->n == p->room) {
    const int room = p->room ? 2 * p->room : 64;
    struct buffer *grown = realloc(p->buffers, (size_t)room * sizeof *grown);
    if (grown == NULL) FAIL(ERR_MEMORY, "plan: %d buffers", room);
    p->buffers = grown;
    p->room = room;
  }
  const size_t rounded = (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
  p->buffers[p->n] = (struct buffer){name, rounded, 0, first, last, p->n};
  *id = p->n++;
  return ERR_OK;
}

static int larger_first(const void *a, const void *b)
{
  const struct buffer *x = *(struct buffer *const *)a, *y = *(struct buffer *const *)b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return x->id < y->id ? -1 : 1;
}

static bool meet(const struct buffer *a, const struct buffer *b) { return a->first <= b->last && b->first <= a->last; }

/* order[0 .. n-1] are placed and sorted by offset. */
static size_t lowest_gap(struct buffer *const *order, int n, const struct buffer *b)
{
  size_t at = 0;
  for (int i = 0; i < n; i++) {
    const struct buffer *o = order[i];
    if (!meet(o, b)) continue;
    if (o->offset >= at && o->offset - at >= b->bytes) return at;
    if (o->offset + o->bytes > at) at = o->offset + o->bytes;
  }
  return at;
}

enum err plan_place(struct plan *p)
{
  if (p->placed) FAIL(ERR_ARG, "plan: placed twice");
  const size_t bytes = (size_t)p->n * sizeof(struct buffer *);
  struct buffer **by_size = malloc(bytes), **by_offset = malloc(bytes);
  if (p->n > 0 && (by_size == NULL || by_offset == NULL)) {
    free(by_size);
    free(by_offset);
    FAIL(ERR_MEMORY, "plan: %zu bytes", 2 * bytes);
  }
  for (int i = 0; i < p->n; i++) by_size[i] = &p->buffers[i];
  if (p->n > 0) qsort(by_size, (size_t)p->n, sizeof *by_size, larger_first);
  for (int i = 0; i < p->n; i++) {
    struct buffer *b = by_size[i];
    b->offset = lowest_gap(by_offset, i, b);
    if (b->offset + b->bytes > p->bytes) p->bytes = b->offset + b->bytes;
    int at = i; /* keeps by_offset sorted; n is a few hundred */
    for (; at > 0 && by_offset[at - 1]->offset > b->offset; at--) by_offset[at] = by_offset[at - 1];
    by_offset[at] = b;
  }
  p->placed = true;
  free(by_size);
  free(by_offset);
  return ERR_OK;
}

size_t plan_bytes(const struct plan *p)
{
  BUG_IF(!p->placed);
  return p->bytes;
}

size_t plan_offset(const struct plan *p, int id)
{
  BUG_IF(!p->placed || id < 0 || id >= p->n);
  return p->buffers[id].offset;
}

size_t plan_size(const struct plan *p, int id)
{
  BUG_IF(id < 0 || id >= p->n);
  return p->buffers[id].bytes;
}
