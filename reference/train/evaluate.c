/* evaluate.c - forward passes only; the sums travel as those of a training step do. */
#include "train/evaluate.h"

#include "base/fault.h"
#include "ops/ops.h"
#include "train/step.h"

static enum err run_pass(void *arg, const struct schedule_action *a)
{
  struct trainer *t = arg;
  const int64_t i = a->microbatch;
  /* Nothing is kept for a backward for weights: where the model has places for one, any will do. */
  const struct model_pass pass = {.chunk = a->chunk, .slot = a->slot, .weight_slot = 0, .input = a->input, .in = &t->micro[i].input};
  const struct tensor loss = trainer_scalar(&t->at.losses, 0, i), term = trainer_scalar(&t->at.terms, 0, i);
  if (a->chunk == 0) TRY(trainer_load(t, i));
  TRY(model_forward(t->model, &pass, false, &loss));
  if (trainer_has_loss(t) && a->chunk == (int)t->run.chunks - 1) TRY(op_scale(t->compute, &term, &loss, &t->at.scale));
  return ERR_OK;
}

static enum err one_batch(struct trainer *t, int64_t number)
{
  const struct pipeline_work work = {.arg = t, .pass = run_pass, .boundary = step_boundary};
  dev_set_phase(t->dev, DEV_PHASE_EVAL, -1, (int)number);
  comm_trace_at(t->world, -1, -1);
  t->tagged_step = -1;
  TRY(trainer_fetch(t, -1 - number));
  TRY(step_count(t));
  TRY(step_scale(t));
  TRY(step_clear_losses(t));
  t->first_micro = 0;
  TRY(zero_plan(t->zero, t->evaluate_lives.list, t->evaluate_lives.n));
  TRY(pipeline_run(t->evaluate_pipeline, &work));
  TRY(step_sum(t));
  TRY(dev_sync(t->dev));
  TRY(trainer_read_numbers(t));
  return ERR_OK;
}

/* loss: all sums over all tokens.  train_loss: each batch as its step would report it, the
 * batches weighted by their tokens. */
enum err evaluate(struct trainer *t, struct evaluation *out)
{
  struct evaluation e = {0};
  for (int64_t b = 0; b < t->run.evaluate_batches; b++) {
    TRY(one_batch(t, b));
    e.loss_sum += t->now.all[0];
    e.valid_tokens += t->now.count;
    e.train_loss += t->now.all[1] * t->now.count;
  }
  e.loss = e.loss_sum / e.valid_tokens;
  if (fault_is(FAULT_LN_VAL_LOSS_RESCALED)) e.loss /= (double)t->n_micro;
  e.train_loss /= e.valid_tokens;
  *out = e;
  return ERR_OK;
}
