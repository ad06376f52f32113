/* mesh.c - where a rank stands. */
#include "parallel/mesh.h"

#include <inttypes.h>

enum { PP, DP, TP, AXES }; /* places in stride[]; axis a is the bit 1 << a */

static const int orders[][AXES] = {
  [MESH_ORDER_TP_DP_PP] = {TP, DP, PP}, [MESH_ORDER_TP_PP_DP] = {TP, PP, DP}, [MESH_ORDER_DP_TP_PP] = {DP, TP, PP},
  [MESH_ORDER_DP_PP_TP] = {DP, PP, TP}, [MESH_ORDER_PP_TP_DP] = {PP, TP, DP}, [MESH_ORDER_PP_DP_TP] = {PP, DP, TP},
};

enum err mesh_create(const struct run_config *c, int rank, int size, struct mesh *out)
{
  if (c->pp < 1 || c->dp < 1 || c->tp < 1 || c->pp * c->dp * c->tp != size)
    FAIL(ERR_CONFIG, "pp: %" PRId64 " x dp: %" PRId64 " x tp: %" PRId64 " is %" PRId64 " ranks; the job has %d", c->pp, c->dp, c->tp,
         c->pp * c->dp * c->tp, size);
  if (rank < 0 || rank >= size) FAIL(ERR_ARG, "rank %d of %d", rank, size);
  const int extents[AXES] = {(int)c->pp, (int)c->dp, (int)c->tp};
  int at[AXES], stride = 1;
  *out = (struct mesh){.pp = extents[PP], .dp = extents[DP], .tp = extents[TP]};
  for (int i = 0; i < AXES; i++) {
    const int axis = orders[c->mesh_order][i];
    out->stride[axis] = stride;
    at[axis] = rank / stride % extents[axis];
    stride *= extents[axis];
  }
  out->pp_rank = at[PP];
  out->dp_rank = at[DP];
  out->tp_rank = at[TP];
  return ERR_OK;
}

int mesh_rank(const struct mesh *m, int pp_rank, int dp_rank, int tp_rank)
{
  BUG_IF(pp_rank < 0 || pp_rank >= m->pp || dp_rank < 0 || dp_rank >= m->dp || tp_rank < 0 || tp_rank >= m->tp);
  return pp_rank * m->stride[PP] + dp_rank * m->stride[DP] + tp_rank * m->stride[TP];
}

/* Ascending in world ranks whatever the order: all ranks are asked. */
int mesh_group(const struct mesh *m, unsigned axes, int *ranks)
{
  int n = 0;
  for (int rank = 0; rank < m->pp * m->dp * m->tp; rank++) {
    const bool same_pp = rank / m->stride[PP] % m->pp == m->pp_rank, same_dp = rank / m->stride[DP] % m->dp == m->dp_rank;
    const bool same_tp = rank / m->stride[TP] % m->tp == m->tp_rank;
    if ((same_pp || axes & MESH_PP) && (same_dp || axes & MESH_DP) && (same_tp || axes & MESH_TP)) ranks[n++] = rank;
  }
  return n;
}

enum err mesh_check_hosts(const struct mesh *m, const struct run_config *c, const int *host_of_rank)
{
  if (c->tp_across_nodes) return ERR_OK;
  for (int rank = 0; rank < m->pp * m->dp * m->tp; rank++) {
    const int tp_rank = rank / m->stride[TP] % m->tp, first = rank - tp_rank * m->stride[TP];
    if (host_of_rank[rank] != host_of_rank[first])
      FAIL(ERR_CONFIG, "tp: %d puts ranks %d and %d, of one tensor group, on different hosts; valid: a tp that divides the ranks of "
           "each host, mesh_order: tp-dp-pp with host after host filled, or tp_across_nodes: true", m->tp, first, rank);
  }
  return ERR_OK;
}
