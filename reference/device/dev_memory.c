/* dev_memory.c - blocks of a device, each known by category and owner. */
#include "base/clock.h"
#include "device/dev_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dev_memory_init(struct dev_memory *m, enum dev_kind kind)
{
  m->since_ms = m->at_ms = clock_ms();
  m->host_apart = kind == DEV_CUDA;
}

/* To where it is from. */
static void give_back(struct dev *d, const struct dev_block *b)
{
  if (b->category == DEV_ON_HOST) d->backend->host_free(d, b->at, b->bytes);
  else d->backend->free(d, b->at, b->bytes);
}

void dev_memory_release(struct dev *d)
{
  struct dev_memory *m = &d->memory;
  for (int i = 0; i < m->n; i++) give_back(d, &m->blocks[i]);
  free(m->blocks);
}

const struct dev_block *dev_memory_find(const struct dev_memory *m, uintptr_t address)
{
  for (int i = 0; i < m->n; i++) {
    const uintptr_t at = (uintptr_t)m->blocks[i].at;
    if (address >= at && address - at < m->blocks[i].bytes) return &m->blocks[i];
  }
  return NULL;
}

/* Of the device's memory; of the host's where that is another. */
static size_t held(const struct dev_memory *m, bool on_host)
{
  size_t sum = 0;
  for (int c = 0; c < DEV_CATEGORIES; c++)
    if (!m->host_apart || (c == DEV_ON_HOST) == on_host) sum += m->usage.now[c];
  return sum;
}
static size_t total(const struct dev_memory *m) { return held(m, false); }

/* What was held until now enters the mean. */
static void account(struct dev_memory *m)
{
  const double now = clock_ms();
  m->integral += (double)total(m) * (now - m->at_ms);
  m->at_ms = now;
}

/* "the largest: a 12 bytes, b 8 bytes": blocks of one owner count together. */
static void largest_owners(const struct dev_memory *m, char *out, size_t room)
{
  const char *named[3] = {NULL, NULL, NULL};
  size_t used = (size_t)snprintf(out, room, "%s", m->n ? "the largest: " : "nothing is held");
  for (int k = 0; k < 3 && used < room; k++) {
    const char *best = NULL;
    size_t best_bytes = 0;
    for (int i = 0; i < m->n; i++) {
      const char *owner = m->blocks[i].owner;
      bool done = false;
      for (int j = 0; j < k; j++) done = done || strcmp(named[j], owner) == 0;
      size_t bytes = 0;
      for (int j = 0; j < m->n && !done; j++)
        if (strcmp(m->blocks[j].owner, owner) == 0) bytes += m->blocks[j].bytes;
      if (!done && (best == NULL || bytes > best_bytes)) {
        best = owner;
        best_bytes = bytes;
      }
    }
    if (best == NULL) return;
    named[k] = best;
    used += (size_t)snprintf(out + used, room - used, "%s%s %zu bytes", k ? ", " : "", best, best_bytes);
  }
}

/* From the device, or from the host; known from now on. */
static enum err take(struct dev *d, size_t bytes, enum dev_category category, const char *owner, void **out)
{
  struct dev_memory *m = &d->memory;
  if (m->n == m->room) {
    const int room = m->room ? 2 * m->room : 32;
    struct dev_block *grown = realloc(m->blocks, (size_t)room * sizeof *grown);
    if (grown == NULL) FAIL(ERR_MEMORY, "%s '%s': table of %d blocks", dev_category_name(category), owner, room);
    m->blocks = grown;
    m->room = room;
  }
  void *at = NULL;
  const bool on_host = category == DEV_ON_HOST;
  const enum err e = on_host ? d->backend->host_alloc(d, bytes, &at) : d->backend->alloc(d, bytes, &at);
  if (e == ERR_MEMORY) {
    char owners[400], device[200];
    snprintf(device, sizeof device, "%s", err_text());
    largest_owners(m, owners, sizeof owners);
    FAIL(ERR_MEMORY, "%s '%s': no memory for %zu bytes beside the %zu held%s; %s", dev_category_name(category), owner,
         bytes, held(m, on_host), device, owners);
  }
  TRY(e);

  account(m);
  m->blocks[m->n++] = (struct dev_block){at, bytes, category, owner};
  struct dev_usage *u = &m->usage;
  *(on_host ? &u->host_allocations : &u->allocations) += 1;
  u->now[category] += bytes;
  const size_t on_host_most = u->now[DEV_ON_HOST] > u->at_peak[DEV_ON_HOST] ? u->now[DEV_ON_HOST] : u->at_peak[DEV_ON_HOST];
  if (total(m) > u->peak) {
    u->peak = total(m);
    memcpy(u->at_peak, u->now, sizeof u->now);
  }
  if (m->host_apart) u->at_peak[DEV_ON_HOST] = on_host_most;
  *out = at;
  return ERR_OK;
}

enum err dev_alloc(struct dev *d, size_t bytes, enum dev_category category, const char *owner, void **out)
{
  *out = NULL;
  if (category < 0 || category >= DEV_ON_HOST) FAIL(ERR_ARG, "%s: category %d", owner, (int)category);
  return take(d, bytes, category, owner, out);
}

enum err dev_host_alloc(struct dev *d, size_t bytes, const char *owner, void **out)
{
  *out = NULL;
  return take(d, bytes, DEV_ON_HOST, owner, out);
}

/* Work that may still use the block: named, and done before the memory goes. */
static void check_unused(struct dev *d, const struct dev_block *b)
{
  if (d->clocks == NULL || b->bytes == 0) return;
  const struct dev_range range = {b->at, b->bytes, b->bytes, 1, true};
  const struct dev_accessor by = {.kernel = "dev_free", .step = d->step, .microbatch = d->microbatch};
  const int before = dev_clocks_count(d->clocks);
  const enum err e = dev_clocks_access(d->clocks, &by, &range, 1);
  if (e || dev_clocks_count(d->clocks) != before) {
    dev_await_all(d);
  }
  dev_clocks_forget(d->clocks, &range);
}

static void give(struct dev *d, void *at, bool on_host)
{
  struct dev_memory *m = &d->memory;
  int i = 0;
  while (i < m->n && m->blocks[i].at != at) i++;
  BUG_IF(i == m->n || (m->blocks[i].category == DEV_ON_HOST) != on_host); /* not such a block of this device, or freed twice */
  check_unused(d, &m->blocks[i]);
  account(m);
  m->usage.now[m->blocks[i].category] -= m->blocks[i].bytes;
  give_back(d, &m->blocks[i]);
  m->blocks[i] = m->blocks[--m->n];
}

void dev_free(struct dev *d, void *at)
{
  if (at != NULL) give(d, at, false);
}

void dev_host_free(struct dev *d, void *at)
{
  if (at != NULL) give(d, at, true);
}

void dev_usage(const struct dev *d, struct dev_usage *out)
{
  struct dev_memory m = d->memory;
  account(&m);
  *out = m.usage;
  const double ms = m.at_ms - m.since_ms;
  out->mean_bytes = ms > 0 ? m.integral / ms : (double)total(&m);
}

void dev_usage_restart(struct dev *d)
{
  struct dev_memory *m = &d->memory;
  m->since_ms = m->at_ms = clock_ms();
  m->integral = 0;
}
