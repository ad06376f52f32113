/* zero.c - weights by unit: all in one buffer, or (zero_slots.c) gathered into slots. */
#include "parallel/zero_state.h"

#include "base/fault.h"

#include <stdlib.h>

bool zero_in_slots(const struct zero *z) { return z->given.run->zero == 3 && z->given.gather; }
static bool gathers_updates(const struct zero *z) { return z->given.gather && !zero_in_slots(z); }

static enum err check_config(const struct zero_config *c)
{
  const int ranks = c->gather ? comm_group_size(c->gather) : 1;
  if (c->gather && ranks != c->flat->shards) FAIL(ERR_ARG, "zero: %d shards over a group of %d ranks", c->flat->shards, ranks);
  if (c->gather && comm_stream(c->gather) == c->compute) FAIL(ERR_ARG, "zero: gathers are on the compute stream");
  return ERR_OK;
}

static enum err create_gathers(struct zero *z)
{
  const int n = z->given.flat->n_units;
  z->there = calloc((size_t)n, sizeof(struct dev_event *));
  z->pending = calloc((size_t)n, sizeof *z->pending);
  if (z->there == NULL || z->pending == NULL) FAIL(ERR_MEMORY, "zero: %d units", n);
  for (int u = 0; u < n; u++) TRY(dev_event_create(dev_of(z->given.compute), &z->there[u]));
  return ERR_OK;
}

enum err zero_create(const struct zero_config *c, struct zero **out)
{
  enum err err;
  *out = NULL;
  TRY(check_config(c));
  struct zero *z = calloc(1, sizeof *z);
  if (z == NULL) FAIL(ERR_MEMORY, "zero: %zu bytes", sizeof *z);
  z->given = *c;
  z->type = run_work_type(c->run);
  TRY_TO(destroy, dev_event_create(dev_of(c->compute), &z->updated));
  if (zero_in_slots(z)) TRY_TO(destroy, zero_slots_create(z));
  if (gathers_updates(z)) TRY_TO(destroy, create_gathers(z));
  if (fault_is(FAULT_OV_PARAM_GATHER_READ_TOO_EARLY) && gathers_updates(z)) /* late in all, however many */
    comm_delay(z->given.gather, 300 * fault_strength / z->given.flat->n_buckets);
  *out = z;
  return ERR_OK;

destroy:
  zero_destroy(z);
  return err;
}

enum err zero_room(struct zero *z) { return zero_in_slots(z) ? zero_slots_room(z) : ERR_OK; }

void zero_destroy(struct zero *z)
{
  if (z == NULL) return;
  dev_sync_stream(z->given.compute); /* errors of its work are the caller's to see at its own synchronisation */
  if (z->given.gather) dev_sync_stream(comm_stream(z->given.gather));
  zero_slots_destroy(z);
  for (int u = 0; z->there && u < z->given.flat->n_units; u++) dev_event_destroy(z->there[u]);
  dev_event_destroy(z->updated);
  free(z->pending);
  free(z->there);
  free(z);
}

static enum err expect_unit(const struct zero *z, int unit)
{
  if (unit < 0 || unit >= z->given.flat->n_units) FAIL(ERR_ARG, "unit %d of %d", unit, z->given.flat->n_units);
  return ERR_OK;
}

struct tensor zero_whole(const struct zero *z, void *at, const struct flat_bucket *b)
{
  const int ranks = z->given.flat->shards;
  return tensor_at(at, z->type, ranks, b->count / ranks);
}

/* --- uses -------------------------------------------------------------------------------- */

enum err zero_plan(struct zero *z, const struct zero_life *lives, int n)
{
  return zero_in_slots(z) ? zero_slots_plan(z, lives, n) : ERR_OK;
}

static enum err await(struct zero *z, int unit)
{
  if (!z->pending[unit]) return ERR_OK;
  z->pending[unit] = false;
  return dev_wait(z->given.compute, z->there[unit]);
}

enum err zero_need(struct zero *z, int unit, enum zero_pass pass)
{
  TRY(expect_unit(z, unit));
  if (zero_in_slots(z)) return zero_slots_need(z, unit, pass);
  if (fault_is(FAULT_OV_PARAM_GATHER_READ_TOO_EARLY)) return ERR_OK;
  return gathers_updates(z) ? await(z, unit) : ERR_OK;
}

void *zero_weights(const struct zero *z, int unit)
{
  if (zero_in_slots(z)) return z->slots[z->slot_of[unit]].at;
  return (char *)z->given.weights + (size_t)z->given.flat->units[unit].first * dtype_bytes(z->type);
}

enum err zero_done(struct zero *z, int unit)
{
  TRY(expect_unit(z, unit));
  return zero_in_slots(z) ? zero_slots_done(z, unit) : ERR_OK;
}

/* --- gathers of what was updated ------------------------------------------------------------ */

static enum err gather_bucket(struct zero *z, const struct flat_bucket *b)
{
  char *const at = (char *)z->given.weights + (size_t)b->first * dtype_bytes(z->type);
  const struct tensor all = zero_whole(z, at, b), mine = tensor_part(&all, comm_group_rank(z->given.gather), 1, 0, all.cols);
  return comm_allgather(z->given.gather, &all, &mine);
}

/* From the buffer's start to its end: the order in which a forward needs them.  A unit is there when its last
 * bucket is. */
enum err zero_updated(struct zero *z)
{
  const struct flat *f = z->given.flat;
  if (!gathers_updates(z)) return ERR_OK;
  struct dev_stream *s = comm_stream(z->given.gather);
  TRY(dev_record(z->updated, z->given.compute));
  TRY(dev_wait(s, z->updated));
  for (int b = f->n_buckets - 1; b >= 0; b--) {
    TRY(gather_bucket(z, &f->buckets[b]));
    for (int u = 0; u < f->n_units; u++) {
      if (f->units[u].buckets == 0 || f->units[u].first_bucket != b) continue;
      TRY(dev_record(z->there[u], s));
      z->pending[u] = true;
    }
  }
  return z->given.run->overlap_gather ? ERR_OK : zero_settle(z);
}

enum err zero_settle(struct zero *z)
{
  for (int u = 0; gathers_updates(z) && u < z->given.flat->n_units; u++) TRY(await(z, u));
  return ERR_OK;
}
