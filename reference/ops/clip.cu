/* clip.cu - scalars on a CUDA device: the clip factor and a reciprocal; what they are: clip.c.  One thread each. */
#include "ops/clip_args.h"

#include "base/fault.h"
#include "device/cuda_kernel.cuh"

enum plant { NOT_PLANTED, MAX_FOR_MIN, INF_HANDLING }; /* planted faults of clip.c */

static __global__ void clip_kernel(double *factor_out, double *norm_out, const double *sum_squares, double limit,
                                   enum plant plant)
{
  const double norm = sqrt(*sum_squares), ratio = limit / (norm + 1e-6);
  const bool off = isinf(limit), clipped = !off && ratio < 1;
  double factor = clipped ? ratio : 1;
  if (!off && !isfinite(norm)) factor = (double)NAN;
  if (plant == MAX_FOR_MIN) factor = clipped || off ? 1 : ratio;
  if (plant == INF_HANDLING) factor = clipped * ratio + !clipped * 1.0;
  *norm_out = norm;
  *factor_out = factor;
}
extern "C" enum err op_clip_factor_cuda(const struct dev_cuda *at, void *args)
{
  const struct clip_args *a = (const struct clip_args *)args;
  const enum plant plant = fault_is(FAULT_CLIP_MAX_FOR_MIN)    ? MAX_FOR_MIN
                           : fault_is(FAULT_CLIP_INF_HANDLING) ? INF_HANDLING
                                                               : NOT_PLANTED;
  return LAUNCH(at, clip_kernel, 1, 1, 0, (double *)a->factor.at, (double *)a->norm.at,
                (const double *)a->sum_squares.at, a->limit, plant);
}

static __global__ void reciprocal_kernel(double *y, const double *x) { *y = *x == 0 ? 0 : 1 / *x; }
extern "C" enum err op_reciprocal_cuda(const struct dev_cuda *at, void *args)
{
  const struct reciprocal_args *a = (const struct reciprocal_args *)args;
  return LAUNCH(at, reciprocal_kernel, 1, 1, 0, (double *)a->y.at, (const double *)a->x.at);
}
