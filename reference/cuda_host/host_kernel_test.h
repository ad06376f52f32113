/* host_kernel_test.h - kernels of host_kernel_test.cu, each started on the null stream. */
#ifndef CUDA_HOST_KERNEL_TEST_H
#define CUDA_HOST_KERNEL_TEST_H

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

struct grid_shape {
  unsigned grid[3], block[3];
};
/* out[i]: how often the thread with linear number i ran. */
cudaError_t start_number(struct grid_shape s, int *out);
cudaError_t start_number_with(struct grid_shape s, size_t shared, int *out); /* so much dynamic shared memory */
cudaError_t raise_number(int bytes);

/* Warp functions; one block of `n` threads writes out[thread]. */
enum warp_way { BUTTERFLY, BROADCAST, UP, DOWN, WIDTH_8, BALLOT, ANY_ALL, HALVES, DOUBLES };
cudaError_t start_warp(enum warp_way way, int n, double *out);

/* Blocks of 64 add their numbers by a tree in shared memory: out[block].  What may be left out: */
enum tree_way { WHOLE, NO_BARRIER, NO_BARRIER_BEFORE_REUSE };
cudaError_t start_tree(enum tree_way way, int blocks, float *out);
/* 32 lanes pass values through shared memory, with and without __syncwarp. */
cudaError_t start_lanes(int with_barrier, int blocks, float *out);

enum bad_way { HALF_AT_BARRIER, ENDED_BEFORE_BARRIER, LANE_ENDED, LANE_AT_BARRIER, OWN_LANE_MISSING, LANES_THAT_DO_NOT_EXIST,
               TWO_FUNCTIONS, TWO_MASKS, TRAP, TOO_MUCH_SHARED, DEEP };
cudaError_t start_bad(enum bad_way way, float *out);

cudaError_t start_copy(float *to, const float *from, int n, int from_offset); /* one thread an element */
cudaError_t start_async_copy(float *out, const float *from, int waits);         /* 32 x 4 floats by cp.async */
cudaError_t start_shared_unwritten(float *out);
cudaError_t start_shared_past_end(float *out);
cudaError_t start_votes(int *out); /* any, all, count of a block of 96 */
cudaError_t start_atomics(int *out);
cudaError_t start_bf16(unsigned short *to, const float *from, int n);

#ifdef __cplusplus
}
#endif
#endif
