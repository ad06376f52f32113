/* nccl_cuda.h - the NCCL library, found when the first communicator is made.
 *
 * It is loaded by name and not linked: one rank, and ranks that exchange by way of the host,
 * need none, and a machine without it is told so by us instead of by the loader.
 */
#ifndef COMM_NCCL_CUDA_H
#define COMM_NCCL_CUDA_H

#include "base/err.h"

#include <nccl.h>

#define NCCL_CUDA_CALLS(X)                                                                                     \
  X(GetVersion) X(GetUniqueId) X(GetErrorString) X(CommInitRank) X(CommDestroy) X(CommAbort) X(CommGetAsyncError) \
  X(GroupStart) X(GroupEnd) X(AllReduce) X(ReduceScatter) X(AllGather) X(Broadcast) X(Send) X(Recv)

/* ncclX is the member X. */
struct nccl_cuda {
#define X(name) __typeof__(nccl##name) *name;
  NCCL_CUDA_CALLS(X)
#undef X
};

/* Fails: ERR_UNAVAILABLE with the loader's reason. */
enum err nccl_cuda_load(struct nccl_cuda *out);
/* "2.28.9" of NCCL's number. */
void nccl_cuda_text(int version, char *out, size_t bytes);
/* ncclSuccess is ERR_OK; anything else ERR_COMM with "call: text". */
enum err nccl_cuda_check(const struct nccl_cuda *nccl, ncclResult_t code, const char *call);
#define NCCL_TRY(nccl, call) TRY(nccl_cuda_check((nccl), (nccl)->call, "nccl" #call))

#endif
