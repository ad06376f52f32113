/* cross_entropy_join_cpu.h - the kernel of op_cross_entropy_join for one type of lse. */

/* The same for every type but for the rounding of lse, from the same sums as op_cross_entropy_fwd. */
static enum err OP(op_cross_entropy_join)(void *args)
{
  const struct cross_entropy_args *a = args;
  TRY(expect_targets(&a->targets, a->vocab));
  for (int64_t n = 0; n < a->lse.rows; n++) {
    const double m = *(const double *)tensor_row(&a->max, n), *sums = (const double *)tensor_row(&a->sums, n);
    const double log_sum = log(sums[0]);
    *(REAL *)tensor_row(&a->lse, n) = (REAL)(m + log_sum);
    *(double *)tensor_row(&a->losses, n) = op_token(&a->targets, n) < 0 ? 0.0 : log_sum + (m - sums[1]);
  }
  return ERR_OK;
}
