/* optim.c - one update over the flat buffers, piece by piece of each row.
 *
 * Order of one step, all on the compute stream: learning rate and update number arrive;
 * with a loss scale the ranks decide, and gradients are divided by it;
 * sum of squares of each row's gradient into its own place; those places summed over the shards,
 * then over the ranks that hold parts of the model; their sum in table order; norm and clip factor;
 * the rule, piece by piece, with decay where the table says so.
 */
#include "optim/optim.h"

#include "base/fault.h"
#include "ops/ops.h"
#include "optim/offload.h"

#include <math.h>
#include <stdlib.h>

/* What a step takes from the host, side by side so that one copy brings it. */
struct numbers {
  double lr;
  int64_t update;
};

/* On the device, in one block; then f64: for each shard that is here, one per row of the table; one per piece of the
 * row in most of them. */
struct scalars {
  struct numbers now;
  double norm, factor, squares;
};

/* A row of the table that takes updates, on whatever rank. */
struct trained {
  int row;
  bool counts; /* this rank sums its squares */
};

/* What this rank has of a shard: one of them, or all when it emulates them. */
struct part {
  struct flat_piece *pieces; /* in table order                                        */
  int n;
  int *first;                /* by row: its first piece; of the last row's end, too    */
};

struct optim {
  struct optim_config given;
  struct flat_buffer moments1, moments2;
  struct offload *offload; /* NULL: what updates keep is on the device */
  struct scalars *scalars; /* device */
  double *sums;            /* device: of shard part p, squares of trained row k at p * rows + k, in table order; the rest is not used */
  double *squares;         /* device: of the pieces of one row */
  int n_trained;
  struct trained *trained;
  int n_parts;
  struct part *parts;

  /* Host numbers must stay until the stream has copied them. */
  struct numbers ring[OPTIM_AHEAD];
  struct dev_event *copied[OPTIM_AHEAD];
  int64_t queued; /* steps so far */
};

double optim_lr_at(const struct run_config *run, int64_t update)
{
  const int64_t w = run->lr_warmup, d = run->lr_decay;
  if (update <= w) return run->lr * (double)update / (double)w;
  if (run->lr_schedule == LR_CONSTANT) return run->lr;
  if (update >= d) return run->lr_min;
  const double x = (double)(update - w) / (double)(d - w), pi = 3.14159265358979323846;
  return run->lr_min + (run->lr - run->lr_min) * (1.0 + cos(pi * x)) / 2.0;
}

static struct tensor scalar(double *at) { return tensor_at(at, DTYPE_F64, 1, 1); }

/* --- create and destroy ---------------------------------------------------------------- */

static int most_pieces(const struct optim *o)
{
  int most = 1;
  for (int p = 0; p < o->n_parts; p++)
    for (int i = 0; i < o->given.table->n; i++) {
      const int n = o->parts[p].first[i + 1] - o->parts[p].first[i];
      if (n > most) most = n;
    }
  return most;
}

static enum err create_moments(struct optim *o, const char *owner, struct flat_buffer *out)
{
  const enum dtype type = run_state_type(o->given.run);
  struct flat_buffer m = {.type = type, .hold = o->n_parts == o->given.flat->shards ? FLAT_WHOLE : FLAT_SHARD};
  if (o->given.run->offload == OFFLOAD_OPTIMIZER) return offload_buffer(o->given.dev, o->given.flat, owner, type, m.hold, out);
  const int64_t count = flat_buffer_count(o->given.flat, &m);
  TRY(dev_alloc(o->given.dev, (size_t)count * dtype_bytes(type), DEV_OPTIMIZER, owner, &m.at));
  *out = m;
  const struct tensor all = tensor_at(m.at, type, 1, count);
  return op_fill(o->given.compute, &all, 0.0);
}

static enum err allocate(struct optim *o)
{
  const int rows = o->given.table->n;
  const size_t numbers = (size_t)(o->n_parts * rows + most_pieces(o));
  void *at = NULL;
  TRY(dev_alloc(o->given.dev, sizeof *o->scalars + numbers * sizeof(double), DEV_OPTIMIZER, "optimizer scalars", &at));
  o->scalars = at;
  o->sums = (double *)(o->scalars + 1);
  o->squares = o->sums + (size_t)o->n_parts * (size_t)rows;
  for (int i = 0; i < OPTIM_AHEAD; i++) TRY(dev_event_create(o->given.dev, &o->copied[i]));
  if (o->given.run->optimizer == OPTIMIZER_SGD) return ERR_OK;
  TRY(create_moments(o, "first moments", &o->moments1));
  TRY(create_moments(o, "second moments", &o->moments2));
  return ERR_OK;
}

static enum err list_pieces(struct optim *o, int shard, struct part *p)
{
  const int rows = o->given.table->n;
  TRY(flat_pieces(o->given.flat, o->given.table, shard, &p->pieces, &p->n));
  p->first = malloc((size_t)(rows + 1) * sizeof *p->first);
  if (p->first == NULL) FAIL(ERR_MEMORY, "optimizer: pieces of %d rows", rows);
  for (int k = 1; fault_is(FAULT_Z_PADDING_STRIDE) && k < p->n; k++) /* as when no padding stood between them */
    p->pieces[k].shard = p->pieces[k - 1].shard + p->pieces[k - 1].count;
  for (int i = 0, k = 0; i <= rows; i++) {
    while (k < p->n && p->pieces[k].row < i) k++;
    p->first[i] = k;
  }
  return ERR_OK;
}

static enum err list_parts(struct optim *o)
{
  const bool all = o->given.run->replicas > 1;
  const int n = all ? o->given.flat->shards : 1;
  o->parts = calloc((size_t)n, sizeof *o->parts);
  if (o->parts == NULL) FAIL(ERR_MEMORY, "optimizer: %d shards", n);
  o->n_parts = n;
  for (int p = 0; p < n; p++) TRY(list_pieces(o, all ? p : o->given.shard, &o->parts[p]));
  return ERR_OK;
}

static enum err list_trained(struct optim *o)
{
  const struct param_table *table = o->given.table;
  struct params_place place = *o->given.place;
  if (fault_is(FAULT_CLIP_TP_DUPLICATE_UNDER_OR_OVER_COUNT)) place.tp_rank = 0; /* each counts as if it were the first */
  o->trained = malloc((size_t)table->n * sizeof *o->trained);
  if (o->trained == NULL) FAIL(ERR_MEMORY, "optimizer: %d rows", table->n);
  for (int i = 0; i < table->n; i++)
    if (table->rows[i].shared_with < 0 && !table->rows[i].frozen)
      o->trained[o->n_trained++] = (struct trained){i, params_counts(table, i, &place)};
  if (o->n_trained == 0) FAIL(ERR_CONFIG, "frozen: '%s' leaves no parameter to train", o->given.run->frozen);
  return ERR_OK;
}

/* What takes updates, of all shards that are here. */
static enum err list_updated(const struct optim *o, struct flat_piece **out, int *n)
{
  int most = 0;
  for (int p = 0; p < o->n_parts; p++) most += o->parts[p].n;
  *out = malloc((size_t)(most + 1) * sizeof **out);
  if (*out == NULL) FAIL(ERR_MEMORY, "optimizer: %d pieces", most);
  *n = 0;
  for (int p = 0; p < o->n_parts; p++)
    for (int k = 0; k < o->n_trained; k++) {
      const struct part *part = &o->parts[p];
      const int row = o->trained[k].row;
      for (int i = part->first[row]; i < part->first[row + 1]; i++) (*out)[(*n)++] = part->pieces[i];
    }
  return ERR_OK;
}

static enum err create_offload(struct optim *o)
{
  struct offload_config c = {.flat = o->given.flat, .compute = o->given.compute};
  struct flat_piece *pieces;
  if (o->given.weights.offloaded) c.buffers[c.n_buffers++] = o->given.weights;
  if (o->moments1.at) {
    c.buffers[c.n_buffers++] = o->moments1;
    c.buffers[c.n_buffers++] = o->moments2;
  }
  TRY(list_updated(o, &pieces, &c.n_pieces));
  c.pieces = pieces;
  const enum err err = offload_create(&c, &o->offload);
  free(pieces);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

enum err optim_create(const struct optim_config *config, struct optim **out)
{
  enum err err;
  *out = NULL;
  struct optim *o = calloc(1, sizeof *o);
  if (o == NULL) FAIL(ERR_MEMORY, "optimizer: %zu bytes", sizeof *o);
  o->given = *config;
  TRY_TO(destroy, list_trained(o));
  TRY_TO(destroy, list_parts(o));
  TRY_TO(destroy, allocate(o));
  if (o->given.run->offload == OFFLOAD_OPTIMIZER) TRY_TO(destroy, create_offload(o));
  *out = o;
  return ERR_OK;

destroy:
  optim_destroy(o);
  return err;
}

void optim_destroy(struct optim *o)
{
  if (o == NULL) return;
  dev_sync_stream(o->given.compute); /* an error of its work is the caller's to see at its own synchronisation */
  for (int i = 0; i < OPTIM_AHEAD; i++)
    if (o->copied[i]) dev_event_destroy(o->copied[i]);
  dev_free(o->given.dev, o->scalars);
  offload_destroy(o->offload);
  offload_free(o->given.dev, &o->moments1);
  offload_free(o->given.dev, &o->moments2);
  for (int p = 0; p < o->n_parts; p++) {
    free(o->parts[p].pieces);
    free(o->parts[p].first);
  }
  free(o->parts);
  free(o->trained);
  free(o);
}

/* --- a step ------------------------------------------------------------------------------ */

static enum err send_numbers(struct optim *o, int64_t update)
{
  int64_t scheduled = update;
  if (fault_is(FAULT_OPT_LR_STEPS_BY_WORLD)) scheduled *= o->given.run->global_batch / o->given.run->micro_batch; /* once per micro-batch of any rank */

  const int place = (int)(o->queued % OPTIM_AHEAD);
  if (o->queued >= OPTIM_AHEAD) TRY(dev_sync_event(o->copied[place]));
  TRY(dev_host_touch(o->given.dev, &o->ring[place], sizeof o->ring[place], true));
  o->ring[place] = (struct numbers){optim_lr_at(o->given.run, scheduled), update};
  TRY(dev_copy_in(o->given.compute, &o->scalars->now, &o->ring[place], sizeof o->ring[place]));
  TRY(dev_record(o->copied[place], o->given.compute));
  o->queued++;
  return ERR_OK;
}

static enum err multiply_gradients(struct optim *o, const struct tensor *factor)
{
  const struct flat_buffer *g = &o->given.gradients;
  const struct tensor all = tensor_at(g->at, g->type, 1, flat_buffer_count(o->given.flat, g));
  return op_scale(o->given.compute, &all, &all, factor);
}

/* As an optimizer did that was made for fp16 and knew no other type. */
static enum err divide_by_what_was_never_there(struct optim *o)
{
  const struct tensor inverse = scalar(&o->scalars->squares);
  TRY(op_fill(o->given.compute, &inverse, 0x1p-16));
  return multiply_gradients(o, &inverse);
}

/* The scale is a power of two: dividing by it loses nothing. */
static enum err unscale(struct optim *o)
{
  if (fault_is(FAULT_PR_BF16_DIVIDED_BY_FP16_SCALE) && run_work_type(o->given.run) == DTYPE_BF16) TRY(divide_by_what_was_never_there(o));
  if (o->given.scale == NULL) return ERR_OK;
  TRY(loss_scale_decide(o->given.scale));
  const struct tensor inverse = loss_scale_inverse(o->given.scale);
  return multiply_gradients(o, &inverse);
}

/* Squares of what a shard has of a row; nothing where that is nothing. */
static enum err sum_row(struct optim *o, const struct part *p, int row, const struct tensor *out)
{
  const int n = p->first[row + 1] - p->first[row];
  for (int k = 0; k < n; k++) {
    const struct tensor g = flat_view(&o->given.gradients, &p->pieces[p->first[row] + k]);
    const struct tensor alone = scalar(&o->squares[k]);
    TRY(op_sum_squares(o->given.compute, n == 1 ? out : &alone, &g));
  }
  const struct tensor all = tensor_at(o->squares, DTYPE_F64, 1, n);
  if (n > 1) TRY(op_sum(o->given.compute, out, &all));
  return ERR_OK;
}

/* Of each shard that is here, then of all, in their order. */
static enum err sum_shards(struct optim *o)
{
  /* A group's call has a place for each row of the table, however many are trained. */
  const int rows = o->given.table->n;
  const struct tensor all = tensor_at(o->sums, DTYPE_F64, 1, rows);
  for (int p = 0; p < o->n_parts; p++) {
    const struct tensor sums = tensor_at(o->sums + (size_t)p * (size_t)rows, DTYPE_F64, 1, rows);
    if (o->given.norm || o->given.flat->shards > 1) TRY(op_fill(o->given.compute, &sums, 0)); /* where nothing counts */
    for (int k = 0; k < o->n_trained; k++) {
      const struct tensor sum = tensor_part(&sums, 0, 1, k, 1);
      if (o->trained[k].counts) TRY(sum_row(o, &o->parts[p], o->trained[k].row, &sum));
    }
    if (p > 0) TRY(op_accumulate(o->given.compute, &all, &sums));
  }
  if (o->given.shards && !fault_is(FAULT_CLIP_LOCAL_NORM)) TRY(comm_allreduce(o->given.shards, &all, COMM_SUM));
  return ERR_OK;
}

static enum err round_to_half(struct optim *o, const struct tensor *x)
{
  const struct tensor half = tensor_at(&o->scalars->factor, DTYPE_F16, 1, 1); /* written after this */
  TRY(op_copy(o->given.compute, &half, x));
  return op_copy(o->given.compute, x, &half);
}

static enum err find_factor(struct optim *o)
{
  const struct tensor all = tensor_at(o->sums, DTYPE_F64, 1, o->given.table->n), sums = tensor_at(o->sums, DTYPE_F64, 1, o->n_trained);
  const struct tensor squares = scalar(&o->scalars->squares), norm = optim_norm(o), factor = optim_factor(o);
  TRY(sum_shards(o));
  if (o->given.norm) TRY(comm_allreduce(o->given.norm, &all, COMM_SUM));
  TRY(op_sum(o->given.compute, &squares, &sums));
  if (fault_is(FAULT_PR_GRAD_NORM_IN_FP16)) TRY(round_to_half(o, &squares));
  return op_clip_factor(o->given.compute, &factor, &norm, &squares, o->given.run->clip);
}

/* The same place of the next rank's piece of its bucket. */
static int64_t foreign_place(const struct flat *f, int64_t at)
{
  int b = 0;
  while (at >= f->buckets[b].first + f->buckets[b].count) b++;
  const struct flat_bucket *k = &f->buckets[b];
  return k->first + (at - k->first + k->count / f->shards) % k->count;
}

static struct tensor gradient_of(const struct optim *o, const struct flat_piece *p)
{
  struct flat_piece read = *p;
  if (fault_is(FAULT_Z_FOREIGN_PIECE) && o->given.gradients.hold == FLAT_PIECES) read.flat = foreign_place(o->given.flat, p->flat);
  return flat_view(&o->given.gradients, &read);
}

/* What is kept of a piece: w, m, v; the last two are not read under SGD. */
static enum err update_piece(struct optim *o, const struct flat_piece *p, const struct tensor kept[3])
{
  const struct tensor w = kept[0], m = kept[1], v = kept[2], g = gradient_of(o, p);
  const struct tensor lr = optim_lr(o), factor = optim_factor(o);
  const bool rounds = o->given.rounded.at != NULL;
  const struct tensor copy = rounds ? flat_view(&o->given.rounded, p) : w, *rounded = rounds ? &copy : NULL;
  const double decay = o->given.table->rows[p->row].decay ? o->given.run->weight_decay : 0.0;
  const struct tensor flag = o->given.scale ? loss_scale_skip(o->given.scale) : lr, *skip = o->given.scale ? &flag : NULL;
  if (o->given.run->optimizer == OPTIMIZER_SGD) return op_sgd(o->given.compute, &w, rounded, &g, &lr, &factor, skip, decay);

  const struct op_adamw rule = {o->given.run->beta1, o->given.run->beta2, o->given.run->eps, decay};
  const struct tensor t = tensor_at(&o->scalars->now.update, DTYPE_I64, 1, 1);
  return op_adamw(o->given.compute, &w, rounded, &m, &v, &g, &lr, &t, &factor, skip, &rule);
}

static enum err update_resident(struct optim *o, const struct flat_piece *p)
{
  const bool moments = o->moments1.at != NULL;
  const struct tensor none = {0}, kept[] = {flat_view(&o->given.weights, p), moments ? flat_view(&o->moments1, p) : none,
                                            moments ? flat_view(&o->moments2, p) : none};
  return update_piece(o, p, kept);
}

/* An offload_update: what is offloaded comes in the order of create_offload. */
static enum err update_offloaded(void *optim, const struct flat_piece *p, const struct tensor *state)
{
  struct optim *o = optim;
  const bool masters = o->given.weights.offloaded;
  const struct tensor kept[] = {masters ? state[0] : flat_view(&o->given.weights, p), state[masters], state[masters + 1]};
  return update_piece(o, p, kept);
}

enum err optim_step(struct optim *o, int64_t update)
{
  if (update < 1) FAIL(ERR_ARG, "update %lld; the first is 1", (long long)update);
  TRY(send_numbers(o, update));
  TRY(unscale(o));
  TRY(find_factor(o));
  if (fault_is(FAULT_PR_OVERFLOW_RETURN_MISPLACED) && o->given.scale) return ERR_OK; /* behind the question, whatever the answer */
  if (o->offload) return offload_walk(o->offload, update_offloaded, o);
  for (int p = 0; p < o->n_parts; p++)
    for (int k = 0; k < o->n_trained; k++) {
      const struct part *part = &o->parts[p];
      const int row = o->trained[k].row;
      for (int i = part->first[row]; i < part->first[row + 1]; i++) TRY(update_resident(o, &part->pieces[i]));
    }
  return ERR_OK;
}

enum err optim_settle(struct optim *o) { return o->offload ? offload_settle(o->offload) : ERR_OK; }

struct tensor optim_norm(const struct optim *o) { return scalar(&o->scalars->norm); }
struct tensor optim_factor(const struct optim *o) { return scalar(&o->scalars->factor); }
struct tensor optim_lr(const struct optim *o) { return scalar(&o->scalars->now.lr); }
struct flat_buffer optim_moments1(const struct optim *o) { return o->moments1; }
struct flat_buffer optim_moments2(const struct optim *o) { return o->moments2; }
