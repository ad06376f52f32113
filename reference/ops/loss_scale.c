/* loss_scale.c - dynamic loss scale on the device: which gradient is not finite, and what becomes of the scale.
 *
 * Micikevicius et al. 2018, section 3.2: gradients of half precision are kept from vanishing by a factor on the loss, which
 * is as large as it can be without any of them overflowing.  A step whose gradients are not all finite is skipped and the
 * factor halved; after `interval` good ones it is doubled.  Powers of two, so that dividing by it loses nothing.
 */
#include "ops/loss_scale_args.h"
#include "ops/op_submit.h"

#include <math.h>

/* The larger, the earlier in the order of backward. */
static double key_of(const struct overflow_args *a, int64_t row, int64_t bucket)
{
  const double place = (double)(OVERFLOW_PLACES - 1 - (bucket < OVERFLOW_PLACES ? bucket : OVERFLOW_PLACES - 1));
  const double rank = (double)(OVERFLOW_PLACES - 1 - (a->rank + row % a->n));
  return 1 + ((double)a->stage * OVERFLOW_PLACES + place) * OVERFLOW_PLACES + rank;
}

static enum err overflow(void *args)
{
  const struct overflow_args *a = args;
  double key = 0;
  for (int64_t r = 0; r < a->largest.rows; r++) {
    const double *row = (const double *)(void *)tensor_row(&a->largest, r);
    for (int64_t b = 0; b < a->largest.cols; b++)
      if (!isfinite(row[b])) key = fmax(key, key_of(a, r, b));
  }
  *(double *)a->key.at = key;
  return ERR_OK;
}
OP_KERNEL(op_overflow, overflow);

enum err op_overflow(struct dev_stream *s, const struct tensor *key, const struct tensor *largest, int stage, int rank, int n)
{
  TRY(OP_EXPECT({"key", key, DTYPE_F64, 1, 1}, {"largest", largest, DTYPE_F64, -1, -1}));
  if (n < 1 || largest->rows % n != 0) FAIL(ERR_ARG, "largest has %" PRId64 " rows of %d ranks", largest->rows, n);
  if (stage < 0 || stage >= OVERFLOW_STAGES || rank < 0 || rank + n > OVERFLOW_PLACES) FAIL(ERR_ARG, "stage %d, rank %d", stage, rank);
  const struct overflow_args args = {*key, *largest, stage, rank, n};
  return OP_SUBMIT(s, &op_overflow_kernel, args, {key, OP_WRITE}, {largest, OP_READ});
}

int op_overflow_rank(double key) { return OVERFLOW_PLACES - 1 - (int)fmod(key - 1, OVERFLOW_PLACES); }

static enum err loss_scale(void *args)
{
  const struct loss_scale_args *a = args;
  double *state = a->state.at;
  const bool skip = *(const double *)a->key.at != 0, grown = !skip && state[OP_SCALE_GOOD] + 1 >= (double)a->interval;
  state[OP_SCALE_USED] = state[OP_SCALE_NEXT];
  state[OP_SCALE_SKIP] = skip;
  state[OP_SCALE_NEXT] *= skip ? 0.5 : grown ? 2 : 1;
  state[OP_SCALE_GOOD] = skip || grown ? 0 : state[OP_SCALE_GOOD] + 1;
  return ERR_OK;
}
OP_KERNEL(op_loss_scale, loss_scale);

enum err op_loss_scale(struct dev_stream *s, const struct tensor *state, const struct tensor *key, int64_t interval)
{
  TRY(OP_EXPECT({"state", state, DTYPE_F64, 1, OP_SCALE_STATE}, {"key", key, DTYPE_F64, 1, 1}));
  if (interval < 1) FAIL(ERR_ARG, "interval of %" PRId64 " good steps, expected 1 or more", interval);
  const struct loss_scale_args args = {*state, *key, interval};
  return OP_SUBMIT(s, &op_loss_scale_kernel, args, {state, OP_WRITE}, {key, OP_READ});
}
