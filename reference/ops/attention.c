/* attention.c - causal self-attention inside documents, without storing the T x T matrix.
 *
 *   qkv [B * T, 3 C], head h of q, k, v in columns h * D of each third, D = C / heads
 *   s = q k^T / sqrt(D)     p = softmax over the keys that t sees     o = p v
 *   lse [B * T, heads] = log of the sum of e^s over those keys
 *
 * Position t sees u <= t of the same document id; a negative id sees itself only.
 *
 * Forward: a block of QUERIES rows meets blocks of KEYS columns in order, with a running maximum
 * and sum (Milakov & Gimelshein 2018; Dao et al. 2022, algorithm 1).  Backward recomputes p from
 * lse (Dao et al. 2022, appendix B):
 *   dv += p^T do     dp = do v^T     ds = p * (dp - sum(do * o)) / sqrt(D)     dq += ds k     dk += ds^T q
 *
 * One thread does one (sequence, head) from end to end, blocks in index order: no thread count
 * changes a bit.  Blocks in which no query sees a key are left out; which those are depends on
 * the document ids only.
 */
#include "ops/attention_args.h"
#include "ops/matmul.h"
#include "ops/narrow.h"
#include "ops/op_submit.h"
#include "ops/vector.h"

#include <stdlib.h>

enum { QUERIES = 64, KEYS = 256 };

/* Ids of 0 and above never decrease: then those equal to an id are one run, padding aside. */
static bool docs_ordered(const int32_t *docs, int64_t T)
{
  int32_t last = 0;
  for (int64_t t = 0; t < T; t++) {
    if (docs[t] < 0) continue;
    if (docs[t] < last) return false;
    last = docs[t];
  }
  return true;
}

/* No query of [q0, q1) sees a key before this one. */
static int64_t docs_first_key(const int32_t *docs, bool ordered, int64_t q0, int64_t q1)
{
  if (!ordered) return 0;
  int64_t t = q0;
  while (t < q1 && docs[t] < 0) t++;
  if (t == q1) return q0;
  int64_t u = q0;
  while (u > 0 && (docs[u - 1] < 0 || docs[u - 1] == docs[t])) u--;
  return u;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x < high ? x : high; }

/* Of the keys k0 .. k0 + n, query t sees those in [from, to) that have its id: padding comes down to itself. */
struct seen {
  int64_t from, to;
};
static struct seen docs_seen(const int32_t *docs, int64_t t, int64_t k0, int64_t n)
{
  return (struct seen){docs[t] < 0 ? clamp(t - k0, 0, n) : 0, clamp(t + 1 - k0, 0, n)};
}

#define KERNELS "ops/attention_cpu.h"
#include "ops/each_state_type.h"

static enum err head_at_f32(const struct attention_args *a, int64_t i, bool backward)
{
  const struct head_f32 x = head_of_f32(a, i);
  return head_run_f32(&x, backward);
}
static enum err head_at_f64(const struct attention_args *a, int64_t i, bool backward)
{
  const struct head_f64 x = head_of_f64(a, i);
  return head_run_f64(&x, backward);
}

/* bf16 and f16: a head widened whole, computed in float32, its results rounded once.  A row of `room` is
 * q k v o, and do dq dk dv in a backward, D each. */
static enum err head_at_narrow(const struct attention_args *a, int64_t i, bool backward)
{
  const enum dtype type = a->o.type;
  const int64_t T = a->docs.cols, C = a->o.cols, D = C / a->heads, b = i / a->heads, h = i % a->heads;
  const int64_t row = (backward ? 8 : 4) * D;
  float *room = malloc((size_t)(T * row) * sizeof *room);
  if (room == NULL) FAIL(ERR_MEMORY, "attention: a head of [%" PRId64 ", %" PRId64 "] in float32", T, D);
  const struct head_f32 x = {.q = room,
                             .k = room + D,
                             .v = room + 2 * D,
                             .o = room + 3 * D,
                             .out = room + 3 * D,
                             .d_o = room + 4 * D,
                             .dq = room + 5 * D,
                             .dk = room + 6 * D,
                             .dv = room + 7 * D,
                             .stride = row,
                             .o_stride = row,
                             .do_stride = row,
                             .d_stride = row,
                             .lse = (float *)tensor_row(&a->lse, b * T) + h,
                             .lse_stride = a->lse.stride,
                             .docs = (const int32_t *)tensor_row(&a->docs, b),
                             .T = T,
                             .D = D,
                             .ordered = docs_ordered((const int32_t *)tensor_row(&a->docs, b), T),
                             .scale = (float)(1.0 / sqrt((double)D))};
  for (int64_t t = 0; t < T; t++) {
    const uint16_t *qkv = (const uint16_t *)tensor_row(&a->qkv, b * T + t) + h * D;
    for (int part = 0; part < 3; part++) narrow_widen(room + t * row + part * D, qkv + part * C, type, D);
    if (!backward) continue;
    narrow_widen(room + t * row + 3 * D, (const uint16_t *)tensor_row(&a->o, b * T + t) + h * D, type, D);
    narrow_widen(room + t * row + 4 * D, (const uint16_t *)tensor_row(&a->d_o, b * T + t) + h * D, type, D);
  }
  const enum err err = head_run_f32(&x, backward);
  for (int64_t t = 0; t < T && err == ERR_OK; t++) {
    if (!backward) narrow_round((uint16_t *)tensor_row(&a->o, b * T + t) + h * D, room + t * row + 3 * D, type, D);
    for (int part = 0; part < 3 && backward; part++)
      narrow_round((uint16_t *)tensor_row(&a->dqkv, b * T + t) + h * D + part * C, room + t * row + (5 + part) * D, type, D);
  }
  free(room);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

static enum err head_at_bf16(const struct attention_args *a, int64_t i, bool backward) { return head_at_narrow(a, i, backward); }
static enum err head_at_f16(const struct attention_args *a, int64_t i, bool backward) { return head_at_narrow(a, i, backward); }

#define KERNELS "ops/attention_heads_cpu.h"
#include "ops/each_type.h"

OP_KERNELS(op_attention_fwd);
OP_KERNELS(op_attention_bwd);

static enum err expect_shapes(const struct tensor *o, const struct tensor *lse, const struct tensor *qkv,
                              const struct tensor *docs, int heads)
{
  TRY(op_expect_real("qkv", qkv));
  const int64_t C = qkv->cols / 3;
  if (heads < 1 || qkv->cols % 3 != 0 || C % heads != 0 || C == 0)
    FAIL(ERR_ARG, "qkv has %" PRId64 " columns, expected 3 * heads * D for %d heads", qkv->cols, heads);
  TRY(OP_EXPECT({"o", o, qkv->type, qkv->rows, C}, {"lse", lse, op_state_type(qkv->type), qkv->rows, heads}));
  return op_expect_tokens("docs", docs, qkv->rows);
}

enum err op_attention_fwd(struct dev_stream *s, const struct tensor *o, const struct tensor *lse,
                          const struct tensor *qkv, const struct tensor *docs, int heads)
{
  TRY(expect_shapes(o, lse, qkv, docs, heads));
  const struct attention_args args = {.o = *o, .lse = *lse, .qkv = *qkv, .docs = *docs, .heads = heads};
  return OP_SUBMIT(s, &op_attention_fwd_kernels[qkv->type], args, {o, OP_WRITE}, {lse, OP_WRITE}, {qkv, OP_READ},
                   {docs, OP_READ});
}

enum err op_attention_bwd(struct dev_stream *s, const struct tensor *dqkv, const struct tensor *d_o,
                          const struct tensor *o, const struct tensor *lse, const struct tensor *qkv,
                          const struct tensor *docs, int heads)
{
  TRY(expect_shapes(o, lse, qkv, docs, heads));
  TRY(OP_EXPECT({"dqkv", dqkv, qkv->type, qkv->rows, qkv->cols}, {"d_o", d_o, qkv->type, qkv->rows, o->cols}));
  const struct attention_args args = {*o, *lse, *qkv, *docs, *d_o, *dqkv, heads};
  return OP_SUBMIT(s, &op_attention_bwd_kernels[qkv->type], args, {dqkv, OP_WRITE}, {d_o, OP_READ}, {o, OP_READ},
                   {lse, OP_READ}, {qkv, OP_READ}, {docs, OP_READ});
}
