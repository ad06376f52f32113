/* cuda_mma_cuda_test.cu - the kernel of cuda_mma_cuda_test.c. */
#include "device/cuda_mma_testing.h"

#include "device/cuda_kernel.cuh"
#include "device/cuda_mma.cuh"

enum { COPIES = 3, ROW = 8 };

template <typename T> static __device__ void products(float out[4], const float in[4], const uint32_t a[4], const uint32_t b[2])
{
  float d[4];
  for (int i = 0; i < 4; i++) d[i] = in[i];
  mma<T>(d, a, b);
  mma<T>(d, a, b);
  for (int i = 0; i < 4; i++) out[i] = d[i];
}

static __global__ void lanes_kernel(struct lanes_out *out, const struct lanes_in *in)
{
  SHARED(uint16_t, rows, WARP * ROW);
  SHARED(uint16_t, copied, COPIES * WARP * ROW);
  const int lane = thread_lane();

  products<__nv_bfloat16>(out->d[lane], in->d[lane], in->a[lane], in->b[lane]);
  products<__half>(out->d16[lane], in->d[lane], in->a16[lane], in->b16[lane]);

  for (int i = 0; i < ROW; i++) rows[lane * ROW + i] = in->rows[lane][i];
  __syncwarp();
  ldmatrix_x4(out->plain[lane], rows + lane * ROW);
  ldmatrix_x4_trans(out->trans[lane], rows + lane * ROW);

  out->pair[lane] = pair_bits<__nv_bfloat16>(in->x[lane][0], in->x[lane][1]);
  out->pair16[lane] = pair_bits<__half>(in->x[lane][0], in->x[lane][1]);
  out->exp2[lane] = exp2_approx(in->x[lane][0]);

  for (int c = 0; c < COPIES; c++) {
    cp_async_16(copied + (c * WARP + lane) * ROW, in->rows[lane], in->valid[c][lane]);
    cp_async_commit();
  }
  const int left = WARP - 1 - lane; /* another lane's: there after wait and barrier */
  cp_async_wait<2>();
  __syncwarp();
  for (int i = 0; i < ROW; i++) out->copied[0][left][i] = copied[left * ROW + i];
  cp_async_wait<0>();
  __syncwarp();
  for (int c = 1; c < COPIES; c++)
    for (int i = 0; i < ROW; i++) out->copied[c][left][i] = copied[(c * WARP + left) * ROW + i];
}

enum err lanes_cuda(const struct dev_cuda *at, void *args)
{
  const struct lanes_args *a = (const struct lanes_args *)args;
  return LAUNCH(at, lanes_kernel, 1, WARP, 0, a->out, a->in);
}
