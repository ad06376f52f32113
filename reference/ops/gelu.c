/* gelu.c - y = x * s(x), the tanh form of GELU.  Hendrycks & Gimpel 2016, section 2; GPT-2.
 *
 *   u = sqrt(2 / pi) * (x + 0.044715 x^3)      0.5 x (1 + tanh u) = x * s,  s = 1 / (1 + e^-2u)
 *
 * The form with s loses nothing for negative x, where 1 + tanh u cancels.  Backward, since
 * ds/dx = s (1 - s) 2 du/dx:
 *   dx = dy * (s + x s (1 - s) * 2 sqrt(2 / pi) (1 + 3 * 0.044715 x^2))    written; dx may be dy
 */
#include "ops/gelu_args.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

#define KERNELS "ops/gelu_cpu.h"
#include "ops/each_type.h"

OP_KERNELS(op_gelu_fwd);
OP_KERNELS(op_gelu_bwd);

enum err op_gelu_fwd(struct dev_stream *s, const struct tensor *y, const struct tensor *x)
{
  TRY(op_expect_real("x", x));
  TRY(op_expect("y", y, x->type, x->rows, x->cols));
  const struct gelu_args args = {.y = *y, .x = *x};
  return OP_SUBMIT(s, &op_gelu_fwd_kernels[x->type], args, {y, OP_WRITE}, {x, OP_READ});
}

enum err op_gelu_bwd(struct dev_stream *s, const struct tensor *dx, const struct tensor *dy, const struct tensor *x)
{
  TRY(op_expect_real("x", x));
  TRY(OP_EXPECT({"dx", dx, x->type, x->rows, x->cols}, {"dy", dy, x->type, x->rows, x->cols}));
  const struct gelu_args args = {.y = *dx, .x = *x, .dy = *dy};
  return OP_SUBMIT(s, &op_gelu_bwd_kernels[x->type], args, {dx, OP_WRITE}, {dy, OP_READ}, {x, OP_READ});
}
