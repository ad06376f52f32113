/* dev_cuda.h - what a kernel's CUDA form is given, and how its calls report.
 *
 * Only `.cu` and `*_cuda.c` include this.  The host's thread calls dev_kernel.cuda when
 * work is given: it issues to at->stream and returns; CUDA's own streams and events are
 * the order.  What it issues elsewhere is lost to that order.
 */
#ifndef DEVICE_DEV_CUDA_H
#define DEVICE_DEV_CUDA_H

#include "device/dev.h"

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A data error found by a kernel (REPORT in cuda_kernel.cuh): the first of its piece of
 * work.  In host memory that the device writes; read when the piece is done. */
struct dev_cuda_report {
  unsigned int claimed;
  const char *format; /* a host literal with up to four %lld */
  long long a, b, c, d;
};

/* What a room above keeps for a stream: all NULL when the stream opens, filled at first use, destroyed (if not
 * NULL) before the stream is. */
struct dev_cuda_kept {
  void *at;
  void (*destroy)(void *at);
};

/* One a stream, as long as it lives. */
struct dev_cuda {
  void *stream;           /* cudaStream_t                                                */
  struct dev_cuda_kept *products; /* library handle and chosen kernels of matmul_cuda.c  */
  void *workspace;        /* of this stream alone, contents lost between kernels; NULL   */
                          /* unless it is a compute stream                               */
  size_t workspace_bytes;
  struct dev_cuda_report *report; /* of this piece of work                               */
  int multiprocessors;
  int capability;         /* 90 is 9.0                                                   */
  bool tf32;              /* float32 products may use TF32                               */
  int device;             /* index on this host                                          */
};

/* The CUDA side of a stream; NULL if its device is not a CUDA device. */
const struct dev_cuda *dev_cuda_of(struct dev_stream *s);

/* cudaSuccess is ERR_OK; an uncorrected ECC error ERR_INVALID, lack of memory ERR_MEMORY, anything else
 * ERR_DEVICE, with "call: text (file:line, device i)". */
enum err dev_cuda_check(cudaError_t code, const char *call, const char *file, int line);
#define CUDA_ERR(call) dev_cuda_check((call), #call, __FILE__, __LINE__)
#define CUDA_TRY(call) TRY(CUDA_ERR(call))

#ifdef __cplusplus
}
#endif
#endif
