/* adamw.cu - one step of AdamW or SGD on CUDA, over any piece of the parameters; formulas and sources: adamw.c.
 *
 * Bytes: AdamW w, m, v twice and g once, SGD w twice and g once; `rounded` once if it is kept.  Each block works the
 * coefficients out from the device's scalars, in double, before its threads go through the elements.
 */
#include "ops/adamw_args.h"
#include "ops/rows.cuh"

/* R: what the copy of the weights is rounded to. */
template <typename S, typename R> struct update {
  rows_view<S> w, m, v;
  rows_view<const S> g;
  rows_view<R> rounded; /* at NULL: not kept */
  const double *lr, *factor, *skip; /* skip NULL: never */
};
template <typename S, typename R> static struct update<S, R> update_of(const struct update_args *u)
{
  return {rows_of<S>(&u->w),       rows_of<S>(&u->m),        rows_of<S>(&u->v),           rows_of<const S>(&u->g),
          rows_of<R>(&u->rounded), (const double *)u->lr.at, (const double *)u->factor.at,
          (const double *)u->skip.at};
}
template <typename S> static struct rows_walk walk_of(const struct update_args *u, bool moments)
{
  const int n = vector_width<S>::value;
  const struct tensor *m = moments ? &u->m : &u->w, *v = moments ? &u->v : &u->w;
  return rows_over(n, true, {&u->w, m, v, &u->g, u->rounded.at != NULL ? &u->rounded : &u->w});
}
template <typename S, typename R, int n>
static __device__ __forceinline__ void store_rounded(const rows_view<R> &rounded, const rows_walk &w,
                                                     const rows_place &p, const rows_group<S, n> &weights)
{
  if (rounded.at == NULL) return;
  rows_group<R, n> g;
#pragma unroll
  for (int k = 0; k < n; k++) g.at[k] = narrow<R>((float)weights.at[k]);
  rows_store(rounded, w, p, g);
}

template <typename S> struct coefficients {
  S factor, keep, beta1, rest1, beta2, rest2, rate, root, eps;
};

template <typename S, typename R>
static __global__ void adamw_kernel(struct update<S, R> u, const int64_t *number, struct op_adamw rule,
                                    struct dev_cuda_report *report, const char *format, rows_walk w)
{
  const int n = vector_width<S>::value;
  SHARED(coefficients<S>, shared, 1);
  const int64_t t = *number;
  if (t < 1) { /* all threads of all blocks see it */
    if (blockIdx.x == 0 && threadIdx.x == 0) REPORT(report, format, t, 0, 0, 0);
    return;
  }
  if (u.skip != NULL && *u.skip != 0) return; /* all threads of all blocks */
  if (threadIdx.x == 0) {
    const double lr = *u.lr;
    shared[0].factor = (S)*u.factor;
    shared[0].keep = (S)(1 - lr * rule.weight_decay);
    shared[0].beta1 = (S)rule.beta1;
    shared[0].rest1 = (S)(1 - rule.beta1);
    shared[0].beta2 = (S)rule.beta2;
    shared[0].rest2 = (S)(1 - rule.beta2);
    shared[0].rate = (S)(lr / (1 - pow(rule.beta1, (double)t)));
    shared[0].root = (S)(1 / sqrt(1 - pow(rule.beta2, (double)t)));
    shared[0].eps = (S)rule.eps;
  }
  __syncthreads();
  const coefficients<S> a = shared[0];
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) {
    rows_group<S, n> weights = rows_load<n>(u.w, w, p), m = rows_load<n>(u.m, w, p), v = rows_load<n>(u.v, w, p);
    const rows_group<S, n> g = rows_load<n>(u.g, w, p);
#pragma unroll
    for (int k = 0; k < n; k++) {
      const S gk = g.at[k] * a.factor;
      m.at[k] = a.beta1 * m.at[k] + a.rest1 * gk;
      v.at[k] = a.beta2 * v.at[k] + a.rest2 * gk * gk;
      weights.at[k] = weights.at[k] * a.keep - a.rate * m.at[k] / (sqrt(v.at[k]) * a.root + a.eps);
    }
    rows_store(u.m, w, p, m);
    rows_store(u.v, w, p, v);
    rows_store(u.w, w, p, weights);
    store_rounded(u.rounded, w, p, weights);
  }
}

template <typename S, typename R> static __global__ void sgd_kernel(struct update<S, R> u, S decay, rows_walk w)
{
  const int n = vector_width<S>::value;
  const S lr = (S)*u.lr, factor = (S)*u.factor;
  if (u.skip != NULL && *u.skip != 0) return;
  for (rows_place p = rows_first<n>(w); p.count > 0; p = rows_next<n>(w, p)) {
    rows_group<S, n> weights = rows_load<n>(u.w, w, p);
    const rows_group<S, n> g = rows_load<n>(u.g, w, p);
#pragma unroll
    for (int k = 0; k < n; k++) weights.at[k] = weights.at[k] - lr * (g.at[k] * factor + decay * weights.at[k]);
    rows_store(u.w, w, p, weights);
    store_rounded(u.rounded, w, p, weights);
  }
}

template <typename S, typename R> static enum err adamw_to(const struct dev_cuda *at, const struct update_args *u)
{
  const rows_walk w = walk_of<S>(u, true);
  /* With no element there is still the update's number to look at. */
  const unsigned int blocks = rows_blocks(at, &w);
  return LAUNCH(at, (adamw_kernel<S, R>), blocks > 0 ? blocks : 1, ROWS_THREADS, 0, (update_of<S, R>(u)),
                (const int64_t *)u->t.at, u->rule, at->report, "AdamW's update number is %lld, expected from 1", w);
}
template <typename S, typename R> static enum err sgd_to(const struct dev_cuda *at, const struct update_args *u)
{
  const rows_walk w = walk_of<S>(u, false);
  return ROWS_LAUNCH(at, (sgd_kernel<S, R>), w, (update_of<S, R>(u)), (S)u->rule.weight_decay, w);
}
template <typename S> static enum err adamw(const struct dev_cuda *at, void *args)
{
  const struct update_args *u = (const struct update_args *)args;
  return u->rounded.type == DTYPE_F16 ? adamw_to<S, f16>(at, u) : adamw_to<S, bf16>(at, u);
}
template <typename S> static enum err sgd(const struct dev_cuda *at, void *args)
{
  const struct update_args *u = (const struct update_args *)args;
  return u->rounded.type == DTYPE_F16 ? sgd_to<S, f16>(at, u) : sgd_to<S, bf16>(at, u);
}
OP_CUDA_EACH_STATE(op_adamw, adamw)
OP_CUDA_EACH_STATE(op_sgd, sgd)
