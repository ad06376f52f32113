/* clip.c - scalars on the device: the clip factor and a reciprocal.  All are f64 [1, 1].
 *
 *   norm = sqrt(sum_squares)      factor = min(1, max_norm / (norm + 1e-6))
 *
 * as torch.nn.utils.clip_grad_norm_.  max_norm 0 switches clipping off: factor 1 whatever the norm.
 * A norm that is not finite gives NaN where clipping is on, so that all weights show it; min() in C
 * would drop the NaN, and an infinite norm would give 0, which hides it in every finite gradient.
 */
#include "ops/clip_args.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

#include "base/fault.h"

static enum err clip_factor(void *args)
{
  const struct clip_args *a = args;
  const double norm = sqrt(*(const double *)a->sum_squares.at), ratio = a->limit / (norm + 1e-6);
  const bool off = isinf(a->limit), clipped = !off && ratio < 1;
  double factor = clipped ? ratio : 1;
  if (!off && !isfinite(norm)) factor = NAN;
  if (fault_is(FAULT_CLIP_MAX_FOR_MIN)) factor = clipped || off ? 1 : ratio;
  if (fault_is(FAULT_CLIP_INF_HANDLING)) factor = clipped * ratio + !clipped * 1.0; /* 0 * inf */
  *(double *)a->norm.at = norm;
  *(double *)a->factor.at = factor;
  return ERR_OK;
}
OP_KERNEL(op_clip_factor, clip_factor);

enum err op_clip_factor(struct dev_stream *s, const struct tensor *factor, const struct tensor *norm,
                        const struct tensor *sum_squares, double max_norm)
{
  TRY(OP_EXPECT({"factor", factor, DTYPE_F64, 1, 1}, {"norm", norm, DTYPE_F64, 1, 1},
                {"sum_squares", sum_squares, DTYPE_F64, 1, 1}));
  if (!(max_norm >= 0)) FAIL(ERR_ARG, "max_norm %.17g, expected at least 0", max_norm);
  const struct clip_args args = {*factor, *norm, *sum_squares, max_norm == 0 ? INFINITY : max_norm};
  return OP_SUBMIT(s, &op_clip_factor_kernel, args, {factor, OP_WRITE}, {norm, OP_WRITE}, {sum_squares, OP_READ});
}

static enum err reciprocal(void *args)
{
  const struct reciprocal_args *a = args;
  const double x = *(const double *)a->x.at;
  *(double *)a->y.at = x == 0 ? 0 : 1 / x;
  return ERR_OK;
}
OP_KERNEL(op_reciprocal, reciprocal);

enum err op_reciprocal(struct dev_stream *s, const struct tensor *y, const struct tensor *x)
{
  TRY(OP_EXPECT({"y", y, DTYPE_F64, 1, 1}, {"x", x, DTYPE_F64, 1, 1}));
  const struct reciprocal_args args = {*y, *x};
  return OP_SUBMIT(s, &op_reciprocal_kernel, args, {y, OP_WRITE}, {x, OP_READ});
}
