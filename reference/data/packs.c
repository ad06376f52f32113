/* packs.c - packing a histogram: open packs by the room they have left, equal ones together. */
#include "data/packs.h"

#include <stdlib.h>

/* A pack is a chain of lengths back to its first, which is the longest; packs share what they have in common. */
struct node {
  int32_t before, length, n; /* index of a node or -1; pieces so far */
};

/* `count` packs alike; in a list of one room, or of those that are full. */
struct stack {
  int64_t count;
  int32_t node, next;
};

struct packer {
  int64_t T, limit;
  struct node *nodes;
  int64_t n_nodes, room_nodes;
  struct stack *stacks;
  int64_t n_stacks, room_stacks;
  int32_t *open;      /* [T + 1] by room left: the list's first, -1: none */
  uint64_t *has;      /* a bit a room: its list is not empty */
  int32_t full, spare; /* lists */
};

/* One more of `n` things of `bytes`, in a list that doubles. */
static enum err grow(void **list, int64_t n, int64_t *room, size_t bytes)
{
  if (n < *room) return ERR_OK;
  const int64_t wanted = *room ? 2 * *room : 256;
  void *more = realloc(*list, (size_t)wanted * bytes);
  if (more == NULL) FAIL(ERR_MEMORY, "data plan: %lld kinds of packs", (long long)wanted);
  *list = more;
  *room = wanted;
  return ERR_OK;
}

static enum err push(struct packer *p, int32_t *list, int64_t count, int32_t node)
{
  int32_t at = p->spare;
  if (at >= 0) {
    p->spare = p->stacks[at].next;
  } else {
    TRY(grow((void **)&p->stacks, p->n_stacks, &p->room_stacks, sizeof *p->stacks));
    at = (int32_t)p->n_stacks++;
  }
  p->stacks[at] = (struct stack){count, node, *list};
  *list = at;
  return ERR_OK;
}

static struct stack pop(struct packer *p, int32_t *list)
{
  const int32_t at = *list;
  const struct stack s = p->stacks[at];
  *list = s.next;
  p->stacks[at].next = p->spare;
  p->spare = at;
  return s;
}

/* `count` packs that are those of `node` (-1: empty) with one piece more and then `left` tokens of room. */
static enum err add(struct packer *p, int64_t count, int32_t node, int64_t length, int64_t left)
{
  TRY(grow((void **)&p->nodes, p->n_nodes, &p->room_nodes, sizeof *p->nodes));
  const int32_t at = (int32_t)p->n_nodes++, n = node < 0 ? 1 : p->nodes[node].n + 1;
  p->nodes[at] = (struct node){node, (int32_t)length, n};
  const bool full = left == 0 || n == p->limit;
  TRY(push(p, full ? &p->full : &p->open[left], count, at));
  if (!full) p->has[left / 64] |= (uint64_t)1 << left % 64;
  return ERR_OK;
}

/* The least room of `length` or more that an open pack has; 0: none. */
static int64_t least_room(const struct packer *p, int64_t length)
{
  int64_t word = length / 64;
  uint64_t bits = p->has[word] & ~(uint64_t)0 << length % 64;
  while (bits == 0 && ++word <= p->T / 64) bits = p->has[word];
  return bits ? word * 64 + __builtin_ctzll(bits) : 0;
}

static int64_t most_room(const struct packer *p, int64_t length)
{
  for (int64_t word = p->T / 64; word >= length / 64; word--)
    if (p->has[word]) {
      const int64_t room = word * 64 + 63 - __builtin_clzll(p->has[word]);
      return room >= length ? room : 0;
    }
  return 0;
}

static enum err pack_length(struct packer *p, int64_t length, int64_t count, bool best)
{
  while (count > 0) {
    const int64_t room = best ? least_room(p, length) : most_room(p, length);
    if (room == 0) return add(p, count, -1, length, p->T - length);
    struct stack s = pop(p, &p->open[room]);
    const int64_t taken = s.count < count ? s.count : count;
    if (s.count > taken) TRY(push(p, &p->open[room], s.count - taken, s.node));
    if (p->open[room] < 0) p->has[room / 64] &= ~((uint64_t)1 << room % 64);
    count -= taken;
    TRY(add(p, taken, s.node, length, room - length));
  }
  return ERR_OK;
}

/* --- as arrays -------------------------------------------------------------------- */

static void count_list(const struct packer *p, int32_t at, struct packs *out, int64_t *slots)
{
  for (; at >= 0; at = p->stacks[at].next) {
    out->kinds++;
    *slots += p->nodes[p->stacks[at].node].n;
  }
}

/* used[l]: pieces of l tokens that are placed so far. */
static void write_list(const struct packer *p, int32_t at, struct packs *out, int64_t *used)
{
  for (; at >= 0; at = p->stacks[at].next) {
    const struct stack *s = &p->stacks[at];
    int64_t slot = out->slot[out->kinds];
    for (int32_t node = s->node; node >= 0; node = p->nodes[node].before, slot++) {
      const int32_t length = p->nodes[node].length;
      out->length[slot] = length;
      out->before[slot] = used[length];
      used[length] += s->count;
    }
    const int64_t n = p->nodes[s->node].n;
    if (n > out->most) out->most = n;
    out->first[out->kinds] = out->sequences;
    out->sequences += s->count;
    out->slot[++out->kinds] = slot;
    out->first[out->kinds] = out->sequences;
  }
}

static enum err write_packs(const struct packer *p, struct packs *out)
{
  enum err err = ERR_OK;
  int64_t slots = 0, *used = calloc((size_t)p->T + 1, sizeof *used);
  count_list(p, p->full, out, &slots);
  for (int64_t room = 1; room <= p->T; room++) count_list(p, p->open[room], out, &slots);
  out->first = calloc((size_t)out->kinds + 1, sizeof *out->first);
  out->slot = calloc((size_t)out->kinds + 1, sizeof *out->slot);
  out->length = malloc((size_t)(slots + 1) * sizeof *out->length);
  out->before = malloc((size_t)(slots + 1) * sizeof *out->before);
  if (used == NULL || out->first == NULL || out->slot == NULL || out->length == NULL || out->before == NULL)
    FAIL_TO(free_used, ERR_MEMORY, "data plan: %lld kinds of packs", (long long)out->kinds);
  out->kinds = 0;
  write_list(p, p->full, out, used);
  for (int64_t room = 1; room <= p->T; room++) write_list(p, p->open[room], out, used);

free_used:
  free(used);
  return err;
}

enum err packs_histogram(const int64_t *count, int64_t T, int64_t limit, bool best, struct packs *out)
{
  enum err err;
  struct packer p = {.T = T, .limit = limit, .full = -1, .spare = -1};
  *out = (struct packs){0};
  p.open = malloc((size_t)(T + 1) * sizeof *p.open);
  p.has = calloc((size_t)T / 64 + 1, sizeof *p.has);
  if (p.open == NULL || p.has == NULL) FAIL_TO(free_packer, ERR_MEMORY, "data plan: packs of %lld tokens", (long long)T);
  for (int64_t room = 0; room <= T; room++) p.open[room] = -1;
  for (int64_t length = T; length > 0; length--) TRY_TO(free_packer, pack_length(&p, length, count[length], best));
  TRY_TO(free_packer, write_packs(&p, out));

free_packer:
  if (err) packs_destroy(out);
  free(p.nodes);
  free(p.stacks);
  free(p.open);
  free(p.has);
  return err;
}

void packs_destroy(struct packs *p)
{
  free(p->first);
  free(p->slot);
  free(p->length);
  free(p->before);
  free(p->begin);
  free(p->piece);
  *p = (struct packs){0};
}

int64_t packs_kind(const struct packs *p, int64_t s)
{
  int64_t low = 0, high = p->kinds - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (p->first[middle + 1] > s) high = middle;
    else low = middle + 1;
  }
  return low;
}
