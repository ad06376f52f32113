/* optim.h - one update: norm, clip factor, rule, learning rate.
 *
 * The gradients are the reduced ones.  Squared norms are per parameter, combined in
 * table order (each shared storage once, frozen ones not).  Where the model is cut, each rank
 * sums the squares of its parts, those that several ranks hold on one of them alone; the ranks' sums
 * of a parameter are added first, then all parameters in table order.  So a pipeline changes
 * no bit of the norm.
 *
 * Where replicas share the state (shards above 1), a rank updates the pieces of its shard.  A row's squares are then
 * added piece by piece within each shard and over shards in their order, before they are added over the model's ranks.  A
 * serial run that emulates the replicas updates the pieces of all shards, and adds the squares in the same order.
 *
 * With a loss scale the gradients come multiplied by it: they are divided by it, exactly, before their norm is taken, and
 * a step that its ranks decide to skip changes no weight and no moment.
 *
 * Everything that changes from step to step is on the device: no round
 * trip to the host.
 *
 * With run->offload the moments, and the weights if they are master copies, are in the host's memory (offload.h): the same
 * rule on the same pieces, so the same bits.
 */
#ifndef OPTIM_OPTIM_H
#define OPTIM_OPTIM_H

#include "comm/comm.h"
#include "optim/loss_scale.h"
#include "params/params.h"

struct optim;
struct optim_config {
  const struct run_config *run;
  const struct param_table *table;
  const struct flat *flat;
  const struct params_place *place; /* of this rank                                                      */
  int shard;                        /* of this rank; not looked at where it emulates all of them         */
  struct dev *dev;
  struct dev_stream *compute;
  struct comm *shards;              /* on compute, in order of their shards; NULL: this rank has them all */
  struct comm *norm;                /* on compute, over all ranks that hold a part of the model; NULL: this one holds all */
  struct flat_buffer weights, gradients; /* of run_state_type; the weights may be offloaded               */
  struct flat_buffer rounded;       /* bf16, fp16: copy of the weights, rounded at each update; else at NULL */
  struct loss_scale *scale;         /* NULL: gradients are as they are                                   */
};
/* Owner of *out: the caller; what `config` points to outlives it.  This rank may hold nothing that is
 * trained.  Fails: ERR_CONFIG (every parameter is frozen), ERR_MEMORY. */
enum err optim_create(const struct optim_config *config, struct optim **out);
void optim_destroy(struct optim *o); /* waits for what it queued; NULL is allowed */
/* All ranks of `shards`, of `norm` and of the loss scale's group.  Queue the update number `update` (from 1).  Nothing is allocated; the host waits only when it is
 * more than OPTIM_AHEAD updates ahead of the device. */
enum { OPTIM_AHEAD = 8 };
enum err optim_step(struct optim *o, int64_t update);
/* Device scalars of the last step, f64 [1,1].  The norm is taken before clipping. */
struct tensor optim_norm(const struct optim *o), optim_factor(const struct optim *o), optim_lr(const struct optim *o);
/* Moments (at NULL under SGD), of all or of the rank's shard; padding and rows that take no update stay zero.  Where they are
 * offloaded, as what is offloaded of the weights, they may be read once optim_settle() was queued. */
struct flat_buffer optim_moments1(const struct optim *o), optim_moments2(const struct optim *o);
/* The compute stream waits until what is offloaded stands where it belongs; nothing where nothing is. */
enum err optim_settle(struct optim *o);
/* The learning rate of an update, closed form.  With w = lr_warmup, d = lr_decay:
 *   update <= w:  lr * update / w
 *   after that:   constant: lr;  cosine: lr_min + (lr - lr_min) * (1 + cos(pi * x)) / 2,
 *                 x = (update - w) / (d - w), 1 at most; lr_min at once if d <= w. */
double optim_lr_at(const struct run_config *run, int64_t update);
#endif
