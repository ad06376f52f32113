/* host_nccl.h - a communicator of NCCL's stand-in: made in host_nccl_comm.cpp, used in host_nccl.cpp. */
#ifndef CUDA_HOST_NCCL_INTERNAL_H
#define CUDA_HOST_NCCL_INTERNAL_H

#include "host_internal.h"

#include "nccl.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  MPI_Op bf16_sum = MPI_OP_NULL, bf16_max = MPI_OP_NULL, half_sum = MPI_OP_NULL, half_max = MPI_OP_NULL;
  int n, rank, device;
  ncclResult_t error = ncclSuccess; /* from the network: what is queued hangs */
  bool aborted = false;
  std::string algo, proto; /* as the environment asked for */
  host_point last{}; /* its calls run in the order they were made, on whatever streams */
};

std::shared_ptr<ncclComm> host_nccl_find(ncclComm_t handle); /* NULL: there is none; with the lock held */
ncclResult_t host_nccl_say(ncclResult_t result, const char *why); /* says why on stderr, returns the result */

#endif
