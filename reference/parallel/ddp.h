/* ddp.h - gradient buckets reduced over the data-parallel group while backward runs.
 *
 * Lives between backward (which says which rows are ready) and the optimizer (which
 * needs all reduced).  Buckets are reduced in one order on every rank, on the comm's
 * own stream, each after an event of the compute stream; the compute stream waits for
 * them in ddp_finish.  With overlap off all reductions start in ddp_finish: same calls,
 * same buckets, same bits.
 *
 * One step, gradients zeroed by the caller before it, M micro-batches of each of R
 * replicas (R = 1 unless a serial run emulates run->replicas of them):
 *
 *   reduce_each step        for r < R { for m < M backward; ddp_fold(r) }  ddp_finish
 *   reduce_each microbatch  for m < M { for r < R { backward; ddp_fold(r) }  ddp_finish }
 *
 * Either way the sums are the same, in bits, for R emulated replicas and for R ranks with
 * rank-ordered reduction: step ((g0 + g1) + g2) of gradients accumulated over micro-batches,
 * microbatch ((s0 + s1) + s2) of such sums of each micro-batch.  The backward that a fold or
 * a finish directly follows is a `last` one of model_backward: it alone calls ddp_ready.
 *
 * With zero 2 and 3 and reduce_each microbatch gradients stand in slots, unit by unit, and only their sums' shards are
 * kept (staging.h).  Else with zero a bucket is reduce-scattered: of the reduced gradients a rank then has the pieces of its shard, and
 * what stands elsewhere ends its life (dev_retire).  Where groups of replicas share (shard below dp) the pieces are added over groups once a step, in
 * order of the groups: (g0 + g1) of sums within each.
 * Where run_reduce_type is not that of the gradients, each bucket is rounded to it on the comm's stream before its
 * reduction and widened after it; an emulated replica's gradients are rounded before they are added, and their sum.
 * With a loss scale each bucket is looked at before it is rounded or added: ddp_largest.
 * With a silent comm each rank's gradients stay its own, and nothing else changes.
 */
#ifndef PARALLEL_DDP_H
#define PARALLEL_DDP_H
#include "comm/comm.h"
#include "params/params.h"

struct ddp;
struct ddp_config {
  const struct run_config *run;
  const struct param_table *table;
  const struct flat *flat;   /* of this place                                                             */
  struct comm *comm;         /* the replicas, or those of them that share; NULL: nothing is reduced, dp must be 1 */
  struct comm *replicas;     /* on comm's stream: those that have this rank's shard; NULL: this one alone */
  struct dev_stream *compute;
  void *gradients;           /* of run_state_type, where the reduced ones end: the flat buffer, that backward adds to; or
                                with ddp_stages this rank's shard, backward adds to staging's slots */
};
/* Replicas share the gradients, each micro-batch's reduced into shards. */
bool ddp_stages(const struct run_config *run);
/* All ranks of the groups.  Owns more such buffers (DEV_GRADIENTS): one each with replicas above 1 and with reduce_each
 * microbatch, one for each emulated group where there are several; and room for the largest bucket where gradients
 * are rounded.  Fails: ERR_ARG, ERR_MEMORY. */
enum err ddp_create(const struct ddp_config *config, struct ddp **out);
void ddp_destroy(struct ddp *d);
/* Where the gradient of the unit's first element is, from ddp_begin(unit) until all its rows are told. */
void *ddp_gradients(const struct ddp *d, int unit);
/* The next work on the compute stream is the first of this backward that adds to the unit's gradient, or a
 * later one: the first call of a backward makes it zero where it is not one flat buffer of the step. */
enum err ddp_begin(struct ddp *d, int unit);
/* The row's gradient of the last micro-batch is queued: a model_ready, arg = the ddp.  An
 * error is kept and returned by ddp_finish.  With replicas above 1 it waits for the fold. */
void ddp_ready(void *ddp, int row);
/* The gradients of emulated replica r (0, 1, ... in order) are queued: they are added to those
 * before, and the buffer is zeroed for the next; after the last it holds the sum.  Nothing
 * when replicas is 1. */
enum err ddp_fold(struct ddp *d, int r);
/* All buckets are queued and the compute stream will wait for them.  With reduce_each
 * microbatch: once a micro-batch; it adds the reduced gradients to those of the step and
 * zeroes the buffer, and after the M-th the buffer holds the step's. */
enum err ddp_finish(struct ddp *d);
/* With a loss scale: the largest magnitudes of this rank's own gradients in the step, f64 [K n, buckets]; row k n + r is of
 * emulated replica r of n after reduction k of K.  The compute stream may read them after the last ddp_finish.  At NULL
 * without one. */
struct tensor ddp_largest(const struct ddp *d);
#endif
