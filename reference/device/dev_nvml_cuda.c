/* dev_nvml_cuda.c - NVML, loaded with dlopen: a machine without it trains all the same. */
#include "device/dev_nvml_cuda.h"

#include <dlfcn.h>

/* The first of the names that the library has: newer ones come first. */
static void *find(void *library, const char *name, const char *older)
{
  void *at = dlsym(library, name);
  return at != NULL || older == NULL ? at : dlsym(library, older);
}

enum err dev_nvml_open(const char *library, struct dev_nvml *out)
{
  *out = (struct dev_nvml){0};
  void *l = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  const char *name = library != NULL ? library : "this program";
  if (l == NULL) FAIL(ERR_UNAVAILABLE, "NVML: %s", dlerror());
  struct {
    void **to;
    const char *name, *older;
  } const calls[] = {
      {(void **)&out->init, "nvmlInit_v2", NULL},
      {(void **)&out->shutdown, "nvmlShutdown", NULL},
      {(void **)&out->error, "nvmlErrorString", NULL},
      {(void **)&out->driver, "nvmlSystemGetDriverVersion", NULL},
      {(void **)&out->handle, "nvmlDeviceGetHandleByUUID", NULL},
      {(void **)&out->clock, "nvmlDeviceGetClockInfo", NULL},
      {(void **)&out->clock_max, "nvmlDeviceGetMaxClockInfo", NULL},
      {(void **)&out->reasons, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"},
      {(void **)&out->ecc, "nvmlDeviceGetTotalEccErrors", NULL},
      {(void **)&out->power, "nvmlDeviceGetPowerUsage", NULL},
      {(void **)&out->energy, "nvmlDeviceGetTotalEnergyConsumption", NULL},
      {(void **)&out->temperature, "nvmlDeviceGetTemperature", NULL},
      {(void **)&out->violation, "nvmlDeviceGetViolationStatus", NULL},
  };
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) *calls[i].to = find(l, calls[i].name, calls[i].older);
  const bool usable = out->init != NULL && out->shutdown != NULL && out->handle != NULL;
  const int code = usable ? out->init() : DEV_NVML_OK;
  if (usable && code == DEV_NVML_OK) {
    out->library = l;
    return ERR_OK;
  }
  if (usable)
    err_set(ERR_UNAVAILABLE, __FILE__, __LINE__, "NVML: %s: nvmlInit: %s", name, out->error ? out->error(code) : "failed");
  else
    err_set(ERR_UNAVAILABLE, __FILE__, __LINE__, "NVML: %s has no nvmlInit_v2, nvmlShutdown or nvmlDeviceGetHandleByUUID", name);
  dlclose(l);
  *out = (struct dev_nvml){0};
  return ERR_UNAVAILABLE;
}

void dev_nvml_close(struct dev_nvml *n)
{
  if (n->library == NULL) return;
  (void)n->shutdown();
  dlclose(n->library);
  n->library = NULL;
}

/* Each leaves -1 where the call is missing or refuses. */
static int64_t clock_of(int (*call)(void *, int, unsigned int *), void *device, int type)
{
  unsigned int mhz = 0;
  return call != NULL && call(device, type, &mhz) == DEV_NVML_OK ? (int64_t)mhz : -1;
}

static int64_t ecc_of(const struct dev_nvml *n, void *device, int kind)
{
  unsigned long long count = 0;
  return n->ecc != NULL && n->ecc(device, kind, NVML_VOLATILE, &count) == DEV_NVML_OK ? (int64_t)count : -1;
}

static int64_t held_ns(const struct dev_nvml *n, void *device, int policy)
{
  struct dev_nvml_violation v = {0};
  return n->violation != NULL && n->violation(device, policy, &v) == DEV_NVML_OK ? (int64_t)v.violation_time : -1;
}

enum err dev_nvml_read(const struct dev_nvml *n, const char *uuid, struct dev_health *out)
{
  void *device = NULL;
  unsigned int celsius = 0, mw = 0;
  unsigned long long mj = 0, reasons = 0;
  const int code = n->handle(uuid, &device);
  if (code != DEV_NVML_OK) FAIL(ERR_UNAVAILABLE, "NVML: %s: %s", uuid, n->error ? n->error(code) : "unknown to it");
  *out = (struct dev_health){.clock_mhz = clock_of(n->clock, device, NVML_CLOCK_SM),
                             .clock_max_mhz = clock_of(n->clock_max, device, NVML_CLOCK_SM),
                             .memory_clock_mhz = clock_of(n->clock, device, NVML_CLOCK_MEMORY),
                             .temperature_c = -1,
                             .power_mw = -1,
                             .energy_mj = -1,
                             .ecc_corrected = ecc_of(n, device, NVML_ECC_CORRECTED),
                             .ecc_uncorrected = ecc_of(n, device, NVML_ECC_UNCORRECTED),
                             .held_by_power_ns = held_ns(n, device, NVML_POLICY_POWER),
                             .held_by_heat_ns = held_ns(n, device, NVML_POLICY_THERMAL),
                             .reasons = -1};
  if (n->temperature != NULL && n->temperature(device, NVML_SENSOR_GPU, &celsius) == DEV_NVML_OK) out->temperature_c = celsius;
  if (n->power != NULL && n->power(device, &mw) == DEV_NVML_OK) out->power_mw = mw;
  if (n->energy != NULL && n->energy(device, &mj) == DEV_NVML_OK) out->energy_mj = (int64_t)mj;
  if (n->reasons != NULL && n->reasons(device, &reasons) == DEV_NVML_OK) out->reasons = (int64_t)reasons;
  return ERR_OK;
}
