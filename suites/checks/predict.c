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
#include <stdlib.h>

static double round_up(double n, double to) { return ceil(n / to) * to; }
/* So that each shard's part of a bucket begins on a line. */
static int64_t align_of(const struct run_config *c)
{
  return PREDICT_ALIGN / (int64_t)dtype_bytes(run_work_type(c)) * run_shards(c);
}
int64_t predict_padded(const struct run_config *c, int64_t n)
{
  return (n + align_of(c) - 1) / align_of(c) * align_of(c);
}
/* Of an element: weights and activations; statistics, gradients of weights and what updates keep. */
static double work_bytes(const struct run_config *c) { return (double)dtype_bytes(run_work_type(c)); }
static double state_bytes(const struct run_config *c) { return (double)dtype_bytes(run_state_type(c)); }
static double reduce_bytes(const struct run_config *c) { return (double)dtype_bytes(run_reduce_type(c)); } /* of gradients on their way */

/* 12 C^2 + 13 C a block, (V + P) C embeddings, 2 C final norm, V C more for a head of its own. */
static double parameters(const struct run_config *c)
{
  const double C = (double)c->hidden, own = (double)(c->layers - c->reused);
  return own * (12.0 * C * C + 13.0 * C) + (double)(c->vocab + c->positions) * C + 2.0 * C +
         (c->tied ? 0.0 : (double)c->vocab * C);
}

/* The partition of a finished config is legal; of one that is not, nothing is in any stage. */
struct partition predict_stages(const struct run_config *c)
{
  struct partition stages = {0};
  if (partition_make(c, &stages) != ERR_OK) err_clear();
  return stages;
}

double predict_rows(const struct run_config *c) { return (double)(shapes_count(c) + SHAPES_A_BLOCK * c->reused); }

double predict_flat(const struct run_config *c, const struct layout *at)
{
  const struct partition stages = predict_stages(c);
  double count = 0.0;
  struct shape s;
  for (int i = 0; shapes_part(c, &stages, at, i, &s); i++) count += (double)predict_padded(c, s.rows * s.cols);
  return count;
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

/* Where state is sharded, blocks do, and what other ranks may have without its neighbour. */
static bool stands_apart(const struct run_config *c, int i, const struct shape *s, const struct shape *above)
{
  return s->layer != above->layer || (i == 0 && c->tied) || above->unused;
}

int64_t predict_buckets(const struct run_config *c, const struct layout *at, int64_t *counts, int64_t max)
{
  struct fill f = {.counts = counts, .max = max};
  const struct partition stages = predict_stages(c);
  const int64_t bucket = c->bucket;
  const bool two = c->tied && c->pp > 1; /* stages have the tied matrix */
  const int64_t each = run_shards(c) > 1 ? align_of(c) : 1;
  struct shape s, above = {.layer = -1}; /* above: the parameter before */
  for (int i = shapes_count(c) - 1; i >= 0 && shapes_part(c, &stages, at, i, &s); i--) {
    int64_t left = s.rows * s.cols;
    if (left == 0) continue;
    const bool full = bucket > 0 && f.taken + left > bucket, apart = (two && i == 0) || (c->zero > 0 && stands_apart(c, i, &s, &above));
    if (f.open && (full || apart)) close_bucket(&f);
    above = s;
    f.open = true;
    f.padded += predict_padded(c, left) - left; /* padding stands behind the parameter */
    while (bucket > 0 && left > bucket) {
      const int64_t rest = (left - bucket) / each * each;
      f.padded += left - rest;
      left = rest;
      close_bucket(&f);
      f.open = left > 0; /* the rest of the same parameter */
    }
    f.padded += left;
    f.taken += left;
  }
  if (f.open || f.n == 0) close_bucket(&f);
  return f.n;
}

/* --- memory ------------------------------------------------------------------------------ */

/* Of the token embedding, in elements. */
static double embedding_part(const struct run_config *c, const struct layout *at)
{
  const struct partition stages = predict_stages(c);
  struct shape s;
  return shapes_part(c, &stages, at, 0, &s) && !s.frozen ? (double)(s.rows * s.cols) : 0.0;
}

static double largest_bucket(const struct run_config *c, const struct layout *at)
{
  int64_t counts[4096];
  const int64_t n = predict_buckets(c, at, counts, 4096);
  double most = 0.0;
  for (int64_t i = 0; i < n && i < 4096; i++) most = fmax(most, (double)counts[i]);
  return most;
}

/* Replicas have shards of what zero says, where there are several and not one that emulates them. */
static double shards(const struct run_config *c) { return c->dp > 1 ? (double)run_shards(c) : 1.0; }

/* A place for each end of the model and `blocks` as large as the largest block, in elements. */
static double places_for_units(const struct run_config *c, const struct layout *at, double blocks)
{
  struct predicted_unit *units;
  int n;
  double largest = 0.0;
  if (predict_units(c, at, &units, &n) != ERR_OK) return NAN; /* nothing is like it */
  for (int u = 1; u < n - 1; u++) largest = fmax(largest, (double)units[u].count);
  const double ends = (double)(units[0].count + units[n - 1].count);
  free(units);
  return ends + blocks * largest;
}

/* All, or a shard and the places that units are gathered into. */
static double weights(const struct run_config *c, const struct layout *at)
{
  const double flat = predict_flat(c, at);
  return c->zero == 3 && c->dp > 1 ? flat / shards(c) + places_for_units(c, at, (double)c->prefetch + 1.0) : flat;
}

/* Sums of gradients: one flat buffer; one more where emulated replicas are added, or micro-batches; one for each emulated
 * group of those that share, where there are several.  Or a shard and places for units on their way, two blocks
 * and those used twice. */
static double sums(const struct run_config *c, const struct layout *at)
{
  const double flat = predict_flat(c, at);
  const bool each = c->reduce_each == REDUCE_MICROBATCH;
  const double groups = c->zero > 0 && c->replicas > 1 ? (double)c->replicas / (double)run_shards(c) : 1.0;
  if (c->zero >= 2 && c->dp > 1 && each) return flat / shards(c) + places_for_units(c, at, 2.0 + (double)c->reused);
  return flat * (1.0 + (c->replicas > 1) + (groups > 1.0 ? groups : (double)each));
}

/* Also the head's use of a tied matrix, in the first stage, and a bucket where gradients are rounded before they are added. */
static double gradients(const struct run_config *c, const struct layout *at)
{
  const double other_use = c->tied && layout_is_first(at) ? embedding_part(c, at) : 0.0;
  const bool rounds = run_reduce_type(c) != run_state_type(c) && c->dp * c->replicas > 1;
  return (sums(c, at) + other_use) * state_bytes(c) + (rounds ? largest_bucket(c, at) * reduce_bytes(c) : 0.0);
}

/* Two blocks of scratch as large as the largest collective; none for a group of one. */
static double scratch(double largest_bytes, int64_t ranks)
{
  return ranks == 1 ? 0.0 : 2.0 * round_up(fmax(largest_bytes, 16.0 * (double)ranks), 256.0);
}

static double communication(const struct run_config *c, const struct layout *at)
{
  const double N = (double)(c->micro_batch * c->sequence), C = (double)c->hidden;
  const double norms = c->sequence_parallel ? 2.0 * C * state_bytes(c) : 0.0; /* gain's and bias's gradients at once */
  const int64_t s = c->zero > 0 ? run_shards(c) : c->dp, groups = c->dp > s ? c->dp / s : 1;
  const double bucket = largest_bucket(c, at) * reduce_bytes(c);
  const double shared = c->zero > 0 && c->dp > 1 ? scratch(0.0, s) + scratch(8.0 * predict_rows(c), s) + scratch(bucket / (double)s, groups) : 0.0;
  return scratch(bucket, c->dp > 1 ? s : 1) + shared + scratch(16.0, c->dp * c->pp) +
         scratch(fmax(fmax(N * C * work_bytes(c), 16.0 * N), norms), c->tp) +
         scratch(8.0 * predict_rows(c), c->tp * c->pp) + (c->loss_scale > 0.0 ? scratch(8.0, config_ranks(c)) : 0.0);
}

/* --- traffic: what a rank sends in a step, sums on a ring --------------------------------- */

/* Sums of activations over tensor ranks, NC elements each: a layer two in forward and two in backward, the embedding
 * and the head one; with sequence parallel each is a gather and a scatter of half the bytes, and inputs are gathered again for the
 * gradients of weights.  Full recompute has one sum of forward's once more, or two gathers and a scatter.  The loss
 * adds a largest and two sums a row; shards of norms and positions are summed once a step. */
static void tensor_traffic(const struct run_config *c, const struct layout *at, struct predicted *out)
{
  const double C = (double)c->hidden, N = (double)(c->micro_batch * c->sequence), t = (double)c->tp,
               m = (double)layout_each(c);
  const bool first = layout_is_first(at), last = layout_is_last(c, at);
  double layers, half = (t - 1.0) / t * work_bytes(c);
  predict_layers(c, at, &layers);
  if (c->tp == 1) return;
  const bool full = c->recompute == RECOMPUTE_FULL; /* forward's once more, but for each block's last sum */
  const double shares = m * ((full ? 13.0 : 10.0) * layers + 2.0 * first + 3.0 * last),
               sums = m * ((full ? 5.0 : 4.0) * layers + first + last);
  out->tensor_calls = (c->sequence_parallel ? shares : sums) + m * 2.0 * last;
  out->tensor_bytes =
      (c->sequence_parallel ? shares : 2.0 * sums) * half * N * C + m * last * 2.0 * (t - 1.0) / t * 24.0 * N;
  if (!c->sequence_parallel) return;
  const double times = c->reduce_each == REDUCE_MICROBATCH ? m : 1.0;
  out->tensor_calls += times * (2.0 * layers + last + first);
  out->tensor_bytes += times * 2.0 * (t - 1.0) / t * state_bytes(c) * ((2.0 * layers + last) * 2.0 * C + first * (double)c->positions * C);
}

/* A chunk sends its output on unless it is the last, the gradient of its input back unless it is the first. */
static void pipeline_traffic(const struct run_config *c, const struct layout *at, struct predicted *out)
{
  const double n = (double)(c->micro_batch * c->sequence) / (c->sequence_parallel ? (double)c->tp : 1.0),
               m = (double)layout_each(c);
  const double times = c->reduce_each == REDUCE_MICROBATCH ? m : 1.0, v = (double)c->chunks;
  const bool first = layout_is_first(at), last = layout_is_last(c, at);
  if (c->pp == 1) return;
  const double sends = m * (2.0 * v - first - last),
               joins = c->tied && (first || last) && embedding_part(c, at) > 0.0 ? times : 0.0;
  out->pipeline_calls = sends + joins;
  out->pipeline_bytes = sends * n * (double)c->hidden * work_bytes(c) + joins * embedding_part(c, at) * state_bytes(c);
}

/* Units needed by a micro-batch, in elements or (`buckets`) calls: in both passes each block, as often as it is used, and in
 * the last stage the end and the matrix that is tied to it; forward the beginning in the first, once. */
static double needed(const struct run_config *c, const struct layout *at, bool buckets)
{
  const bool first = layout_is_first(at), last = layout_is_last(c, at);
  struct predicted_unit *units;
  int n;
  double blocks = 0.0;
  if (predict_units(c, at, &units, &n) != ERR_OK) return NAN;
#define AMOUNT(u) (buckets ? (double)units[u].buckets : (double)units[u].count)
  for (int u = 1; u < n - 1; u++) blocks += AMOUNT(u) * (u <= c->reused ? 2.0 : 1.0);
  const double begin = AMOUNT(0), end = AMOUNT(n - 1);
#undef AMOUNT
  free(units);
  const double forward = blocks + (last ? end : 0.0) + (first || (last && c->tied) ? begin : 0.0);
  return forward + blocks + (last ? end + (c->tied ? begin : 0.0) : 0.0);
}

/* Of s ranks that share and d replicas in all.  Gradients: an all-reduce over all, or a reduce-scatter over those that share
 * and once a step an all-reduce of shards over their groups.  Weights: an all-gather after the update (zero 1 and 2)
 * or of each unit before each pass that needs it (3). */
static void replica_traffic(const struct run_config *c, const struct layout *at, struct predicted *out)
{
  const double d = (double)c->dp, s = shards(c), m = (double)layout_each(c), n = (double)predict_buckets(c, at, NULL, 0);
  const double times = c->reduce_each == REDUCE_MICROBATCH ? m : 1.0, groups = d / s, flat = predict_flat(c, at);
  if (c->dp == 1) return;
  out->allreduce_bytes = 2.0 * (d - 1.0) / d * flat * reduce_bytes(c) * times;
  out->allreduce_calls = n * times;
  if (c->zero == 0) return;
  out->allreduce_bytes = ((s - 1.0) / s * times + 2.0 * (groups - 1.0) / groups / s) * flat * reduce_bytes(c);
  out->allreduce_calls = n * (times + (groups > 1.0));
  out->gather_bytes = (s - 1.0) / s * work_bytes(c) * (c->zero == 3 ? m * needed(c, at, false) : flat);
  out->gather_calls = c->zero == 3 ? m * needed(c, at, true) : n;
}

/* --- FLOPs -------------------------------------------------------------------------------- */

/* Forward 24 T C^2 + 4 T^2 C a block and sequence, 2 T C V for the logits; backward twice that
 * (Narayanan et al. 2021, appendix; Korthikanti et al. 2022, eq. 7).  Full sequences: what a dry run knows. */
static double flops(const struct run_config *c, double attention)
{
  const double C = (double)c->hidden, T = (double)c->sequence, L = (double)c->layers, V = (double)c->vocab;
  return 3.0 * (double)c->global_batch * (L * (24.0 * T * C * C + attention * 4.0 * T * T * C) + 2.0 * T * C * V);
}

/* Of a block's forward: attention (selective); all products but the last (full). */
static double flops_again(const struct run_config *c, double attention)
{
  const double C = (double)c->hidden, T = (double)c->sequence, L = (double)c->layers;
  const double scores = attention * 4.0 * T * T * C, products = c->recompute == RECOMPUTE_FULL ? 16.0 * T * C * C : 0.0;
  return c->recompute == RECOMPUTE_NONE ? 0.0 : (double)c->global_batch * L * (products + scores);
}

/* Those of a step, and those that are read ahead: tokens, targets, positions and documents of each place, a number each sequence. */
static double batches(const struct run_config *c)
{
  const double sequences = (double)(config_accumulation(c) * c->micro_batch);
  return (double)(1 + c->read_ahead) * sequences * (4.0 * (double)c->sequence + 1.0) * 4.0;
}

/* What updates keep, on the device; or on the host, and two buckets of it (of one: that) on the device. */
static void updates(const struct run_config *c, const struct layout *at, double kept, struct predicted *out)
{
  const double all = kept * state_bytes(c), windows = fmin(2.0, (double)predict_buckets(c, at, NULL, 0));
  const bool offloads = c->offload == OFFLOAD_OPTIMIZER;
  out->host_bytes = (offloads ? all * predict_flat(c, at) / shards(c) : 0.0) + batches(c);
  out->optimizer_bytes = all * (offloads ? windows * largest_bucket(c, at) : predict_flat(c, at)) / shards(c);
}

void predict_at(const struct run_config *c, const struct layout *at, struct predicted *out)
{
  const struct partition stages = predict_stages(c);
  const double moments = c->optimizer == OPTIMIZER_ADAMW && !fault_is(FAULT_MM_WRONG_ESTIMATE) ? 2.0 : 0.0,
               master = run_work_type(c) != run_state_type(c) ? 1.0 : 0.0;
  struct shape s;
  *out = (struct predicted){
    .parameters = parameters(c),
    .parameters_bytes = weights(c, at) * work_bytes(c),
    .gradients_bytes = gradients(c, at),
    .activations_bytes = predict_activations(c, at),
    .communication_bytes = communication(c, at),
    .flops_full = flops(c, 1.0),
    .flops_causal = flops(c, 0.5),
    .again_full = flops_again(c, 1.0),
    .again_causal = flops_again(c, 0.5),
  };
  for (int i = 0; shapes_part(c, &stages, at, i, &s); i++)
    out->rank_parameters += s.unused ? 0.0 : (double)(s.rows * s.cols);
  updates(c, at, moments + master, out);
  replica_traffic(c, at, out);
  tensor_traffic(c, at, out);
  pipeline_traffic(c, at, out);
  out->total_bytes = out->parameters_bytes + out->gradients_bytes + out->optimizer_bytes + out->activations_bytes +
                     out->communication_bytes + (c->device == DEVICE_CUDA ? 0.0 : out->host_bytes);
}

/* Ranks of one stage are alike. */
void predict(const struct run_config *c, struct predicted *out)
{
  for (int p = 0; p < c->pp; p++) {
    const struct layout at = {.pp = p};
    struct predicted one;
    predict_at(c, &at, &one);
    if (p == 0 || one.total_bytes > out->total_bytes) *out = one;
  }
}
