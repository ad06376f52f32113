/* peak.c - the table of data sheets, looked up. */
#include "peak.h"
#include "judge.h"

#include <math.h>
#include <string.h>

static const struct {
  const char *name;
  double tflops[4]; /* by enum precision */
} peaks[] = {
#define PEAK(name, f64, f32, tf32, bf16, source) {name, {f64, f32, tf32, bf16}},
#include "peaks.def"
#undef PEAK
};
_Static_assert(PRECISION_F64 == 0 && PRECISION_F32 == 1 && PRECISION_TF32 == 2 && PRECISION_BF16 == 3, "columns of peaks.def");

double peak_dense(const char *device, enum precision precision)
{
  const size_t length = strcspn(device, ",");
  if (precision == PRECISION_F16) precision = PRECISION_BF16; /* one figure for both in every data sheet of the table */
  for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++)
    if (strlen(peaks[i].name) == length && memcmp(peaks[i].name, device, length) == 0 && peaks[i].tflops[precision] > 0)
      return 1e12 * peaks[i].tflops[precision];
  return NAN;
}

static struct predicted without_padding(const struct run_config *c)
{
  struct run_config counted = *c;
  struct predicted p;
  const struct model_shape *own = model_shape_find(c->model);
  if (own != NULL && counted.vocab > own->vocab) counted.vocab = own->vocab;
  predict(&counted, &p);
  return p;
}

static double share(const struct run_config *c, double valid_tokens)
{
  return valid_tokens / (double)(c->global_batch * c->sequence);
}

double peak_flops(const struct run_config *c, double valid_tokens, bool full)
{
  const struct predicted p = without_padding(c);
  return (full ? p.flops_full : p.flops_causal) * share(c, valid_tokens);
}

double peak_hardware_flops(const struct run_config *c, double valid_tokens)
{
  const struct predicted p = without_padding(c);
  return (p.flops_causal + p.again_causal) * share(c, valid_tokens);
}

double peak_mfu(const struct run_config *c, const char *device, double valid_tokens, double seconds, bool full)
{
  const double peak = peak_dense(device, (enum precision)c->precision) * (double)config_ranks(c);
  return peak_flops(c, valid_tokens, full) / seconds / peak;
}
