/* cross_entropy.c - softmax cross-entropy of each row, never storing the softmax.
 *
 *   logits x [N, V]   target k [N] (-1: ignored)   losses f64 [N, 1]   lse [N, 1]
 *
 * Forward, with m = max of the row (so that no exponential overflows):
 *   lse = m + log(sum exp(x - m))        loss = lse - x[k], from the unrounded lse
 * Backward:  dx = (exp(x - lse) - onehot(k)) * scale;  0 where ignored;  dx may be x
 *
 * The sum runs in double, in lanes (vector.h).  With the vocabulary cut into parts, each has its own max and,
 * with the largest of them as m, its own sum and the target's logit or 0; the parts' are added outside.
 */
#include "ops/cross_entropy_args.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

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

/* Column of the target of row n; -1: none of this part's. */
static int64_t target_column(const struct cross_entropy_args *a, int64_t n)
{
  const int64_t column = op_token(&a->targets, n) - a->first;
  return column >= 0 && column < a->valid ? column : -1;
}

#define KERNELS "ops/cross_entropy_cpu.h"
#include "ops/each_type.h"

#define KERNELS "ops/cross_entropy_join_cpu.h"
#include "ops/each_state_type.h"

OP_KERNELS(op_cross_entropy_fwd);
OP_KERNELS(op_cross_entropy_max);
OP_KERNELS(op_cross_entropy_sums);
OP_STATE_KERNELS(op_cross_entropy_join);
OP_KERNELS(op_cross_entropy_bwd);

enum err op_cross_entropy_fwd(struct dev_stream *s, const struct tensor *losses, const struct tensor *lse,
                              const struct tensor *logits, const struct tensor *targets)
{
  TRY(op_expect_real("logits", logits));
  if (logits->cols < 1) FAIL(ERR_ARG, "logits has no columns");
  TRY(OP_EXPECT({"losses", losses, DTYPE_F64, logits->rows, 1}, {"lse", lse, op_state_type(logits->type), logits->rows, 1}));
  TRY(op_expect_tokens("targets", targets, logits->rows));
  const struct cross_entropy_args args = {.logits = *logits, .targets = *targets, .lse = *lse, .losses = *losses};
  return OP_SUBMIT(s, &op_cross_entropy_fwd_kernels[logits->type], args, {losses, OP_WRITE}, {lse, OP_WRITE},
                   {logits, OP_READ}, {targets, OP_READ});
}

/* A part of the vocabulary: its number of columns may be anything, `valid` of them count. */
static enum err expect_part(const struct tensor *logits, int64_t first, int64_t valid)
{
  TRY(op_expect_real("logits", logits));
  if (first < 0) FAIL(ERR_ARG, "a part of the vocabulary from %" PRId64, first);
  if (valid < 0 || valid > logits->cols) FAIL(ERR_ARG, "%" PRId64 " valid columns of %" PRId64, valid, logits->cols);
  return ERR_OK;
}

enum err op_cross_entropy_max(struct dev_stream *s, const struct tensor *max, const struct tensor *logits,
                              int64_t valid)
{
  TRY(expect_part(logits, 0, valid));
  TRY(op_expect("max", max, DTYPE_F64, logits->rows, 1));
  const struct cross_entropy_args args = {.logits = *logits, .max = *max, .valid = valid};
  return OP_SUBMIT(s, &op_cross_entropy_max_kernels[logits->type], args, {max, OP_WRITE}, {logits, OP_READ});
}

enum err op_cross_entropy_sums(struct dev_stream *s, const struct tensor *sums, const struct tensor *logits,
                               const struct tensor *max, const struct tensor *targets, int64_t first, int64_t valid)
{
  TRY(expect_part(logits, first, valid));
  TRY(OP_EXPECT({"sums", sums, DTYPE_F64, logits->rows, 2}, {"max", max, DTYPE_F64, logits->rows, 1}));
  TRY(op_expect_tokens("targets", targets, logits->rows));
  const struct cross_entropy_args args = {
      .logits = *logits, .targets = *targets, .max = *max, .sums = *sums, .first = first, .valid = valid};
  return OP_SUBMIT(s, &op_cross_entropy_sums_kernels[logits->type], args, {sums, OP_WRITE}, {logits, OP_READ},
                   {max, OP_READ}, {targets, OP_READ});
}

enum err op_cross_entropy_join(struct dev_stream *s, const struct tensor *losses, const struct tensor *lse,
                               const struct tensor *max, const struct tensor *sums, const struct tensor *targets,
                               int64_t vocab)
{
  TRY(op_expect_state("lse", lse));
  TRY(OP_EXPECT({"lse", lse, lse->type, -1, 1}, {"losses", losses, DTYPE_F64, lse->rows, 1},
                {"max", max, DTYPE_F64, lse->rows, 1}, {"sums", sums, DTYPE_F64, lse->rows, 2}));
  TRY(op_expect_tokens("targets", targets, lse->rows));
  if (vocab < 1) FAIL(ERR_ARG, "a vocabulary of %" PRId64, vocab);
  const struct cross_entropy_args args = {
      .targets = *targets, .lse = *lse, .losses = *losses, .max = *max, .sums = *sums, .vocab = vocab};
  return OP_SUBMIT(s, &op_cross_entropy_join_kernels[lse->type], args, {losses, OP_WRITE}, {lse, OP_WRITE},
                   {max, OP_READ}, {sums, OP_READ}, {targets, OP_READ});
}

enum err op_cross_entropy_bwd(struct dev_stream *s, const struct tensor *dlogits, const struct tensor *logits,
                              const struct tensor *lse, const struct tensor *targets, const struct tensor *scale,
                              int64_t first, int64_t valid)
{
  TRY(expect_part(logits, first, valid));
  TRY(OP_EXPECT({"dlogits", dlogits, logits->type, logits->rows, logits->cols},
                {"lse", lse, op_state_type(logits->type), logits->rows, 1}));
  TRY(op_expect_tokens("targets", targets, logits->rows));
  TRY(op_expect("scale", scale, DTYPE_F64, 1, 1));
  const struct cross_entropy_args args = {.dlogits = *dlogits,
                                          .logits = *logits,
                                          .lse = *lse,
                                          .targets = *targets,
                                          .scale = *scale,
                                          .first = first,
                                          .valid = valid};
  return OP_SUBMIT(s, &op_cross_entropy_bwd_kernels[logits->type], args, {dlogits, OP_WRITE}, {logits, OP_READ},
                   {lse, OP_READ}, {targets, OP_READ}, {scale, OP_READ});
}
