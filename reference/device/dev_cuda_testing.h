/* dev_cuda_testing.h - kernels that the tests of the cuda device start (dev_cuda_test.cu). */
#ifndef DEVICE_DEV_CUDA_TESTING_H
#define DEVICE_DEV_CUDA_TESTING_H

#include "device/dev_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* at[0] counts, what follows is the log. */
struct append_args {
  int *at;
  int value;
};
enum err append_cuda(const struct dev_cuda *at, void *args);

/* *to = *from + add, after many idle rounds. */
struct add_args {
  int *to;
  const int *from;
  int add, rounds;
};
enum err add_cuda(const struct dev_cuda *at, void *args);

/* Each of n threads finds an error when values[i] < 0. */
struct judge_args {
  const int *values;
  int n;
};
enum err judge_cuda(const struct dev_cuda *at, void *args);

/* More threads a block than a card has; no block at all. */
enum err oversized_cuda(const struct dev_cuda *at, void *args);
enum err empty_cuda(const struct dev_cuda *at, void *args);

#ifdef __cplusplus
}
#endif
#endif
