/* matmul_cuda.h - matrix products on CUDA inside this room: what op_matmul and linear call in kernels.
 *
 * c [M, N] = op(a) [M, K] op(b) [K, N] + bias [1, N] in each row, or c += with accumulate; all row-major.
 * a and b have one type; c has it too, or is float32 for bf16 and f16.  Sums are float64 for float64, else float32; float32
 * operands are rounded to TF32 only if at->tf32.  The bias is added before c is rounded.
 */
#ifndef OPS_MATMUL_CUDA_H
#define OPS_MATMUL_CUDA_H

#include "base/tensor.h"
#include "device/dev_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bias: c's type, contiguous, NULL for none.  Fails: ERR_UNAVAILABLE if the library has no kernel for it. */
enum err matmul_cuda(const struct dev_cuda *at, const struct tensor *c, const struct tensor *a, bool transpose_a,
                     const struct tensor *b, bool transpose_b, bool accumulate, const void *bias);

/* "cuBLASLt 13.1.0", into text. */
void matmul_cuda_library(char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
