/* mesh.h - rank <-> (pp, dp, tp).
 *
 * run->mesh_order says which coordinate varies fastest over the ranks: with tp-dp-pp, the
 * default, ranks 0 .. tp-1 are one tensor group, and a launcher that fills host after host
 * keeps tensor groups inside hosts and puts the borders of pipeline stages between them.
 */
#ifndef PARALLEL_MESH_H
#define PARALLEL_MESH_H

#include "base/config.h"

/* Axes, to be or-ed. */
enum { MESH_PP = 1, MESH_DP = 2, MESH_TP = 4 };

struct mesh {
  int pp, dp, tp, pp_rank, dp_rank, tp_rank;
  int stride[3]; /* a step along pp, dp, tp, in world ranks */
};

/* Fails: ERR_CONFIG unless pp * dp * tp == size. */
enum err mesh_create(const struct run_config *c, int rank, int size, struct mesh *out);
int mesh_rank(const struct mesh *m, int pp_rank, int dp_rank, int tp_rank);

/* World ranks that differ from mine along these axes only, mine among them, ascending;
 * returns their number.  Along one axis they are in the order of its coordinate. */
int mesh_group(const struct mesh *m, unsigned axes, int *ranks);

/* host_of_rank: a number for each world rank, equal where the host is.  Looks at all tensor
 * groups, so that all ranks find the same.  Fails: ERR_CONFIG if one spans hosts and
 * run->tp_across_nodes does not allow it. */
enum err mesh_check_hosts(const struct mesh *m, const struct run_config *c, const int *host_of_rank);

#endif
