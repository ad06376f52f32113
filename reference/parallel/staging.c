/* staging.c - slots of gradients, reduced into a shard of their sum. */
#include "parallel/staging.h"

#include "parallel/rounded.h"

#include "base/fault.h"
#include "ops/ops.h"

#include <stdlib.h>

enum { BEGIN = 0, END = 1, BLOCKS = 2 }; /* slots */

struct place {
  void *at;
  bool taken;                /* from the begin of a unit to the reduction of its last bucket */
  int64_t turn;              /* of its last release: the longest free is taken first         */
  struct dev_event *reduced; /* the transfer stream is through with it                       */
  bool used;                 /* reduced was recorded                                         */
};

struct staging {
  struct staging_config given;
  enum dtype type; /* of slots and shard */
  int n_slots;
  struct place *slots;
  int *slot_of; /* [units] in this micro-batch; -1: not begun */
  int *left;    /* [units] buckets to be reduced              */
  int64_t turn;
  bool first; /* micro-batch of the step */
  struct tensor rounded; /* [1, largest bucket], what a reduction adds; at NULL: the gradients themselves */
  struct tensor shard;
  struct dev_event *computed, *done;
};

static const struct flat_unit *unit_at(const struct staging *s, int unit) { return &s->given.flat->units[unit]; }
static struct dev_stream *transfer(const struct staging *s) { return comm_stream(s->given.comm); }

/* --- made ---------------------------------------------------------------------------------- */

static enum err create_slots(struct staging *s)
{
  struct dev *d = dev_of(s->given.compute);
  const struct flat *f = s->given.flat;
  const int64_t largest = flat_largest_block(f);
  s->n_slots = BLOCKS + 2 + (int)s->given.run->reused;
  s->slots = calloc((size_t)s->n_slots, sizeof *s->slots);
  s->slot_of = malloc(2 * (size_t)f->n_units * sizeof *s->slot_of);
  if (s->slots == NULL || s->slot_of == NULL) FAIL(ERR_MEMORY, "staging: %d slots, %d units", s->n_slots, f->n_units);
  s->left = s->slot_of + f->n_units;
  for (int u = 0; u < f->n_units; u++) s->slot_of[u] = -1;
  for (int i = 0; i < s->n_slots; i++) {
    const int64_t count = i == BEGIN ? f->units[0].count : i == END ? f->units[f->n_units - 1].count : largest;
    TRY(dev_alloc(d, (size_t)count * dtype_bytes(s->type), DEV_GRADIENTS, "staged gradients", &s->slots[i].at));
    TRY(dev_event_create(d, &s->slots[i].reduced));
  }
  return ERR_OK;
}

enum err staging_create(const struct staging_config *c, struct staging **out)
{
  enum err err;
  *out = NULL;
  if (comm_group_size(c->comm) != c->flat->shards)
    FAIL(ERR_ARG, "staging: %d shards over a group of %d ranks", c->flat->shards, comm_group_size(c->comm));
  struct staging *s = calloc(1, sizeof *s);
  if (s == NULL) FAIL(ERR_MEMORY, "staging: %zu bytes", sizeof *s);
  s->given = *c;
  s->type = run_state_type(c->run);
  s->first = true;
  s->shard = tensor_at(c->shard, s->type, 1, flat_shard_count(c->flat));
  TRY_TO(destroy, dev_event_create(dev_of(c->compute), &s->computed));
  TRY_TO(destroy, dev_event_create(dev_of(c->compute), &s->done));
  TRY_TO(destroy, create_slots(s));
  if (c->reduced != s->type) TRY_TO(destroy, rounded_room(dev_of(c->compute), c->flat, c->reduced, &s->rounded));
  if (fault_is(FAULT_OV_MEMORY_RECYCLED_BEFORE_USE)) comm_delay(c->comm, 300 * fault_strength / c->flat->n_buckets); /* late in all */
  *out = s;
  return ERR_OK;

destroy:
  staging_destroy(s);
  return err;
}

void staging_destroy(struct staging *s)
{
  if (s == NULL) return;
  struct dev *d = dev_of(s->given.compute);
  for (int i = 0; s->slots && i < s->n_slots; i++) {
    dev_free(d, s->slots[i].at);
    dev_event_destroy(s->slots[i].reduced);
  }
  dev_free(d, s->rounded.at);
  dev_event_destroy(s->done);
  dev_event_destroy(s->computed);
  free(s->slot_of);
  free(s->slots);
  free(s);
}

/* --- slots ----------------------------------------------------------------------------------- */

/* The end's own; of the blocks' the one that has been free the longest. */
static int free_slot(const struct staging *s, int unit)
{
  int best = -1;
  if (unit == 0) return s->slots[BEGIN].taken ? -1 : BEGIN;
  if (unit == s->given.flat->n_units - 1) return s->slots[END].taken ? -1 : END;
  for (int i = BLOCKS; i < s->n_slots; i++)
    if (!s->slots[i].taken && (best < 0 || s->slots[i].turn < s->slots[best].turn)) best = i;
  return best;
}

enum err staging_begin(struct staging *s, int unit)
{
  const int n = s->given.flat->n_units;
  if (unit < 0 || unit >= n || unit_at(s, unit)->buckets == 0) FAIL(ERR_ARG, "staging: unit %d of %d has no gradient", unit, n);
  if (s->slot_of[unit] >= 0) return ERR_OK;
  const int i = free_slot(s, unit);
  if (i < 0) FAIL(ERR_ARG, "staging: no slot is free for unit %d; those before it were not told to be ready", unit);
  struct place *slot = &s->slots[i];
  s->slot_of[unit] = i;
  s->left[unit] = unit_at(s, unit)->buckets;
  slot->taken = true;
  if (slot->used) TRY(dev_wait(s->given.compute, slot->reduced));
  const struct tensor all = tensor_at(slot->at, s->type, 1, unit_at(s, unit)->count);
  return op_fill(s->given.compute, &all, 0.0);
}

void *staging_at(const struct staging *s, int unit)
{
  BUG_IF(s->slot_of[unit] < 0);
  return s->slots[s->slot_of[unit]].at;
}

/* The last bucket of its unit is on its way. */
static enum err release(struct staging *s, int unit)
{
  struct place *slot = &s->slots[s->slot_of[unit]];
  const size_t bytes = (size_t)unit_at(s, unit)->count * dtype_bytes(s->type);
  TRY(dev_retire(transfer(s), slot->at, bytes));
  TRY(dev_record(slot->reduced, transfer(s)));
  slot->taken = false;
  slot->used = true;
  slot->turn = ++s->turn;
  return ERR_OK;
}

/* As an allocator would that did not know of the other stream: what the next owner begins with. */
static enum err reuse(struct staging *s, int unit)
{
  return dev_begin(s->given.compute, staging_at(s, unit), (size_t)unit_at(s, unit)->count * dtype_bytes(s->type));
}

/* --- reductions -------------------------------------------------------------------------------- */

/* All of a bucket, and this rank's part of it. */
static enum err reduce_scatter(struct staging *s, const struct tensor *bucket, struct tensor *mine)
{
  struct dev_stream *t = transfer(s);
  const int ranks = s->given.flat->shards, rank = comm_group_rank(s->given.comm);
  const int64_t each = bucket->cols / ranks;
  struct tensor sent = *bucket;
  if (s->rounded.at) sent = tensor_at(s->rounded.at, s->rounded.type, 1, bucket->cols);
  if (s->rounded.at) TRY(op_copy(t, &sent, bucket));
  const struct tensor all = tensor_at(sent.at, sent.type, ranks, each), part = tensor_part(&all, rank, 1, 0, each);
  TRY(comm_reduce_scatter(s->given.comm, &part, &all, COMM_SUM));
  *mine = tensor_part(bucket, 0, 1, rank * each, each);
  return s->rounded.at ? op_copy(t, mine, &part) : ERR_OK;
}

enum err staging_reduce(struct staging *s, int b)
{
  const struct flat_bucket *k = &s->given.flat->buckets[b];
  const int unit = flat_unit_of(s->given.flat, k->first_row);
  BUG_IF(unit < 0);
  TRY(staging_begin(s, unit));
  const int64_t ranks = s->given.flat->shards, first = k->first - unit_at(s, unit)->first;
  char *const at = (char *)staging_at(s, unit) + (size_t)first * dtype_bytes(s->type);
  const struct tensor bucket = tensor_at(at, s->type, 1, k->count),
                      sum = tensor_part(&s->shard, 0, 1, k->first / ranks, k->count / ranks);
  struct tensor mine;
  TRY(dev_record(s->computed, s->given.compute));
  TRY(dev_wait(transfer(s), s->computed));
  TRY(reduce_scatter(s, &bucket, &mine));
  if (s->first) TRY(op_copy(transfer(s), &sum, &mine));
  else TRY(op_accumulate(transfer(s), &sum, &mine));
  if (--s->left[unit] == 0) TRY(release(s, unit));
  if (fault_is(FAULT_OV_MEMORY_RECYCLED_BEFORE_USE) && s->left[unit] == 0) TRY(reuse(s, unit));
  if (s->given.run->overlap) return ERR_OK;
  TRY(dev_record(s->done, transfer(s)));
  return dev_wait(s->given.compute, s->done);
}

/* Over the groups of ranks that share, this rank's part of each bucket. */
static enum err sum_over_groups(struct staging *s)
{
  for (int b = 0; s->given.replicas && b < s->given.flat->n_buckets; b++) {
    const int64_t ranks = s->given.flat->shards, each = s->given.flat->buckets[b].count / ranks;
    const struct tensor mine = tensor_part(&s->shard, 0, 1, s->given.flat->buckets[b].first / ranks, each);
    TRY(rounded_allreduce(s->given.replicas, &mine, &s->rounded));
  }
  return ERR_OK;
}

enum err staging_finish(struct staging *s, int64_t i, int64_t n)
{
  const struct flat *f = s->given.flat;
  for (int u = 0; u < f->n_units; u++) {
    if (s->slot_of[u] >= 0 && s->left[u] > 0) FAIL(ERR_ARG, "staging: %d buckets of unit %d are not reduced", s->left[u], u);
    s->slot_of[u] = -1;
  }
  s->first = i == n - 1;
  if (i < n - 1) return ERR_OK;
  TRY(sum_over_groups(s));
  TRY(dev_record(s->done, transfer(s)));
  return dev_wait(s->given.compute, s->done);
}
