/* link_cuda.h - a link on the memory of a CUDA device: NCCL, or nobody else in a group of one. */
#ifndef COMM_LINK_CUDA_H
#define COMM_LINK_CUDA_H

#include "comm/link.h"

#ifdef SHARDMARK_HAS_CUDA
/* Collective over the ranks of `mpi`, a link of the same group (whose ranks of the world are listed
 * for messages), which stays the caller's.  scratch: of the device, 16 bytes a rank, no other stream's;
 * not looked at in a group of one.  Fails, on all its ranks alike: ERR_UNAVAILABLE without NCCL,
 * ERR_INVALID for two ranks on one device or unequal versions; ERR_COMM. */
enum err link_cuda_create(struct link *mpi, const int *ranks, struct dev_stream *s, const struct comm_config *config,
                          void *scratch, struct link **out);
/* Its ncclComm_t; NULL in a group of one. */
void *link_cuda_handle(struct link *l);
/* The checks alone. */
enum err link_cuda_check(struct link *mpi, const int *ranks, const char *uuid);
enum err link_cuda_library(char *out, size_t bytes); /* "2.28.9" */
enum err link_cuda_topology(char *out, size_t bytes);
#else
static inline enum err link_cuda_create(struct link *mpi, const int *ranks, struct dev_stream *s,
                                        const struct comm_config *config, void *scratch, struct link **out)
{
  (void)mpi, (void)ranks, (void)s, (void)scratch;
  *out = NULL;
  FAIL(ERR_UNAVAILABLE, "comm '%s': this build has no CUDA", config->name);
}
static inline enum err link_cuda_check(struct link *mpi, const int *ranks, const char *uuid)
{
  (void)mpi, (void)ranks;
  FAIL(ERR_UNAVAILABLE, "device '%s': this build has no CUDA", uuid);
}
static inline enum err link_cuda_library(char *out, size_t bytes)
{
  (void)out, (void)bytes;
  FAIL(ERR_UNAVAILABLE, "this build has no CUDA");
}
static inline enum err link_cuda_topology(char *out, size_t bytes) { return link_cuda_library(out, bytes); }
#endif

#endif
