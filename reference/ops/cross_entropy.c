/* cross_entropy.c - softmax cross-entropy of each row, never storing the softmax.
 *
 *   logits x [N, V]   target k [N] (-1: ignored)   losses f64 [N, 1]   lse [N, 1]
 *
 * Forward, with m = max of the row (so that no exponential overflows):
 *   lse = m + log(sum exp(x - m))        loss = lse - x[k], from the unrounded lse
 * Backward:  dx = (exp(x - lse) - onehot(k)) * scale;  0 where ignored;  dx may be x
 *
 * The sum runs in double, in lanes (vector.h).
 */
#include "ops/op_submit.h"
#include "ops/vector.h"

struct cross_entropy_args {
  struct tensor logits, targets, lse;
  struct tensor losses;         /* forward  */
  struct tensor dlogits, scale; /* backward */
};

/* Every target names a column, or nothing. */
static enum err expect_targets(const struct tensor *targets, int64_t V)
{
  for (int64_t n = 0; n < tensor_count(targets); n++) {
    const int32_t k = op_token(targets, n);
    if (k < -1 || k >= V)
      FAIL(ERR_NUMERIC, "target %d at [%" PRId64 ", %" PRId64 "] is outside -1..%" PRId64, k, n / targets->cols,
           n % targets->cols, V - 1);
  }
  return ERR_OK;
}

#define KERNELS "ops/cross_entropy_cpu.h"
#include "ops/each_type.h"

OP_KERNELS(op_cross_entropy_fwd);
OP_KERNELS(op_cross_entropy_bwd);

enum err op_cross_entropy_fwd(struct dev_stream *s, const struct tensor *losses, const struct tensor *lse,
                              const struct tensor *logits, const struct tensor *targets)
{
  TRY(op_expect_real("logits", logits));
  if (logits->cols < 1) FAIL(ERR_ARG, "logits has no columns");
  TRY(OP_EXPECT({"losses", losses, DTYPE_F64, logits->rows, 1}, {"lse", lse, logits->type, logits->rows, 1}));
  TRY(op_expect_tokens("targets", targets, logits->rows));
  const struct cross_entropy_args args = {.logits = *logits, .targets = *targets, .lse = *lse, .losses = *losses};
  return OP_SUBMIT(s, &op_cross_entropy_fwd_kernels[logits->type], args, {losses, OP_WRITE}, {lse, OP_WRITE},
                   {logits, OP_READ}, {targets, OP_READ});
}

enum err op_cross_entropy_bwd(struct dev_stream *s, const struct tensor *dlogits, const struct tensor *logits,
                              const struct tensor *lse, const struct tensor *targets, const struct tensor *scale)
{
  TRY(op_expect_real("logits", logits));
  TRY(OP_EXPECT({"dlogits", dlogits, logits->type, logits->rows, logits->cols},
                {"lse", lse, logits->type, logits->rows, 1}));
  TRY(op_expect_tokens("targets", targets, logits->rows));
  TRY(op_expect("scale", scale, DTYPE_F64, 1, 1));
  const struct cross_entropy_args args = {
      .dlogits = *dlogits, .logits = *logits, .lse = *lse, .targets = *targets, .scale = *scale};
  return OP_SUBMIT(s, &op_cross_entropy_bwd_kernels[logits->type], args, {dlogits, OP_WRITE}, {logits, OP_READ},
                   {lse, OP_READ}, {targets, OP_READ}, {scale, OP_READ});
}
