/* cuda_mma_testing.h - what cuda_mma_cuda_test.cu runs for cuda_mma_cuda_test.c: one warp, each lane's
 * operands given and each lane's results seen. */
#ifndef DEVICE_CUDA_MMA_TESTING_H
#define DEVICE_CUDA_MMA_TESTING_H

#include "device/dev_cuda.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lanes_in {
  uint32_t a[32][4], b[32][2];     /* bf16 */
  uint32_t a16[32][4], b16[32][2]; /* f16  */
  float d[32][4], x[32][2];
  uint16_t rows[32][8]; /* row i is what lane i's address points to */
  int32_t valid[3][32]; /* bytes of each copy                       */
};
struct lanes_out {
  float d[32][4], d16[32][4];          /* mma(d, a, b), twice; of f16: mma(d, a16, b16)      */
  uint32_t plain[32][4], trans[32][4]; /* ldmatrix_x4, ldmatrix_x4_trans of rows     */
  uint32_t pair[32], pair16[32];       /* pair_bits(x[0], x[1]), of f16                      */
  float exp2[32];                      /* exp2_approx(x[0])                                  */
  uint16_t copied[3][32][8];           /* rows by cp_async_16, three groups, waited for apart */
};
struct lanes_args {
  const struct lanes_in *in;
  struct lanes_out *out;
};
enum err lanes_cuda(const struct dev_cuda *at, void *args);

#ifdef __cplusplus
}
#endif
#endif
