/* cuda.h - stand-in of the host build: the driver's names that Shardmark looks up at run time
 * with cudaGetDriverEntryPointByVersion().  Values and meaning are CUDA's. */
#ifndef CUDA_HOST_CUDA_H
#define CUDA_HOST_CUDA_H

#include <stdint.h>

#define CUDA_VERSION 13000
#define CUDAAPI

typedef enum cudaError_enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_LAUNCH_FAILED = 719
} CUresult;
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;
typedef uint32_t cuuint32_t;

typedef enum CUstreamWaitValue_flags_enum {
  CU_STREAM_WAIT_VALUE_GEQ = 0x0, /* (int32_t)(*address - value) >= 0 */
  CU_STREAM_WAIT_VALUE_EQ = 0x1
} CUstreamWaitValue_flags;
typedef enum CUstreamWriteValue_flags_enum { CU_STREAM_WRITE_VALUE_DEFAULT = 0x0 } CUstreamWriteValue_flags;

#endif
