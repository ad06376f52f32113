/* embedding.c - y = wte[token] + wpe[position], row by row.
 *
 *   tokens, positions i32 [B, T]   wte [V, C]   wpe [P, C]   y, dy [B * T, C]
 *
 * Backward: dwte[token[n]] += dy[n] and dwpe[position[n]] += dy[n], n in index order for
 * every element; threads share out columns, so there is nothing to collide on.
 */
#include "ops/op_submit.h"
#include "ops/vector.h"

#include "base/clock.h"
#include "base/fault.h"

#include <omp.h>

struct embedding_args {
  struct tensor y, wte, wpe, tokens, positions; /* gradients in a backward; absent: at is NULL */
};

/* Every id of `ids` names a row of `table`. */
static enum err expect_rows(const char *what, const struct tensor *ids, const struct tensor *table)
{
  for (int64_t n = 0; n < tensor_count(ids); n++) {
    const int32_t id = op_token(ids, n);
    if (id < 0 || id >= table->rows)
      FAIL(ERR_NUMERIC, "%s %d at [%" PRId64 ", %" PRId64 "] is outside 0..%" PRId64, what, id, n / ids->cols,
           n % ids->cols, table->rows - 1);
  }
  return ERR_OK;
}

#define KERNELS "ops/embedding_cpu.h"
#include "ops/each_type.h"

OP_KERNELS(op_embedding_fwd);
OP_KERNELS(op_embedding_bwd_w);

enum err op_embedding_fwd(struct dev_stream *s, const struct tensor *y, const struct tensor *wte,
                          const struct tensor *wpe, const struct tensor *tokens, const struct tensor *positions)
{
  TRY(op_expect_real("y", y));
  TRY(OP_EXPECT({"wte", wte, y->type, -1, y->cols}, {"wpe", wpe, y->type, -1, y->cols}));
  TRY(op_expect_tokens("tokens", tokens, y->rows));
  TRY(op_expect("positions", positions, DTYPE_I32, tokens->rows, tokens->cols));
  const struct embedding_args args = {*y, *wte, *wpe, *tokens, *positions};
  return OP_SUBMIT(s, &op_embedding_fwd_kernels[y->type], args, {y, OP_WRITE}, {wte, OP_READ}, {wpe, OP_READ},
                   {tokens, OP_READ}, {positions, OP_READ});
}

enum err op_embedding_bwd_w(struct dev_stream *s, const struct tensor *dwte, const struct tensor *dwpe,
                            const struct tensor *dy, const struct tensor *tokens, const struct tensor *positions)
{
  TRY(op_expect_real("dy", dy));
  if (dwte != NULL) TRY(op_expect("dwte", dwte, dy->type, -1, dy->cols));
  if (dwpe != NULL) TRY(op_expect("dwpe", dwpe, dy->type, -1, dy->cols));
  TRY(op_expect_tokens("tokens", tokens, dy->rows));
  TRY(op_expect("positions", positions, DTYPE_I32, tokens->rows, tokens->cols));
  struct embedding_args args = {.y = *dy, .tokens = *tokens, .positions = *positions};
  if (dwte != NULL) args.wte = *dwte;
  if (dwpe != NULL) args.wpe = *dwpe;
  return OP_SUBMIT(s, &op_embedding_bwd_w_kernels[dy->type], args, {dwte, OP_WRITE}, {dwpe, OP_WRITE}, {dy, OP_READ},
                   {dwte ? tokens : NULL, OP_READ}, {dwpe ? positions : NULL, OP_READ});
}
