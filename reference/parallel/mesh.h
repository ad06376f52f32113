/* mesh.h - rank <-> (pp, dp, tp).  tp varies fastest, then dp, then pp. */
#ifndef PARALLEL_MESH_H
#define PARALLEL_MESH_H
#include "base/config.h"
struct mesh { int pp, dp, tp, pp_rank, dp_rank, tp_rank; };
/* Fails: ERR_CONFIG unless pp * dp * tp == size. */
enum err mesh_create(const struct run_config *c, int rank, int size, struct mesh *out);
int mesh_rank(const struct mesh *m, int pp_rank, int dp_rank, int tp_rank);
/* World ranks of my data-parallel group, ascending; returns their number. */
int mesh_dp_group(const struct mesh *m, int *ranks);
#endif
