/* collect.h - the whole of a flat buffer whose parts stand on many ranks: what a canonical
 * export writes, the same under any layout. */
#ifndef PARALLEL_COLLECT_H
#define PARALLEL_COLLECT_H

#include "comm/comm.h"
#include "parallel/mesh.h"
#include "params/params.h"

/* All ranks of the world; the host waits.  local: this rank's copy on the host; FLAT_PIECES or FLAT_SHARD where
 * consecutive replicas share, as many as the layout has shards.  full_host, on rank 0 alone (elsewhere not read, NULL): every
 * storage-owning row [rows, cols], without padding, one after the other in table order, as in a flat buffer of
 * flat_create(table, &params_place_alone, 1, 1, false, 0).  What several ranks hold is the first replica's (of those that
 * share: the first group's), of it the first tensor rank's and the first stage's.  One host gather a call.
 * Fails on all ranks: ERR_MEMORY, ERR_ARG (2 GiB or more together). */
enum err collect_flat(struct comm_world *w, const struct mesh *mesh, const struct param_table *table, const struct flat *flat,
                      const struct params_place *place, const struct flat_buffer *local, void *full_host);

#endif
