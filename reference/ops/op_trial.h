/* op_trial.h - what every operation of this room must hold, from one description of a call.
 *
 * Only tests include this.  A trial lists the operands of one call; from it follow
 *   trial_same_bits   outputs are all written and equal in bits again, with 1 and 2 threads, also on the
 *                     lazy device, with strided rows, on odd addresses and, if there are few rows,
 *                     with rows 2^31 elements apart; no byte outside of the outputs changes, and
 *                     bytes around inputs are 0xFF, so reading one shows as NaN
 *   trial_declares    each operand is declared to the device as what it is, and the gaps between
 *                     its rows are not
 *   trial_refuses     one row or column more, or another type, is ERR_ARG, operand by operand
 *   trial_rounding    float32 and bfloat16 are as near to float64 as their roundings allow
 *   trial_slope       a backward agrees with central differences of its forward, in float64
 * Inputs are seeded and never zero; outputs start as 0xFF, which is NaN.
 */
#ifndef OPS_OP_TRIAL_H
#define OPS_OP_TRIAL_H

#include "ops/op_rig.h"
#include "ops/ops.h"

#include <omp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- trials -------------------------------------------------------------------------- */

enum trial_role { TRIAL_IN, TRIAL_OUT, TRIAL_INOUT };
enum { TRIAL_REAL = DTYPE_COUNT, TRIAL_STATE, TRIAL_OPERANDS = 10 };
struct trial_operand {
  const char *name;
  enum trial_role role;
  int type; /* an enum dtype, or TRIAL_REAL: each work type in turn, or TRIAL_STATE: the state type that goes with it */
  int64_t rows, cols;
  void (*fill)(const struct tensor *t, uint32_t seed); /* NULL: fill_seeded */
  bool any_rows, any_cols, any_type;                   /* no error if changed */
};
struct trial {
  const char *name;
  enum err (*call)(struct dev_stream *s, const struct tensor *t, const struct trial *trial);
  int number;     /* for call: heads, a flag, how many columns count */
  int64_t first;  /* for call: where a part begins in the whole      */
  bool narrow_only; /* no call of a wider work type                   */
  bool by_cublas; /* a GPU's bits depend on strides and alignment too: its library chooses kernels by them */
  int n;
  struct trial_operand operand[TRIAL_OPERANDS];
};

static inline enum dtype trial_type(const struct trial_operand *o, enum dtype real)
{
  if (o->type == TRIAL_REAL) return real;
  if (o->type == TRIAL_STATE) return real == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
  return (enum dtype)o->type;
}
static inline void trial_tensors(const struct trial *x, enum dtype real, int64_t gap, int64_t shift, struct arena *a,
                                 struct tensor t[TRIAL_OPERANDS])
{
  for (int i = 0; i < x->n; i++) {
    const struct trial_operand *o = &x->operand[i];
    t[i] = arena_place(a, trial_type(o, real), o->rows, o->cols, gap, shift,
                       o->role == TRIAL_IN ? AROUND_INPUTS : AROUND_OUTPUTS);
    if (o->role != TRIAL_OUT) (o->fill ? o->fill : fill_seeded)(&t[i], 100 + (uint32_t)i);
  }
}

static inline enum err trial_call(const struct trial *x, struct rig *g, const struct tensor t[TRIAL_OPERANDS])
{
  struct tensor there[TRIAL_OPERANDS];
  for (int i = 0; i < x->n; i++) there[i] = *rig_at(g, &t[i]);
  return x->call(g->compute, there, x);
}
static inline void trial_run(const struct trial *x, enum dev_kind kind, int threads,
                             const struct tensor t[TRIAL_OPERANDS])
{
  struct rig g;
  rig_open(&g, kind, threads);
  CHECK_OK(trial_call(x, &g, t));
  CHECK_OK(rig_sync(&g));
  rig_close(&g);
}

static inline void trial_same_bits_as(const struct trial *x, enum dtype real)
{
  static const struct {
    enum dev_kind kind;
    int threads, gap, shift;
  } ways[] = {{DEV_CPU, 1, 0, 0}, {DEV_CPU, 1, 0, 0}, {DEV_CPU, 2, 0, 1}, {DEV_LAZY, 1, 5, 3}, {DEV_CPU, 2, 16, 0}};
  struct arena first, again, inputs;
  struct tensor want[TRIAL_OPERANDS], got[TRIAL_OPERANDS], in[TRIAL_OPERANDS];
  arena_open(&first);
  arena_open(&inputs);
  trial_tensors(x, real, 0, 0, &inputs, in);
  for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
    if (way == 1 && rig_on_cuda() && !rig_on_gpu()) continue; /* the others run it again as well */
    if (way > 0) arena_open(&again);
    trial_tensors(x, real, ways[way].gap, ways[way].shift, way ? &again : &first, way ? got : want);
    trial_run(x, ways[way].kind, ways[way].threads, way ? got : want);
    for (int i = 0; i < x->n; i++) {
      char what[160];
      const char *kind = rig_on_cuda() ? "cuda" : ways[way].kind == DEV_LAZY ? "lazy" : "cpu";
      snprintf(what, sizeof what, "%s %s: %s as %s, %d threads, gap %d, shift %d", x->name, dtype_name(real),
               x->operand[i].name, kind, ways[way].threads, ways[way].gap, ways[way].shift);
      const struct tensor *t = way ? &got[i] : &want[i];
      check_true(all_finite(t), __FILE__, __LINE__, what);
      const bool same = x->operand[i].role == TRIAL_IN || !x->by_cublas || !rig_on_gpu() || way <= 1;
      if (same) check_true(same_bits(t, x->operand[i].role == TRIAL_IN ? &in[i] : &want[i]), __FILE__, __LINE__, what);
    }
    if (way > 0) arena_close(&again);
  }
  arena_close(&first);
  arena_close(&inputs);
}

/* A tensor whose rows are more than 2^31 elements apart: address space is reserved, and only rows can be touched. */
enum { FAR_ROWS = 9 };
static const int64_t far_stride = (1LL << 31) + 37;
static inline size_t far_bytes(const struct tensor *t) { return (size_t)(t->rows * far_stride) * dtype_bytes(t->type); }
static inline struct tensor far_tensor(enum dtype type, int64_t rows, int64_t cols)
{
  struct tensor t = {NULL, type, rows, cols, far_stride};
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  t.at = mmap(NULL, far_bytes(&t), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  BUG_IF(t.at == MAP_FAILED);
  for (int64_t r = 0; r < rows; r++) {
    const uintptr_t first = (uintptr_t)tensor_row(&t, r) / page * page,
                    end = (uintptr_t)tensor_row(&t, r) + (size_t)cols * dtype_bytes(type);
    BUG_IF(mprotect((void *)first, end - first, PROT_READ | PROT_WRITE) != 0);
    memset(tensor_row(&t, r), 0xFF, (size_t)cols * dtype_bytes(type));
  }
  return t;
}

static inline void trial_far_rows(const struct trial *x, enum dtype real)
{
  struct arena near;
  struct tensor want[TRIAL_OPERANDS], got[TRIAL_OPERANDS];
  if (rig_on_cuda()) return; /* a device has no address space to spare */
  for (int i = 0; i < x->n; i++)
    if (x->operand[i].rows > FAR_ROWS) return;
  arena_open(&near);
  trial_tensors(x, real, 0, 0, &near, want);
  for (int i = 0; i < x->n; i++) {
    got[i] = far_tensor(want[i].type, want[i].rows, want[i].cols);
    for (int64_t r = 0; r < want[i].rows; r++)
      memcpy(tensor_row(&got[i], r), tensor_row(&want[i], r), (size_t)want[i].cols * dtype_bytes(want[i].type));
  }
  trial_run(x, DEV_CPU, 1, want);
  trial_run(x, DEV_CPU, 2, got);
  for (int i = 0; i < x->n; i++) {
    char what[160];
    snprintf(what, sizeof what, "%s %s [%d]: %s with far rows", x->name, dtype_name(real), x->number,
             x->operand[i].name);
    check_true(same_bits(&got[i], &want[i]), __FILE__, __LINE__, what);
    munmap(got[i].at, far_bytes(&got[i]));
  }
  arena_close(&near);
}

static inline void trial_same_bits(const struct trial *x)
{
  for (int i = 0; i < REALS; i++) {
    if (x->narrow_only && !is_narrow(reals[i])) continue;
    trial_far_rows(x, reals[i]);
    trial_same_bits_as(x, reals[i]);
  }
}

/* Does an access of `bytes` at `at` from another stream, without an event, count as unordered with the call? */
static inline bool trial_collides(const struct trial *x, const struct tensor t[TRIAL_OPERANDS], void *at, size_t bytes,
                                  bool write)
{
  struct rig g;
  unsigned char room[64];
  rig_open(&g, DEV_LAZY, 1);
  CHECK_OK(x->call(g.compute, t, x));
  CHECK_OK(write ? dev_copy_in(g.other, at, memset(room, 0xFF, sizeof room), bytes)
                 : dev_copy_out(g.other, room, at, bytes));
  const bool found = dev_findings(g.dev)[0] != '\0';
  CHECK((dev_sync(g.dev) == ERR_DEVICE) == found);
  rig_close(&g);
  return found;
}

static inline void trial_declares(const struct trial *x)
{
  if (rig_on_cuda()) return; /* lazy alone looks at what is declared, which is the same for every device */
  for (int i = 0; i < x->n; i++)
    for (int corner = 0; corner < 2; corner++) {
      const struct trial_operand *o = &x->operand[i];
      struct arena a;
      struct tensor t[TRIAL_OPERANDS];
      arena_open(&a);
      trial_tensors(x, x->narrow_only ? DTYPE_BF16 : DTYPE_F64, 3, 0, &a, t);
      const size_t size = dtype_bytes(t[i].type);
      char *at = corner ? tensor_row(&t[i], o->rows - 1) + (size_t)(o->cols - 1) * size : (char *)t[i].at;
      char what[160];
      snprintf(what, sizeof what, "%s: %s of %s", x->name, corner ? "last element" : "first element", o->name);
      check_true(trial_collides(x, t, at, size, false) == (o->role != TRIAL_IN), __FILE__, __LINE__, what);
      if (o->role == TRIAL_IN) check_true(trial_collides(x, t, at, size, true), __FILE__, __LINE__, what);
      char *gap = tensor_row(&t[i], 0) + (size_t)o->cols * size;
      if (o->rows > 1) check_true(!trial_collides(x, t, gap, 3 * size, true), __FILE__, __LINE__, what);
      arena_drop(&a); /* the colliding writes may have gone anywhere */
    }
}

static inline void trial_refused(const struct trial *x, const struct tensor t[TRIAL_OPERANDS], struct rig *g,
                                 const char *name, const char *change)
{
  char what[160];
  snprintf(what, sizeof what, "%s with %s of %s", x->name, change, name);
  check_err(x->call(g->compute, t, x), ERR_ARG, __FILE__, __LINE__, what);
}

static inline void trial_refuses_as(const struct trial *x, enum dtype real)
{
  struct arena a;
  struct rig g;
  struct tensor t[TRIAL_OPERANDS];
  arena_open(&a);
  rig_open(&g, DEV_LAZY, 1);
  trial_tensors(x, real, 1, 0, &a, t);
  for (int i = 0; i < x->n; i++) {
    const struct trial_operand *o = &x->operand[i];
    const struct tensor keep = t[i];
    t[i].rows++;
    if (!o->any_rows) trial_refused(x, t, &g, o->name, "another row count");
    t[i] = keep;
    t[i].cols++;
    if (!o->any_cols) trial_refused(x, t, &g, o->name, "another column count");
    t[i] = keep;
    if (keep.type == DTYPE_F32) /* narrower memory would do for neither: nothing runs */
      t[i].type = real == DTYPE_F32 ? DTYPE_F64 : DTYPE_BF16;
    else
      t[i].type = DTYPE_U8;
    if (!o->any_type) trial_refused(x, t, &g, o->name, "another type");
    t[i] = keep;
    if (keep.cols > 1) t[i].stride = keep.cols - 1;
    if (keep.cols > 1) trial_refused(x, t, &g, o->name, "overlapping rows");
    t[i] = keep;
  }
  rig_close(&g);
  arena_drop(&a);
}

static inline void trial_refuses(const struct trial *x)
{
  if (!x->narrow_only) trial_refuses_as(x, DTYPE_F32);
  trial_refuses_as(x, DTYPE_BF16);
  trial_refuses_as(x, DTYPE_F16);
}

/* `gradient` against central differences of sum(weight * output `out`) in input `in`, all float64.  t are the
 * forward's tensors; h is chosen for third derivatives and values of order one: h^2 and 1e-16 / h balance. */
static inline void trial_slope(const struct trial *x, const struct tensor t[TRIAL_OPERANDS], int out,
                               const struct tensor *weight, int in, const struct tensor *gradient, double bound)
{
  struct rig g;
  rig_open(&g, DEV_LAZY, 1);
  const double h = 1e-5;
  double worst = 0;
  for (int64_t r = 0; r < t[in].rows; r++)
    for (int64_t c = 0; c < t[in].cols; c++) {
      const double keep = get(&t[in], r, c);
      double side[2];
      for (int up = 0; up < 2; up++) {
        put(&t[in], r, c, up ? keep + h : keep - h);
        CHECK_OK(trial_call(x, &g, t));
        CHECK_OK(rig_sync(&g));
        side[up] = 0;
        for (int64_t i = 0; i < t[out].rows; i++)
          for (int64_t j = 0; j < t[out].cols; j++) side[up] += get(weight, i, j) * get(&t[out], i, j);
      }
      put(&t[in], r, c, keep);
      const double error = fabs(get(gradient, r, c) - (side[1] - side[0]) / (2 * h));
      if (!(error <= worst)) worst = error;
    }
  rig_close(&g);
  char what[160];
  snprintf(what, sizeof what, "%s: slope in %s", x->name, x->operand[in].name);
  check_near(worst, 0, bound, __FILE__, __LINE__, what);
}

/* Every output is as near to the float64 one of the same inputs as rounding allows: computing in float32 may cost
 * `units` * 2^-24 of the largest of that output, storing in a narrow type half a unit of the element more. */
static inline void trial_rounding_as(const struct trial *x, enum dtype real, double units)
{
  struct arena a;
  struct tensor narrow[TRIAL_OPERANDS], wide[TRIAL_OPERANDS];
  arena_open(&a);
  trial_tensors(x, real, 0, 0, &a, narrow);
  trial_tensors(x, DTYPE_F64, 0, 0, &a, wide);
  for (int i = 0; i < x->n; i++)
    for (int64_t k = 0; x->operand[i].role != TRIAL_OUT && k < tensor_count(&wide[i]); k++)
      put(&wide[i], k / wide[i].cols, k % wide[i].cols, get(&narrow[i], k / wide[i].cols, k % wide[i].cols));
  trial_run(x, DEV_CPU, 1, narrow);
  trial_run(x, DEV_CPU, 1, wide);
  for (int i = 0; i < x->n; i++) {
    double size = 0, worst = 0;
    for (int64_t k = 0; k < tensor_count(&wide[i]); k++)
      size = fmax(size, fabs(get(&wide[i], k / wide[i].cols, k % wide[i].cols)));
    for (int64_t k = 0; k < tensor_count(&wide[i]); k++) {
      const double want = get(&wide[i], k / wide[i].cols, k % wide[i].cols),
                   got = get(&narrow[i], k / wide[i].cols, k % wide[i].cols),
                   stored = is_narrow(narrow[i].type) ? unit_of(narrow[i].type) * (fabs(want) + units * 0x1p-24 * size) +
                                                            (narrow[i].type == DTYPE_F16 ? 0x1p-25 : 0)
                                                      : 0;
      const double excess = (fabs(got - want) - stored) / size * 0x1p24;
      if (!(excess <= worst)) worst = excess;
    }
    char what[160];
    snprintf(what, sizeof what, "%s [%d]: %s %s, in 2^-24 of its largest", x->name, x->number, dtype_name(real),
             x->operand[i].name);
    if (x->operand[i].role != TRIAL_IN) check_near(worst, 0, units, __FILE__, __LINE__, what);
  }
  arena_close(&a);
}
static inline void trial_rounding(const struct trial *x, double units)
{
  if (!x->narrow_only) trial_rounding_as(x, DTYPE_F32, units);
  trial_rounding_as(x, DTYPE_BF16, units);
  trial_rounding_as(x, DTYPE_F16, units);
}

/* With a team smaller than asked for, oneDNN would leave rows unwritten: the call must fail, and say why. */
static inline enum err allow_fewer_threads(void *args)
{
  omp_set_dynamic(*(const int *)args);
  return ERR_OK;
}
static inline void trial_needs_its_threads_as(const struct trial *x, enum dtype real)
{
  static const struct dev_kernel kernel = {.name = "allow_fewer_threads", .run = allow_fewer_threads};
  for (int threads = 1; threads <= 2; threads++) {
    struct arena a;
    struct tensor t[TRIAL_OPERANDS];
    const struct dev_config config = {.kind = DEV_CPU, .threads = threads};
    const int dynamic = 1;
    struct dev *dev;
    struct dev_stream *s;
    arena_open(&a);
    trial_tensors(x, real, 0, 0, &a, t);
    CHECK_OK(dev_open(&config, &dev));
    CHECK_OK(dev_stream_open(dev, "compute", DEV_COMPUTE, &s));
    CHECK_OK(dev_submit(s, &kernel, &dynamic, sizeof dynamic, NULL, 0));
    CHECK_OK(x->call(s, t, x));
    CHECK_ERR(dev_sync(dev), threads == 1 ? ERR_OK : ERR_UNAVAILABLE);
    if (threads == 2) CHECK_TEXT_HAS(err_text(), "OMP_DYNAMIC");
    dev_stream_close(s);
    dev_close(dev);
    arena_close(&a);
  }
}

static inline void trial_needs_its_threads(const struct trial *x)
{
  if (rig_on_cuda()) return; /* nothing of it runs in OpenMP's threads */
  trial_needs_its_threads_as(x, DTYPE_F32);
  trial_needs_its_threads_as(x, DTYPE_BF16);
}

#endif
