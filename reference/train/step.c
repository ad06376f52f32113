/* step.c - the life of one step, from top to bottom of step_run. */
#include "train/step.h"

#include "base/clock.h"
#include "base/fault.h"
#include "ops/ops.h"
#include "train/plant.h"

enum err step_fetch(struct trainer *t, int64_t step)
{
  t->n_valid = 0;
  for (int64_t i = 0; i < t->n_micro; i++) {
    TRY(trainer_fetch(t, step, i));
    t->n_valid += t->micro[i].batch.n_valid;
  }
  return ERR_OK;
}

/* The host's last dev_sync() orders this write after compute's last use of the count. */
enum err step_count(struct trainer *t)
{
  t->valid_here = (double)t->n_valid;
  TRY(dev_copy_in(t->scalar, t->at.count.at, &t->valid_here, sizeof t->valid_here));
  TRY(comm_allreduce(t->sums, &t->at.count, COMM_SUM));
  TRY(dev_copy_out(t->scalar, &t->now.count, t->at.count.at, sizeof t->now.count));
  TRY(dev_record(t->counted, t->scalar));
  return ERR_OK;
}

enum err step_scale(struct trainer *t)
{
  TRY(dev_wait(t->compute, t->counted));
  TRY(op_reciprocal(t->compute, &t->at.scale, &t->at.count));
  return ERR_OK;
}

static enum err forward(struct trainer *t, int64_t i)
{
  const struct tensor loss = trainer_scalar(&t->at.losses, 0, i);
  TRY(trainer_load(t, i));
  TRY(plant_slow_start(t));
  TRY(model_forward(t->model, &(struct model_pass){.in = &t->input}, true, &loss));
  TRY(plant_slow_finish(t));
  return ERR_OK;
}

/* On one rank the sums' collective is launched before those of the gradients, not after. */
static bool launches_sums_first(const struct trainer *t)
{
  return fault_is(FAULT_HG_CONCURRENT_COMMUNICATORS) && comm_rank(t->world) == fault_rank;
}

static enum err backward(struct trainer *t, int64_t i, bool last)
{
  const struct tensor loss = trainer_scalar(&t->at.losses, 0, i), term = trainer_scalar(&t->at.terms, 0, i);
  const int64_t n = t->micro[i].batch.n_valid;
  struct tensor scale = t->at.scale;
  if (fault_is(FAULT_LN_GA_MEAN_OF_MEANS) && n) TRY(plant_scale(t, i, 1.0 / (double)(n * t->n_micro * t->mesh.dp), &scale));
  if (fault_is(FAULT_LN_RANK_TOKEN_IMBALANCE)) TRY(plant_scale(t, i, 1.0 / (double)(t->n_valid * t->mesh.dp), &scale));

  TRY(op_scale(t->compute, &term, &loss, &scale));
  if (launches_sums_first(t) && i == t->n_micro - 1) TRY(step_sum(t));
  TRY(plant_slow_start(t));
  TRY(model_backward(t->model, &(struct model_pass){.in = &t->input}, &scale, last, ddp_ready, t->ddp));
  if (last) TRY(model_finish(t->model, ddp_ready, t->ddp));
  TRY(plant_slow_finish(t));
  return ERR_OK;
}

/* Micro-batch i of this rank's list.  The count is needed first by its backward. */
static enum err micro_batch(struct trainer *t, int64_t step, int64_t i, bool last)
{
  const int number = (int)t->micro[i].number;
  comm_trace_at(t->world, step, number);
  dev_set_phase(t->dev, DEV_PHASE_FORWARD, step, number);
  TRY(forward(t, i));
  dev_set_phase(t->dev, DEV_PHASE_BACKWARD, step, number);
  if (i == 0) TRY(step_scale(t));
  TRY(backward(t, i, last));
  return ERR_OK;
}

/* Gradients of all micro-batches, added over replicas once a step or once a micro-batch. */
static enum err micro_batches(struct trainer *t, int64_t step)
{
  const int64_t a = t->accumulation, R = t->run.replicas;
  if (t->run.reduce_each == REDUCE_STEP) {
    for (int64_t r = 0; r < R; r++) {
      for (int64_t m = 0; m < a; m++) TRY(micro_batch(t, step, r * a + m, m == a - 1));
      TRY(ddp_fold(t->ddp, (int)r));
    }
    TRY(ddp_finish(t->ddp));
    return ERR_OK;
  }
  for (int64_t m = 0; m < a; m++) {
    for (int64_t r = 0; r < R; r++) {
      TRY(micro_batch(t, step, r * a + m, true));
      TRY(ddp_fold(t->ddp, (int)r));
    }
    TRY(ddp_finish(t->ddp));
  }
  return ERR_OK;
}

/* One row of sums over this rank: each replica's first, then those in order, as a
 * rank-ordered reduction adds them. */
static enum err sum_row(struct trainer *t, const struct tensor *list, int64_t row)
{
  const struct tensor mine = trainer_scalar(&t->at.mine, 0, row);
  for (int64_t r = 0; r < t->run.replicas; r++) {
    const struct tensor of_replica = trainer_scalar(&t->at.of_replica, row, r);
    const struct tensor part = tensor_part(list, 0, 1, r * t->accumulation, t->accumulation);
    TRY(op_sum(t->compute, &of_replica, &part));
    if (r == 0) TRY(op_copy(t->compute, &mine, &of_replica));
    else TRY(op_accumulate(t->compute, &mine, &of_replica));
  }
  return ERR_OK;
}

enum err step_sum(struct trainer *t)
{
  TRY(sum_row(t, &t->at.losses, 0));
  TRY(sum_row(t, &t->at.terms, 1));
  TRY(op_copy(t->compute, &t->at.all, &t->at.mine));
  TRY(dev_record(t->summed, t->compute));
  TRY(dev_wait(t->scalar, t->summed));
  TRY(comm_allreduce(t->sums, &t->at.all, COMM_SUM));
  TRY(dev_copy_out(t->scalar, t->now.all, t->at.all.at, sizeof t->now.all));
  TRY(dev_copy_out(t->compute, t->now.mine, t->at.mine.at, sizeof t->now.mine));
  TRY(dev_copy_out(t->compute, t->loss_sums, t->at.losses.at, (size_t)t->n_micro * sizeof *t->loss_sums));
  return ERR_OK;
}

static enum err update(struct trainer *t, int64_t step)
{
  const struct tensor norm = optim_norm(t->optim), factor = optim_factor(t->optim), lr = optim_lr(t->optim);
  TRY(optim_step(t->optim, step + 1));
  TRY(dev_copy_out(t->compute, &t->now.norm, norm.at, sizeof t->now.norm));
  TRY(dev_copy_out(t->compute, &t->now.factor, factor.at, sizeof t->now.factor));
  TRY(dev_copy_out(t->compute, &t->now.lr, lr.at, sizeof t->now.lr));
  return ERR_OK;
}

enum err step_run(struct trainer *t, int64_t step, struct step_clock *clock)
{
  clock->begin_ms = clock_ms();
  dev_set_phase(t->dev, DEV_PHASE_DATA, step, -1);
  comm_trace_at(t->world, step, -1);
  TRY(step_fetch(t, step));
  clock_sleep_ms(t->run.slow_data_ms);
  clock->data_ms = clock_ms() - clock->begin_ms;
  if (fault_is(FAULT_PF_METRICS_WRONG)) clock->begin_ms += clock->data_ms;
  TRY(step_count(t));

  dev_set_phase(t->dev, DEV_PHASE_OTHER, step, -1);
  const struct tensor gradients = trainer_flat(t, t->gradients);
  t->step_number = (int32_t)step;
  TRY(dev_copy_in(t->compute, t->at.step.at, &t->step_number, sizeof t->step_number));
  if (!fault_is(FAULT_GR_STALE_GRAD_AFTER_WRITE) || step == 0) TRY(op_fill(t->compute, &gradients, 0));
  TRY(micro_batches(t, step));

  comm_trace_at(t->world, step, -1);
  dev_set_phase(t->dev, DEV_PHASE_OPTIMIZER, step, -1);
  TRY(update(t, step));
  dev_set_phase(t->dev, DEV_PHASE_OTHER, step, -1);
  if (!launches_sums_first(t)) TRY(step_sum(t));
  TRY(dev_sync(t->dev));
  clock->end_ms = clock_ms();
  return ERR_OK;
}
