/* bound.c - ceilings by observable and precision, and the bound in force. */
#include "bound.h"

#include <math.h>

enum precision bound_precision(const struct run_config *c, enum bound_kind kind, int64_t step)
{
  const bool rounded = c->reduce_type == REDUCE_TYPE_BF16 && c->dp * c->replicas > 1;
  const bool seen = kind == BOUND_GRADIENT || kind == BOUND_NORM || (kind == BOUND_LOSS && step > 0);
  return rounded && seen ? PRECISION_BF16 : (enum precision)c->precision;
}

double bound_unit(enum precision precision)
{
  switch (precision) {
  case PRECISION_F64: return 0x1p-53;
  case PRECISION_F32: return 0x1p-24;
  case PRECISION_TF32: return 0x1p-11;
  case PRECISION_BF16: return 0x1p-8;
  case PRECISION_F16: return 0x1p-11;
  }
  return 0.0;
}

bool bound_is_narrow(enum precision precision) { return precision >= PRECISION_TF32; }

/* The sum of many terms, rounded apart, is nearer than each of them: in bf16 losses were seen 1e-4 to 3e-4 off, norms up
 * to 1.5e-3.  Half a unit of such a whole is 2e-3, the table's figure for the loss. */
double bound_floor(enum bound_kind kind, enum precision precision, double terms)
{
  const double u = bound_unit(precision);
  if (bound_is_narrow(precision) && kind != BOUND_GRADIENT) return u / 2.0;
  return 4.0 * sqrt(terms) * u;
}

/* Loss drifts as weights do: later steps may differ more. */
static double loss_ceiling(enum precision precision, int64_t step)
{
  static const double ceilings[][3] = {[PRECISION_F64] = {1e-13, 1e-10, 1e-8},
                                       [PRECISION_F32] = {1e-6, 1e-5, 1e-4},
                                       [PRECISION_TF32] = {6e-4, 6e-4, 2.5e-3},
                                       [PRECISION_BF16] = {5e-3, 5e-3, 2e-2},
                                       [PRECISION_F16] = {6e-4, 6e-4, 2.5e-3}};
  return ceilings[precision][step == 0 ? 0 : step <= 20 ? 1 : 2];
}

/* tf32 multiplies and fp16 stores 8 times finer than bf16: an eighth of its figures, where these are above float32's own.  A loss
 * scale that overflows nowhere keeps fp16's gradients above the range in which its steps are those of 2^-24. */
double bound_ceiling(enum bound_kind kind, enum precision precision, int64_t step)
{
  static const double ceilings[][4] = {
    /*                   gradient  norm   of own gradients  update: 4 units in the last place of what is updated */
    [PRECISION_F64] =  {1e-11,    1e-12, 1e-12,            1e-12},
    [PRECISION_F32] =  {1e-4,     1e-5,  1e-6,             4.0 * 2.0 * 0x1p-24},
    [PRECISION_TF32] = {2e-2,     2.5e-3, 1e-6,            4.0 * 2.0 * 0x1p-24},
    [PRECISION_BF16] = {0.15,     2e-2,  1e-5,             4.0 * 2.0 * 0x1p-24},
    [PRECISION_F16] =  {2e-2,     2.5e-3, 1e-5,            4.0 * 2.0 * 0x1p-24},
  };
  switch (kind) {
  case BOUND_LOSS: return loss_ceiling(precision, step);
  case BOUND_GRADIENT: return ceilings[precision][0];
  case BOUND_NORM: return ceilings[precision][1];
  case BOUND_NORM_OWN: return ceilings[precision][2];
  case BOUND_UPDATE: return ceilings[precision][3];
  }
  return 0.0;
}

double bound_no_rounding(enum bound_kind kind, enum precision precision)
{
  return (bound_is_narrow(precision) ? 1.0 : 10.0) * bound_ceiling(kind, precision, 0);
}

double bound_measured(double floor, double q) { return isnan(q) ? q : fmax(floor, 4.0 * q); }

double bound_relative(double got, double want)
{
  if (!isfinite(got) || !isfinite(want)) return NAN;
  if (got == want) return 0.0;
  return fabs(got - want) / fabs(want);
}
