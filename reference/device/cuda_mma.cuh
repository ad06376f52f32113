/* cuda_mma.cuh - the PTX instructions that our kernels use, one function each.
 *
 * All are of a warp: its 32 lanes come together, each with its own operands.  Beside each stands its
 * twin for the host build, which gives every lane the same elements (PTX ISA, "Warp-level matrix
 * instructions") from what the lanes hold; so a wrong lane is wrong there too.  With g = lane / 4 and
 * t = lane % 4, the fragments of m16n8k16 are, two elements of T (bf16 or f16) a register, the lower half first:
 *
 *   a (16 x 16, rows)     a[0]: row g, columns 2t 2t+1     a[1]: row g+8     a[2], a[3]: the same, columns + 8
 *   b (16 x 8)            b[0]: rows 2t 2t+1, column g     b[1]: rows + 8
 *   d (16 x 8, float)     d[0] d[1]: row g, columns 2t 2t+1     d[2] d[3]: row g+8
 */
#ifndef DEVICE_CUDA_MMA_CUH
#define DEVICE_CUDA_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stdint.h>
#include <string.h>

#ifdef SHARDMARK_CUDA_HOST

#include <cuda_host.h>

template <typename T> static inline float mma_element(unsigned pair, int upper)
{
  const uint16_t bits = (uint16_t)(upper ? pair >> 16 : pair);
  T x;
  memcpy(&x, &bits, sizeof x);
  return (float)x;
}

typedef float mma_four __attribute__((vector_size(16))); /* neighbours in a row */

struct mma_lane {
  float *d;
  const unsigned *a, *b;
};

/* When all lanes are here: the matrices from the registers that hold them, then each lane's sums.  The card adds the 16
 * products with at least the precision of float, in an order of its own. */
template <typename T> static inline void mma_act(void *const lanes[32], unsigned)
{
  float a[16][16];
  mma_four b[16][2];
  for (int lane = 0; lane < 32; lane++) {
    const struct mma_lane *x = static_cast<const struct mma_lane *>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 8; i++) a[g + i / 2 % 2 * 8][2 * t + i / 4 * 8 + i % 2] = mma_element<T>(x->a[i / 2], i % 2);
    for (int i = 0; i < 4; i++) b[2 * t + i / 2 * 8 + i % 2][g / 4][g % 4] = mma_element<T>(x->b[i / 2], i % 2);
  }
  for (int row = 0; row < 16; row++) {
    float *d[4]; /* two columns each */
    for (int t = 0; t < 4; t++) d[t] = static_cast<const struct mma_lane *>(lanes[row % 8 * 4 + t])->d + row / 8 * 2;
    mma_four left = {d[0][0], d[0][1], d[1][0], d[1][1]}, right = {d[2][0], d[2][1], d[3][0], d[3][1]};
    for (int k = 0; k < 16; k++) {
      left += a[row][k] * b[k][0];
      right += a[row][k] * b[k][1];
    }
    for (int i = 0; i < 4; i++) {
      d[i / 2][i % 2] = left[i];
      d[2 + i / 2][i % 2] = right[i];
    }
  }
}
template <typename T> static inline void mma(float d[4], const unsigned a[4], const unsigned b[2])
{
  struct mma_lane mine = {d, a, b};
  cuda_host_warp(0xffffffffu, &mine, mma_act<T>, "mma");
}

/* A lane's row of 8 elements, as it was when the lane came, and where its words go when all are here. */
struct mma_row {
  uint16_t at[8];
  unsigned *r;
};
static inline void ldmatrix_act(void *const lanes[32], unsigned)
{
  for (int lane = 0; lane < 32; lane++)
    for (int m = 0; m < 4; m++) {
      const uint16_t *from = static_cast<const struct mma_row *>(lanes[m * 8 + lane / 4])->at + lane % 4 * 2;
      static_cast<const struct mma_row *>(lanes[lane])->r[m] = from[0] | (unsigned)from[1] << 16;
    }
}
static inline void ldmatrix_trans_act(void *const lanes[32], unsigned)
{
  for (int lane = 0; lane < 32; lane++)
    for (int m = 0; m < 4; m++) {
      const int low = m * 8 + lane % 4 * 2, column = lane / 4;
      static_cast<const struct mma_row *>(lanes[lane])->r[m] =
          static_cast<const struct mma_row *>(lanes[low])->at[column] | (unsigned)static_cast<const struct mma_row *>(lanes[low + 1])->at[column] << 16;
    }
}
static inline void ldmatrix_x4(unsigned r[4], const void *row)
{
  struct mma_row mine;
  memcpy(mine.at, row, sizeof mine.at);
  mine.r = r;
  cuda_host_warp(0xffffffffu, &mine, ldmatrix_act, "ldmatrix");
}
static inline void ldmatrix_x4_trans(unsigned r[4], const void *row)
{
  struct mma_row mine;
  memcpy(mine.at, row, sizeof mine.at);
  mine.r = r;
  cuda_host_warp(0xffffffffu, &mine, ldmatrix_trans_act, "ldmatrix.trans");
}

static inline void cp_async_16(void *shared, const void *global, int bytes_valid)
{
  cuda_host_async_copy(shared, global, 16, (size_t)bytes_valid);
}
static inline void cp_async_commit(void) { cuda_host_async_commit(); }
template <int pending> static inline void cp_async_wait(void) { cuda_host_async_wait(pending); }

static inline float exp2_approx(float x) { return x < -126.0f ? 0.0f : exp2f(x); }

#else

/* d += a b, 2 * 16 * 8 * 16 FLOPs a warp. */
#define MMA(type)                                                                                                            \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "         \
               "{%0,%1,%2,%3};"                                                                                              \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <typename T> static __device__ void mma(float d[4], const unsigned a[4], const unsigned b[2]);
template <> __device__ __forceinline__ void mma<__nv_bfloat16>(float d[4], const unsigned a[4], const unsigned b[2]) { MMA("bf16"); }
template <> __device__ __forceinline__ void mma<__half>(float d[4], const unsigned a[4], const unsigned b[2]) { MMA("f16"); }
#undef MMA

/* Four 8 x 8 matrices of 2-byte elements: lane i gives the address (shared memory, a multiple of 16) of row i % 8
 * of matrix i / 8.  r[m]: row g, columns 2t 2t+1 of matrix m; with trans: rows 2t 2t+1, column g. */
static __device__ __forceinline__ void ldmatrix_x4(unsigned r[4], const void *row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}
static __device__ __forceinline__ void ldmatrix_x4_trans(unsigned r[4], const void *row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}

/* 16 bytes from global to shared memory, past the registers; of these `bytes_valid` are read, the rest is zero.
 * Both addresses are multiples of 16.  There when a wait has left at most `pending` later groups open, and, for other
 * threads, after the barrier that follows it. */
static __device__ __forceinline__ void cp_async_16(void *shared, const void *global, int bytes_valid)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"((unsigned)__cvta_generic_to_shared(shared)), "l"(global), "r"(bytes_valid)
               : "memory");
}
static __device__ __forceinline__ void cp_async_commit(void) { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int pending> static __device__ __forceinline__ void cp_async_wait(void)
{
  asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
}

/* 2^x, relative error at most 2^-22; results below 2^-126 are 0. */
static __device__ __forceinline__ float exp2_approx(float x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif

/* Two floats rounded to T; of the bits `low` is the lower half. */
template <typename T> struct pair_of;
template <> struct pair_of<__nv_bfloat16> {
  typedef __nv_bfloat162 type;
  static __device__ __forceinline__ type rounded(float low, float high) { return __floats2bfloat162_rn(low, high); }
};
template <> struct pair_of<__half> {
  typedef __half2 type;
  static __device__ __forceinline__ type rounded(float low, float high) { return __floats2half2_rn(low, high); }
};
template <typename T> static __device__ __forceinline__ unsigned pair_bits(float low, float high)
{
  const typename pair_of<T>::type pair = pair_of<T>::rounded(low, high);
  unsigned bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

#endif
