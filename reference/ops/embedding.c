/* embedding.c - rows of two tables by number: y = wte[token], then y += wpe[position].
 *
 *   tokens, positions i32 [B, T]   wte [V, C]   wpe [P, C]   y, dy [N, C]
 *
 * wte may be a part of its table (the rows first..), y of the positions' rows (row0..).  Backward:
 * dwte[token[n] - first] += dy[n] and dwpe[position[row0 + n]] += dy[n], n in index order for every
 * element; threads share out columns, so there is nothing to collide on.
 */
#include "ops/embedding_args.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

#include "base/clock.h"
#include "base/fault.h"

#include <omp.h>

/* Every number that a row of y asks for is in 0..limit-1. */
static enum err expect_ids(const char *what, const struct embedding_args *e)
{
  for (int64_t n = e->row0; n < e->row0 + e->y.rows; n++) {
    const int32_t id = op_token(&e->ids, n);
    if (id < 0 || id >= e->limit)
      FAIL(ERR_NUMERIC, "%s %d at [%" PRId64 ", %" PRId64 "] is outside 0..%" PRId64, what, id, n / e->ids.cols,
           n % e->ids.cols, e->limit - 1);
  }
  return ERR_OK;
}

/* Row of the table that row n of y asks for; -1: of another part. */
static int64_t row_for(const struct embedding_args *e, int64_t n)
{
  const int64_t row = op_token(&e->ids, e->row0 + n) - e->first;
  return row >= 0 && row < e->table.rows ? row : -1;
}

#define KERNELS "ops/embedding_cpu.h"
#include "ops/each_type.h"

OP_KERNELS(op_embedding_fwd);
OP_KERNELS(op_embedding_bwd_w);
OP_KERNELS(op_position_fwd);
OP_KERNELS(op_position_bwd_w);

static enum err token_args(const char *y_name, const struct tensor *y, const char *table_name, enum dtype type,
                           const struct tensor *table, const struct tensor *tokens, int64_t first, int64_t vocab,
                           struct embedding_args *out)
{
  TRY(op_expect_real(y_name, y));
  TRY(op_expect(table_name, table, type, -1, y->cols));
  TRY(op_expect_tokens("tokens", tokens, y->rows));
  if (first < 0 || vocab < 1) FAIL(ERR_ARG, "rows from %" PRId64 " of a vocabulary of %" PRId64, first, vocab);
  *out = (struct embedding_args){.y = *y, .table = *table, .ids = *tokens, .first = first, .limit = vocab};
  return ERR_OK;
}

static enum err position_args(const char *y_name, const struct tensor *y, const char *table_name, enum dtype type,
                              const struct tensor *table, const struct tensor *positions, int64_t row0,
                              struct embedding_args *out)
{
  TRY(op_expect_real(y_name, y));
  TRY(op_expect(table_name, table, type, -1, y->cols));
  TRY(op_expect("positions", positions, DTYPE_I32, -1, -1));
  if (row0 < 0 || row0 > tensor_count(positions) - y->rows)
    FAIL(ERR_ARG, "%s has the rows from %" PRId64 ", %" PRId64 " of them; positions has %" PRId64, y_name, row0,
         y->rows, tensor_count(positions));
  *out = (struct embedding_args){.y = *y, .table = *table, .ids = *positions, .limit = table->rows, .row0 = row0};
  return ERR_OK;
}

enum err op_embedding_fwd(struct dev_stream *s, const struct tensor *y, const struct tensor *wte,
                          const struct tensor *tokens, int64_t first, int64_t vocab)
{
  struct embedding_args args;
  TRY(token_args("y", y, "wte", y->type, wte, tokens, first, vocab, &args));
  return OP_SUBMIT(s, &op_embedding_fwd_kernels[y->type], args, {y, OP_WRITE}, {wte, OP_READ}, {tokens, OP_READ});
}

enum err op_embedding_bwd_w(struct dev_stream *s, const struct tensor *dwte, const struct tensor *dy,
                            const struct tensor *tokens, int64_t first, int64_t vocab)
{
  struct embedding_args args;
  TRY(token_args("dy", dy, "dwte", op_state_type(dy->type), dwte, tokens, first, vocab, &args));
  return OP_SUBMIT(s, &op_embedding_bwd_w_kernels[dy->type], args, {dwte, OP_WRITE}, {dy, OP_READ}, {tokens, OP_READ});
}

enum err op_position_fwd(struct dev_stream *s, const struct tensor *y, const struct tensor *wpe,
                         const struct tensor *positions, int64_t row0)
{
  struct embedding_args args;
  TRY(position_args("y", y, "wpe", y->type, wpe, positions, row0, &args));
  return OP_SUBMIT(s, &op_position_fwd_kernels[y->type], args, {y, OP_WRITE}, {wpe, OP_READ}, {positions, OP_READ});
}

enum err op_position_bwd_w(struct dev_stream *s, const struct tensor *dwpe, const struct tensor *dy,
                           const struct tensor *positions, int64_t row0)
{
  struct embedding_args args;
  TRY(position_args("dy", dy, "dwpe", op_state_type(dy->type), dwpe, positions, row0, &args));
  return OP_SUBMIT(s, &op_position_bwd_w_kernels[dy->type], args, {dwpe, OP_WRITE}, {dy, OP_READ},
                   {positions, OP_READ});
}
