/* evaluate.c - forward passes only; the sums travel as those of a training step do. */
#include "train/evaluate.h"

#include "base/fault.h"
#include "ops/ops.h"
#include "train/step.h"

static enum err one_batch(struct trainer *t, int64_t number)
{
  dev_set_phase(t->dev, DEV_PHASE_EVAL, -1, (int)number);
  comm_trace_at(t->world, -1, -1);
  TRY(step_fetch(t, -1 - number));
  TRY(step_count(t));
  TRY(step_scale(t));
  for (int64_t i = 0; i < t->n_micro; i++) {
    const struct tensor loss = trainer_scalar(&t->at.losses, 0, i), term = trainer_scalar(&t->at.terms, 0, i);
    TRY(trainer_load(t, i));
    TRY(model_forward(t->model, &(struct model_pass){.in = &t->input}, false, &loss));
    TRY(op_scale(t->compute, &term, &loss, &t->at.scale));
  }
  TRY(step_sum(t));
  TRY(dev_sync(t->dev));
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
