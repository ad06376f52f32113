/* host_nvml.cpp - NVML's stand-in: says what the environment tells it to.
 *
 * Programs look these names up in themselves, as they do in NVML's library.  Weak: a test that has the names itself is asked.
 */
#include "host_internal.h"

#include <cstdlib>

namespace {
enum { GOOD = 0, NOT_SUPPORTED = 3, UNCORRECTED = 1, BY_POWER = 0, BY_HEAT = 1 };
struct violation {
  unsigned long long reference_time, violation_time;
};

/* Grows by `name` at each look. */
unsigned long long grown(const char *name, unsigned long long *so_far) { return *so_far += (unsigned long long)host_environment(name, 0); }
}

int cuda_host_has_nvml(void)
{
  for (const char *name : {"CUDA_HOST_ECC", "CUDA_HOST_HEAT_MS", "CUDA_HOST_POWER_MS", "CUDA_HOST_REASONS"})
    if (getenv(name) != NULL) return 1;
  return 0;
}

#define NVML extern "C" __attribute__((weak)) int

NVML nvmlInit_v2(void) { return GOOD; }
NVML nvmlShutdown(void) { return GOOD; }
extern "C" __attribute__((weak)) const char *nvmlErrorString(int code) { return code == GOOD ? "Success" : "Not Supported"; }
NVML nvmlSystemGetDriverVersion(char *out, unsigned bytes)
{
  snprintf(out, bytes, "stand-in");
  return GOOD;
}
NVML nvmlDeviceGetHandleByUUID(const char *, void **out)
{
  static char card;
  *out = &card;
  return GOOD;
}
NVML nvmlDeviceGetClockInfo(void *, int, unsigned *mhz)
{
  *mhz = 1500;
  return GOOD;
}
NVML nvmlDeviceGetMaxClockInfo(void *, int, unsigned *mhz)
{
  *mhz = 1980;
  return GOOD;
}
NVML nvmlDeviceGetCurrentClocksEventReasons(void *, unsigned long long *out)
{
  const char *text = getenv("CUDA_HOST_REASONS");
  *out = text ? strtoull(text, NULL, 0) : 0;
  return GOOD;
}
NVML nvmlDeviceGetTotalEccErrors(void *, int kind, int, unsigned long long *out)
{
  static unsigned long long n;
  *out = kind == UNCORRECTED ? grown("CUDA_HOST_ECC", &n) : 0;
  return GOOD;
}
NVML nvmlDeviceGetPowerUsage(void *, unsigned *mw)
{
  *mw = 700000;
  return GOOD;
}
NVML nvmlDeviceGetTotalEnergyConsumption(void *, unsigned long long *mj)
{
  static unsigned long long so_far;
  *mj = so_far += 7000;
  return GOOD;
}
NVML nvmlDeviceGetTemperature(void *, int, unsigned *celsius)
{
  *celsius = 88;
  return GOOD;
}
NVML nvmlDeviceGetViolationStatus(void *, int policy, struct violation *out)
{
  static unsigned long long heat_ms, power_ms;
  if (policy != BY_HEAT && policy != BY_POWER) return NOT_SUPPORTED;
  const unsigned long long ms = policy == BY_HEAT ? grown("CUDA_HOST_HEAT_MS", &heat_ms) : grown("CUDA_HOST_POWER_MS", &power_ms);
  *out = {0, ms * 1000000};
  return GOOD;
}
