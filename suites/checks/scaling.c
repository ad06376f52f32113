/* scaling.c - efficiency, balance, fractions and bandwidth factors. */
#include "scaling.h"

#include <math.h>
#include <string.h>

double scaling_efficiency(double rate, double ranks, double base_rate, double base_ranks)
{
  if (!(ranks > 0.0) || !(base_ranks > 0.0) || !(base_rate > 0.0) || !(rate >= 0.0)) return NAN;
  return (rate / ranks) / (base_rate / base_ranks);
}

double scaling_balance(const double *busy, int n)
{
  double sum = 0.0, most = 0.0;
  for (int i = 0; i < n; i++) {
    if (!(busy[i] >= 0.0)) return NAN;
    sum += busy[i];
    most = fmax(most, busy[i]);
  }
  return n > 0 && most > 0.0 ? sum / n / most : NAN;
}

double scaling_rate_fraction(double flops_per_step, double ranks, double step_s, double measured_rate)
{
  return step_s > 0.0 && ranks > 0.0 && measured_rate > 0.0 ? flops_per_step / ranks / step_s / measured_rate : NAN;
}

double scaling_mfu(double flops_per_step, double ranks, double step_s, double peak)
{
  return peak > 0.0 ? scaling_rate_fraction(flops_per_step, ranks, step_s, peak) : NAN;
}

double scaling_bus_factor(const char *collective, int ranks)
{
  static const struct {
    const char *name;
    double times; /* of (n - 1) / n; 0: the factor is 1 whatever n */
  } rows[] = {{"allreduce", 2.0}, {"reduce_scatter", 1.0}, {"allgather", 1.0}, {"alltoall", 1.0}, {"broadcast", 0.0}, {"send", 0.0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(collective, rows[i].name) == 0) return rows[i].times == 0.0 ? 1.0 : rows[i].times * (ranks - 1.0) / ranks;
  return NAN;
}

double scaling_zero_bytes(double parameters, int stage, double ranks)
{
  const double weights = 2.0, gradients = 2.0, optimizer = 12.0;
  return parameters * (weights / (stage >= 3 ? ranks : 1.0) + gradients / (stage >= 2 ? ranks : 1.0) + optimizer / (stage >= 1 ? ranks : 1.0));
}
