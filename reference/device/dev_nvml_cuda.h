/* dev_nvml_cuda.h - the card's own account of itself, by NVML, which is looked for at run time.
 *
 * The calls stand in a table so that tests fill it with their own.  Only `init` and
 * `handle` must be there; what a card or a driver does not know stays unknown (-1).
 */
#ifndef DEVICE_DEV_NVML_CUDA_H
#define DEVICE_DEV_NVML_CUDA_H

#include "device/dev.h"

enum { DEV_NVML_OK = 0 };
/* Numbers of NVML's interface. */
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2, NVML_ECC_CORRECTED = 0, NVML_ECC_UNCORRECTED = 1, NVML_VOLATILE = 0,
       NVML_POLICY_POWER = 0, NVML_POLICY_THERMAL = 1, NVML_SENSOR_GPU = 0 };

struct dev_nvml_violation {
  unsigned long long reference_time, violation_time; /* ns */
};
struct dev_nvml {
  void *library;
  int (*init)(void);
  int (*shutdown)(void);
  const char *(*error)(int code);
  int (*driver)(char *out, unsigned int bytes);
  int (*handle)(const char *uuid, void **out);
  int (*clock)(void *device, int type, unsigned int *mhz);
  int (*clock_max)(void *device, int type, unsigned int *mhz);
  int (*reasons)(void *device, unsigned long long *out);
  int (*ecc)(void *device, int kind, int counter, unsigned long long *out);
  int (*power)(void *device, unsigned int *mw);
  int (*energy)(void *device, unsigned long long *mj);
  int (*temperature)(void *device, int sensor, unsigned int *celsius);
  int (*violation)(void *device, int policy, struct dev_nvml_violation *out);
};

/* `library` NULL: this program itself.  Owner of *out: the caller, until dev_nvml_close().  Fails: ERR_UNAVAILABLE naming the library or the call. */
enum err dev_nvml_open(const char *library, struct dev_nvml *out);
void dev_nvml_close(struct dev_nvml *n);

/* Fails: ERR_UNAVAILABLE when NVML does not know the card. */
enum err dev_nvml_read(const struct dev_nvml *n, const char *uuid, struct dev_health *out);

#endif
