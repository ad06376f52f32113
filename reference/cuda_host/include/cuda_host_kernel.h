/* cuda_host_kernel.h - what a kernel's source sees in the host build: qualifiers, built-in
 * variables and types, barriers, warp functions, atomics, mathematics.  C++ only; included by
 * cuda_runtime.h.  Meaning is CUDA's; see cuda_host.h for how threads run.
 *
 * One system thread runs the threads of a kernel, so atomics are plain.
 */
#ifndef CUDA_HOST_KERNEL_H
#define CUDA_HOST_KERNEL_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

/* --- built-in types and variables ------------------------------------------------------ */

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define CUDA_HOST_VECTORS(type, name, align2, align4)                                                        \
  struct __attribute__((aligned(align2))) name##2 { type x, y; };                                            \
  struct name##3 { type x, y, z; };                                                                          \
  struct __attribute__((aligned(align4))) name##4 { type x, y, z, w; };                                      \
  static inline name##2 make_##name##2(type x, type y) { return name##2{x, y}; }                             \
  static inline name##3 make_##name##3(type x, type y, type z) { return name##3{x, y, z}; }                  \
  static inline name##4 make_##name##4(type x, type y, type z, type w) { return name##4{x, y, z, w}; }
CUDA_HOST_VECTORS(float, float, 8, 16)
CUDA_HOST_VECTORS(int, int, 8, 16)
#undef CUDA_HOST_VECTORS

extern uint3 threadIdx, blockIdx; /* of the thread that runs */
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

/* --- barriers ------------------------------------------------------------------------------ */

void cuda_host_warp(unsigned mask, void *mine, void (*act)(void *const lanes[32], unsigned mask), const char *what);
int cuda_host_lane(void);

/* Every thread of the block must come, or the launch fails. */
void __syncthreads(void);
int __syncthreads_or(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_count(int predicate);
void __syncwarp(unsigned mask = 0xffffffffu);
[[noreturn]] void __trap(void); /* the launch fails */

/* --- warp functions ---------------------------------------------------------------------------- */

template <class T> struct cuda_host_shuffled {
  T value, got;
  int from; /* lane */
};
template <class T> void cuda_host_shuffle_act(void *const lanes[32], unsigned mask)
{
  for (unsigned left = mask; left != 0; left &= left - 1) {
    auto *to = static_cast<cuda_host_shuffled<T> *>(lanes[__builtin_ctz(left)]);
    /* A lane that does not take part gives nothing: all bits one, which is NaN. */
    if (mask >> to->from & 1) to->got = static_cast<cuda_host_shuffled<T> *>(lanes[to->from])->value;
    else memset(&to->got, 0xFF, sizeof to->got);
  }
}
template <class T> T cuda_host_shuffle(unsigned mask, T value, int from, const char *what)
{
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "CUDA shuffles 2, 4 and 8 bytes");
  cuda_host_shuffled<T> s{value, value, from};
  cuda_host_warp(mask, &s, cuda_host_shuffle_act<T>, what);
  return s.got;
}
/* `width` cuts the warp into pieces; a source outside of the own piece is the lane itself. */
template <class T> T __shfl_sync(unsigned mask, T value, int from, int width = 32)
{
  const int lane = cuda_host_lane();
  return cuda_host_shuffle(mask, value, (lane & ~(width - 1)) | (from & (width - 1)), "__shfl_sync");
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
  const int lane = cuda_host_lane(), from = lane ^ bits;
  return cuda_host_shuffle(mask, value, from >= (lane | (width - 1)) + 1 ? lane : from, "__shfl_xor_sync");
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
  const int lane = cuda_host_lane(), from = lane + (int)by;
  return cuda_host_shuffle(mask, value, from > (lane | (width - 1)) ? lane : from, "__shfl_down_sync");
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
  const int lane = cuda_host_lane(), from = lane - (int)by;
  return cuda_host_shuffle(mask, value, from < (lane & ~(width - 1)) ? lane : from, "__shfl_up_sync");
}
unsigned __ballot_sync(unsigned mask, int predicate);
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

/* --- atomics ------------------------------------------------------------------------------------- */

template <class T> struct cuda_host_same { using type = T; };
template <class T> using cuda_host_same_t = typename cuda_host_same<T>::type; /* the pointer alone says the type */
#define CUDA_HOST_ATOMIC(name, expression)                                          \
  template <class T> T name(T *at, cuda_host_same_t<T> value)                       \
  {                                                                                 \
    const T old = *at;                                                              \
    *at = (expression);                                                             \
    return old;                                                                     \
  }
CUDA_HOST_ATOMIC(atomicAdd, static_cast<T>(old + value))
CUDA_HOST_ATOMIC(atomicMax, old < value ? value : old)
CUDA_HOST_ATOMIC(atomicMin, value < old ? value : old)
CUDA_HOST_ATOMIC(atomicExch, value)
#undef CUDA_HOST_ATOMIC
template <class T> T atomicCAS(T *at, cuda_host_same_t<T> expected, cuda_host_same_t<T> value)
{
  const T old = *at;
  if (old == expected) *at = value;
  return old;
}

/* --- loads, bits, mathematics ---------------------------------------------------------------------- */

template <class T> T __ldg(const T *at) { return *at; }

template <class To, class From> To cuda_host_bits(From value)
{
  static_assert(sizeof(To) == sizeof(From), "bits keep their number");
  To to;
  memcpy(&to, &value, sizeof to);
  return to;
}
static inline float __uint_as_float(unsigned x) { return cuda_host_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return cuda_host_bits<long long>(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }

#define CUDA_HOST_LEAST_AND_MOST(T)                              \
  static inline T min(T a, T b) { return b < a ? b : a; }        \
  static inline T max(T a, T b) { return a < b ? b : a; }
CUDA_HOST_LEAST_AND_MOST(int)
CUDA_HOST_LEAST_AND_MOST(unsigned)
CUDA_HOST_LEAST_AND_MOST(long)
CUDA_HOST_LEAST_AND_MOST(unsigned long)
CUDA_HOST_LEAST_AND_MOST(long long)
CUDA_HOST_LEAST_AND_MOST(unsigned long long)
#undef CUDA_HOST_LEAST_AND_MOST
static inline float min(float a, float b) { return fminf(a, b); } /* the number, where the other is NaN */
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

/* A macro: libc has a function of this name. */
#define __expf(x) expf(x)
static inline float __fdividef(float a, float b) { return a / b; }

#endif
