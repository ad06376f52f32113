/* rows.cuh - how kernels go through a matrix element by element: in groups of neighbours.
 *
 * A group is `n` elements of one row that follow one another, the most that one thread takes at a time: 16 bytes
 * of the widest operand.  Where all operands' rows begin on 16 bytes a group moves as vectors, elsewhere and at the
 * end of a row element by element.  Which thread takes which elements, and so the order of every sum, depends on the
 * shape alone, never on addresses.
 */
#ifndef OPS_ROWS_CUH
#define OPS_ROWS_CUH

#include "device/cuda_kernel.cuh"

#include <initializer_list>
#include <type_traits>

typedef __nv_bfloat16 bf16;
typedef __half f16;

/* One operand of a kernel. */
template <typename T> struct rows_view {
  T *at;
  int64_t stride;
};
template <typename T> static inline struct rows_view<T> rows_of(const struct tensor *t) {
  return {(T *)t->at, t->stride};
}

/* Division of numbers below 2^31 by one that the host knows: two instructions instead of two dozen, which are the
 * dearest part of finding a row.  Larger ones are divided the long way. */
struct rows_divisor {
  int64_t by;
  uint32_t factor; /* 2^(31 + bits) / by, rounded up, with 2^bits the first power of two that is not below `by` */
  int bits;
};
static inline struct rows_divisor rows_divisor_of(int64_t by)
{
  struct rows_divisor d = {by, 0, 0};
  while (d.bits < 31 && (int64_t)1 << d.bits < by) d.bits++;
  if (by > 0 && by <= (int64_t)1 << 31)
    d.factor = (uint32_t)((((uint64_t)1 << (31 + d.bits)) + (uint64_t)by - 1) / (uint64_t)by);
  return d;
}
static __device__ __forceinline__ int64_t rows_quotient(int64_t of, const struct rows_divisor &d)
{
  if (of >> 31 != 0 || d.by >> 31 != 0) return of / d.by;
  return (int64_t)((uint64_t)(uint32_t)of * d.factor >> (31 + d.bits));
}

/* The matrix that all operands are, cut into groups.  One row where nothing needs the rows. */
struct rows_walk {
  int64_t rows, cols, groups;  /* groups of a row */
  struct rows_divisor divisor; /* by groups */
  bool aligned;
};

/* Contiguous operands become one row with `flatten`, unless one is not. */
static inline struct rows_walk rows_over(int n, bool flatten, std::initializer_list<const struct tensor *> operands)
{
  const struct tensor *first = *operands.begin();
  struct rows_walk w = {first->rows, first->cols, 0, {}, true};
  for (const struct tensor *t : operands) {
    if (!tensor_contiguous(t)) flatten = false;
    if (!vector_aligned(t)) w.aligned = false;
  }
  if (flatten) {
    w.cols *= w.rows;
    w.rows = 1;
    w.aligned = true;
    for (const struct tensor *t : operands)
      if ((uintptr_t)t->at % 16 != 0) w.aligned = false;
  }
  w.groups = (w.cols + n - 1) / n;
  w.divisor = rows_divisor_of(w.groups);
  if (w.cols == 0) w.rows = 0;
  return w;
}

/* A few times the blocks that the card holds at once, so that its multiprocessors end together, or fewer if the groups
 * are few; each thread goes on by the whole grid. */
enum { ROWS_THREADS = 256, ROWS_BLOCKS_EACH = 32 };
static inline unsigned int rows_blocks(const struct dev_cuda *at, const struct rows_walk *w)
{
  const int64_t wanted = (w->rows * w->groups + ROWS_THREADS - 1) / ROWS_THREADS;
  const int64_t most = (int64_t)at->multiprocessors * ROWS_BLOCKS_EACH;
  return (unsigned int)(wanted < most ? wanted : most);
}

#define ROWS_LAUNCH(at, kernel, w, ...) LAUNCH(at, kernel, rows_blocks((at), &(w)), ROWS_THREADS, 0, __VA_ARGS__)

/* for (struct rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)): this thread's groups. */
struct rows_place {
  int64_t number, row, col;
  int count; /* elements: n but at the end of a row; 0 after the last group */
};
template <int n> static __device__ __forceinline__ struct rows_place rows_at(const struct rows_walk &w, int64_t number)
{
  struct rows_place p = {number, 0, 0, 0};
  if (number >= w.rows * w.groups) return p;
  if (w.rows > 1) p.row = rows_quotient(number, w.divisor);
  p.col = (number - p.row * w.groups) * n;
  p.count = w.cols - p.col < n ? (int)(w.cols - p.col) : n;
  return p;
}
template <int n> static __device__ __forceinline__ struct rows_place rows_first(const struct rows_walk &w)
{
  return rows_at<n>(w, (int64_t)blockIdx.x * blockDim.x + threadIdx.x);
}
template <int n>
static __device__ __forceinline__ struct rows_place rows_next(const struct rows_walk &w, const struct rows_place &p)
{
  return rows_at<n>(w, p.number + (int64_t)gridDim.x * blockDim.x);
}

/* --- groups -------------------------------------------------------------------------------- */

template <typename T, int n> struct rows_group {
  T at[n];
};

/* `count` elements from `from` on; the rest are 0. */
template <typename T, int n>
static __device__ __forceinline__ struct rows_group<T, n> rows_load(const T *from, int count, bool aligned) {
  const int WIDTH = n * sizeof(T) < 16 ? n : vector_width<T>::value;
  struct rows_group<T, n> g;
  if (aligned && count == n) {
#pragma unroll
    for (int i = 0; i < n; i += WIDTH) {
      const vector<T, WIDTH> v = load_vector<T, WIDTH>(from + i);
#pragma unroll
      for (int k = 0; k < WIDTH; k++) g.at[i + k] = v.at[k];
    }
  } else {
#pragma unroll
    for (int i = 0; i < n; i++) g.at[i] = i < count ? from[i] : T(0);
  }
  return g;
}

template <typename T, int n>
static __device__ __forceinline__ void rows_store(T *to, int count, bool aligned, const struct rows_group<T, n> &g)
{
  const int WIDTH = n * sizeof(T) < 16 ? n : vector_width<T>::value;
  if (aligned && count == n) {
#pragma unroll
    for (int i = 0; i < n; i += WIDTH) {
      vector<T, WIDTH> v;
#pragma unroll
      for (int k = 0; k < WIDTH; k++) v.at[k] = g.at[i + k];
      store_vector<T, WIDTH>(to + i, v);
    }
  } else {
#pragma unroll
    for (int i = 0; i < n; i++)
      if (i < count) to[i] = g.at[i];
  }
}

/* The group at p of an operand. */
template <int n, typename T>
static __device__ __forceinline__ struct rows_group<typename std::remove_const<T>::type, n>
rows_load(const struct rows_view<T> &x, const struct rows_walk &w, const struct rows_place &p) {
  return rows_load<typename std::remove_const<T>::type, n>(x.at + p.row * x.stride + p.col, p.count, w.aligned);
}

template <int n, typename T>
static __device__ __forceinline__ void rows_store(const struct rows_view<T> &y, const struct rows_walk &w,
                                                  const struct rows_place &p, const struct rows_group<T, n> &g)
{
  rows_store<T, n>(y.at + p.row * y.stride + p.col, p.count, w.aligned, g);
}

/* f(group, count) for the groups first, first + step, ... of a row, in this order, with the loads of four under way at
 * once: what is only read needs more of them than a thread's one for the card's full rate. */
template <typename T, typename F>
static __device__ __forceinline__ void rows_each(const T *row, int64_t cols, bool aligned, int64_t first, int64_t step,
                                                 F f)
{
  const int n = vector_width<T>::value, AHEAD = 4;
  const int64_t whole = aligned ? cols / n : 0;
  int64_t group = first;
  for (; group + (AHEAD - 1) * step < whole; group += AHEAD * step) {
    rows_group<T, n> g[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) g[a] = rows_load<T, n>(row + (group + a * step) * n, n, true);
#pragma unroll
    for (int a = 0; a < AHEAD; a++) f(g[a], n);
  }
  for (; group * n < cols; group += step) {
    const int count = cols - group * n < n ? (int)(cols - group * n) : n;
    f(rows_load<T, n>(row + group * n, count, aligned), count);
  }
}

/* --- one function a type ---------------------------------------------------------------------- */

/* op_cuda_f64, _f32, _bf16 and _f16, the names that OP_KERNELS asks for, from a template over the work type. */
#define OP_CUDA_EACH_TYPE(op, function)                                                                           \
  extern "C" enum err op##_cuda_f64(const struct dev_cuda *at, void *args) { return function<double>(at, args); } \
  extern "C" enum err op##_cuda_f32(const struct dev_cuda *at, void *args) { return function<float>(at, args); }  \
  extern "C" enum err op##_cuda_bf16(const struct dev_cuda *at, void *args) { return function<bf16>(at, args); }  \
  extern "C" enum err op##_cuda_f16(const struct dev_cuda *at, void *args) { return function<f16>(at, args); }
#define OP_CUDA_EACH_STATE(op, function)                                                                          \
  extern "C" enum err op##_cuda_f64(const struct dev_cuda *at, void *args) { return function<double>(at, args); } \
  extern "C" enum err op##_cuda_f32(const struct dev_cuda *at, void *args) { return function<float>(at, args); }

#endif
