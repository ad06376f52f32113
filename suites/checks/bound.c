/* bound.c - ceilings by observable and precision, and the bound in force. */
#include "bound.h"

#include <math.h>

double bound_unit(enum dtype type)
{
  switch (type) {
  case DTYPE_F64: return 0x1p-53;
  case DTYPE_F32: return 0x1p-24;
  case DTYPE_F16: return 0x1p-11;
  case DTYPE_BF16: return 0x1p-8;
  default: return 0.0;
  }
}

/* Loss drifts as weights do: later steps may differ more. */
static double loss_ceiling(bool wide, int64_t step)
{
  if (step == 0) return wide ? 1e-13 : 1e-6;
  if (step <= 20) return wide ? 1e-10 : 1e-5;
  return wide ? 1e-8 : 1e-4;
}

double bound_ceiling(enum bound_kind kind, enum dtype precision, int64_t step)
{
  const bool wide = precision == DTYPE_F64;
  switch (kind) {
  case BOUND_LOSS: return loss_ceiling(wide, step);
  case BOUND_GRADIENT: return wide ? 1e-11 : 1e-4;
  case BOUND_NORM: return wide ? 1e-12 : 1e-5;
  case BOUND_NORM_OWN: return wide ? 1e-12 : 1e-6;
  case BOUND_UPDATE: return wide ? 1e-12 : 4.0 * 2.0 * 0x1p-24; /* 4 units in the last place */
  }
  return 0.0;
}

double bound_measured(double floor, double q) { return isnan(q) ? q : fmax(floor, 4.0 * q); }

double bound_relative(double got, double want)
{
  if (!isfinite(got) || !isfinite(want)) return NAN;
  if (got == want) return 0.0;
  return fabs(got - want) / fabs(want);
}
