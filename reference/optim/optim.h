/* optim.h - one update: norm, clip factor, rule, learning rate.
 *
 * The gradients are the reduced ones.  Squared norms are per parameter, combined in
 * table order (each shared storage once, frozen ones not).  Everything that changes from
 * step to step is on the device: no round trip to the host.
 */
#ifndef OPTIM_OPTIM_H
#define OPTIM_OPTIM_H

#include "device/dev.h"
#include "params/params.h"

struct optim;
enum err optim_create(const struct run_config *run, const struct param_table *table, const struct flat *flat, struct dev *d,
                      struct dev_stream *compute, void *weights, void *gradients, struct optim **out);
void optim_destroy(struct optim *o);
/* Queue the update number `update` (from 1). */
enum err optim_step(struct optim *o, int64_t update);
/* Device scalars of the last step, f64 [1,1]. */
struct tensor optim_norm(const struct optim *o), optim_factor(const struct optim *o), optim_lr(const struct optim *o);
/* Flat moments (NULL under SGD). */
void *optim_moments1(const struct optim *o), *optim_moments2(const struct optim *o);
/* Closed form: linear warm-up over lr_warmup updates, then cosine to lr_min at lr_decay. */
double optim_lr_at(const struct run_config *run, int64_t update);
#endif
