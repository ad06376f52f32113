/* cuda_kernel_testing.h - what cuda_kernel_cuda_test.cu runs for cuda_kernel_cuda_test.c. */
#ifndef DEVICE_CUDA_KERNEL_TESTING_H
#define DEVICE_CUDA_KERNEL_TESTING_H

#include "device/dev_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One block of `threads`, whose thread i has in[i]; twice over, without a barrier of its own between:
 * out[i] becomes the sum that thread i got, most[i] the maximum. */
struct reduce_args {
  const void *in;
  void *out, *most;
  int threads;
};
enum err reduce_f32_cuda(const struct dev_cuda *at, void *args);
enum err reduce_f64_cuda(const struct dev_cuda *at, void *args);
enum err warps_f32_cuda(const struct dev_cuda *at, void *args); /* of each warp alone */

/* out[i] = the i-th element of in widened and narrowed to bf16 and back, n a multiple of 8, by vectors. */
struct round_args {
  const float *in;
  float *out;
  void *between; /* n bf16 */
  int n;
};
enum err round_bf16_cuda(const struct dev_cuda *at, void *args);
/* out[i] = in[n - 1 - i], through dynamic shared memory of n floats. */
enum err reverse_cuda(const struct dev_cuda *at, void *args);

#ifdef __cplusplus
}
#endif
#endif
