/* layernorm.c - y = (x - mean) * rstd * w + b, row by row.  Ba, Kiros, Hinton 2016, eq. 4.
 *
 *   x, y, dx, dy [N, C]   w, b, dw, db [1, C]
 *   mean, rstd [N, 1], rstd = 1 / sqrt(mean((x - mean)^2) + eps)
 *
 * Backward, with xh = (x - mean) * rstd, g = dy * w and means over the row:
 *   dx  = rstd * (g - mean(g) - xh * mean(g * xh))   written; dx may be dy
 *   dw += sum over rows of dy * xh                   db += sum over rows of dy
 *
 * Sums of a row run in double, in lanes (vector.h); those over rows in double, in index
 * order, rounded once: no thread count changes them.
 */
#include "ops/layernorm_args.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

#define KERNELS "ops/layernorm_cpu.h"
#include "ops/each_type.h"

OP_KERNELS(op_layernorm_fwd);
OP_KERNELS(op_layernorm_bwd_x);
OP_KERNELS(op_layernorm_bwd_w);

enum err op_layernorm_fwd(struct dev_stream *s, const struct tensor *y, const struct tensor *mean,
                          const struct tensor *rstd, const struct tensor *x, const struct tensor *w,
                          const struct tensor *b, double eps)
{
  TRY(op_expect_real("x", x));
  TRY(OP_EXPECT({"y", y, x->type, x->rows, x->cols}, {"mean", mean, op_state_type(x->type), x->rows, 1},
                {"rstd", rstd, op_state_type(x->type), x->rows, 1}, {"w", w, x->type, 1, x->cols}, {"b", b, x->type, 1, x->cols}));
  const struct layernorm_args args = {.y = *y, .mean = *mean, .rstd = *rstd, .x = *x, .w = *w, .b = *b, .eps = eps};
  return OP_SUBMIT(s, &op_layernorm_fwd_kernels[x->type], args, {y, OP_WRITE}, {mean, OP_WRITE}, {rstd, OP_WRITE},
                   {x, OP_READ}, {w, OP_READ}, {b, OP_READ});
}

enum err op_layernorm_bwd_x(struct dev_stream *s, const struct tensor *dx, const struct tensor *dy,
                            const struct tensor *x, const struct tensor *w, const struct tensor *mean,
                            const struct tensor *rstd)
{
  TRY(op_expect_real("x", x));
  TRY(OP_EXPECT({"dx", dx, x->type, x->rows, x->cols}, {"dy", dy, x->type, x->rows, x->cols},
                {"w", w, x->type, 1, x->cols}, {"mean", mean, op_state_type(x->type), x->rows, 1},
                {"rstd", rstd, op_state_type(x->type), x->rows, 1}));
  const struct layernorm_args args = {.dx = *dx, .y = *dy, .x = *x, .w = *w, .mean = *mean, .rstd = *rstd};
  return OP_SUBMIT(s, &op_layernorm_bwd_x_kernels[x->type], args, {dx, OP_WRITE}, {dy, OP_READ}, {x, OP_READ},
                   {w, OP_READ}, {mean, OP_READ}, {rstd, OP_READ});
}

enum err op_layernorm_bwd_w(struct dev_stream *s, const struct tensor *dw, const struct tensor *db,
                            const struct tensor *dy, const struct tensor *x, const struct tensor *mean,
                            const struct tensor *rstd)
{
  TRY(op_expect_real("x", x));
  TRY(OP_EXPECT({"dw", dw, op_state_type(x->type), 1, x->cols}, {"db", db, op_state_type(x->type), 1, x->cols}, {"dy", dy, x->type, x->rows, x->cols},
                {"mean", mean, op_state_type(x->type), x->rows, 1}, {"rstd", rstd, op_state_type(x->type), x->rows, 1}));
  const struct layernorm_args args = {.w = *dw, .b = *db, .y = *dy, .x = *x, .mean = *mean, .rstd = *rstd};
  return OP_SUBMIT(s, &op_layernorm_bwd_w_kernels[x->type], args, {dw, OP_WRITE}, {db, OP_WRITE}, {dy, OP_READ},
                   {x, OP_READ}, {mean, OP_READ}, {rstd, OP_READ});
}
