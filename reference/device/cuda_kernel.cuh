/* cuda_kernel.cuh - what every `.cu` includes: how kernels start, share memory, reduce,
 * load and report, the same under nvcc and under the host's compiler.
 *
 *   static __global__ void scale_kernel(float *y, const float *x, int64_t n, float by) { ... }
 *   return LAUNCH(at, scale_kernel, blocks_for(n, 256), 256, 0, y, x, n, by);
 *   return LAUNCH(at, (cast_kernel<float, __nv_bfloat16>), grid, block, 0, to, from);
 *
 * Blocks have whole warps.  Every sum here has a fixed order, which depends on the shape of
 * the block and on nothing else: equal inputs give equal bits.
 */
#ifndef DEVICE_CUDA_KERNEL_CUH
#define DEVICE_CUDA_KERNEL_CUH

#include "device/dev_cuda.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#ifdef SHARDMARK_CUDA_HOST
#include <cuda_host.h>
#endif

/* --- starting ----------------------------------------------------------------------- */

/* A parameter that takes the kernel's type and deduces nothing from the argument. */
template <typename T> struct launch_argument { typedef T type; };

enum { LAUNCH_SHARED_FREE = 48 * 1024 }; /* bytes that a kernel may have without asking */

/* Issues to at->stream; arguments convert to the kernel's parameters.  A grid without a block is
 * nothing to do.  More than 48 KiB of dynamic shared memory is asked for here.  Fails: ERR_DEVICE
 * naming kernel and place. */
template <typename... P>
static inline enum err launch_kernel(const struct dev_cuda *at, const char *name, const char *file, int line,
                                     void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                                     typename launch_argument<P>::type... args)
{
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return ERR_OK;
  if (shared_bytes > LAUNCH_SHARED_FREE) {
    const enum err e = dev_cuda_check(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                           (int)shared_bytes), name, file, line);
    if (e) return e;
  }
#ifdef SHARDMARK_CUDA_HOST
  return dev_cuda_check(cuda_host_launch(name, kernel, grid, block, shared_bytes, (cudaStream_t)at->stream, args...), name,
                        file, line);
#else
  kernel<<<grid, block, shared_bytes, (cudaStream_t)at->stream>>>(args...);
  return dev_cuda_check(cudaGetLastError(), name, file, line);
#endif
}
#define LAUNCH(at, kernel, grid, block, shared_bytes, ...) \
  launch_kernel((at), #kernel, __FILE__, __LINE__, kernel, (grid), (block), (shared_bytes), ##__VA_ARGS__)

/* Blocks of `each` that hold n. */
static inline unsigned int blocks_for(int64_t n, int64_t each) { return (unsigned int)((n + each - 1) / each); }

/* --- shared memory -------------------------------------------------------------------- */

/* SHARED: `count` elements known at compile time.  SHARED_DYNAMIC: what the launch gave; once in a
 * kernel.  Both are filled by nobody: 0xFF in the host build. */
#ifdef SHARDMARK_CUDA_HOST
#define SHARED(type, name, count)     \
  static cuda_host_site name##_site = {}; \
  type *const name = (type *)cuda_host_shared(&name##_site, sizeof(type) * (count), 16)
#define SHARED_DYNAMIC(type, name) type *const name = (type *)cuda_host_shared_dynamic()
#else
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define SHARED_DYNAMIC(type, name)                           \
  extern __shared__ __align__(128) unsigned char launch_shared[]; \
  type *const name = (type *)launch_shared
#endif

/* --- where a thread is ------------------------------------------------------------------ */

enum { WARP = 32 };
static __device__ __forceinline__ int thread_index(void)
{
  return (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}
static __device__ __forceinline__ int thread_count(void) { return (int)(blockDim.x * blockDim.y * blockDim.z); }
static __device__ __forceinline__ int thread_lane(void) { return thread_index() % WARP; }
static __device__ __forceinline__ int thread_warp(void) { return thread_index() / WARP; }

/* --- reductions --------------------------------------------------------------------------- */

/* Of the 32 lanes, given to each of them: lanes 16 apart meet first, neighbours last. */
template <typename T> static __device__ __forceinline__ T warp_sum(T value)
{
  for (int apart = WARP / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, apart);
  return value;
}
template <typename T> static __device__ __forceinline__ T warp_max(T value)
{
  for (int apart = WARP / 2; apart > 0; apart /= 2) {
    const T other = __shfl_xor_sync(0xFFFFFFFFu, value, apart);
    value = other > value || other != other ? other : value; /* NaN stays */
  }
  return value;
}

/* Of all threads of the block, given to each of them; every thread calls it.  `scratch`: shared
 * memory for 32 T, free again at the block's next barrier. */
template <typename T> static __device__ __forceinline__ T block_sum(T value, T *scratch)
{
  value = warp_sum(value);
  __syncthreads(); /* a reduction before this one may still be read */
  if (thread_lane() == 0) scratch[thread_warp()] = value;
  __syncthreads();
  return warp_sum(thread_lane() < thread_count() / WARP ? scratch[thread_lane()] : T(0));
}
template <typename T> static __device__ __forceinline__ T block_max(T value, T *scratch)
{
  value = warp_max(value);
  __syncthreads();
  if (thread_lane() == 0) scratch[thread_warp()] = value;
  __syncthreads();
  return warp_max(scratch[thread_lane() < thread_count() / WARP ? thread_lane() : 0]);
}

/* --- element types --------------------------------------------------------------------------- */

/* The type that sums and statistics over elements of T have. */
template <typename T> struct statistic_of { typedef float type; };
template <> struct statistic_of<double> { typedef double type; };
template <typename T> using stat_t = typename statistic_of<T>::type;

static __device__ __forceinline__ float to_float(float x) { return x; }
static __device__ __forceinline__ float to_float(double x) { return (float)x; }
static __device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
static __device__ __forceinline__ float to_float(__half x) { return __half2float(x); }

/* Rounded once, to nearest even. */
template <typename T> static __device__ __forceinline__ T from_float(float x) { return (T)x; }
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __forceinline__ __half from_float<__half>(float x) { return __float2half_rn(x); }

/* Element to statistic type, and back, rounded once. */
static __device__ __forceinline__ double widen(double x) { return x; }
static __device__ __forceinline__ float widen(float x) { return x; }
static __device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
static __device__ __forceinline__ float widen(__half x) { return __half2float(x); }
template <typename T> static __device__ __forceinline__ T narrow(stat_t<T> x) { return (T)x; }
template <> __device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __forceinline__ __half narrow<__half>(float x) { return __float2half_rn(x); }

/* --- vector loads ------------------------------------------------------------------------------- */

/* n elements that move together; 16 bytes are the widest that one thread moves at once. */
template <typename T, int n> struct alignas(sizeof(T) * n) vector {
  T at[n];
};
template <typename T> struct vector_width { enum { value = 16 / sizeof(T) }; };

/* `from` and `to` are aligned to the vector's size. */
template <typename T, int n> static __device__ __forceinline__ vector<T, n> load_vector(const T *from)
{
  return *reinterpret_cast<const vector<T, n> *>(from);
}
template <typename T, int n> static __device__ __forceinline__ void store_vector(T *to, const vector<T, n> &value)
{
  *reinterpret_cast<vector<T, n> *>(to) = value;
}

/* Host: whether every row of t may be read in pieces of 16 bytes from its first element on. */
static inline bool vector_aligned(const struct tensor *t)
{
  return (uintptr_t)t->at % 16 == 0 && (t->rows <= 1 || (size_t)t->stride * dtype_bytes(t->type) % 16 == 0);
}

/* --- data errors ----------------------------------------------------------------------------------- */

/* A value in the data that cannot be: the work fails with ERR_NUMERIC at the next synchronisation.
 * `report` is at->report and `format` a host literal with up to four %lld, both passed to the kernel;
 * the kernel goes on without using the value.  Of several threads one is heard. */
#define REPORT(report, format, a, b, c, d) \
  report_write((report), (format), (long long)(a), (long long)(b), (long long)(c), (long long)(d))
static __device__ __forceinline__ void report_write(struct dev_cuda_report *report, const char *format, long long a,
                                                    long long b, long long c, long long d)
{
  if (atomicCAS(&report->claimed, 0u, 1u) != 0u) return;
  report->a = a;
  report->b = b;
  report->c = c;
  report->d = d;
  report->format = format;
}

#endif
