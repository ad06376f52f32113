/* dev_versions_cuda.c - refusals of a machine without a driver, with one that is too old, or
 * without a card that this build has code for. */
#include "device/dev_versions_cuda.h"

#include "device/dev_internal.h"

#include <stdlib.h>

struct dev_versions dev_versions_now(void)
{
  struct dev_versions v = {0};
  if (cudaDriverGetVersion(&v.driver) != cudaSuccess) v.driver = 0;
  if (cudaRuntimeGetVersion(&v.runtime) != cudaSuccess) v.runtime = CUDART_VERSION;
  v.counted = cudaGetDeviceCount(&v.devices);
  (void)cudaGetLastError();
  return v;
}

static int major(int version) { return version / 1000; }
static int minor(int version) { return version % 1000 / 10; }

/* Within one major version an older driver serves (minor version compatibility). */
enum err dev_versions_check(const struct dev_versions *v)
{
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (v->driver == 0) FAIL(ERR_UNAVAILABLE, "device cuda: this machine has no NVIDIA driver; available: cpu, lazy");
  if (major(v->driver) < major(v->runtime) || v->counted == cudaErrorInsufficientDriver)
    FAIL(ERR_UNAVAILABLE,
         "device cuda: the driver is for CUDA %d.%d and this build for CUDA %d.%d: install a driver for CUDA %d.0 or later, "
         "or build with a toolkit of CUDA %d", major(v->driver), minor(v->driver), major(v->runtime), minor(v->runtime),
         major(v->runtime), major(v->driver));
  if (v->counted != cudaSuccess && v->counted != cudaErrorNoDevice)
    FAIL(ERR_UNAVAILABLE, "device cuda: cudaGetDeviceCount: %s", cudaGetErrorString(v->counted));
  if (v->counted == cudaErrorNoDevice || v->devices == 0)
    FAIL(ERR_UNAVAILABLE, "device cuda: no GPU is visible here%s%s%s; available: cpu, lazy",
         visible ? "; CUDA_VISIBLE_DEVICES is '" : "", visible ? visible : "", visible ? "'" : "");
  return ERR_OK;
}

enum err dev_capability_check(int index, const char *name, int capability)
{
  if (capability < DEV_CAPABILITY_MIN)
    FAIL(ERR_UNAVAILABLE, "device cuda %d, %s: compute capability %d.%d; this build needs %d.%d or later", index, name,
         capability / 10, capability % 10, DEV_CAPABILITY_MIN / 10, DEV_CAPABILITY_MIN % 10);
  return ERR_OK;
}
