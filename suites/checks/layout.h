/* layout.h - which part of the model and of the batch a rank has: of the configuration alone.
 *
 * Restated from the meaning of the options, not asked of the trainer's mesh or parameter table.
 */
#ifndef CHECKS_LAYOUT_H
#define CHECKS_LAYOUT_H

#include "base/partition.h"

struct layout {
  int pp, dp, tp; /* this rank's place along each axis */
};

/* mesh_order names the axis along which neighbours in rank order differ first. */
struct layout layout_of(const struct run_config *c, int rank);
int layout_rank(const struct run_config *c, struct layout at);

/* Virtual stages: chunk n of pipeline rank p is number n * pp + p. */
static inline bool layout_is_first(const struct layout *at) { return at->pp == 0; }
static inline bool layout_is_last(const struct run_config *c, const struct layout *at) { return at->pp == c->pp - 1; }
/* The rank has that layer (of blocks that share parameters, the one that owns them). */
bool layout_has_layer(const struct run_config *c, const struct partition *stages, const struct layout *at,
                      int64_t layer);

/* The replica to which micro-batch m of a step's global order belongs, and micro-batches of one replica. */
int64_t layout_each(const struct run_config *c);
static inline int layout_replica(const struct run_config *c, int64_t m) { return (int)(m / layout_each(c)); }

/* Replicas share state, in groups of run_shards(); a serial run that emulates them holds all of it. */
static inline bool layout_shares(const struct run_config *c) { return c->zero > 0 && c->dp > 1; }
static inline int64_t layout_groups(const struct run_config *c) { return layout_shares(c) ? c->dp / run_shards(c) : 1; }

#endif
