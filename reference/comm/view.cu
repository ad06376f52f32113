/* view.cu - packing of strided views and the rank-ordered reduction on the device.
 *
 * Both only move memory: a copy reads and writes each of its bytes once; a reduction of n
 * parts reads n bytes and writes one for each byte of the result.
 */
#include "comm/view_cuda.h"

#include "device/cuda_kernel.cuh"

enum { THREADS = 256, BLOCKS_EACH = 16 }; /* blocks a multiprocessor, when there is so much to do */

static unsigned int blocks_of(const struct dev_cuda *at, int64_t n)
{
  const int64_t most = (int64_t)at->multiprocessors * BLOCKS_EACH, wanted = (n + THREADS - 1) / THREADS;
  return (unsigned int)(wanted < most ? wanted : most);
}

static __device__ __forceinline__ int64_t first_index(void) { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ __forceinline__ int64_t index_step(void) { return (int64_t)gridDim.x * blockDim.x; }

/* --- copies ----------------------------------------------------------------------- */

/* One side of a copy, in units that one thread moves at once. */
struct side {
  char *at;
  int64_t first, cols, stride; /* cols 0: one run */
};

static __device__ __forceinline__ int64_t place(const struct side s, int64_t i)
{
  const int64_t k = s.first + i;
  if (s.cols == 0) return k;
  if (((uint64_t)k | (uint64_t)s.cols) >> 32 == 0) { /* a short division costs a third of a long one */
    const uint32_t row = (uint32_t)k / (uint32_t)s.cols;
    return (int64_t)row * s.stride + (int64_t)((uint32_t)k - row * (uint32_t)s.cols);
  }
  return k / s.cols * s.stride + k % s.cols;
}

template <typename U> static __global__ void copy_kernel(struct side to, struct side from, int64_t n)
{
  for (int64_t i = first_index(); i < n; i += index_step())
    reinterpret_cast<U *>(to.at)[place(to, i)] = reinterpret_cast<const U *>(from.at)[place(from, i)];
}

static struct side side_of(const struct tensor *t, int64_t first, int64_t unit)
{
  const int64_t size = (int64_t)dtype_bytes(t->type);
  const bool run = tensor_contiguous(t);
  const struct side s = {(char *)t->at, first * size / unit, run ? 0 : t->cols * size / unit, t->stride * size / unit};
  return s;
}

/* Whether all that is counted from `first` on falls on multiples of `unit` bytes. */
static bool fits(const struct tensor *t, int64_t first, int64_t unit)
{
  const int64_t size = (int64_t)dtype_bytes(t->type);
  const bool rows = tensor_contiguous(t) || (t->cols * size % unit == 0 && t->stride * size % unit == 0);
  return rows && (uintptr_t)t->at % (uintptr_t)unit == 0 && first * size % unit == 0;
}

enum err view_cuda_copy(const struct dev_cuda *at, const struct tensor *to, int64_t to_first, const struct tensor *from,
                        int64_t from_first, int64_t count)
{
  const int64_t bytes = count * (int64_t)dtype_bytes(to->type);
  int64_t unit = 16;
  if (count == 0) return ERR_OK;
  while (unit > 1 && (bytes % unit != 0 || !fits(to, to_first, unit) || !fits(from, from_first, unit))) unit /= 2;
  const struct side a = side_of(to, to_first, unit), b = side_of(from, from_first, unit);
  const int64_t n = bytes / unit;
  const unsigned int blocks = blocks_of(at, n);
  switch (unit) {
  case 16: return LAUNCH(at, (copy_kernel<int4>), blocks, THREADS, 0, a, b, n);
  case 8: return LAUNCH(at, (copy_kernel<int64_t>), blocks, THREADS, 0, a, b, n);
  case 4: return LAUNCH(at, (copy_kernel<int32_t>), blocks, THREADS, 0, a, b, n);
  case 2: return LAUNCH(at, (copy_kernel<uint16_t>), blocks, THREADS, 0, a, b, n);
  default: return LAUNCH(at, (copy_kernel<uint8_t>), blocks, THREADS, 0, a, b, n);
  }
}

/* --- sums in rank order --------------------------------------------------------------- */

/* What elements of T are added as, and compared as: whole numbers wrap around, bf16 and f16 are rounded
 * at the end only. */
template <typename T> struct added_as { typedef T type; };
template <> struct added_as<int32_t> { typedef uint32_t type; };
template <> struct added_as<int64_t> { typedef uint64_t type; };
template <> struct added_as<__nv_bfloat16> { typedef float type; };
template <> struct added_as<__half> { typedef float type; };
template <typename T> struct compared_as { typedef T type; };
template <> struct compared_as<__nv_bfloat16> { typedef float type; };
template <> struct compared_as<__half> { typedef float type; };

template <typename T> struct adding {
  typedef typename added_as<T>::type value;
  static __device__ __forceinline__ value join(value a, value b) { return a + b; }
};
template <typename T> struct comparing {
  typedef typename compared_as<T>::type value;
  static __device__ __forceinline__ value join(value a, value b) { return b > a || b != b ? b : a; } /* a NaN stays */
};

template <typename V, typename T> static __device__ __forceinline__ V taken(T x) { return (V)x; }
template <> __device__ __forceinline__ float taken(__nv_bfloat16 x) { return __bfloat162float(x); }
template <> __device__ __forceinline__ float taken(__half x) { return __half2float(x); }
template <typename T, typename V> static __device__ __forceinline__ T given(V x) { return (T)x; }
template <> __device__ __forceinline__ __nv_bfloat16 given(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __forceinline__ __half given(float x) { return __float2half_rn(x); }

/* A thread reads element i of every part before it writes element i of the first: nobody else does. */
template <template <typename> class OP, typename T, int W> static __global__ void reduce_kernel(T *parts, int n, int64_t count)
{
  typedef typename OP<T>::value V;
  for (int64_t i = first_index(); i < count / W; i += index_step()) {
    V sum[W];
    vector<T, W> x = load_vector<T, W>(parts + i * W);
    for (int k = 0; k < W; k++) sum[k] = taken<V>(x.at[k]);
    for (int r = 1; r < n; r++) {
      x = load_vector<T, W>(parts + r * count + i * W);
      for (int k = 0; k < W; k++) sum[k] = OP<T>::join(sum[k], taken<V>(x.at[k]));
    }
    for (int k = 0; k < W; k++) x.at[k] = given<T>(sum[k]);
    store_vector(parts + i * W, x);
  }
}

template <template <typename> class OP, typename T> static enum err reduce(const struct dev_cuda *at, void *parts, int n, int64_t count)
{
  enum { W = vector_width<T>::value };
  const bool wide = (uintptr_t)parts % 16 == 0 && count % W == 0;
  if (wide) return LAUNCH(at, (reduce_kernel<OP, T, W>), blocks_of(at, count / W), THREADS, 0, (T *)parts, n, count);
  return LAUNCH(at, (reduce_kernel<OP, T, 1>), blocks_of(at, count), THREADS, 0, (T *)parts, n, count);
}

template <template <typename> class OP>
static enum err reduce_type(const struct dev_cuda *at, void *parts, int n, int64_t count, enum dtype type)
{
  switch (type) {
  case DTYPE_F64: return reduce<OP, double>(at, parts, n, count);
  case DTYPE_F32: return reduce<OP, float>(at, parts, n, count);
  case DTYPE_BF16: return reduce<OP, __nv_bfloat16>(at, parts, n, count);
  case DTYPE_F16: return reduce<OP, __half>(at, parts, n, count);
  case DTYPE_I32: return reduce<OP, int32_t>(at, parts, n, count);
  case DTYPE_I64: return reduce<OP, int64_t>(at, parts, n, count);
  default: FAIL(ERR_ARG, "reduction over ranks of %s", dtype_name(type));
  }
}

enum err view_cuda_reduce(const struct dev_cuda *at, void *parts, int n, int64_t count, enum dtype type, bool max)
{
  return max ? reduce_type<comparing>(at, parts, n, count, type) : reduce_type<adding>(at, parts, n, count, type);
}

/* --- planted ---------------------------------------------------------------------------- */

static __global__ void flip_kernel(unsigned char *byte, unsigned char bits) { *byte ^= bits; }

enum err view_cuda_flip(const struct dev_cuda *at, void *byte, unsigned char bits)
{
  return LAUNCH(at, flip_kernel, 1, 1, 0, (unsigned char *)byte, bits);
}
