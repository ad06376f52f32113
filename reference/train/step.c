/* step.c - the life of one step, from top to bottom of step_run. */
#include "train/step.h"

#include "base/clock.h"
#include "base/fault.h"
#include "ops/ops.h"
#include "train/plant.h"

/* The host's last trainer_sync() orders this write after compute's last use of the count. */
enum err step_count(struct trainer *t)
{
  TRY(dev_host_touch(t->dev, &t->valid_here, sizeof t->valid_here, true));
  t->valid_here = trainer_has_loss(t) ? (double)t->n_valid : 0.0; /* once a replica */
  TRY(dev_copy_in(t->scalar, t->at.count.at, &t->valid_here, sizeof t->valid_here));
  TRY(comm_allreduce(t->groups.sums, &t->at.count, COMM_SUM));
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

/* Where pass a of the list being queued stands. */
static int64_t micro_of(const struct trainer *t, const struct schedule_action *a) { return t->first_micro + a->microbatch; }
static bool has_head(const struct trainer *t, const struct schedule_action *a)
{
  return trainer_has_loss(t) && a->chunk == (int)t->run.chunks - 1;
}

static struct model_pass model_pass_of(const struct trainer *t, const struct schedule_action *a)
{
  return (struct model_pass){.chunk = a->chunk, .slot = a->slot, .weight_slot = a->weight_slot, .input = a->input,
                             .in = &t->micro[micro_of(t, a)].input};
}

/* The weights of a pass are waited for as if they were read: unit by unit, one that is needed twice to the end. */
static enum err sleep_through(struct trainer *t, const struct schedule_action *a, double ms)
{
  struct zero_life *lives = t->pass_lives;
  const bool reads = t->run.zero > 0 && a->pass != PASS_BACKWARD_WEIGHT;
  const int n = reads ? model_lives(t->model, a->chunk, a->pass == PASS_FORWARD ? ZERO_FORWARD : ZERO_BACKWARD, lives) : 0;
  if (n == 0) return op_sleep(t->compute, ms);
  for (int i = 0; i < n; i++) {
    TRY(zero_need(t->zero, lives[i].unit, lives[i].pass));
    TRY(op_sleep(t->compute, ms / n));
    TRY(zero_done(t->zero, lives[i].unit));
  }
  for (int i = 0; i < n; i++) {
    if (lives[i].uses == 1) continue;
    TRY(zero_need(t->zero, lives[i].unit, lives[i].pass));
    TRY(zero_done(t->zero, lives[i].unit));
  }
  return ERR_OK;
}

/* compute: sleep.  The pass takes as long as its chunk's layers are said to, and leaves no numbers. */
static enum err sleep_instead(struct trainer *t, const struct schedule_action *a)
{
  const struct run_config *run = &t->run;
  const double each = a->pass == PASS_FORWARD          ? run->sleep_forward_ms
                      : a->pass == PASS_BACKWARD       ? run->sleep_input_ms + run->sleep_weight_ms
                      : a->pass == PASS_BACKWARD_INPUT ? run->sleep_input_ms
                                                       : run->sleep_weight_ms;
  const int stage = a->chunk * t->mesh.pp + t->mesh.pp_rank;
  const int64_t layers = t->place.partition.first[stage + 1] - t->place.partition.first[stage];
  const double head = has_head(t, a) ? run->sleep_head_ms * (a->pass == PASS_BACKWARD ? 2 : 1) : 0;
  const enum slow_phase part = a->pass == PASS_FORWARD ? SLOW_FORWARD : SLOW_BACKWARD;
  return sleep_through(t, a, plant_slow_sleep(t, part, (double)layers * each + head));
}

static enum err forward(struct trainer *t, const struct schedule_action *a)
{
  const int64_t i = micro_of(t, a);
  const struct tensor loss = trainer_scalar(&t->at.losses, 0, i);
  const struct model_pass pass = model_pass_of(t, a);
  dev_set_phase(t->dev, DEV_PHASE_FORWARD, t->step_number, (int)t->micro[i].number);
  if (a->chunk == 0) TRY(trainer_load(t, i));
  if (t->run.compute == COMPUTE_SLEEP) return sleep_instead(t, a);
  TRY(plant_slow_start(t, SLOW_FORWARD));
  TRY(model_forward(t->model, &pass, true, &loss));
  TRY(plant_slow_finish(t, SLOW_FORWARD));
  return ERR_OK;
}

/* On one rank the sums' collective is launched before those of the gradients, not after. */
static bool launches_sums_first(const struct trainer *t)
{
  return fault_is(FAULT_HG_CONCURRENT_COMMUNICATORS) && comm_rank(t->world) == fault_rank;
}

/* What the loss of micro-batch i is multiplied by; a fault changes it. */
static enum err scale_of(struct trainer *t, int64_t i, struct tensor *scale)
{
  const int64_t n = t->micro[i].batch.n_valid;
  *scale = t->at.scale;
  if (fault_is(FAULT_LN_GA_MEAN_OF_MEANS) && n) TRY(plant_scale(t, i, 1.0 / (double)(n * t->n_micro * t->mesh.dp), scale));
  if (fault_is(FAULT_LN_RANK_TOKEN_IMBALANCE)) TRY(plant_scale(t, i, 1.0 / (double)(t->n_valid * t->mesh.dp), scale));
  return ERR_OK;
}

/* The first backward of a step waits for the count of its tokens. */
static enum err backward(struct trainer *t, const struct schedule_action *a, bool last)
{
  const int64_t i = micro_of(t, a);
  const struct model_pass pass = model_pass_of(t, a);
  struct tensor scale;
  dev_set_phase(t->dev, DEV_PHASE_BACKWARD, t->step_number, (int)t->micro[i].number);
  if (!t->scaled) TRY(step_scale(t));
  t->scaled = true;
  TRY(scale_of(t, i, &scale));
  if (has_head(t, a)) {
    const struct tensor loss = trainer_scalar(&t->at.losses, 0, i), term = trainer_scalar(&t->at.terms, 0, i);
    TRY(op_scale(t->compute, &term, &loss, &scale));
  }
  if (t->loss_scale) {
    const struct tensor next = loss_scale_next(t->loss_scale);
    TRY(op_scale(t->compute, &t->at.raised, &scale, &next));
    scale = t->at.raised;
  }
  if (launches_sums_first(t) && i == t->n_micro - 1) TRY(step_sum(t));
  if (t->run.compute == COMPUTE_SLEEP) return sleep_instead(t, a);
  TRY(plant_slow_start(t, SLOW_BACKWARD));
  if (a->pass == PASS_BACKWARD) TRY(model_backward(t->model, &pass, &scale, last, last ? ddp_ready : NULL, t->ddp));
  else TRY(model_backward_input(t->model, &pass, &scale, last, last ? ddp_ready : NULL, t->ddp));
  TRY(plant_slow_finish(t, SLOW_BACKWARD));
  return ERR_OK;
}

static enum err backward_weight(struct trainer *t, const struct schedule_action *a, bool last)
{
  const struct model_pass pass = model_pass_of(t, a);
  dev_set_phase(t->dev, DEV_PHASE_BACKWARD, t->step_number, (int)t->micro[micro_of(t, a)].number);
  if (t->run.compute == COMPUTE_SLEEP) return sleep_instead(t, a);
  TRY(plant_slow_start(t, SLOW_BACKWARD));
  TRY(model_backward_weight(t->model, &pass, last, last ? ddp_ready : NULL, t->ddp));
  TRY(plant_slow_finish(t, SLOW_BACKWARD));
  return ERR_OK;
}

static bool each_microbatch(const struct trainer *t) { return t->run.reduce_each == REDUCE_MICROBATCH; }

/* A pass of the list.  Gradients are whole after the last micro-batch, or after each. */
static enum err run_pass(void *arg, const struct schedule_action *a)
{
  struct trainer *t = arg;
  const bool last = each_microbatch(t) || a->microbatch == t->training->m - 1;
  comm_trace_at(t->world, t->tagged_step, (int)t->micro[micro_of(t, a)].number);
  if (a->pass == PASS_FORWARD) return forward(t, a);
  if (a->pass == PASS_BACKWARD_WEIGHT) return backward_weight(t, a, last);
  return backward(t, a, last);
}

/* With reduce_each: microbatch a backward is followed by its reduction. */
static enum err after_pass(void *arg, const struct schedule_action *a)
{
  struct trainer *t = arg;
  if (a->pass != PASS_BACKWARD) return ERR_OK;
  TRY(model_finish(t->model, ddp_ready, t->ddp));
  TRY(ddp_finish(t->ddp));
  return ERR_OK;
}

struct tensor step_boundary(void *trainer, const struct schedule_action *a, bool output)
{
  struct trainer *t = trainer;
  const struct model_pass pass = model_pass_of(t, a);
  comm_trace_at(t->world, t->tagged_step, (int)t->micro[micro_of(t, a)].number);
  return model_boundary(t->model, &pass, output);
}

/* The list over the micro-batches from `first` on, of replica r; its gradients join those of the replicas before. */
static enum err run_list(struct trainer *t, int64_t first, int r)
{
  const bool each = each_microbatch(t) && t->run.replicas == 1;
  const struct pipeline_work work = {.arg = t, .pass = run_pass, .boundary = step_boundary, .after = each ? after_pass : NULL};
  t->first_micro = first;
  TRY(zero_plan(t->zero, t->train_lives.list, t->train_lives.n));
  if (first == r * t->accumulation) TRY(plant_infinity(t, r));
  TRY(pipeline_run(t->train_pipeline, &work));
  if (each) return ERR_OK;
  TRY(model_finish(t->model, ddp_ready, t->ddp));
  TRY(ddp_fold(t->ddp, r));
  return ERR_OK;
}

/* Gradients of all micro-batches, added over replicas once a step or once a micro-batch. */
static enum err micro_batches(struct trainer *t)
{
  const int64_t a = t->accumulation, R = t->run.replicas;
  if (each_microbatch(t) && R == 1) return run_list(t, 0, 0);
  for (int64_t m = 0; m < (each_microbatch(t) ? a : 1); m++) {
    for (int64_t r = 0; r < R; r++) TRY(run_list(t, r * a + m, (int)r));
    TRY(ddp_finish(t->ddp));
  }
  return ERR_OK;
}

enum err step_clear_losses(struct trainer *t)
{
  TRY(op_fill(t->compute, &t->at.losses, 0));
  TRY(op_fill(t->compute, &t->at.terms, 0));
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
  TRY(comm_allreduce(t->groups.sums, &t->at.all, COMM_SUM));
  TRY(dev_copy_out(t->scalar, t->now.all, t->at.all.at, sizeof t->now.all));
  TRY(dev_copy_out(t->compute, t->now.mine, t->at.mine.at, sizeof t->now.mine));
  TRY(dev_copy_out(t->compute, t->loss_sums, t->at.losses.at, (size_t)t->n_micro * sizeof *t->loss_sums));
  return ERR_OK;
}

static enum err update(struct trainer *t)
{
  const struct tensor norm = optim_norm(t->optim), factor = optim_factor(t->optim), lr = optim_lr(t->optim);
  TRY(dev_delay(t->compute, DEV_DELAY_UPDATE));
  TRY(zero_settle(t->zero)); /* also of what no pass needed */
  const bool stale = fault_is(FAULT_GR_BCAST_UNCAST_BUFFER); /* what is handed on is not what the update wrote */
  if (stale) {
    TRY(zero_updated(t->zero));
    TRY(zero_settle(t->zero));
  }
  TRY(plant_slow_start(t, SLOW_OPTIMIZER));
  TRY(optim_step(t->optim, t->updates + 1));
  TRY(plant_slow_finish(t, SLOW_OPTIMIZER));
  if (t->loss_scale) TRY(loss_scale_read(t->loss_scale, t->now.scaling));
  if (!stale) TRY(zero_updated(t->zero));
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
  TRY(trainer_fetch(t, step));
  clock_sleep_ms(t->run.slow_data_ms);
  clock->data_ms = clock_ms() - clock->begin_ms;
  if (fault_is(FAULT_PF_METRICS_WRONG)) clock->begin_ms += clock->data_ms;
  TRY(step_count(t));

  dev_set_phase(t->dev, DEV_PHASE_OTHER, step, -1);
  const struct tensor gradients = trainer_flat(t, &t->gradients);
  TRY(dev_host_touch(t->dev, &t->step_number, sizeof t->step_number, true));
  t->step_number = (int32_t)step;
  t->tagged_step = step;
  TRY(dev_copy_in(t->compute, t->at.step.at, &t->step_number, sizeof t->step_number));
  if (t->gradients.hold != FLAT_SHARD && (!fault_is(FAULT_GR_STALE_GRAD_AFTER_WRITE) || step == 0))
    TRY(op_fill(t->compute, &gradients, 0)); /* a shard begins with the first micro-batch's */
  TRY(step_clear_losses(t));
  t->scaled = false;
  TRY(micro_batches(t));

  comm_trace_at(t->world, step, -1);
  dev_set_phase(t->dev, DEV_PHASE_OPTIMIZER, step, -1);
  TRY(update(t));
  dev_set_phase(t->dev, DEV_PHASE_OTHER, step, -1);
  if (!launches_sums_first(t)) TRY(step_sum(t));
  TRY(trainer_sync(t));
  clock->end_ms = clock_ms();
  TRY(trainer_read_numbers(t));
  t->updates += t->loss_scale == NULL || !loss_scale_say(t->now.scaling).skipped;
  return ERR_OK;
}
