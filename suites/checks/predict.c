/* predict.c - parameters, memory, FLOPs and traffic as closed formulas of the configuration.
 *
 * Nothing here asks the allocator, the memory plan or the parameter table.  Symbols: L blocks, C channels, V
 * vocabulary, H heads, P positions, T tokens of a sequence, N = micro_batch * T, B sequences of a step.
 */
#include "predict.h"

#include "base/fault.h"
#include "judge.h"
#include "shapes.h"

#include <math.h>

static double round_up(double n, double to) { return ceil(n / to) * to; }
static int64_t align_of(const struct run_config *c) { return PREDICT_ALIGN / (int64_t)dtype_bytes((enum dtype)c->precision); }
static int64_t padded(const struct run_config *c, int64_t n) { return (n + align_of(c) - 1) / align_of(c) * align_of(c); }
static double bytes_of(const struct run_config *c) { return (double)dtype_bytes((enum dtype)c->precision); }

/* 12 C^2 + 13 C a block, (V + P) C embeddings, 2 C final norm, V C more for a head of its own. */
static double parameters(const struct run_config *c)
{
  const double C = (double)c->hidden, own = (double)(c->layers - c->reused);
  return own * (12.0 * C * C + 13.0 * C) + (double)(c->vocab + c->positions) * C + 2.0 * C + (c->tied ? 0.0 : (double)c->vocab * C);
}

double predict_flat(const struct run_config *c)
{
  double count = 0.0;
  struct shape s;
  for (int i = 0; shapes_at(c, i, &s); i++) count += (double)padded(c, s.rows * s.cols);
  return round_up(count, (double)c->dp);
}

/* --- gradient buckets ------------------------------------------------------------------- */

struct fill {
  int64_t *counts, max, n;
  int64_t padded, taken; /* of the open bucket: with and without padding */
  bool open;             /* it holds part of a parameter */
};

static void close_bucket(struct fill *f)
{
  if (f->counts && f->n < f->max) f->counts[f->n] = f->padded;
  f->n++;
  f->padded = f->taken = 0;
  f->open = false;
}

int64_t predict_buckets(const struct run_config *c, int64_t *counts, int64_t max)
{
  struct fill f = {.counts = counts, .max = max};
  const int64_t bucket = c->bucket;
  double end = 0.0; /* behind the last parameter: up to a multiple of the replicas */
  struct shape s;
  for (int i = 0; shapes_at(c, i, &s); i++) end += (double)padded(c, s.rows * s.cols);
  f.padded = (int64_t)(predict_flat(c) - end);
  for (int i = shapes_count(c) - 1; i >= 0 && shapes_at(c, i, &s); i--) {
    int64_t left = s.rows * s.cols;
    if (bucket > 0 && f.open && f.taken + left > bucket) close_bucket(&f);
    f.open = true;
    f.padded += padded(c, left) - left; /* padding stands behind the parameter */
    while (bucket > 0 && left > bucket) {
      left -= bucket;
      f.padded += bucket;
      close_bucket(&f);
      f.open = true; /* the rest of the same parameter */
    }
    f.padded += left;
    f.taken += left;
  }
  close_bucket(&f);
  return f.n;
}

/* --- memory ------------------------------------------------------------------------------ */

/* Per token of a micro-batch, in elements:
 *   block     16 C + 4 + H   two norms, qkv 3, attention, residual sum, c_fc 4, gelu 4, output; means and
 *                            deviations of two norms; one log-sum a head
 *   embedding C              head C + 3 + V (final norm, its two numbers, log-sum, logits)
 *   backward  C              gradient of the residual stream, and 5 C inside half a block
 * and 8 bytes a token for the losses.  The peak is the larger of head backward and the last block's. */
static double activations(const struct run_config *c)
{
  const double C = (double)c->hidden, N = (double)(c->micro_batch * c->sequence), L = (double)c->layers, V = (double)c->vocab;
  const double blocks = L * (16.0 * C + 4.0 + (double)c->heads);
  const double head = blocks + C + (C + 3.0 + V) + C, block = blocks + C + C + 5.0 * C;
  /* copies of the outputs of blocks, embedding and final norm, of the gradients in them, and of the losses */
  const double kept = c->dump == DUMP_ALL ? 2.0 * (L + 2.0) * C * bytes_of(c) + 8.0 : 0.0;
  return N * (fmax(head, block) * bytes_of(c) + kept + 8.0);
}

/* One flat buffer; the head's use of a tied matrix beside it; one more where sums are kept apart. */
static double gradients(const struct run_config *c)
{
  const double flat = predict_flat(c);
  const double more = (c->replicas > 1) + (c->reduce_each == REDUCE_MICROBATCH);
  return (flat * (1.0 + more) + (c->tied ? (double)(c->vocab * c->hidden) : 0.0)) * bytes_of(c);
}

static double largest_bucket(const struct run_config *c)
{
  int64_t counts[4096];
  const int64_t n = predict_buckets(c, counts, 4096);
  double most = 0.0;
  for (int64_t i = 0; i < n && i < 4096; i++) most = fmax(most, (double)counts[i]);
  return most;
}

/* Two blocks of scratch as large as the largest collective; none for a group of one. */
static double communication(const struct run_config *c)
{
  return c->dp == 1 ? 0.0 : 2.0 * round_up(fmax(largest_bucket(c) * bytes_of(c), 16.0 * (double)c->dp), 256.0);
}

/* --- FLOPs -------------------------------------------------------------------------------- */

/* Forward 24 T C^2 + 4 T^2 C a block and sequence, 2 T C V for the logits; backward twice that
 * (Narayanan et al. 2021, appendix; Korthikanti et al. 2022, eq. 7).  Full sequences: what a dry run knows. */
static double flops(const struct run_config *c, double attention)
{
  const double C = (double)c->hidden, T = (double)c->sequence, L = (double)c->layers, V = (double)c->vocab;
  return 3.0 * (double)c->global_batch * (L * (24.0 * T * C * C + attention * 4.0 * T * T * C) + 2.0 * T * C * V);
}

void predict(const struct run_config *c, struct predicted *out)
{
  const double ranks = (double)c->dp, flat = predict_flat(c), bytes = bytes_of(c);
  *out = (struct predicted){
    .parameters = parameters(c),
    .parameters_bytes = flat * bytes,
    .gradients_bytes = gradients(c),
    .optimizer_bytes = c->optimizer == OPTIMIZER_ADAMW && !fault_is(FAULT_MM_WRONG_ESTIMATE) ? 2.0 * flat * bytes : 0.0,
    .activations_bytes = activations(c),
    .communication_bytes = communication(c),
    .flops_full = flops(c, 1.0),
    .flops_causal = flops(c, 0.5),
  };
  const double times = c->reduce_each == REDUCE_MICROBATCH ? (double)(c->global_batch / (c->micro_batch * c->dp)) : 1.0;
  out->allreduce_bytes = 2.0 * (ranks - 1.0) / ranks * flat * bytes * times;
  out->allreduce_calls = c->dp > 1 ? (double)predict_buckets(c, NULL, 0) * times : 0.0;
  out->total_bytes = out->parameters_bytes + out->gradients_bytes + out->optimizer_bytes + out->activations_bytes + out->communication_bytes;
}
