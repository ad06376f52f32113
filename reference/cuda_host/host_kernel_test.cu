/* host_kernel_test.cu - kernels that are right, and kernels that are wrong in one way each. */
#include "cuda_host/host_kernel_test.h"

#include <cuda_bf16.h>
#include <cuda_host.h>

#define SHARED(type, name, count)        \
  static cuda_host_site name##_site = {}; \
  type *const name = static_cast<type *>(cuda_host_shared(&name##_site, sizeof(type) * (count), 16))
#define ALL_LANES 0xffffffffu

/* --- numbers ----------------------------------------------------------------------- */

static __global__ void number_kernel(int *out)
{
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  atomicAdd(&out[block * blockDim.x * blockDim.y * blockDim.z + thread], 1);
}
cudaError_t start_number_with(struct grid_shape s, size_t shared, int *out)
{
  return cuda_host_launch("number", number_kernel, dim3(s.grid[0], s.grid[1], s.grid[2]), dim3(s.block[0], s.block[1], s.block[2]), shared,
                          NULL, out);
}
cudaError_t start_number(struct grid_shape s, int *out) { return start_number_with(s, 0, out); }
cudaError_t raise_number(int bytes) { return cudaFuncSetAttribute(number_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes); }

/* --- warps --------------------------------------------------------------------------- */

static __global__ void warp_kernel(warp_way way, double *out)
{
  const int lane = (int)threadIdx.x % warpSize;
  const float mine = (float)threadIdx.x;
  double got = -1;
  switch (way) {
  case BUTTERFLY: {
    float sum = mine;
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, apart);
    got = sum;
    break;
  }
  case BROADCAST: got = __shfl_sync(ALL_LANES, mine, 3); break;
  case UP: got = __shfl_up_sync(ALL_LANES, mine, 2); break;
  case DOWN: got = __shfl_down_sync(ALL_LANES, mine, 2); break;
  case WIDTH_8: got = __shfl_down_sync(ALL_LANES, mine, 3, 8); break;
  case BALLOT: got = __ballot_sync(ALL_LANES, lane % 3 == 0); break;
  case ANY_ALL: got = __any_sync(ALL_LANES, lane == 31) * 2 + __all_sync(ALL_LANES, lane < 31); break;
  case HALVES: /* each half of the warp on its own, the second twice as often */
    for (int i = 0; i < (lane < 16 ? 1 : 2); i++) got = __shfl_xor_sync(lane < 16 ? 0xffffu : 0xffff0000u, mine + (float)i, 1);
    break;
  case DOUBLES: got = __shfl_xor_sync(ALL_LANES, 1e300 + threadIdx.x * 1e290, 1); break;
  }
  out[threadIdx.x] = got;
}
cudaError_t start_warp(enum warp_way way, int n, double *out) { return cuda_host_launch("warp", warp_kernel, 1, n, 0, NULL, way, out); }

/* --- barriers -------------------------------------------------------------------------- */

static __global__ void tree_kernel(tree_way way, float *out)
{
  SHARED(float, part, 64);
  float sum = 0;
  for (int round = 0; round < 2; round++) {
    part[threadIdx.x] = (float)(threadIdx.x + blockIdx.x);
    if (way != NO_BARRIER) __syncthreads();
    for (unsigned half = 32; half > 0; half /= 2) {
      const float other = threadIdx.x < half ? part[threadIdx.x + half] : 0;
      if (threadIdx.x < half) part[threadIdx.x] += other;
      if (way != NO_BARRIER) __syncthreads();
    }
    sum += part[0];
    if (way == WHOLE) __syncthreads();
  }
  if (threadIdx.x == 63) out[blockIdx.x] = sum;
}
cudaError_t start_tree(enum tree_way way, int blocks, float *out)
{
  return cuda_host_launch("tree", tree_kernel, blocks, 64, 0, NULL, way, out);
}

static __global__ void lanes_kernel(int with_barrier, float *out)
{
  SHARED(float, part, 32);
  const unsigned lane = threadIdx.x;
  part[lane] = (float)lane;
  if (with_barrier) __syncwarp();
  out[blockIdx.x * 32 + lane] = part[(lane + 1) % 32];
}
cudaError_t start_lanes(int with_barrier, int blocks, float *out)
{
  return cuda_host_launch("lanes", lanes_kernel, blocks, 32, 0, NULL, with_barrier, out);
}

static __global__ void votes_kernel(int *out)
{
  const int thread = (int)threadIdx.x;
  const int any = __syncthreads_or(thread == 5), none = __syncthreads_or(thread > 96);
  const int all = __syncthreads_and(thread < 96), most = __syncthreads_and(thread != 7), count = __syncthreads_count(thread % 2);
  if (thread == 95) {
    out[0] = any != 0;
    out[1] = none != 0;
    out[2] = all != 0;
    out[3] = most != 0;
    out[4] = count;
  }
}
cudaError_t start_votes(int *out) { return cuda_host_launch("votes", votes_kernel, 1, 96, 0, NULL, out); }

/* --- wrong in one way each ---------------------------------------------------------------- */

static int deep(int left, volatile char *above)
{
  volatile char here[256];
  here[0] = above ? above[0] : 1;
  return left == 0 ? here[0] : deep(left - 1, here) + here[0];
}

static __global__ void bad_kernel(bad_way way, float *out)
{
  const int lane = (int)threadIdx.x;
  float got = 1;
  switch (way) {
  case HALF_AT_BARRIER:
    if (lane < 32) __syncthreads();
    break;
  case ENDED_BEFORE_BARRIER:
    if (lane == 40) return;
    __syncthreads();
    break;
  case LANE_ENDED:
    if (lane == 9) return;
    got = __shfl_xor_sync(ALL_LANES, got, 1);
    break;
  case LANE_AT_BARRIER:
    if (lane == 9 || lane >= 32) __syncthreads();
    else got = __shfl_xor_sync(ALL_LANES, got, 1);
    break;
  case OWN_LANE_MISSING: got = __shfl_xor_sync(0xfffffffeu, got, 1); break;
  case LANES_THAT_DO_NOT_EXIST: got = __shfl_xor_sync(ALL_LANES, got, 1); break;
  case TWO_FUNCTIONS:
    if (lane % 2) got = __shfl_xor_sync(ALL_LANES, got, 1);
    else __syncwarp();
    break;
  case TWO_MASKS: got = __shfl_xor_sync(lane % 32 < 16 ? ALL_LANES : 0xffff0000u, got, 1); break;
  case TRAP:
    if (lane == 3) __trap();
    break;
  case TOO_MUCH_SHARED: {
    SHARED(float, part, 13000);
    part[lane] = 1;
    break;
  }
  case DEEP: got = (float)deep(1 << 20, NULL); break;
  }
  out[lane] = got;
}
cudaError_t start_bad(enum bad_way way, float *out)
{
  return cuda_host_launch("bad", bad_kernel, 1, way == LANES_THAT_DO_NOT_EXIST ? 48 : 64, 0, NULL, way, out);
}

/* --- memory ----------------------------------------------------------------------------------- */

static __global__ void copy_kernel(float *to, const float *from, int n, int from_offset)
{
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) to[i] = from[i + from_offset];
}
cudaError_t start_copy(float *to, const float *from, int n, int from_offset)
{
  return cuda_host_launch("copy", copy_kernel, (n + 31) / 32, 32, 0, NULL, to, from, n, from_offset);
}

static __global__ void async_kernel(float *out, const float *from, int waits)
{
  SHARED(float, part, 128);
  const unsigned lane = threadIdx.x;
  cuda_host_async_copy(&part[lane * 4], &from[lane * 4], 16, lane == 31 ? 8 : 16);
  cuda_host_async_commit();
  cuda_host_async_commit(); /* an empty group */
  if (waits) cuda_host_async_wait(1);
  __syncwarp();
  for (unsigned i = lane; i < 128; i += 32) out[i] = part[i];
}
cudaError_t start_async_copy(float *out, const float *from, int waits)
{
  return cuda_host_launch("async", async_kernel, 1, 32, 0, NULL, out, from, waits);
}

static __global__ void unwritten_kernel(float *out)
{
  SHARED(float, part, 32);
  out[threadIdx.x] = part[threadIdx.x];
  part[threadIdx.x] = 1; /* the next block does not see it */
}
cudaError_t start_shared_unwritten(float *out) { return cuda_host_launch("unwritten", unwritten_kernel, 3, 32, 0, NULL, out); }

static __global__ void past_end_kernel(float *out)
{
  SHARED(float, part, 32);
  SHARED(float, next, 32);
  part[threadIdx.x] = next[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = part[threadIdx.x + 1];
}
cudaError_t start_shared_past_end(float *out) { return cuda_host_launch("past_end", past_end_kernel, 1, 32, 0, NULL, out); }

static __global__ void atomics_kernel(int *out)
{
  const int thread = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&out[0], thread);
  atomicMax(&out[1], thread);
  atomicMin(&out[2], thread);
  if (atomicCAS(&out[3], 0, 1) == 0) atomicAdd(&out[4], 1);
  if (atomicExch(&out[5], 1) == 0) atomicAdd(&out[6], 1);
}
cudaError_t start_atomics(int *out) { return cuda_host_launch("atomics", atomics_kernel, 4, 64, 0, NULL, out); }

static __global__ void bf16_kernel(unsigned short *to, const float *from, int n)
{
  for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) to[i] = __bfloat16_as_ushort(__float2bfloat16_rn(from[i]));
}
cudaError_t start_bf16(unsigned short *to, const float *from, int n) { return cuda_host_launch("bf16", bf16_kernel, 1, 32, 0, NULL, to, from, n); }
