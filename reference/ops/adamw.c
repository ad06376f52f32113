/* adamw.c - one step of AdamW or SGD on one parameter; g is the reduced gradient, times `factor`.
 *
 * AdamW (Loshchilov & Hutter 2019, algorithm 2), in the order of torch.optim.AdamW:
 *   w = w - lr * decay * w
 *   m = beta1 * m + (1 - beta1) * g       v = beta2 * v + (1 - beta2) * g * g
 *   w = w - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 * SGD as torch.optim.SGD without momentum:  w = w - lr * (g + decay * w)
 *
 * Coefficients are computed in double from the device's scalars and rounded once; elements
 * are computed in their own type; `rounded` is the new w in bf16 or f16, one rounding more.  A step that is to be
 * skipped writes nothing.
 */
#include "ops/adamw_args.h"
#include "ops/narrow.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

/* w of a piece, where a rounded copy is kept. */
static void round_span(const struct update_args *u, struct span p)
{
  if (u->rounded.at != NULL)
    narrow_round((uint16_t *)tensor_row(&u->rounded, p.row) + p.col, (const float *)tensor_row(&u->w, p.row) + p.col,
                 u->rounded.type, p.count);
}

static bool skipped(const struct update_args *u) { return u->skip.at != NULL && *(const double *)u->skip.at != 0; }

#define KERNELS "ops/adamw_cpu.h"
#include "ops/each_state_type.h"

OP_STATE_KERNELS(op_adamw);
OP_STATE_KERNELS(op_sgd);

static const struct tensor no_tensor;

static enum err expect_weights(const struct tensor *w, const struct tensor *rounded)
{
  TRY(op_expect_state("w", w));
  if (rounded == NULL) return ERR_OK;
  TRY(tensor_expect_type("w, which is to be rounded,", w, DTYPE_F32));
  return op_expect("rounded", rounded, op_is_narrow(rounded->type) ? rounded->type : DTYPE_BF16, w->rows, w->cols);
}

enum err op_adamw(struct dev_stream *s, const struct tensor *w, const struct tensor *rounded, const struct tensor *m,
                  const struct tensor *v, const struct tensor *g, const struct tensor *lr, const struct tensor *t,
                  const struct tensor *factor, const struct tensor *skip, const struct op_adamw *rule)
{
  TRY(expect_weights(w, rounded));
  TRY(OP_EXPECT({"m", m, w->type, w->rows, w->cols}, {"v", v, w->type, w->rows, w->cols},
                {"g", g, w->type, w->rows, w->cols}, {"lr", lr, DTYPE_F64, 1, 1}, {"t", t, DTYPE_I64, 1, 1},
                {"factor", factor, DTYPE_F64, 1, 1}, {"skip", skip, DTYPE_F64, 1, 1}));
  const struct update_args args = {*w,  rounded ? *rounded : no_tensor, *m, *v, *g, *lr, *t, *factor, skip ? *skip : no_tensor, *rule};
  return OP_SUBMIT(s, &op_adamw_kernels[w->type], args, {w, OP_WRITE}, {rounded, OP_WRITE}, {m, OP_WRITE},
                   {v, OP_WRITE}, {g, OP_READ}, {lr, OP_READ}, {t, OP_READ}, {factor, OP_READ}, {skip, OP_READ});
}

enum err op_sgd(struct dev_stream *s, const struct tensor *w, const struct tensor *rounded, const struct tensor *g,
                const struct tensor *lr, const struct tensor *factor, const struct tensor *skip, double weight_decay)
{
  TRY(expect_weights(w, rounded));
  TRY(OP_EXPECT({"g", g, w->type, w->rows, w->cols}, {"lr", lr, DTYPE_F64, 1, 1}, {"factor", factor, DTYPE_F64, 1, 1},
                {"skip", skip, DTYPE_F64, 1, 1}));
  const struct update_args args = {.w = *w,
                                   .rounded = rounded ? *rounded : no_tensor,
                                   .g = *g,
                                   .lr = *lr,
                                   .factor = *factor,
                                   .skip = skip ? *skip : no_tensor,
                                   .rule.weight_decay = weight_decay};
  return OP_SUBMIT(s, &op_sgd_kernels[w->type], args, {w, OP_WRITE}, {rounded, OP_WRITE}, {g, OP_READ}, {lr, OP_READ},
                   {factor, OP_READ}, {skip, OP_READ});
}
