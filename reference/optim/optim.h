/* optim.h - one update: norm, clip factor, rule, learning rate.
 *
 * The gradients are the reduced ones.  Squared norms are per parameter, combined in
 * table order (each shared storage once, frozen ones not).  Where the model is cut, each rank
 * sums the squares of its parts, those that several ranks hold on one of them alone; the ranks' sums
 * of a parameter are added first, then all parameters in table order.  So a pipeline changes
 * no bit of the norm.  Everything that changes from step to step is on the device: no round
 * trip to the host.
 */
#ifndef OPTIM_OPTIM_H
#define OPTIM_OPTIM_H

#include "comm/comm.h"
#include "params/params.h"

struct optim;
struct optim_config {
  const struct run_config *run;
  const struct param_table *table;
  const struct flat *flat;
  const struct params_place *place; /* of this rank                                                      */
  struct dev *dev;
  struct dev_stream *compute;
  struct comm *norm;                /* on compute, over all ranks that hold a part of the model; NULL: this one holds all */
  void *weights, *gradients;        /* flat buffers of run_state_type                                    */
  void *rounded;                    /* bf16: flat copy of the weights, rounded at each update; else NULL */
};
/* Owner of *out: the caller; what `config` points to outlives it.  This rank may hold nothing that is
 * trained.  Fails: ERR_CONFIG (every parameter is frozen), ERR_MEMORY. */
enum err optim_create(const struct optim_config *config, struct optim **out);
void optim_destroy(struct optim *o); /* waits for what it queued; NULL is allowed */
/* All ranks of `norm`.  Queue the update number `update` (from 1).  Nothing is allocated; the host waits only when it is
 * more than OPTIM_AHEAD updates ahead of the device. */
enum { OPTIM_AHEAD = 8 };
enum err optim_step(struct optim *o, int64_t update);
/* Device scalars of the last step, f64 [1,1].  The norm is taken before clipping. */
struct tensor optim_norm(const struct optim *o), optim_factor(const struct optim *o), optim_lr(const struct optim *o);
/* Flat moments (NULL under SGD); padding and rows that take no update stay zero. */
void *optim_moments1(const struct optim *o), *optim_moments2(const struct optim *o);
/* The learning rate of an update, closed form.  With w = lr_warmup, d = lr_decay:
 *   update <= w:  lr * update / w
 *   after that:   constant: lr;  cosine: lr_min + (lr - lr_min) * (1 + cos(pi * x)) / 2,
 *                 x = (update - w) / (d - w), 1 at most; lr_min at once if d <= w. */
double optim_lr_at(const struct run_config *run, int64_t update);
#endif
