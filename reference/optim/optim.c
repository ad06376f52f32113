/* optim.c - one update over the flat buffers, row by row.
 *
 * Order of one step, all on the compute stream: learning rate and update number arrive;
 * sum of squares of each row's gradient into its own place; those places summed over the
 * ranks that hold parts of the model; their sum in table order; norm and clip factor; the
 * rule, row by row, with decay where the table says so.
 */
#include "optim/optim.h"

#include "base/fault.h"
#include "ops/ops.h"

#include <math.h>
#include <stdlib.h>

/* What a step takes from the host, side by side so that one copy brings it. */
struct numbers {
  double lr;
  int64_t update;
};

/* On the device, in one block; then one f64 per row of the table. */
struct scalars {
  struct numbers now;
  double norm, factor, squares;
};

/* A row of the table that takes updates, on whatever rank. */
struct trained {
  int row;
  bool here, counts; /* this rank has a part of it, and sums its squares */
};

struct optim {
  struct optim_config given;
  enum dtype type;
  char *moments1, *moments2;
  struct scalars *scalars; /* device */
  double *parts;           /* device: squares of trained row k at k, in table order; the rest is not used */
  int n_trained;
  struct trained *trained;

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

static struct tensor row_of(const struct optim *o, char *flat, int row)
{
  const struct flat *f = o->given.flat;
  return tensor_at(flat + (size_t)f->offset[row] * dtype_bytes(o->type), o->type, f->rows[row], f->cols[row]);
}

/* Of the weights, as products read them; at NULL where they are the weights themselves. */
static struct tensor rounded_row(const struct optim *o, int row)
{
  const struct flat *f = o->given.flat;
  uint16_t *at = o->given.rounded;
  return tensor_at(at ? at + f->offset[row] : NULL, DTYPE_BF16, f->rows[row], f->cols[row]);
}

static struct tensor scalar(double *at) { return tensor_at(at, DTYPE_F64, 1, 1); }

static enum err allocate(struct optim *o)
{
  const size_t flat_bytes = (size_t)o->given.flat->count * dtype_bytes(o->type);
  void *at = NULL;
  TRY(dev_alloc(o->given.dev, sizeof *o->scalars + (size_t)o->given.table->n * sizeof(double), DEV_OPTIMIZER, "optimizer scalars", &at));
  o->scalars = at;
  o->parts = (double *)(o->scalars + 1);
  for (int i = 0; i < OPTIM_AHEAD; i++) TRY(dev_event_create(o->given.dev, &o->copied[i]));
  if (o->given.run->optimizer == OPTIMIZER_SGD) return ERR_OK;

  TRY(dev_alloc(o->given.dev, flat_bytes, DEV_OPTIMIZER, "first moments", &at));
  o->moments1 = at;
  TRY(dev_alloc(o->given.dev, flat_bytes, DEV_OPTIMIZER, "second moments", &at));
  o->moments2 = at;
  const struct tensor m = tensor_at(o->moments1, o->type, 1, o->given.flat->count);
  const struct tensor v = tensor_at(o->moments2, o->type, 1, o->given.flat->count);
  TRY(op_fill(o->given.compute, &m, 0.0));
  return op_fill(o->given.compute, &v, 0.0);
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
      o->trained[o->n_trained++] = (struct trained){i, o->given.flat->length[i] > 0, params_counts(table, i, &place)};
  if (o->n_trained == 0) FAIL(ERR_CONFIG, "frozen: '%s' leaves no parameter to train", o->given.run->frozen);
  return ERR_OK;
}

enum err optim_create(const struct optim_config *config, struct optim **out)
{
  enum err err;
  *out = NULL;
  struct optim *o = calloc(1, sizeof *o);
  if (o == NULL) FAIL(ERR_MEMORY, "optimizer: %zu bytes", sizeof *o);
  o->given = *config;
  o->type = run_state_type(config->run);
  TRY_TO(destroy, list_trained(o));
  TRY_TO(destroy, allocate(o));
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
  dev_free(o->given.dev, o->moments1);
  dev_free(o->given.dev, o->moments2);
  free(o->trained);
  free(o);
}

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

static enum err find_factor(struct optim *o)
{
  /* The group's call has a place for each row of the table, however many are trained. */
  const struct tensor all = tensor_at(o->parts, DTYPE_F64, 1, o->given.table->n);
  if (o->given.norm) TRY(op_fill(o->given.compute, &all, 0)); /* where this rank does not count */
  for (int k = 0; k < o->n_trained; k++) {
    if (!o->trained[k].counts) continue;
    const struct tensor g = row_of(o, o->given.gradients, o->trained[k].row), part = scalar(&o->parts[k]);
    TRY(op_sum_squares(o->given.compute, &part, &g));
  }
  if (o->given.norm) TRY(comm_allreduce(o->given.norm, &all, COMM_SUM));
  const struct tensor parts = tensor_at(o->parts, DTYPE_F64, 1, o->n_trained);
  const struct tensor squares = scalar(&o->scalars->squares), norm = optim_norm(o), factor = optim_factor(o);
  TRY(op_sum(o->given.compute, &squares, &parts));
  return op_clip_factor(o->given.compute, &factor, &norm, &squares, o->given.run->clip);
}

static enum err update_row(struct optim *o, int row)
{
  const struct tensor w = row_of(o, o->given.weights, row), g = row_of(o, o->given.gradients, row);
  const struct tensor lr = optim_lr(o), factor = optim_factor(o), copy = rounded_row(o, row);
  const struct tensor *rounded = copy.at ? &copy : NULL;
  const double decay = o->given.table->rows[row].decay ? o->given.run->weight_decay : 0.0;
  if (o->given.run->optimizer == OPTIMIZER_SGD) return op_sgd(o->given.compute, &w, rounded, &g, &lr, &factor, NULL, decay);

  const struct op_adamw rule = {o->given.run->beta1, o->given.run->beta2, o->given.run->eps, decay};
  const struct tensor m = row_of(o, o->moments1, row), v = row_of(o, o->moments2, row);
  const struct tensor t = tensor_at(&o->scalars->now.update, DTYPE_I64, 1, 1);
  return op_adamw(o->given.compute, &w, rounded, &m, &v, &g, &lr, &t, &factor, NULL, &rule);
}

enum err optim_step(struct optim *o, int64_t update)
{
  if (update < 1) FAIL(ERR_ARG, "update %lld; the first is 1", (long long)update);
  TRY(send_numbers(o, update));
  TRY(find_factor(o));
  for (int k = 0; k < o->n_trained; k++)
    if (o->trained[k].here) TRY(update_row(o, o->trained[k].row));
  return ERR_OK;
}

struct tensor optim_norm(const struct optim *o) { return scalar(&o->scalars->norm); }
struct tensor optim_factor(const struct optim *o) { return scalar(&o->scalars->factor); }
struct tensor optim_lr(const struct optim *o) { return scalar(&o->scalars->now.lr); }
void *optim_moments1(const struct optim *o) { return o->moments1; }
void *optim_moments2(const struct optim *o) { return o->moments2; }
