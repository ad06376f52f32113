/* cuda_kernel_cuda_test.cu - the kernels of cuda_kernel_cuda_test.c. */
#include "device/cuda_kernel_testing.h"

#include "device/cuda_kernel.cuh"

template <typename T> static __global__ void reduce_kernel(T *out, T *most, const T *in)
{
  SHARED(T, scratch, 32);
  const int i = thread_index();
  out[i] = block_sum(in[i], scratch);
  most[i] = block_max(in[i], scratch); /* at once: the sum's scratch is still being read by slow warps */
  out[i] += block_sum(T(0), scratch);
}

template <typename T> static enum err reduce(const struct dev_cuda *at, void *args)
{
  const struct reduce_args *a = (const struct reduce_args *)args;
  const dim3 block((unsigned)a->threads / 2, 2); /* two dimensions: a warp is of the linear index */
  return LAUNCH(at, (reduce_kernel<T>), 1, block, 0, (T *)a->out, (T *)a->most, (const T *)a->in);
}
enum err reduce_f32_cuda(const struct dev_cuda *at, void *args) { return reduce<float>(at, args); }
enum err reduce_f64_cuda(const struct dev_cuda *at, void *args) { return reduce<double>(at, args); }

static __global__ void warps_kernel(float *out, float *most, const float *in)
{
  const int i = thread_index();
  out[i] = warp_sum(in[i]);
  most[i] = warp_max(in[i]);
}
enum err warps_f32_cuda(const struct dev_cuda *at, void *args)
{
  const struct reduce_args *a = (const struct reduce_args *)args;
  return LAUNCH(at, warps_kernel, 1, a->threads, 0, (float *)a->out, (float *)a->most, (const float *)a->in);
}

static __global__ void narrow_kernel(__nv_bfloat16 *to, const float *from, int n)
{
  const int i = 4 * (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  const vector<float, 4> v = load_vector<float, 4>(from + i);
  vector<__nv_bfloat16, 4> w;
  for (int k = 0; k < 4; k++) w.at[k] = narrow<__nv_bfloat16>(v.at[k]);
  store_vector(to + i, w);
}
static __global__ void widen_kernel(float *to, const __nv_bfloat16 *from, int n)
{
  enum { W = vector_width<__nv_bfloat16>::value };
  const int i = W * (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  const vector<__nv_bfloat16, W> v = load_vector<__nv_bfloat16, W>(from + i);
  for (int k = 0; k < W; k++) to[i + k] = k % 2 ? widen(v.at[k]) : to_float(v.at[k]);
}
enum err round_bf16_cuda(const struct dev_cuda *at, void *args)
{
  const struct round_args *a = (const struct round_args *)args;
  TRY(LAUNCH(at, narrow_kernel, blocks_for(a->n, 4 * 64), 64, 0, (__nv_bfloat16 *)a->between, a->in, a->n));
  return LAUNCH(at, widen_kernel, blocks_for(a->n, 8 * 64), 64, 0, a->out, (const __nv_bfloat16 *)a->between, a->n);
}

static __global__ void reverse_kernel(float *to, const float *from, int n)
{
  SHARED_DYNAMIC(float, all);
  for (int i = thread_index(); i < n; i += thread_count()) all[i] = from[i];
  __syncthreads();
  for (int i = thread_index(); i < n; i += thread_count()) to[i] = all[n - 1 - i];
}
enum err reverse_cuda(const struct dev_cuda *at, void *args)
{
  const struct round_args *a = (const struct round_args *)args;
  return LAUNCH(at, reverse_kernel, 1, 128, (size_t)a->n * sizeof(float), a->out, a->in, a->n);
}
