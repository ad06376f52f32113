/* packs_first_fit.c - first fit over the pieces in their order.
 *
 * Open packs stand in a heap for each amount of room left, the first one on top; a tree over the rooms knows the first
 * pack of any range of them.  So a piece costs log T and log of the packs that have the same room, whatever their number.
 */
#include "data/packs.h"

#include <stdlib.h>

struct heap {
  int32_t *at, n, room;
};

struct fitter {
  int64_t T, leaves;
  struct heap *heaps; /* [T + 1] by room left */
  int32_t *tree;      /* [2 * leaves]: the first pack with that room, INT32_MAX: none */
  int32_t *left, *n;  /* of each pack */
  int64_t packs, room;
};

static enum err heap_push(struct heap *h, int32_t pack)
{
  if (h->n == h->room) {
    const int32_t room = h->room ? 2 * h->room : 16;
    int32_t *at = realloc(h->at, (size_t)room * sizeof *at);
    if (at == NULL) FAIL(ERR_MEMORY, "data plan: %d open packs", room);
    h->at = at;
    h->room = room;
  }
  int32_t i = h->n++;
  for (; i > 0 && h->at[(i - 1) / 2] > pack; i = (i - 1) / 2) h->at[i] = h->at[(i - 1) / 2];
  h->at[i] = pack;
  return ERR_OK;
}

static void heap_pop(struct heap *h)
{
  const int32_t last = h->at[--h->n];
  int32_t i = 0;
  for (int32_t child = 1; child < h->n; child = 2 * i + 1) {
    if (child + 1 < h->n && h->at[child + 1] < h->at[child]) child++;
    if (h->at[child] >= last) break;
    h->at[i] = h->at[child];
    i = child;
  }
  h->at[i] = last;
}

static int32_t less(int32_t a, int32_t b) { return a < b ? a : b; }

/* The tree's way up from a room whose first pack has changed. */
static void update(struct fitter *f, int64_t room)
{
  const struct heap *h = &f->heaps[room];
  int64_t i = f->leaves + room;
  f->tree[i] = h->n ? h->at[0] : INT32_MAX;
  for (i /= 2; i > 0; i /= 2) f->tree[i] = less(f->tree[2 * i], f->tree[2 * i + 1]);
}

/* The first pack with `length` or more of room. */
static int32_t first_with(const struct fitter *f, int64_t length)
{
  int32_t found = INT32_MAX;
  for (int64_t low = f->leaves + length, high = 2 * f->leaves; low < high; low /= 2, high /= 2) {
    if (low % 2) found = less(found, f->tree[low++]);
    if (high % 2) found = less(found, f->tree[--high]);
  }
  return found;
}

static enum err new_pack(struct fitter *f, int32_t *out)
{
  if (f->packs == f->room) {
    const int64_t room = f->room ? 2 * f->room : 1024;
    int32_t *left = realloc(f->left, (size_t)room * sizeof *left);
    if (left != NULL) f->left = left;
    int32_t *n = left ? realloc(f->n, (size_t)room * sizeof *n) : NULL;
    if (n == NULL) FAIL(ERR_MEMORY, "data plan: %lld packs", (long long)room);
    f->n = n;
    f->room = room;
  }
  *out = (int32_t)f->packs++;
  f->left[*out] = (int32_t)f->T;
  f->n[*out] = 0;
  return ERR_OK;
}

static enum err place(struct fitter *f, int64_t length, int64_t limit, int32_t *pack)
{
  *pack = first_with(f, length);
  if (*pack == INT32_MAX) {
    TRY(new_pack(f, pack));
  } else {
    const int64_t room = f->left[*pack];
    heap_pop(&f->heaps[room]);
    update(f, room);
  }
  const int32_t left = f->left[*pack] -= (int32_t)length;
  if (++f->n[*pack] == limit || left == 0) return ERR_OK;
  TRY(heap_push(&f->heaps[left], *pack));
  update(f, left);
  return ERR_OK;
}

/* The pieces of each pack in a row, in their order. */
static enum err write_packs(const struct fitter *f, int64_t n, const int32_t *pack_of, struct packs *out)
{
  out->sequences = f->packs;
  out->begin = calloc((size_t)f->packs + 2, sizeof *out->begin);
  out->piece = malloc((size_t)(n + 1) * sizeof *out->piece);
  if (out->begin == NULL || out->piece == NULL) FAIL(ERR_MEMORY, "data plan: %lld packs", (long long)f->packs);
  for (int64_t s = 0; s < f->packs; s++) {
    out->begin[s + 2] = out->begin[s + 1] + f->n[s];
    if (f->n[s] > out->most) out->most = f->n[s];
  }
  for (int64_t i = 0; i < n; i++) out->piece[out->begin[pack_of[i] + 1]++] = (int32_t)i; /* begin[s + 1] moves to where s ends */
  return ERR_OK;
}

enum err packs_first_fit(int64_t n, int64_t T, int64_t limit, int64_t (*length_of)(const void *arg, int64_t i), const void *arg, struct packs *out)
{
  enum err err;
  struct fitter f = {.T = T, .leaves = 1};
  *out = (struct packs){0};
  while (f.leaves < T + 1) f.leaves *= 2;
  int32_t *pack_of = malloc((size_t)(n + 1) * sizeof *pack_of);
  f.heaps = calloc((size_t)T + 1, sizeof *f.heaps);
  f.tree = malloc((size_t)(2 * f.leaves) * sizeof *f.tree);
  if (pack_of == NULL || f.heaps == NULL || f.tree == NULL) FAIL_TO(free_fitter, ERR_MEMORY, "data plan: packs of %lld pieces", (long long)n);
  for (int64_t i = 0; i < 2 * f.leaves; i++) f.tree[i] = INT32_MAX;
  for (int64_t i = 0; i < n; i++) TRY_TO(free_fitter, place(&f, length_of(arg, i), limit, &pack_of[i]));
  TRY_TO(free_fitter, write_packs(&f, n, pack_of, out));

free_fitter:
  if (err) packs_destroy(out);
  for (int64_t room = 0; f.heaps && room <= T; room++) free(f.heaps[room].at);
  free(f.heaps);
  free(f.tree);
  free(f.left);
  free(f.n);
  free(pack_of);
  return err;
}
