/* dev_versions_cuda.h - whether this machine's driver and cards can run this build. */
#ifndef DEVICE_DEV_VERSIONS_CUDA_H
#define DEVICE_DEV_VERSIONS_CUDA_H

#include "device/dev_cuda.h"

/* What the runtime says; versions as CUDA writes them, 13010 is 13.1. */
struct dev_versions {
  int driver, runtime; /* driver 0: there is none    */
  cudaError_t counted; /* of cudaGetDeviceCount      */
  int devices;
};
struct dev_versions dev_versions_now(void);

/* ERR_UNAVAILABLE, with what to do about it, unless a device can be opened. */
enum err dev_versions_check(const struct dev_versions *v);

/* The smallest compute capability that this build has code for, 80 being 8.0. */
enum { DEV_CAPABILITY_MIN = 80 };
enum err dev_capability_check(int index, const char *name, int capability);

#endif
