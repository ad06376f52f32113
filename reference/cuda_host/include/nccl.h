/* nccl.h - stand-in of the host build: the part of NCCL that Shardmark uses, over MPI.
 *
 * Names, signatures and meaning are NCCL's: calls go on a stream; those between ncclGroupStart()
 * and ncclGroupEnd() go on together; sends wait for their receiver; calls of one communicator run in
 * the order they were made.  Rank 0 of a communicator is who made its id.
 *
 * Environment: CUDA_HOST_NCCL_VERSION (22809), what ncclGetVersion() says.
 */
#ifndef CUDA_HOST_NCCL_H
#define CUDA_HOST_NCCL_H

#include "cuda_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_VERSION_CODE 22809
#define NCCL_UNIQUE_ID_BYTES 128

typedef struct ncclComm *ncclComm_t;
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclSum = 0, ncclMax = 2 } ncclRedOp_t;
typedef enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9
} ncclDataType_t;

ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
/* All n ranks, each with the id that rank 0 made and on a device of its own. */
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t comm); /* all ranks; what is queued is done first */
ncclResult_t ncclCommAbort(ncclComm_t comm);   /* this rank alone; what is queued is given up */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t receive_count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *send, void *receive, size_t send_count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);

/* Host build only: the communicator meets `error` as from its network.  What is queued on it hangs
 * until ncclCommAbort(), as with NCCL. */
void cuda_host_nccl_break(ncclComm_t comm, ncclResult_t error);
/* NCCL_ALGO or NCCL_PROTO as it was when the communicator was made; "": not set. */
const char *cuda_host_nccl_chosen(ncclComm_t comm, const char *variable);

#ifdef __cplusplus
}
#endif
#endif
