/* dev_nvml_cuda_test.c - NVML's answers, from a table of calls that stands for it. */
#include "device/dev_nvml_cuda.h"

#include "testing/check.h"

#include <string.h>

enum { REFUSED = 3 };
static int card;
static int handle(const char *uuid, void **out)
{
  *out = &card;
  return strcmp(uuid, "GPU-1") == 0 ? DEV_NVML_OK : REFUSED;
}
static int other_handle(const char *uuid, void **out) /* of a card that answers nothing */
{
  *out = (void *)uuid;
  return DEV_NVML_OK;
}
static const char *text_of(int code) { return code == REFUSED ? "Not Found" : "other"; }
static int clock_now(void *device, int type, unsigned int *mhz)
{
  *mhz = type == NVML_CLOCK_SM ? 1755 : type == NVML_CLOCK_MEMORY ? 2619 : 1;
  return device == &card ? DEV_NVML_OK : REFUSED;
}
static int clock_most(void *device, int type, unsigned int *mhz)
{
  *mhz = type == NVML_CLOCK_SM ? 1980 : 1;
  return device == &card ? DEV_NVML_OK : REFUSED;
}
static int reasons(void *device, unsigned long long *out)
{
  *out = 0x24;
  return device == &card ? DEV_NVML_OK : REFUSED;
}
static int ecc(void *device, int kind, int counter, unsigned long long *out)
{
  *out = kind == NVML_ECC_UNCORRECTED ? 2 : 40;
  return device == &card && counter == NVML_VOLATILE ? DEV_NVML_OK : REFUSED;
}
static int power(void *device, unsigned int *mw)
{
  *mw = 512345;
  return device == &card ? DEV_NVML_OK : REFUSED;
}
static int energy(void *device, unsigned long long *mj)
{
  *mj = 9000000001ull;
  return device == &card ? DEV_NVML_OK : REFUSED;
}
static int temperature(void *device, int sensor, unsigned int *celsius)
{
  *celsius = 55;
  return device == &card && sensor == NVML_SENSOR_GPU ? DEV_NVML_OK : REFUSED;
}
static int violation(void *device, int policy, struct dev_nvml_violation *out)
{
  *out = (struct dev_nvml_violation){1, policy == NVML_POLICY_THERMAL ? 70 : policy == NVML_POLICY_POWER ? 80 : 1};
  return device == &card ? DEV_NVML_OK : REFUSED;
}
static const struct dev_nvml full = {.error = text_of, .handle = handle, .clock = clock_now, .clock_max = clock_most, .reasons = reasons,
                                     .ecc = ecc, .power = power, .energy = energy, .temperature = temperature, .violation = violation};

static void every_answer_has_its_place(void)
{
  struct dev_health h;
  CHECK_OK(dev_nvml_read(&full, "GPU-1", &h));
  CHECK(h.clock_mhz == 1755 && h.clock_max_mhz == 1980 && h.memory_clock_mhz == 2619);
  CHECK(h.temperature_c == 55 && h.power_mw == 512345 && h.energy_mj == 9000000001);
  CHECK(h.ecc_corrected == 40 && h.ecc_uncorrected == 2);
  CHECK(h.held_by_heat_ns == 70 && h.held_by_power_ns == 80 && h.reasons == 0x24);
}

static void what_is_missing_or_refused_is_unknown(void)
{
  const struct dev_nvml bare = {.error = text_of, .handle = handle};
  struct dev_health h;
  CHECK_OK(dev_nvml_read(&bare, "GPU-1", &h));
  CHECK(h.clock_mhz == -1 && h.clock_max_mhz == -1 && h.memory_clock_mhz == -1 && h.temperature_c == -1 && h.power_mw == -1);
  CHECK(h.energy_mj == -1 && h.ecc_corrected == -1 && h.ecc_uncorrected == -1 && h.held_by_heat_ns == -1);
  CHECK(h.held_by_power_ns == -1 && h.reasons == -1);

  struct dev_nvml refusing = full;
  refusing.handle = other_handle;
  CHECK_OK(dev_nvml_read(&refusing, "GPU-1", &h));
  CHECK(h.clock_mhz == -1 && h.clock_max_mhz == -1 && h.memory_clock_mhz == -1 && h.temperature_c == -1 && h.power_mw == -1);
  CHECK(h.energy_mj == -1 && h.ecc_corrected == -1 && h.ecc_uncorrected == -1 && h.held_by_heat_ns == -1);
  CHECK(h.held_by_power_ns == -1 && h.reasons == -1);

  CHECK_ERR(dev_nvml_read(&full, "GPU-2", &h), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "NVML: GPU-2: Not Found");
}

static void a_machine_without_it_says_so(void)
{
  struct dev_nvml n;
  CHECK_ERR(dev_nvml_open("libshardmark-none.so.1", &n), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "libshardmark-none.so.1");
  CHECK(n.library == NULL && n.handle == NULL);
  CHECK_ERR(dev_nvml_open("libm.so.6", &n), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "libm.so.6 has no nvmlInit_v2");
  CHECK(n.library == NULL && n.handle == NULL);
  dev_nvml_close(&n);
}

/* --- found by name: this program has NVML's names itself, and is looked at as the library -------------- */

static int inits, shutdowns, init_answer;
int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
  inits++;
  return init_answer;
}
int nvmlShutdown(void);
int nvmlShutdown(void)
{
  shutdowns++;
  return DEV_NVML_OK;
}
const char *nvmlErrorString(int code);
const char *nvmlErrorString(int code) { return text_of(code); }
int nvmlSystemGetDriverVersion(char *out, unsigned int bytes);
int nvmlSystemGetDriverVersion(char *out, unsigned int bytes) { return bytes > 0 ? (out[0] = '\0', DEV_NVML_OK) : REFUSED; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) { return handle(uuid, out); }
int nvmlDeviceGetClockInfo(void *device, int type, unsigned int *mhz);
int nvmlDeviceGetClockInfo(void *device, int type, unsigned int *mhz) { return clock_now(device, type, mhz); }
int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned int *mhz);
int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned int *mhz) { return clock_most(device, type, mhz); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out); /* the older name alone */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out) { return reasons(device, out); }
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *out);
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *out) { return ecc(device, kind, counter, out); }
int nvmlDeviceGetPowerUsage(void *device, unsigned int *mw);
int nvmlDeviceGetPowerUsage(void *device, unsigned int *mw) { return power(device, mw); }
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) { return energy(device, mj); }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *celsius);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *celsius) { return temperature(device, sensor, celsius); }
int nvmlDeviceGetViolationStatus(void *device, int policy, struct dev_nvml_violation *out);
int nvmlDeviceGetViolationStatus(void *device, int policy, struct dev_nvml_violation *out) { return violation(device, policy, out); }

static void every_call_is_found_by_its_name(void)
{
  struct dev_nvml n;
  struct dev_health h, want;
  inits = shutdowns = 0;
  init_answer = DEV_NVML_OK;
  CHECK_OK(dev_nvml_open(NULL, &n));
  CHECK_OK(dev_nvml_read(&n, "GPU-1", &h));
  CHECK_OK(dev_nvml_read(&full, "GPU-1", &want));
  CHECK_SAME_BITS(&h, &want, sizeof h);
  CHECK(n.driver != NULL && n.library != NULL);
  dev_nvml_close(&n);
  dev_nvml_close(&n);
  CHECK(inits == 1 && shutdowns == 1 && n.library == NULL);
}

static void what_cannot_start_is_closed_again(void)
{
  struct dev_nvml n;
  init_answer = REFUSED;
  CHECK_ERR(dev_nvml_open(NULL, &n), ERR_UNAVAILABLE);
  CHECK_TEXT_HAS(err_text(), "nvmlInit: Not Found");
  CHECK(n.library == NULL && n.handle == NULL);
}

int main(void)
{
  static const struct test tests[] = {
      TEST(every_answer_has_its_place),
      TEST(what_is_missing_or_refused_is_unknown),
      TEST(a_machine_without_it_says_so),
      TEST(every_call_is_found_by_its_name),
      TEST(what_cannot_start_is_closed_again),
  };
  return test_main("dev_nvml_cuda", tests, sizeof tests / sizeof *tests);
}
