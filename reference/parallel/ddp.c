/* ddp.c - gradient buckets: when each is reduced, and what the compute stream waits for. */
#include "parallel/ddp.h"

#include "parallel/rounded.h"
#include "parallel/staging.h"

#include "base/fault.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <stdlib.h>

struct ddp {
  const struct param_table *table;
  const struct flat *flat;
  struct comm *comm, *groups;      /* groups: ddp_config.replicas */
  struct dev_stream *compute;
  struct dev_event *computed, *reduced;
  struct tensor gradients;         /* [1, flat->count]; with `staging` at NULL */
  struct staging *staging;         /* has the gradients unit by unit, or NULL  */
  struct tensor replica_sum, step_sum; /* of the same shape; at NULL where not needed */
  struct tensor *group_sums;       /* [n_groups] of the same shape: emulated groups of replicas that share; NULL: one group */
  int n_groups;
  bool sharded, each;              /* sums end in shards; a reduction after each micro-batch */
  struct tensor rounded;           /* [1, largest bucket], what a reduction adds; at NULL: the gradients themselves */
  struct tensor largest;           /* ddp_largest */
  int64_t bucket;                  /* as asked for, elements */
  int64_t microbatches, microbatch; /* of one replica in a step; reduced so far */
  int replicas, folded;
  bool overlap, tied;
  bool *ready;                     /* rows, in this backward */
  int rows_ready;
  int next;                        /* bucket to be reduced next */
  struct err_saved failure;        /* of ddp_ready, which cannot return it */
};

static enum err buffer(struct ddp *d, const char *owner, struct tensor *out)
{
  void *at;
  const size_t bytes = (size_t)d->flat->count * dtype_bytes(d->gradients.type);
  TRY(dev_alloc(dev_of(d->compute), bytes, DEV_GRADIENTS, owner, &at));
  *out = tensor_at(at, d->gradients.type, 1, d->flat->count);
  return ERR_OK;
}

static enum err check(const struct ddp_config *c)
{
  const struct run_config *run = c->run;
  const int ranks = (c->comm ? comm_group_size(c->comm) : 1) * (c->replicas ? comm_group_size(c->replicas) : 1);
  if (run->dp != ranks) FAIL(ERR_ARG, "dp: %" PRId64 " over a group of %d ranks", run->dp, ranks);
  if (run->dp > 1 && run->replicas > 1) FAIL(ERR_CONFIG, "replicas: %" PRId64 " with dp: %" PRId64 "; valid: 1", run->replicas, run->dp);
  return ERR_OK;
}

/* What is kept beside the gradients. */
static enum err create_sums(struct ddp *d)
{
  if (d->replicas > 1) TRY(buffer(d, "gradients of emulated replicas", &d->replica_sum));
  if (d->n_groups == 1 && d->each) TRY(buffer(d, "gradients of the step", &d->step_sum));
  if (d->n_groups == 1) return ERR_OK;
  d->group_sums = calloc((size_t)d->n_groups, sizeof *d->group_sums);
  if (d->group_sums == NULL) FAIL(ERR_MEMORY, "ddp: %d groups", d->n_groups);
  for (int g = 0; g < d->n_groups; g++) TRY(buffer(d, "gradients of an emulated group", &d->group_sums[g]));
  return ERR_OK;
}

static enum err make_room_to_look(struct ddp *d)
{
  void *at;
  const int64_t rows = (d->each ? d->microbatches : 1) * d->replicas, buckets = d->flat->n_buckets;
  TRY(dev_alloc(dev_of(d->compute), (size_t)(rows * buckets) * sizeof(double), DEV_OTHER, "largest gradients", &at));
  d->largest = tensor_at(at, DTYPE_F64, rows, buckets);
  return ERR_OK;
}

enum err ddp_create(const struct ddp_config *config, struct ddp **out)
{
  enum err err = ERR_OK;
  const struct run_config *run = config->run;
  *out = NULL;
  TRY(check(config));
  struct ddp *d = calloc(1, sizeof *d);
  if (d == NULL) FAIL(ERR_MEMORY, "ddp: %zu bytes", sizeof *d);
  d->table = config->table;
  d->flat = config->flat;
  d->comm = config->comm;
  d->groups = config->replicas;
  d->compute = config->compute;
  d->gradients = tensor_at(ddp_stages(run) ? NULL : config->gradients, run_state_type(run), 1, d->flat->count);
  d->bucket = run->bucket;
  d->replicas = (int)run->replicas;
  d->n_groups = run->zero > 0 && d->replicas > 1 ? d->replicas / d->flat->shards : 1;
  d->microbatches = run->global_batch / (run->micro_batch * run->dp * run->replicas);
  d->overlap = run->overlap && d->replicas == 1;
  d->tied = run->tied;
  d->sharded = run->zero > 0 && run->dp > 1;
  d->each = run->reduce_each == REDUCE_MICROBATCH;
  d->ready = calloc((size_t)d->table->n, sizeof *d->ready);
  if (d->ready == NULL) FAIL_TO(fail, ERR_MEMORY, "ddp: %zu bytes", (size_t)d->table->n * sizeof *d->ready);
  TRY_TO(fail, dev_event_create(dev_of(d->compute), &d->computed));
  TRY_TO(fail, dev_event_create(dev_of(d->compute), &d->reduced));
  if (run->loss_scale > 0) TRY_TO(fail, make_room_to_look(d));
  enum dtype type = run_reduce_type(run);
  if (fault_is(FAULT_Z_REDUCE_DTYPE_SILENTLY_LOW)) type = DTYPE_BF16;
  if (ddp_stages(run)) {
    const struct staging_config staging = {.run = run, .flat = d->flat, .comm = d->comm, .replicas = d->groups,
                                           .compute = d->compute, .reduced = type, .shard = config->gradients};
    TRY_TO(fail, staging_create(&staging, &d->staging));
    *out = d;
    return ERR_OK;
  }
  TRY_TO(fail, create_sums(d));
  if (type != d->gradients.type && run->dp * run->replicas > 1) TRY_TO(fail, rounded_room(dev_of(d->compute), d->flat, type, &d->rounded));
  if (fault_is(FAULT_OV_BUFFER_OVERWRITTEN_WHILE_IN_FLIGHT) && d->comm)
    comm_delay(d->comm, 300 * fault_strength / d->flat->n_buckets); /* late in all, however many */
  *out = d;
  return ERR_OK;

fail:
  ddp_destroy(d);
  return err;
}

void ddp_destroy(struct ddp *d)
{
  if (d == NULL) return;
  for (int g = 0; d->group_sums && g < d->n_groups; g++) dev_free(dev_of(d->compute), d->group_sums[g].at);
  free(d->group_sums);
  staging_destroy(d->staging);
  dev_free(dev_of(d->compute), d->largest.at);
  dev_free(dev_of(d->compute), d->rounded.at);
  dev_free(dev_of(d->compute), d->step_sum.at);
  dev_free(dev_of(d->compute), d->replica_sum.at);
  dev_event_destroy(d->reduced);
  dev_event_destroy(d->computed);
  free(d->ready);
  free(d);
}

bool ddp_stages(const struct run_config *run)
{
  return run->zero >= 2 && run->dp > 1 && run->reduce_each == REDUCE_MICROBATCH;
}

void *ddp_gradients(const struct ddp *d, int unit)
{
  if (d->staging) return staging_at(d->staging, unit);
  return (char *)d->gradients.at + (size_t)d->flat->units[unit].first * dtype_bytes(d->gradients.type);
}

enum err ddp_begin(struct ddp *d, int unit)
{
  if (unit < 0 || unit >= d->flat->n_units) FAIL(ERR_ARG, "unit %d of %d", unit, d->flat->n_units);
  return d->staging ? staging_begin(d->staging, unit) : ERR_OK;
}

/* --- buckets ------------------------------------------------------------------- */

/* Of a bucket as it stands in `all`, this rank's piece. */
static struct tensor piece_of(const struct ddp *d, const struct tensor *all)
{
  const int64_t part = all->cols / d->flat->shards;
  return d->sharded ? tensor_part(all, 0, 1, part * comm_group_rank(d->comm), part) : *all;
}

/* Over the ranks that share, or over all; then, if that was the last of the step, over the groups of those that share. */
static enum err sum_over_ranks(struct ddp *d, const struct tensor *sent)
{
  const struct tensor mine = piece_of(d, sent);
  const struct tensor parts = tensor_at(sent->at, sent->type, d->flat->shards, sent->cols / d->flat->shards);
  if (d->sharded) TRY(comm_reduce_scatter(d->comm, &mine, &parts, COMM_SUM));
  else TRY(comm_allreduce(d->comm, sent, COMM_SUM));
  if (d->groups && !d->each) TRY(comm_allreduce(d->groups, &mine, COMM_SUM));
  return ERR_OK;
}

/* All that the compute stream was given so far, then the sum over ranks of these elements. */
static enum err reduce(struct ddp *d, int64_t first, int64_t count)
{
  if (d->comm == NULL) return ERR_OK;
  struct dev_stream *s = comm_stream(d->comm);
  const struct tensor t = tensor_part(&d->gradients, 0, 1, first, count);
  const struct tensor sent = d->rounded.at ? tensor_part(&d->rounded, 0, 1, 0, count) : t;
  TRY(dev_record(d->computed, d->compute));
  TRY(dev_wait(s, d->computed));
  if (d->rounded.at) TRY(op_copy(s, &sent, &t));
  TRY(sum_over_ranks(d, &sent));
  const struct tensor summed = piece_of(d, &sent), mine = piece_of(d, &t);
  if (d->rounded.at) TRY(op_copy(s, &mine, &summed));
  /* as when the collective wrote a poisoned buffer from its second element on */
  if (fault_is(FAULT_Z_UNINITIALISED_COMM_BUFFER)) TRY(dev_begin(s, t.at, dtype_bytes(t.type)));
  return ERR_OK;
}

/* The compute stream goes on when all reductions given so far are done. */
static enum err wait_for_reductions(struct ddp *d)
{
  if (d->comm == NULL) return ERR_OK;
  TRY(dev_record(d->reduced, comm_stream(d->comm)));
  if (fault_is(FAULT_OV_BUFFER_OVERWRITTEN_WHILE_IN_FLIGHT) && d->overlap) return ERR_OK;
  TRY(dev_wait(d->compute, d->reduced));
  return ERR_OK;
}

/* The pieces of all micro-batches, over the groups of ranks that share. */
static enum err sum_over_groups(struct ddp *d)
{
  struct dev_stream *s = comm_stream(d->comm);
  TRY(dev_record(d->computed, d->compute));
  TRY(dev_wait(s, d->computed));
  for (int b = 0; b < d->flat->n_buckets; b++) {
    const struct flat_bucket *k = &d->flat->buckets[b];
    const struct tensor all = tensor_part(&d->gradients, 0, 1, k->first, k->count), mine = piece_of(d, &all);
    TRY(rounded_allreduce(d->groups, &mine, &d->rounded));
  }
  return wait_for_reductions(d);
}

/* What the reductions of the step left where other ranks' shards are: sums of nothing. */
static enum err retire_others(struct ddp *d)
{
  const size_t element = dtype_bytes(d->gradients.type);
  for (int b = 0; b < d->flat->n_buckets; b++) {
    const struct flat_bucket *k = &d->flat->buckets[b];
    const struct tensor all = tensor_part(&d->gradients, 0, 1, k->first, k->count), mine = piece_of(d, &all);
    const size_t before = (size_t)((char *)mine.at - (char *)all.at), piece = (size_t)mine.cols * element;
    TRY(dev_retire(d->compute, all.at, before));
    TRY(dev_retire(d->compute, (char *)mine.at + piece, (size_t)all.cols * element - before - piece));
  }
  return ERR_OK;
}

/* A row takes no part in backward if it is unused or not on this rank; one that shares storage is its owner's. */
static bool bucket_ready(const struct ddp *d, const struct flat_bucket *b)
{
  for (int i = b->first_row; i < b->first_row + b->rows; i++)
    if (!d->ready[i] && !d->table->rows[i].unused && d->table->rows[i].shared_with < 0 && d->flat->length[i] > 0) return false;
  return true;
}

/* Of a rank's or an emulated replica's own gradients, on the compute stream: before anything else is done to them. */
static enum err look(struct ddp *d, const struct flat_bucket *b, int r)
{
  if (d->largest.at == NULL) return ERR_OK;
  const int unit = flat_unit_of(d->flat, b->first_row);
  TRY(ddp_begin(d, unit));
  char *const at = (char *)ddp_gradients(d, unit) + (size_t)(b->first - d->flat->units[unit].first) * dtype_bytes(d->gradients.type);
  const struct tensor t = tensor_at(at, d->gradients.type, 1, b->count);
  const struct tensor place = tensor_part(&d->largest, d->microbatch * d->replicas + r, 1, b - d->flat->buckets, 1);
  return op_max_abs(d->compute, &place, &t);
}

struct tensor ddp_largest(const struct ddp *d) { return d->largest; }

static enum err reduce_bucket(struct ddp *d, const struct flat_bucket *b)
{
  if (d->replicas == 1) TRY(look(d, b, 0));
  if (d->staging) return staging_reduce(d->staging, (int)(b - d->flat->buckets));
  int64_t first = b->first;
  const int64_t end = b->first + b->count;
  if (fault_is(FAULT_GR_BUCKET_EXACT_FIT_SKIPPED) && b->rows == 1 && d->flat->length[b->first_row] == d->bucket) return ERR_OK;
  if (fault_is(FAULT_GR_TIED_PARAM_ONE_SLOT) && d->tied && first < d->flat->length[0]) first = d->flat->length[0];
  if (first < end) TRY(reduce(d, first, end - first));
  return ERR_OK;
}

/* Those that are ready, or all, in the order that is the same on every rank. */
static enum err reduce_buckets(struct ddp *d, bool all)
{
  while (d->next < d->flat->n_buckets && (all || bucket_ready(d, &d->flat->buckets[d->next])))
    TRY(reduce_bucket(d, &d->flat->buckets[d->next++]));
  return ERR_OK;
}

/* What no backward has started, told or not. */
static enum err reduce_rest(struct ddp *d)
{
  const bool hooks_only = fault_is(FAULT_PP_ZB_BYPASSES_HOOKS); /* as when nothing but the telling ever starts a reduction */
  for (; hooks_only && d->next < d->flat->n_buckets; d->next++)
    if (bucket_ready(d, &d->flat->buckets[d->next])) TRY(reduce_bucket(d, &d->flat->buckets[d->next]));
  return reduce_buckets(d, true);
}

static enum err row_ready(struct ddp *d, int row)
{
  if (row < 0 || row >= d->table->n) FAIL(ERR_ARG, "row %d ready; the table has %d", row, d->table->n);
  const int owner = d->table->rows[row].shared_with;
  d->ready[owner >= 0 ? owner : row] = true;
  /* the tied matrix is known under its first use alone: what the second adds comes too late */
  if (fault_is(FAULT_GR_TIED_PARAM_ONE_SLOT) && d->tied && d->rows_ready == 0) {
    TRY(reduce(d, 0, d->flat->length[0]));
    TRY(wait_for_reductions(d));
  }
  d->rows_ready++;
  if (d->overlap || d->staging) TRY(reduce_buckets(d, false)); /* a slot is needed again before the pass is over */
  return ERR_OK;
}

void ddp_ready(void *ddp, int row)
{
  struct ddp *d = ddp;
  if (d->failure.code == ERR_OK) {
    const enum err e = row_ready(d, row);
    if (e) err_save(&d->failure, e);
  }
}

/* --- sums ------------------------------------------------------------------------ */

/* Part `i` of `n`, in the gradients, is added to `sum`; the gradients are zero for the next
 * part, and the whole sum after the last.  The first is copied, so that no zero is added. */
static enum err add_part(struct ddp *d, const struct tensor *sum, int64_t i, int64_t n)
{
  if (i == 0)
    TRY(op_copy(d->compute, sum, &d->gradients));
  else
    TRY(op_accumulate(d->compute, sum, &d->gradients));
  if (i == n - 1)
    TRY(op_copy(d->compute, &d->gradients, sum));
  else
    TRY(op_fill(d->compute, &d->gradients, 0));
  return ERR_OK;
}

/* A flat buffer as a reduction takes and gives it. */
static enum err round_all(struct ddp *d, const struct tensor *all)
{
  for (int64_t first = 0; d->rounded.at && first < all->cols; first += d->rounded.cols) {
    const int64_t left = all->cols - first, count = left < d->rounded.cols ? left : d->rounded.cols;
    const struct tensor t = tensor_part(all, 0, 1, first, count), narrow = tensor_part(&d->rounded, 0, 1, 0, count);
    TRY(op_copy(d->compute, &narrow, &t));
    TRY(op_copy(d->compute, &t, &narrow));
  }
  return ERR_OK;
}

/* The sum of an emulated group, of this micro-batch or of all, joins what the group had in the step. */
static enum err join_group(struct ddp *d, int g)
{
  if (d->microbatch == 0) TRY(op_copy(d->compute, &d->group_sums[g], &d->gradients));
  else TRY(op_accumulate(d->compute, &d->group_sums[g], &d->gradients));
  return op_fill(d->compute, &d->gradients, 0);
}

/* The groups' sums of the step, in their order. */
static enum err add_groups(struct ddp *d)
{
  for (int g = 0; g < d->n_groups; g++) {
    TRY(round_all(d, &d->group_sums[g]));
    TRY(g == 0 ? op_copy(d->compute, &d->gradients, &d->group_sums[g]) : op_accumulate(d->compute, &d->gradients, &d->group_sums[g]));
  }
  return round_all(d, &d->gradients);
}

enum err ddp_fold(struct ddp *d, int r)
{
  const int each = d->replicas / d->n_groups; /* replicas of a group */
  if (d->replicas == 1) return ERR_OK;
  if (r != d->folded) FAIL(ERR_ARG, "replica %d folded; %d is next of %d", r, d->folded, d->replicas);
  for (int b = 0; b < d->flat->n_buckets; b++) TRY(look(d, &d->flat->buckets[b], r));
  TRY(round_all(d, &d->gradients));
  TRY(add_part(d, &d->replica_sum, r % each, each));
  if (r % each == each - 1) TRY(round_all(d, &d->gradients));
  if (r % each == each - 1 && d->n_groups > 1) TRY(join_group(d, r / each));
  d->folded = (r + 1) % d->replicas;
  return ERR_OK;
}

enum err ddp_finish(struct ddp *d)
{
  const bool last = !d->each || d->microbatch == d->microbatches - 1;
  if (d->failure.code != ERR_OK) return err_restore(&d->failure);
  if (d->folded != 0) FAIL(ERR_ARG, "finish after %d of %d replicas", d->folded, d->replicas);
  TRY(reduce_rest(d));
  if (d->staging) TRY(staging_finish(d->staging, d->microbatch, d->microbatches));
  else TRY(wait_for_reductions(d));
  for (int i = 0; i < d->table->n; i++) d->ready[i] = false;
  d->rows_ready = 0;
  d->next = 0;
  if (d->step_sum.at) TRY(add_part(d, &d->step_sum, d->microbatch, d->microbatches));
  if (d->n_groups > 1 && last) TRY(add_groups(d));
  if (d->groups && d->each && last && !d->staging) TRY(sum_over_groups(d));
  if (d->sharded && last && !d->staging) TRY(retire_others(d));
  d->microbatch = last ? 0 : d->microbatch + 1;
  return ERR_OK;
}
