/* dev_clocks.c - vector clocks: which accesses have an order, and which only seem to.
 *
 * All order between streams is made by calls of the host, so it is known when work is
 * given, long before it runs: no lucky interleaving is needed to see that an order is
 * missing.  clock[w] of a stream or of the host is how many accesses of w come before
 * whatever it does next (Fidge 1988, Mattern 1989).  An access is remembered with its
 * number (its epoch) until no later access can be unordered with it: once it comes
 * before what the host does next, since all work is given by the host; or once a later,
 * ordered access covers its range and would conflict with all that it conflicts with.
 */
#include "device/dev_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FINDINGS_MAX = 64, FINDING_BYTES = 480 };

struct access {
  struct dev_range range; /* normal form */
  struct dev_accessor by;
  int64_t epoch;
};

/* Two pieces of the program that race: reported once, however often they do. */
struct pair {
  const char *kernel[2], *stream[2];
  bool write[2];
};

struct dev_clocks {
  const struct dev_memory *memory; /* names blocks */
  int64_t now[DEV_CLOCKS][DEV_CLOCKS];
  struct access *past;
  int64_t n, room;
  struct pair pairs[FINDINGS_MAX];
  int found, told; /* findings; those that a sync has reported */
  bool more;       /* than are listed */
  char text[FINDINGS_MAX * FINDING_BYTES + 16];
  size_t text_at[FINDINGS_MAX + 1];
};

enum err dev_clocks_create(const struct dev_memory *memory, struct dev_clocks **out)
{
  *out = calloc(1, sizeof **out);
  if (*out == NULL) FAIL(ERR_MEMORY, "clocks: %zu bytes", sizeof **out);
  (*out)->memory = memory;
  return ERR_OK;
}

void dev_clocks_destroy(struct dev_clocks *c)
{
  if (c == NULL) return;
  free(c->past);
  free(c);
}

/* --- order -------------------------------------------------------------------------- */

static void merge(int64_t *into, const int64_t *from)
{
  for (int i = 0; i < DEV_CLOCKS; i++)
    if (into[i] < from[i]) into[i] = from[i];
}

static bool before(const struct dev_clocks *c, const struct access *a, int who)
{
  return a->epoch <= c->now[who][a->by.who];
}

void dev_clocks_record(struct dev_clocks *c, int who, int64_t clock[DEV_CLOCKS])
{
  memcpy(clock, c->now[who], sizeof c->now[who]);
}

void dev_clocks_wait(struct dev_clocks *c, int who, const int64_t clock[DEV_CLOCKS])
{
  merge(c->now[who], clock);
  if (who != 0) return;
  int64_t kept = 0;
  for (int64_t i = 0; i < c->n; i++)
    if (!before(c, &c->past[i], 0)) c->past[kept++] = c->past[i];
  c->n = kept;
}

/* --- findings ------------------------------------------------------------------------ */

static bool same(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static void describe(char *out, size_t room, const struct dev_accessor *by)
{
  if (by->who == 0)
    snprintf(out, room, "%s", by->kernel);
  else
    snprintf(out, room, "'%.60s' on %.30s", by->kernel, by->stream);
}

static void find(struct dev_clocks *c, const struct access *late, const struct access *early, uintptr_t byte)
{
  const struct pair pair = {{late->by.kernel, early->by.kernel},
                            {late->by.stream, early->by.stream},
                            {late->range.write, early->range.write}};
  for (int i = 0; i < c->found; i++) {
    const struct pair *p = &c->pairs[i];
    if (same(p->kernel[0], pair.kernel[0]) && same(p->kernel[1], pair.kernel[1]) &&
        same(p->stream[0], pair.stream[0]) && same(p->stream[1], pair.stream[1]) &&
        p->write[0] == pair.write[0] && p->write[1] == pair.write[1])
      return;
  }
  const size_t at = c->text_at[c->found];
  if (c->found == FINDINGS_MAX) {
    if (!c->more) snprintf(c->text + at, sizeof c->text - at, "\nand more");
    c->more = true;
    return;
  }

  char place[160], a[100], b[100], line[FINDING_BYTES];
  const struct dev_block *block = dev_memory_find(c->memory, byte);
  if (block)
    snprintf(place, sizeof place, "%s '%.100s' + %zu", dev_category_name(block->category), block->owner,
             (size_t)(byte - (uintptr_t)block->at));
  else
    snprintf(place, sizeof place, "host memory %#zx", (size_t)byte);
  describe(a, sizeof a, &late->by);
  describe(b, sizeof b, &early->by);
  const int length = snprintf(line, sizeof line,
                              "%s%s %s %s, unordered with %s, which %s it (step %lld micro-batch %d, and %lld %d)",
                              at ? "\n" : "", a, late->range.write ? "writes" : "reads", place, b,
                              early->range.write ? "writes" : "reads", (long long)late->by.step, late->by.microbatch,
                              (long long)early->by.step, early->by.microbatch);
  BUG_IF(length < 0 || length >= (int)sizeof line);
  memcpy(c->text + at, line, (size_t)length + 1);
  c->pairs[c->found++] = pair;
  c->text_at[c->found] = at + (size_t)length;
}

int dev_clocks_count(const struct dev_clocks *c) { return c->found; }
int64_t dev_clocks_history(const struct dev_clocks *c) { return c->n; }
const char *dev_clocks_text(const struct dev_clocks *c) { return c->text; }

enum err dev_clocks_new(struct dev_clocks *c)
{
  if (c->told == c->found) return ERR_OK;
  const char *first = c->text + c->text_at[c->told];
  const int n = c->found - c->told;
  c->told = c->found;
  FAIL(ERR_DEVICE, "%d pair%s of unordered accesses: %s", n, n == 1 ? "" : "s", first + (*first == '\n'));
}

/* --- accesses -------------------------------------------------------------------------- */

static enum err reserve(struct dev_clocks *c, int n)
{
  if (c->n + n <= c->room) return ERR_OK;
  const int64_t room = c->room ? 2 * c->room : 256;
  struct access *grown = realloc(c->past, (size_t)room * sizeof *grown);
  if (grown == NULL) FAIL(ERR_MEMORY, "clocks: %lld accesses", (long long)room);
  c->past = grown;
  c->room = room;
  return ERR_OK;
}

/* Compares with all that is remembered; what `fresh` stands for from now on goes. */
static void compare(struct dev_clocks *c, const struct access *fresh)
{
  const uintptr_t first = dev_range_first(&fresh->range), end = dev_range_end(&fresh->range);
  for (int64_t i = c->n - 1; i >= 0; i--) {
    struct access *old = &c->past[i];
    if (dev_range_end(&old->range) <= first || end <= dev_range_first(&old->range)) continue;
    uintptr_t byte;
    if (before(c, old, fresh->by.who)) {
      const bool conflicts_with_as_much = fresh->range.write || !old->range.write;
      if (conflicts_with_as_much && dev_range_covers(&fresh->range, &old->range)) *old = c->past[--c->n];
    } else if ((old->range.write || fresh->range.write) && dev_range_overlap(&old->range, &fresh->range, &byte)) {
      find(c, fresh, old, byte);
    }
  }
}

enum err dev_clocks_access(struct dev_clocks *c, const struct dev_accessor *by, const struct dev_range *ranges, int n)
{
  TRY(reserve(c, n));
  int64_t *now = c->now[by->who];
  merge(now, c->now[0]); /* what the host has seen comes before what it gives now */
  now[by->who]++;
  for (int i = 0; i < n; i++) {
    const struct access fresh = {dev_range_normal(ranges[i]), *by, now[by->who]};
    if (fresh.range.rows == 0) continue;
    compare(c, &fresh);
    c->past[c->n++] = fresh;
  }
  return ERR_OK;
}

void dev_clocks_forget(struct dev_clocks *c, const struct dev_range *range)
{
  uintptr_t byte;
  for (int64_t i = c->n - 1; i >= 0; i--)
    if (dev_range_overlap(&c->past[i].range, range, &byte)) c->past[i] = c->past[--c->n];
}
