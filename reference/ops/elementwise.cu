/* elementwise.cu - fill, copy, add, accumulate, scale on CUDA: the CPU's bits, one rounding an element.
 *
 * All are bound by memory: each operand's bytes once, 16 a thread at a time.
 */
#include "ops/elementwise_args.h"
#include "ops/rows.cuh"

#include "base/f16.h"
#include "base/fault.h"

/* y = value.  Bytes: y. */
template <typename T> static __global__ void fill_kernel(rows_view<T> y, T value, rows_walk w)
{
  const int n = vector_width<T>::value;
  rows_group<T, n> g;
#pragma unroll
  for (int k = 0; k < n; k++) g.at[k] = value;
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) rows_store(y, w, p, g);
}

static double value_as(double value, double) { return value; }
static float value_as(double value, float) { return (float)value; }
static bf16 value_as(double value, bf16) { return __ushort_as_bfloat16(bf16_round_f64(value)); }

template <typename T> static enum err fill(const struct dev_cuda *at, void *args)
{
  const struct elementwise_args *a = (const struct elementwise_args *)args;
  const rows_walk w = rows_over(vector_width<T>::value, true, {&a->y});
  return ROWS_LAUNCH(at, fill_kernel<T>, w, rows_of<T>(&a->y), value_as(a->value, T()), w);
}
OP_CUDA_EACH_TYPE(op_fill, fill)

/* y = a + b, computed in the state type and rounded once; y may be a or b, element by element.  Bytes: y, a, b. */
template <typename T>
static __global__ void add_kernel(rows_view<T> y, rows_view<const T> a, rows_view<const T> b, rows_walk w)
{
  const int n = vector_width<T>::value;
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) {
    rows_group<T, n> left = rows_load<n>(a, w, p);
    const rows_group<T, n> right = rows_load<n>(b, w, p);
#pragma unroll
    for (int k = 0; k < n; k++) left.at[k] = narrow<T>(widen(left.at[k]) + widen(right.at[k]));
    rows_store(y, w, p, left);
  }
}

template <typename T>
static enum err add_all(const struct dev_cuda *at, const struct tensor *y, const struct tensor *a,
                        const struct tensor *b)
{
  const rows_walk w = rows_over(vector_width<T>::value, true, {y, a, b});
  return ROWS_LAUNCH(at, add_kernel<T>, w, rows_of<T>(y), rows_of<const T>(a), rows_of<const T>(b), w);
}
template <typename T> static enum err add(const struct dev_cuda *at, void *args)
{
  const struct elementwise_args *a = (const struct elementwise_args *)args;
  return add_all<T>(at, &a->y, &a->x, &a->b);
}
template <typename T> static enum err accumulate(const struct dev_cuda *at, void *args)
{
  const struct elementwise_args *a = (const struct elementwise_args *)args;
  return add_all<T>(at, &a->y, &a->y, &a->x);
}
OP_CUDA_EACH_TYPE(op_add, add)
OP_CUDA_EACH_TYPE(op_accumulate, accumulate)

/* y = x * factor; y may be x.  The factor is a number of the state type, or a double.  Bytes: y, x. */
template <typename T>
static __global__ void scale_kernel(rows_view<T> y, rows_view<const T> x, const void *factor, bool is_double,
                                    rows_walk w)
{
  const int n = vector_width<T>::value;
  const stat_t<T> by = is_double ? (stat_t<T>)*(const double *)factor : *(const stat_t<T> *)factor;
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) {
    rows_group<T, n> g = rows_load<n>(x, w, p);
#pragma unroll
    for (int k = 0; k < n; k++) g.at[k] = narrow<T>(widen(g.at[k]) * by);
    rows_store(y, w, p, g);
  }
}
template <typename T> static enum err scale(const struct dev_cuda *at, void *args)
{
  const struct elementwise_args *a = (const struct elementwise_args *)args;
  const rows_walk w = rows_over(vector_width<T>::value, true, {&a->y, &a->x});
  return ROWS_LAUNCH(at, scale_kernel<T>, w, rows_of<T>(&a->y), rows_of<const T>(&a->x), a->b.at,
                     a->b.type == DTYPE_F64, w);
}
OP_CUDA_EACH_TYPE(op_scale, scale)

/* --- copy --------------------------------------------------------------------------------- */

/* x in the type of the first argument: the same bits, or rounded once where that is narrower. */
template <typename T> static __device__ __forceinline__ T converted(T, T x) { return x; }
static __device__ __forceinline__ double converted(double, float x) { return x; }
static __device__ __forceinline__ double converted(double, bf16 x) { return widen(x); }
static __device__ __forceinline__ double converted(double, f16 x) { return widen(x); }
static __device__ __forceinline__ float converted(float, double x) { return (float)x; }
static __device__ __forceinline__ float converted(float, bf16 x) { return widen(x); }
static __device__ __forceinline__ float converted(float, f16 x) { return widen(x); }
static __device__ __forceinline__ bf16 converted(bf16, double x) { return __ushort_as_bfloat16(bf16_round_f64(x)); }
static __device__ __forceinline__ bf16 converted(bf16, float x) { return __ushort_as_bfloat16(bf16_round(x)); }
static __device__ __forceinline__ bf16 converted(bf16, f16 x) { return __ushort_as_bfloat16(bf16_round(widen(x))); }
static __device__ __forceinline__ f16 converted(f16, double x) { return __ushort_as_half(f16_round_f64(x)); }
static __device__ __forceinline__ f16 converted(f16, float x) { return __ushort_as_half(f16_round(x)); }
static __device__ __forceinline__ f16 converted(f16, bf16 x) { return __ushort_as_half(f16_round(widen(x))); }

/* y = x, rounded once where y is narrower.  Bytes: y, x.  `wraps` is a planted fault: offsets of 32 bits. */
template <typename To, typename From>
static __global__ void copy_kernel(rows_view<To> y, rows_view<const From> x, bool wraps, rows_walk w)
{
  const int n = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) {
    const int64_t from = p.row * x.stride, to = p.row * y.stride;
    const rows_group<From, n> g = rows_load<From, n>(x.at + (wraps ? (int)from : from) + p.col, p.count, w.aligned);
    rows_group<To, n> out;
#pragma unroll
    for (int k = 0; k < n; k++) out.at[k] = converted(To(), g.at[k]);
    rows_store<To, n>(y.at + (wraps ? (int)to : to) + p.col, p.count, w.aligned, out);
  }
}
template <typename To, typename From> static enum err copy(const struct dev_cuda *at, const struct elementwise_args *a)
{
  const bool wraps = fault_is(FAULT_MM_INT32_INDEX_OVERFLOW);
  const rows_walk w =
      rows_over(16 / (int)(sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From)), !wraps, {&a->y, &a->x});
  return ROWS_LAUNCH(at, (copy_kernel<To, From>), w, rows_of<To>(&a->y), rows_of<const From>(&a->x), wraps, w);
}
template <typename To> static enum err copy_to(const struct dev_cuda *at, const struct elementwise_args *a)
{
  switch (a->x.type) {
  case DTYPE_F64: return copy<To, double>(at, a);
  case DTYPE_F32: return copy<To, float>(at, a);
  case DTYPE_BF16: return copy<To, bf16>(at, a);
  case DTYPE_F16: return copy<To, f16>(at, a);
  default: FAIL(ERR_ARG, "no copy of %s", dtype_name(a->x.type));
  }
}

extern "C" enum err op_copy_cuda(const struct dev_cuda *at, void *args)
{
  const struct elementwise_args *a = (const struct elementwise_args *)args;
  if (a->y.type == a->x.type) switch (dtype_bytes(a->y.type)) {
    case 1: return copy<uint8_t, uint8_t>(at, a);
    case 2: return copy<uint16_t, uint16_t>(at, a);
    case 4: return copy<uint32_t, uint32_t>(at, a);
    default: return copy<uint64_t, uint64_t>(at, a);
    }
  switch (a->y.type) {
  case DTYPE_F64: return copy_to<double>(at, a);
  case DTYPE_F32: return copy_to<float>(at, a);
  case DTYPE_BF16: return copy_to<bf16>(at, a);
  case DTYPE_F16: return copy_to<f16>(at, a);
  default: FAIL(ERR_ARG, "no copy to %s", dtype_name(a->y.type));
  }
}
