/* ops_gpu_bench.c - every operation of a training step against what the card can do at best.
 *
 *   ops_gpu_bench [repeats]
 *
 * In bf16 at the shapes of gpt2-1558m on 32 sequences of 1,024 tokens; attention also on 8 of 4,096, and in f16.  Beside each the bytes
 * that it must move or the FLOPs that it must do, and its share of the ceiling (gpu_bench.h).
 *
 * Of one number, and so without a rate: op_reciprocal, op_clip_factor, op_overflow, op_loss_scale.  op_sleep moves nothing.  What comm
 * has of its own is in view_cuda_bench.c.
 */
#include "ops/gpu_bench.h"

enum { HEAD = 64 };

struct sizes {
  int64_t B, T, C, H, V, rows; /* rows: of the logits                         */
  int64_t flat;                /* elements of what the optimizer goes through */
};
static const struct sizes of_gpu = {32, 1024, 1600, 25, 50304, 8192, 1 << 27}, of_host = {2, 64, 128, 2, 136, 64, 4096};

/* --- the operations ---------------------------------------------------------------- */

static void linear(const char *name, const struct tensor *y, const struct tensor *x, const struct tensor *w, const struct tensor *dw,
                   const struct tensor *b, const struct tensor *db, bool transposed)
{
  char text[64];
  const double flop = 2.0 * (double)x->rows * (double)x->cols * (double)y->cols;
  snprintf(text, sizeof text, "%s fwd", name);
  ROW(text, flop, 0, op_linear_fwd(stream, y, x, w, b, transposed));
  snprintf(text, sizeof text, "%s bwd_x", name);
  ROW(text, flop, 0, op_linear_bwd_x(stream, x, y, w, transposed));
  snprintf(text, sizeof text, "%s bwd_w", name);
  ROW(text, flop, 0, op_linear_bwd_w(stream, dw, db, y, x, transposed));
}

static void attention(const char *name, const struct tensor *qkv, const struct tensor *dqkv, const struct tensor *o,
                      const struct tensor *d_o, int64_t B, int64_t T, int64_t H)
{
  char text[64];
  const int64_t N = B * T;
  const struct tensor lse = state(N, H), docs = made(DTYPE_I32, B, T, 1); /* one document a sequence */
  const double flop = 4.0 * (double)N * (double)T * (double)(H * HEAD) / 2;
  snprintf(text, sizeof text, "%s %" PRId64 " fwd", name, T);
  ROW(text, flop, 0, op_attention_fwd(stream, o, &lse, qkv, &docs, (int)H));
  snprintf(text, sizeof text, "%s %" PRId64 " bwd", name, T);
  ROW(text, 2.5 * flop, 0, op_attention_bwd(stream, dqkv, d_o, o, &lse, qkv, &docs, (int)H));
}

static void layers(const struct sizes *z)
{
  const int64_t N = z->B * z->T, C = z->C;
  const struct tensor x = work(N, C), y = work(N, C), dx = work(N, C), wide = work(N, 4 * C), dwide = work(N, 4 * C),
                      dwide2 = work(N, 4 * C);
  const struct tensor w = work(C, 4 * C), dw = state(C, 4 * C), b = work(1, 4 * C), db = state(1, 4 * C);
  const struct tensor qkv = part(&wide, N, 3 * C), dqkv = part(&dwide, N, 3 * C), wq = part(&w, C, 3 * C), dwq = part(&dw, C, 3 * C);
  const struct tensor wo = part(&w, C, C), dwo = part(&dw, C, C), wd = part(&w, 4 * C, C), dwd = part(&dw, 4 * C, C);
  const struct tensor b1 = part(&b, 1, C), db1 = part(&db, 1, C), b3 = part(&b, 1, 3 * C), db3 = part(&db, 1, 3 * C), b0 = work(1, C),
                      db0 = state(1, C);
  const struct tensor mean = state(N, 1), rstd = state(N, 1), tokens = made(DTYPE_I32, z->B, z->T, z->V < 4096 ? z->V : 4096),
                      samples = made(DTYPE_I32, z->B, 1, 1000), half = state(1, 1), step = made(DTYPE_I32, 1, 1, 10),
                      wte = work(z->V, C), dwte = state(z->V, C);
  const struct rng_key key = {1, RNG_DROPOUT, 0};
  const int64_t longer = gpu ? 4 : 2;
  const double bytes = 2.0 * (double)(N * C);
  ceilings(&wide, &dwide);
  linear("qkv", &qkv, &x, &wq, &dwq, &b3, &db3, false);
  linear("attention out", &y, &x, &wo, &dwo, &b1, &db1, false);
  linear("mlp up", &wide, &x, &w, &dw, &b, &db, false);
  linear("mlp down", &y, &wide, &wd, &dwd, &b1, &db1, false);
  attention("attention", &qkv, &dqkv, &y, &dx, z->B, z->T, z->H);
  attention("attention", &qkv, &dqkv, &y, &dx, z->B / longer, z->T * longer, z->H);
  ROW("layernorm fwd", 0, 2 * bytes, op_layernorm_fwd(stream, &y, &mean, &rstd, &x, &b1, &b0, 1e-5));
  ROW("layernorm bwd_x", 0, 3 * bytes, op_layernorm_bwd_x(stream, &dx, &y, &x, &b1, &mean, &rstd));
  ROW("layernorm bwd_w", 0, 2 * bytes, op_layernorm_bwd_w(stream, &db0, &db1, &y, &x, &mean, &rstd));
  ROW("gelu fwd", 0, 8 * bytes, op_gelu_fwd(stream, &dwide, &wide));
  ROW("gelu bwd", 0, 12 * bytes, op_gelu_bwd(stream, &dwide2, &dwide, &wide));
  ROW("dropout", 0, 2 * bytes, op_dropout(stream, &y, &x, 0.1, key, &step, &samples, z->T, z->T, 0));
  ROW("residual add", 0, 3 * bytes, op_add(stream, &y, &x, &dx));
  ROW("bias add", 0, 2 * bytes, op_bias_fwd(stream, &y, &b1));
  ROW("scale", 0, 2 * bytes, op_scale(stream, &y, &x, &half));
  ROW("embedding fwd", 0, 2 * bytes, op_embedding_fwd(stream, &y, &wte, &tokens, 0, z->V));
  ROW("position fwd", 0, 2 * bytes, op_position_fwd(stream, &y, &wte, &tokens, 0));
  ROW("position bwd_w", 0, bytes + 8.0 * (double)(C * (z->V < 4096 ? z->V : 4096)), op_position_bwd_w(stream, &dwte, &y, &tokens, 0));
  ROW("embedding bwd_w", 0, bytes + 8.0 * (double)(C * (z->V < 4096 ? z->V : 4096)), op_embedding_bwd_w(stream, &dwte, &y, &tokens, 0, z->V));
}

static void attention_in_half(const struct sizes *z)
{
  const int64_t N = z->B * z->T;
  const struct tensor qkv = made(DTYPE_F16, N, 3 * z->C, 1), dqkv = made(DTYPE_F16, N, 3 * z->C, 1), o = made(DTYPE_F16, N, z->C, 1),
                      d_o = made(DTYPE_F16, N, z->C, 1);
  attention("attention f16", &qkv, &dqkv, &o, &d_o, z->B, z->T, z->H);
}

static void head(const struct sizes *z)
{
  const struct tensor x = work(z->rows, z->C), wte = work(z->V, z->C), dwte = state(z->V, z->C), logits = work(z->rows, z->V);
  const struct tensor lse = state(z->rows, 1), losses = made(DTYPE_F64, z->rows, 1, 1), scale = made(DTYPE_F64, 1, 1, 1),
                      targets = made(DTYPE_I32, 1, z->rows, z->V), max = made(DTYPE_F64, z->rows, 1, 1), sums = made(DTYPE_F64, z->rows, 2, 1);
  const double bytes = 2.0 * (double)(z->rows * z->V);
  linear("head", &logits, &x, &wte, &dwte, NULL, NULL, true);
  ROW("cross entropy fwd", 0, bytes, op_cross_entropy_fwd(stream, &losses, &lse, &logits, &targets));
  ROW("cross entropy max", 0, bytes, op_cross_entropy_max(stream, &max, &logits, z->V));
  ROW("cross entropy sums", 0, bytes, op_cross_entropy_sums(stream, &sums, &logits, &max, &targets, 0, z->V));
  ROW("cross entropy join", 0, (8 + 16 + 4 + 8 + 4) * (double)z->rows, op_cross_entropy_join(stream, &losses, &lse, &max, &sums, &targets, z->V));
  ROW("cross entropy bwd", 0, 2 * bytes, op_cross_entropy_bwd(stream, &logits, &logits, &lse, &targets, &scale, 0, z->V));
}

static void optimizer(const struct sizes *z)
{
  const double n = (double)z->flat;
  const struct tensor w = state(1, z->flat), m = state(1, z->flat), g = state(1, z->flat), v = state(1, z->flat), rounded = work(1, z->flat);
  const struct tensor number = made(DTYPE_I64, 1, 1, 1), scalar = made(DTYPE_F64, 1, 1, 1), sum = made(DTYPE_F64, 1, 1, 1),
                      hash = made(DTYPE_I64, 1, 1, 1);
  const struct op_adamw rule = {0.9, 0.95, 1e-8, 0.1};
  need(op_fill(stream, &v, 0.5)); /* a second moment is not negative */
  ROW("sum of squares", 0, 4 * n, op_sum_squares(stream, &sum, &g));
  ROW("adamw", 0, 30 * n, op_adamw(stream, &w, &rounded, &m, &v, &g, &scalar, &number, &scalar, NULL, &rule));
  ROW("sgd", 0, 14 * n, op_sgd(stream, &w, &rounded, &g, &scalar, &scalar, NULL, 0.1));
  ROW("sum", 0, 4 * n, op_sum(stream, &sum, &g));
  ROW("largest", 0, 4 * n, op_max_abs(stream, &sum, &g));
  ROW("hash", 0, 4 * n, op_hash(stream, &hash, &g));
  ROW("accumulate", 0, 12 * n, op_accumulate(stream, &m, &g));
  ROW("round", 0, 6 * n, op_copy(stream, &rounded, &w));
  ROW("clear gradients", 0, 4 * n, op_fill(stream, &g, 0));
}

int main(int argc, char **argv)
{
  const int status = bench_open(argc, argv);
  if (status != STATUS_PASS) return status;
  const struct sizes *z = gpu ? &of_gpu : &of_host;
  layers(z);
  attention_in_half(z);
  head(z);
  optimizer(z);
  bench_close();
  return STATUS_PASS;
}
