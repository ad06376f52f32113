/* predict_activations.c - bytes of activations as a closed formula of the configuration.
 *
 * Elements (in bf16 means, deviations and log-sums are float32, the rest is bf16), N rows of a micro-batch, n those of
 * this rank's shard of the sequence, t tensor ranks, V' = V / t rounded up:
 *   block     n (4 C + 4) + N (12 C + H) / t   two norms, residual sum, output, means and deviations; qkv 3, attention,
 *                                              c_fc 4, gelu 4, a log-sum a head; where backward is split
 *             n (2 C + 4) + N (7 C + H) / t    of them until backward for inputs, and
 *             2 n C + N (12 C / t + 2 C)       until backward for weights, gradients of the linear layers' outputs among them
 *   ends      n C embedding; n (C + 2) + N (V' + 1) final norm and head; n C gradient of the residual stream
 *   half      N 4 C / t + n C (split: N C / t) inside half a block's backward, and N C where shards are gathered
 * and 8 bytes a row for the losses, 24 more where the vocabulary is cut.  Each is there as often as the schedule has
 * micro-batches under way; with one at a time and backward whole, what the last block and the head need share bytes.
 *
 * Of a block there stay, with recompute,
 *   selective n 2 C + N 7 C / t                output, residual sum; qkv, c_fc
 *   full      n C                              output
 * and what weights need is there from the backward for inputs on.  The rest is there once, inside a pass: in forward, with
 * N C where shards are gathered; in backward beside the half, of selective what the second half of a block reads
 * (split: the first), of full all of the block (split: but the inputs of linear layers, in the half without N C / t).
 */
#include "predict.h"

#include "base/schedule.h"

#include <math.h>

/* Places that the schedule keeps on a rank. */
struct places {
  double slots, weight_slots, inputs;
  bool splits;
};

static struct places places_of(const struct run_config *c, const struct layout *at)
{
  struct places n = {.slots = 1.0};
  struct schedule *s = NULL;
  if (schedule_create((enum schedule_kind)c->schedule, (int)c->pp, (int)layout_each(c), (int)c->chunks, &s) == ERR_OK)
    n = (struct places){(double)s->slots[at->pp],
                        (double)(c->recompute == RECOMPUTE_NONE ? s->weight_slots[at->pp] : schedule_pending_places(s, (int)at->pp)),
                        (double)s->inputs[at->pp], s->splits};
  else err_clear();
  schedule_destroy(s);
  return n;
}

double predict_layers(const struct run_config *c, const struct layout *at, double *all)
{
  const struct partition stages = predict_stages(c);
  double most = 0.0;
  *all = 0.0;
  for (int64_t k = at->pp; k < stages.stages; k += c->pp) {
    const double layers = (double)(stages.first[k + 1] - stages.first[k]);
    most = fmax(most, layers);
    *all += layers;
  }
  return most;
}

/* Elements of a block: all, and of them what stays until its backward, what is in a pass alone. */
struct block {
  double stays, forward, backward;
};

static struct block block_of(const struct run_config *c, double n, double N, double wide, bool splits)
{
  const double C = (double)c->hidden, H = (double)c->heads * wide, t = (double)c->tp;
  const double statistics1 = 2.0 * n * wide + N * H / t, statistics2 = 2.0 * n * wide; /* of attention, of mlp */
  const double inputs1 = n * C + N * C / t, inputs2 = n * C + N * 4.0 * C / t;
  const double wide1 = N * 3.0 * C / t, wide2 = n * C + N * 4.0 * C / t, out = n * C;
  const double quick = statistics1 + statistics2, inputs = inputs1 + inputs2, kept = wide1 + wide2;
  switch ((enum recompute)c->recompute) {
  case RECOMPUTE_SELECTIVE:
    return (struct block){out + kept, quick + inputs, splits ? statistics1 : statistics2 + inputs2};
  case RECOMPUTE_FULL:
    return (struct block){out, quick + inputs + kept, quick + kept + (splits ? -N * C / t : inputs)};
  case RECOMPUTE_NONE:
    break;
  }
  return (struct block){out + quick + kept + (splits ? 0.0 : inputs), 0.0, 0.0};
}

double predict_activations(const struct run_config *c, const struct layout *at)
{
  const double C = (double)c->hidden, t = (double)c->tp, N = (double)(c->micro_batch * c->sequence),
               V = ceil((double)c->vocab / t);
  const double n = c->sequence_parallel ? N / t : N, s = (double)dtype_bytes(run_work_type(c));
  const double wide = (double)dtype_bytes(run_state_type(c)) / s; /* a statistic in elements of the others */
  const bool first = layout_is_first(at), last = layout_is_last(c, at);
  const struct places p = places_of(c, at);
  const struct block block = block_of(c, n, N, wide, p.splits);
  double all;
  const double L = predict_layers(c, at, &all), weight = 2.0 * n * C + N * (12.0 * C / t + 2.0 * C);
  const double embedding = first ? n * C : 0.0, head = last ? n * (C + 2.0 * wide) + N * (V + wide) : 0.0,
               stream = last ? n * C : 0.0;
  const double gathered = c->sequence_parallel ? N * C : 0.0,
               half = N * C * (p.splits ? 1.0 : 4.0) / t + n * C + gathered;
  const double losses = last ? N * (8.0 + (c->tp > 1 ? 24.0 : 0.0)) : 0.0;
  const double kept = c->dump == DUMP_ALL ? s * 2.0 * n * C * (all + first + last) + (last ? 8.0 * N : 0.0) : 0.0;
  const double places = s * p.inputs * n * C + kept;
  const double forward = s * (block.forward + gathered), backward = s * (half + block.backward), loss = s * gathered + losses;
  if (c->chunks == 1 && p.slots == 1.0 && !p.splits)
    return places + s * (L * block.stays + embedding) +
           fmax(fmax(s * (head + stream + gathered), s * head + loss), fmax(forward, backward));
  const double heads = c->schedule == SCHEDULE_GPIPE ? p.slots : 1.0;
  return places + s * (p.slots * (L * block.stays + embedding) + p.weight_slots * L * weight + heads * head) +
         fmax(fmax(forward, s * stream + backward), loss);
}
