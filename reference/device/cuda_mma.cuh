/* cuda_mma.cuh - the PTX instructions that our kernels use, one function each.
 *
 * All are of a warp: its 32 lanes come together, each with its own operands.  Beside each stands its
 * twin for the host build, which gives every lane the same elements (PTX ISA, "Warp-level matrix
 * instructions") by exchanging what the lanes hold; so a wrong lane is wrong there too.  With g = lane / 4 and
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

struct mma_lane {
  unsigned a[4], b[2];
};

/* Element (row, k) of a, (k, col) of b, from the lanes that hold them. */
template <typename T> static inline float mma_a(const struct mma_lane *lanes, int row, int k)
{
  return mma_element<T>(lanes[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], k % 2);
}
template <typename T> static inline float mma_b(const struct mma_lane *lanes, int k, int col)
{
  return mma_element<T>(lanes[col * 4 + k % 8 / 2].b[k / 8], k % 2);
}

/* The card adds the 16 products with at least the precision of float, in an order of its own. */
template <typename T> static inline void mma(float d[4], const unsigned a[4], const unsigned b[2])
{
  struct mma_lane mine, all[32];
  memcpy(mine.a, a, sizeof mine.a);
  memcpy(mine.b, b, sizeof mine.b);
  cuda_host_warp_exchange(&mine, sizeof mine, all);
  const int lane = cuda_host_lane();
  for (int i = 0; i < 4; i++) {
    float sum = d[i];
    for (int k = 0; k < 16; k++) sum += mma_a<T>(all, lane / 4 + i / 2 * 8, k) * mma_b<T>(all, k, lane % 4 * 2 + i % 2);
    d[i] = sum;
  }
}

/* What the 32 row addresses hold, 8 words of 2 bytes each, as read when all lanes are here. */
struct mma_rows {
  uint16_t at[32][8];
};
static inline struct mma_rows mma_gather(const void *row)
{
  struct mma_rows rows;
  uint16_t mine[8];
  memcpy(mine, row, sizeof mine);
  cuda_host_warp_exchange(mine, sizeof mine, rows.at);
  return rows;
}
static inline void ldmatrix_x4(unsigned r[4], const void *row)
{
  const struct mma_rows rows = mma_gather(row);
  const int lane = cuda_host_lane();
  for (int i = 0; i < 4; i++) {
    const uint16_t *from = rows.at[i * 8 + lane / 4] + lane % 4 * 2;
    r[i] = from[0] | (unsigned)from[1] << 16;
  }
}
static inline void ldmatrix_x4_trans(unsigned r[4], const void *row)
{
  const struct mma_rows rows = mma_gather(row);
  const int lane = cuda_host_lane();
  for (int i = 0; i < 4; i++)
    r[i] = rows.at[i * 8 + lane % 4 * 2][lane / 4] | (unsigned)rows.at[i * 8 + lane % 4 * 2 + 1][lane / 4] << 16;
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
