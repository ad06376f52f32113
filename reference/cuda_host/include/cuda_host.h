/* cuda_host.h - what the host build has beyond CUDA's names: how kernels start and what they
 * stand on.
 *
 * Only .cu sources (through reference/device/cuda_kernel.cuh and cuda_mma.cuh) and this room
 * include it.  Streams are late: nothing runs before something waits or asks for it, then in an
 * order drawn from the environment's CUDA_HOST_SEED.  A kernel runs block by block; each
 * thread is a fibre of one system thread and runs until it waits for others.
 *
 * Environment: CUDA_HOST_SEED (1), CUDA_HOST_DEVICES (1), CUDA_VISIBLE_DEVICES (of these), CUDA_HOST_MEMORY_MIB of each
 * device (8192), CUDA_HOST_DRIVER (13000, the version that the driver says it is; 0: there is none), CUDA_HOST_NCCL_VERSION
 * (also VERSION@RANK, of one rank; 0: there is no NCCL), CUDA_HOST_ECC_AT (the n-th kernel that runs hits an uncorrectable
 * ECC error), and what NVML says at each look that it has not said before: CUDA_HOST_ECC uncorrected errors,
 * CUDA_HOST_HEAT_MS held back by heat, CUDA_HOST_POWER_MS by the power limit; and CUDA_HOST_REASONS, as it stands.
 */
#ifndef CUDA_HOST_CUDA_HOST_H
#define CUDA_HOST_CUDA_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Why the sticky error is: kernel, block, thread and what happened; "" when there is none. */
const char *cuda_host_message(void);

/* --- memory: with AddressSanitizer these mark bytes, else they do nothing -------------- */
void cuda_host_poison(const void *at, size_t bytes);
void cuda_host_unpoison(const void *at, size_t bytes);
/* Streams that callers made, blocks of device memory and of pinned memory that live: what is not given back shows. */
struct cuda_host_alive {
  int streams, blocks, pinned;
};
void cuda_host_count(struct cuda_host_alive *out);
/* Whether [at, at + bytes) lies in one live block of device memory. */
int cuda_host_is_device(const void *at, size_t bytes);
/* Whether this process has an NVML: where the environment gives it something to say. */
int cuda_host_has_nvml(void);

#ifdef __cplusplus
}

#include <functional>
#include <tuple>
#include <utility>

/* --- launching -------------------------------------------------------------------------- */

/* kernel<<<grid, block, shared, stream>>>: `body` is one thread's call of the kernel. */
cudaError_t cuda_host_launch_body(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                                  std::function<void()> body);

/* The arguments become the kernel's parameter types now, as in a launch. */
template <class... P, class... A>
cudaError_t cuda_host_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream, A &&...a)
{
  std::tuple<std::decay_t<P>...> given(std::forward<A>(a)...);
  return cuda_host_launch_body(name, reinterpret_cast<const void *>(kernel), grid, block, shared, stream,
                               [kernel, given] { std::apply(kernel, given); });
}

/* --- inside kernels ------------------------------------------------------------------------ */

/* Shared memory of the block.  A declaration inside a kernel is one static `site`; the first
 * thread of each block that passes it gets the bytes, all 0xFF. */
struct cuda_host_site {
  uint64_t block; /* the block that `at` belongs to */
  void *at;
};
void *cuda_host_shared(cuda_host_site *site, size_t bytes, size_t align);
void *cuda_host_shared_dynamic(void);

/* All lanes that `mask` names call this with the same mask and the same `act`; when the last
 * has come, act(lanes, mask) runs once, lanes[i] being lane i's `mine`; then all go on.  Every
 * warp function is built on this, mma and ldmatrix too. */
void cuda_host_warp(unsigned mask, void *mine, void (*act)(void *const lanes[32], unsigned mask), const char *what);
int cuda_host_lane(void);

/* cp.async of this thread: the copy happens no earlier than the wait.  `valid` bytes are copied,
 * the rest up to `bytes` becomes 0. */
void cuda_host_async_copy(void *shared, const void *global, size_t bytes, size_t valid);
void cuda_host_async_commit(void);
void cuda_host_async_wait(int groups_left); /* until at most that many committed groups are open */

#endif
#endif
