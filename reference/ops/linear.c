/* linear.c - y = x w + b, the layer that most of the arithmetic is in.
 *
 *   x [N, I]   y [N, O]   w [I, O], or [O, I] with transposed   b [1, O]
 *
 * The product is finished before the bias is added: one rounding more than none, and
 * the same whether there is a bias or not; in bf16 the bias joins the sum in float32.  Backward:
 *   dx  = dy w^T                 written
 *   dw += x^T dy                 (dy^T x with transposed)
 *   db += sum over rows of dy    rows in index order, in double, rounded once
 */
#include "ops/linear_args.h"
#include "ops/matmul.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

#define KERNELS "ops/linear_cpu.h"
#include "ops/each_type.h"

OP_KERNELS(op_linear_fwd);
OP_KERNELS(op_linear_bwd_x);
OP_KERNELS(op_linear_bwd_w);
OP_KERNELS(op_bias_fwd);

static const struct tensor no_tensor;

static enum err expect_shapes(const char *y_name, const struct tensor *y, const char *x_name, const struct tensor *x,
                              const char *w_name, const struct tensor *w, const char *b_name, const struct tensor *b,
                              enum dtype weights, bool transposed)
{
  TRY(op_expect_real(x_name, x));
  TRY(OP_EXPECT({y_name, y, x->type, x->rows, -1},
                {w_name, w, weights, transposed ? y->cols : x->cols, transposed ? x->cols : y->cols}));
  if (b != NULL) TRY(op_expect(b_name, b, weights, 1, y->cols));
  return ERR_OK;
}

enum err op_linear_fwd(struct dev_stream *s, const struct tensor *y, const struct tensor *x, const struct tensor *w,
                       const struct tensor *b, bool transposed)
{
  TRY(expect_shapes("y", y, "x", x, "w", w, "b", b, x->type, transposed));
  const struct linear_args args = {*y, *x, *w, b ? *b : no_tensor, transposed};
  return OP_SUBMIT(s, &op_linear_fwd_kernels[y->type], args, {y, OP_WRITE}, {x, OP_READ}, {w, OP_READ}, {b, OP_READ});
}

enum err op_linear_bwd_x(struct dev_stream *s, const struct tensor *dx, const struct tensor *dy, const struct tensor *w,
                         bool transposed)
{
  TRY(expect_shapes("dy", dy, "dx", dx, "w", w, "", NULL, dx->type, transposed));
  const struct linear_args args = {*dy, *dx, *w, no_tensor, transposed};
  return OP_SUBMIT(s, &op_linear_bwd_x_kernels[dx->type], args, {dx, OP_WRITE}, {dy, OP_READ}, {w, OP_READ});
}

enum err op_linear_bwd_w(struct dev_stream *s, const struct tensor *dw, const struct tensor *db,
                         const struct tensor *dy, const struct tensor *x, bool transposed)
{
  TRY(expect_shapes("dy", dy, "x", x, "dw", dw, "db", db, op_state_type(x->type), transposed));
  const struct linear_args args = {*dy, *x, *dw, db ? *db : no_tensor, transposed};
  return OP_SUBMIT(s, &op_linear_bwd_w_kernels[x->type], args, {dw, OP_WRITE}, {db, OP_WRITE}, {dy, OP_READ},
                   {x, OP_READ});
}

enum err op_bias_fwd(struct dev_stream *s, const struct tensor *y, const struct tensor *b)
{
  TRY(op_expect_real("y", y));
  TRY(op_expect("b", b, y->type, 1, y->cols));
  const struct linear_args args = {.y = *y, .b = *b};
  return OP_SUBMIT(s, &op_bias_fwd_kernels[y->type], args, {y, OP_WRITE}, {b, OP_READ});
}
