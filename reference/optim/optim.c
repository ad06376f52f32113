/* optim.c - one update over the flat buffers, row by row.
 *
 * Order of one step, all on the compute stream: learning rate and update number arrive;
 * sum of squares of each row's gradient into its own place; their sum in table order;
 * norm and clip factor; the rule, row by row, with decay where the table says so.
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

/* On the device, in one block; then one f64 per trained row. */
struct scalars {
  struct numbers now;
  double norm, factor, squares;
};

struct optim {
  const struct run_config *run;
  const struct param_table *table;
  const struct flat *flat;
  struct dev *dev;
  struct dev_stream *compute;
  enum dtype type;
  char *weights, *gradients, *moments1, *moments2;
  struct scalars *scalars; /* device */
  double *parts;           /* device: squares of each trained row, in table order */
  int n_trained;
  int *trained; /* their rows */

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
  const struct param *p = &o->table->rows[row];
  return tensor_at(flat + (size_t)o->flat->offset[row] * dtype_bytes(o->type), o->type, p->rows, p->cols);
}

static struct tensor scalar(double *at) { return tensor_at(at, DTYPE_F64, 1, 1); }

static enum err allocate(struct optim *o)
{
  const size_t flat_bytes = (size_t)o->flat->count * dtype_bytes(o->type);
  void *at = NULL;
  TRY(dev_alloc(o->dev, sizeof *o->scalars + (size_t)o->n_trained * sizeof(double), DEV_OPTIMIZER, "optimizer scalars", &at));
  o->scalars = at;
  o->parts = (double *)(o->scalars + 1);
  for (int i = 0; i < OPTIM_AHEAD; i++) TRY(dev_event_create(o->dev, &o->copied[i]));
  if (o->run->optimizer == OPTIMIZER_SGD) return ERR_OK;

  TRY(dev_alloc(o->dev, flat_bytes, DEV_OPTIMIZER, "first moments", &at));
  o->moments1 = at;
  TRY(dev_alloc(o->dev, flat_bytes, DEV_OPTIMIZER, "second moments", &at));
  o->moments2 = at;
  const struct tensor m = tensor_at(o->moments1, o->type, 1, o->flat->count);
  const struct tensor v = tensor_at(o->moments2, o->type, 1, o->flat->count);
  TRY(op_fill(o->compute, &m, 0.0));
  return op_fill(o->compute, &v, 0.0);
}

enum err optim_create(const struct run_config *run, const struct param_table *table, const struct flat *flat, struct dev *d,
                      struct dev_stream *compute, void *weights, void *gradients, struct optim **out)
{
  enum err err;
  *out = NULL;
  struct optim *o = calloc(1, sizeof *o);
  if (o == NULL) FAIL(ERR_MEMORY, "optimizer: %zu bytes", sizeof *o);
  o->run = run;
  o->table = table;
  o->flat = flat;
  o->dev = d;
  o->compute = compute;
  o->type = (enum dtype)run->precision;
  o->weights = weights;
  o->gradients = gradients;
  o->trained = malloc((size_t)table->n * sizeof *o->trained);
  if (o->trained == NULL) FAIL_TO(destroy, ERR_MEMORY, "optimizer: %d rows", table->n);
  for (int i = 0; i < table->n; i++)
    if (table->rows[i].shared_with < 0 && !table->rows[i].frozen) o->trained[o->n_trained++] = i;
  if (o->n_trained == 0) FAIL_TO(destroy, ERR_CONFIG, "frozen: '%s' leaves no parameter to train", run->frozen);
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
  dev_sync_stream(o->compute); /* an error of its work is the caller's to see at its own synchronisation */
  for (int i = 0; i < OPTIM_AHEAD; i++)
    if (o->copied[i]) dev_event_destroy(o->copied[i]);
  dev_free(o->dev, o->scalars);
  dev_free(o->dev, o->moments1);
  dev_free(o->dev, o->moments2);
  free(o->trained);
  free(o);
}

static enum err send_numbers(struct optim *o, int64_t update)
{
  int64_t scheduled = update;
  if (fault_is(FAULT_OPT_LR_STEPS_BY_WORLD)) scheduled *= o->run->global_batch / o->run->micro_batch; /* once per micro-batch of any rank */

  const int place = (int)(o->queued % OPTIM_AHEAD);
  if (o->queued >= OPTIM_AHEAD) TRY(dev_sync_event(o->copied[place]));
  TRY(dev_host_touch(o->dev, &o->ring[place], sizeof o->ring[place], true));
  o->ring[place] = (struct numbers){optim_lr_at(o->run, scheduled), update};
  TRY(dev_copy_in(o->compute, &o->scalars->now, &o->ring[place], sizeof o->ring[place]));
  TRY(dev_record(o->copied[place], o->compute));
  o->queued++;
  return ERR_OK;
}

static enum err find_factor(struct optim *o)
{
  for (int k = 0; k < o->n_trained; k++) {
    const struct tensor g = row_of(o, o->gradients, o->trained[k]), part = scalar(&o->parts[k]);
    TRY(op_sum_squares(o->compute, &part, &g));
  }
  const struct tensor parts = tensor_at(o->parts, DTYPE_F64, 1, o->n_trained);
  const struct tensor squares = scalar(&o->scalars->squares), norm = optim_norm(o), factor = optim_factor(o);
  TRY(op_sum(o->compute, &squares, &parts));
  return op_clip_factor(o->compute, &factor, &norm, &squares, o->run->clip);
}

static enum err update_row(struct optim *o, int row)
{
  const struct tensor w = row_of(o, o->weights, row), g = row_of(o, o->gradients, row);
  const struct tensor lr = optim_lr(o), factor = optim_factor(o);
  const double decay = o->table->rows[row].decay ? o->run->weight_decay : 0.0;
  if (o->run->optimizer == OPTIMIZER_SGD) return op_sgd(o->compute, &w, &g, &lr, &factor, decay);

  const struct op_adamw rule = {o->run->beta1, o->run->beta2, o->run->eps, decay};
  const struct tensor m = row_of(o, o->moments1, row), v = row_of(o, o->moments2, row);
  const struct tensor t = tensor_at(&o->scalars->now.update, DTYPE_I64, 1, 1);
  return op_adamw(o->compute, &w, &m, &v, &g, &lr, &t, &factor, &rule);
}

enum err optim_step(struct optim *o, int64_t update)
{
  if (update < 1) FAIL(ERR_ARG, "update %lld; the first is 1", (long long)update);
  TRY(send_numbers(o, update));
  TRY(find_factor(o));
  for (int k = 0; k < o->n_trained; k++) TRY(update_row(o, o->trained[k]));
  return ERR_OK;
}

struct tensor optim_norm(const struct optim *o) { return scalar(&o->scalars->norm); }
struct tensor optim_factor(const struct optim *o) { return scalar(&o->scalars->factor); }
struct tensor optim_lr(const struct optim *o) { return scalar(&o->scalars->now.lr); }
void *optim_moments1(const struct optim *o) { return o->moments1; }
void *optim_moments2(const struct optim *o) { return o->moments2; }
