/* zero_slots.c - stage 3: units gathered into slots, in the order of the plan, ahead of their use. */
#include "parallel/zero_state.h"

#include "base/fault.h"
#include "ops/ops.h"

#include <stdio.h>
#include <stdlib.h>

enum { BEGIN = 0, END = 1, BLOCKS = 2 }; /* slots */

static bool is_block(const struct zero *z, int unit) { return unit > 0 && unit < z->given.flat->n_units - 1; }
static struct dev_stream *gathers(const struct zero *z) { return comm_stream(z->given.gather); }

/* --- made ---------------------------------------------------------------------------------- */

/* Without communication only this rank's part of a unit ever gets there: the rest is some number that computes like
 * any other, not NaN. */
static enum err create_slot(struct zero *z, struct zero_slot *slot, int64_t elements)
{
  const double ordinary = 0.01;
  struct dev *d = dev_of(z->given.compute);
  slot->unit = -1;
  TRY(dev_event_create(d, &slot->gathered));
  TRY(dev_event_create(d, &slot->released));
  TRY(dev_alloc(d, (size_t)elements * dtype_bytes(z->type), DEV_PARAMETERS, "gathered weights", &slot->at));
  if (z->given.run->communicate || elements == 0) return ERR_OK;
  const struct tensor all = tensor_at(slot->at, z->type, 1, elements);
  return op_fill(z->given.compute, &all, ordinary);
}

enum err zero_slots_create(struct zero *z)
{
  const struct flat *f = z->given.flat;
  z->ahead = (int)z->given.run->prefetch;
  if (fault_is(FAULT_MM_RECORD_STREAM_OVERALLOCATION)) z->ahead = f->n_units;
  z->ring = z->ahead + 1;
  z->slots = calloc((size_t)(BLOCKS + z->ring), sizeof *z->slots);
  z->slot_of = malloc((size_t)f->n_units * sizeof *z->slot_of);
  if (z->slots == NULL || z->slot_of == NULL) FAIL(ERR_MEMORY, "zero: %d slots, %d units", BLOCKS + z->ring, f->n_units);
  for (int u = 0; u < f->n_units; u++) z->slot_of[u] = -1;
  TRY(create_slot(z, &z->slots[BEGIN], f->units[0].count));
  TRY(create_slot(z, &z->slots[END], f->units[f->n_units - 1].count));
  return ERR_OK;
}

/* What a prefetch could be where memory ended after `made` places for blocks: one less, if that is one at all. */
static enum err too_far_ahead(const struct zero *z, int made)
{
  struct err_saved saved;
  char nearest[64] = "none, not even 0";
  err_save(&saved, ERR_MEMORY);
  if (made > 0) snprintf(nearest, sizeof nearest, "%d", made - 1);
  FAIL(ERR_MEMORY, "prefetch: %d needs %d places of %zu bytes for blocks, and beside the rest there is memory for %d; nearest valid: %s; %s", z->ahead,
       z->ring, (size_t)flat_largest_block(z->given.flat) * dtype_bytes(z->type), made, nearest, saved.text);
}

enum err zero_slots_room(struct zero *z)
{
  for (int i = 0; i < z->ring; i++) {
    const enum err e = create_slot(z, &z->slots[BLOCKS + i], flat_largest_block(z->given.flat));
    if (e == ERR_MEMORY) return too_far_ahead(z, i);
    TRY(e);
  }
  return ERR_OK;
}

void zero_slots_destroy(struct zero *z)
{
  for (int i = 0; z->slots && i < BLOCKS + z->ring; i++) {
    dev_free(dev_of(z->given.compute), z->slots[i].at);
    dev_event_destroy(z->slots[i].released);
    dev_event_destroy(z->slots[i].gathered);
  }
  free(z->slot_of);
  free(z->slots);
}

/* --- gathered -------------------------------------------------------------------------------- */

/* From the unit's start to its end. */
static enum err gather_unit(struct zero *z, const struct flat_unit *unit, struct zero_slot *slot)
{
  const size_t element = dtype_bytes(z->type);
  const struct flat *f = z->given.flat;
  for (int b = unit->first_bucket + unit->buckets - 1; b >= unit->first_bucket; b--) {
    const struct flat_bucket *k = &f->buckets[b];
    const struct tensor all = zero_whole(z, (char *)slot->at + (size_t)(k->first - unit->first) * element, k);
    char *const shard = (char *)z->given.weights + (size_t)(k->first / f->shards) * element;
    const struct tensor mine = tensor_at(shard, z->type, 1, all.cols);
    TRY(comm_allgather(z->given.gather, &all, &mine));
  }
  return ERR_OK;
}

static struct zero_slot *slot_for(const struct zero *z, int unit)
{
  return &z->slots[is_block(z, unit) ? BLOCKS + z->blocks % z->ring : unit == 0 ? BEGIN : END];
}

/* The next life of the plan, into a slot that nobody uses. */
static enum err gather_next(struct zero *z, struct zero_slot *slot)
{
  const struct zero_life *life = &z->lives[z->gathered];
  if (slot->used) TRY(dev_wait(gathers(z), slot->released));
  TRY(gather_unit(z, &z->given.flat->units[life->unit], slot));
  TRY(dev_record(slot->gathered, gathers(z)));
  slot->unit = life->unit;
  slot->life = z->gathered++;
  slot->left = life->uses;
  z->blocks += is_block(z, life->unit);
  return ERR_OK;
}

static int ahead_of(const struct zero *z, int life)
{
  /* as when what is bounded is counted in micro-batches, not in micro-batches and chunks */
  const bool bounded = fault_is(FAULT_PP_ALIGNED_GATHER_ONLY_FIRST) && life >= z->n_lives / (int)z->given.run->chunks;
  return bounded ? 0 : z->ahead;
}

/* Up to life `upto`, as far as slots are free: in order, so that all ranks queue the same. */
static enum err gather_upto(struct zero *z, int upto)
{
  while (z->gathered < z->n_lives && z->gathered <= upto) {
    struct zero_slot *slot = slot_for(z, z->lives[z->gathered].unit);
    if (slot->left > 0) break;
    TRY(gather_next(z, slot));
  }
  return ERR_OK;
}

/* --- used -------------------------------------------------------------------------------------- */

enum err zero_slots_plan(struct zero *z, const struct zero_life *lives, int n)
{
  if (z->slots[BLOCKS].gathered == NULL) FAIL(ERR_ARG, "zero: planned before there was room");
  if (z->needed < z->n_lives || z->gathered < z->n_lives) FAIL(ERR_ARG, "zero: %d of %d planned units were used", z->needed, z->n_lives);
  for (int i = 0; i < n; i++)
    if (lives[i].unit < 0 || lives[i].unit >= z->given.flat->n_units || lives[i].uses < 1)
      FAIL(ERR_ARG, "zero: unit %d of %d is planned for %d uses", lives[i].unit, z->given.flat->n_units, lives[i].uses);
  z->lives = lives;
  z->n_lives = n;
  z->needed = z->gathered = 0;
  TRY(dev_record(z->updated, z->given.compute));
  return dev_wait(gathers(z), z->updated);
}

enum err zero_slots_need(struct zero *z, int unit, enum zero_pass pass)
{
  const int at = z->slot_of[unit], next = z->needed;
  if (at >= 0 && z->slots[at].left > 0) return ERR_OK; /* its life goes on */
  if (next == z->n_lives || z->lives[next].unit != unit || z->lives[next].pass != pass)
    FAIL(ERR_ARG, "zero: unit %d is needed; the plan has unit %d as %d of %d", unit,
         next < z->n_lives ? z->lives[next].unit : -1, next, z->n_lives);
  TRY(gather_upto(z, next + ahead_of(z, next)));
  BUG_IF(z->gathered <= next);
  z->needed++;
  for (int i = 0; i < BLOCKS + z->ring; i++)
    if (z->slots[i].life == next && z->slots[i].left > 0) z->slot_of[unit] = i;
  return dev_wait(z->given.compute, z->slots[z->slot_of[unit]].gathered);
}

enum err zero_slots_done(struct zero *z, int unit)
{
  const int at = z->slot_of[unit];
  if (at < 0 || z->slots[at].left == 0) FAIL(ERR_ARG, "zero: unit %d is done with; nobody uses it", unit);
  struct zero_slot *slot = &z->slots[at];
  if (--slot->left > 0) return ERR_OK;
  const size_t bytes = (size_t)z->given.flat->units[unit].count * dtype_bytes(z->type);
  z->slot_of[unit] = -1;
  slot->used = true;
  TRY(dev_retire(z->given.compute, slot->at, bytes));
  return dev_record(slot->released, z->given.compute);
}
