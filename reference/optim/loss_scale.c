/* loss_scale.c - the loss scale's numbers on the device, and the one collective that all ranks decide by. */
#include "optim/loss_scale.h"

#include "base/fault.h"
#include "ops/ops.h"

#include <stdlib.h>

/* On the device, in one block: what is read back comes first. */
struct scalars {
  double state[OP_SCALE_STATE], key, inverse;
};
_Static_assert(OP_SCALE_STATE + 1 == LOSS_SCALE_NUMBERS, "the state, and the key behind it");

struct loss_scale {
  struct loss_scale_config given;
  struct scalars *at;
};

static struct tensor scalar(double *at) { return tensor_at(at, DTYPE_F64, 1, 1); }

static enum err start(struct loss_scale *l)
{
  void *at = NULL;
  TRY(dev_alloc(l->given.dev, sizeof *l->at, DEV_OTHER, "loss scale", &at));
  l->at = at;
  const struct tensor all = tensor_at(at, DTYPE_F64, 1, (int64_t)(sizeof *l->at / sizeof(double))), next = loss_scale_next(l);
  TRY(op_fill(l->given.compute, &all, 0));
  return op_fill(l->given.compute, &next, l->given.run->loss_scale);
}

enum err loss_scale_create(const struct loss_scale_config *config, struct loss_scale **out)
{
  *out = NULL;
  struct loss_scale *l = calloc(1, sizeof *l);
  if (l == NULL) FAIL(ERR_MEMORY, "loss scale: %zu bytes", sizeof *l);
  l->given = *config;
  const enum err err = start(l);
  if (err) {
    loss_scale_destroy(l);
    return err_trace(err, __FILE__, __LINE__);
  }
  *out = l;
  return ERR_OK;
}

void loss_scale_destroy(struct loss_scale *l)
{
  if (l == NULL) return;
  if (l->at) dev_sync_stream(l->given.compute); /* an error of its work is the caller's to see at its own synchronisation */
  dev_free(l->given.dev, l->at);
  free(l);
}

enum err loss_scale_decide(struct loss_scale *l)
{
  const struct tensor state = tensor_at(l->at->state, DTYPE_F64, 1, OP_SCALE_STATE), key = scalar(&l->at->key);
  const struct tensor used = scalar(&l->at->state[OP_SCALE_USED]), inverse = loss_scale_inverse(l);
  struct dev_stream *s = l->given.compute;
  TRY(op_overflow(s, &key, &l->given.largest, l->given.stage, l->given.rank, (int)l->given.run->replicas));
  if (l->given.all && !fault_is(FAULT_PR_OVERFLOW_NOT_GLOBAL)) TRY(comm_allreduce(l->given.all, &key, COMM_MAX));
  TRY(op_loss_scale(s, &state, &key, l->given.run->scale_interval));
  return op_reciprocal(s, &inverse, &used);
}

struct tensor loss_scale_next(const struct loss_scale *l) { return scalar(&l->at->state[OP_SCALE_NEXT]); }
struct tensor loss_scale_inverse(const struct loss_scale *l) { return scalar(&l->at->inverse); }
struct tensor loss_scale_skip(const struct loss_scale *l) { return scalar(&l->at->state[OP_SCALE_SKIP]); }

enum err loss_scale_read(const struct loss_scale *l, double numbers[LOSS_SCALE_NUMBERS])
{
  return dev_copy_out(l->given.compute, numbers, l->at, LOSS_SCALE_NUMBERS * sizeof *numbers);
}

struct loss_scale_said loss_scale_say(const double numbers[LOSS_SCALE_NUMBERS])
{
  const double key = numbers[OP_SCALE_STATE];
  return (struct loss_scale_said){numbers[OP_SCALE_USED], numbers[OP_SCALE_SKIP] != 0, key != 0 ? op_overflow_rank(key) : -1};
}
