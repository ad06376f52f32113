/* layout.c - rank <-> place, by the digits of the mesh order. */
#include "layout.h"

/* Axes of each mesh_order, the fastest first: 0 pp, 1 dp, 2 tp. */
static const int orders[][3] = {
  [MESH_ORDER_TP_DP_PP] = {2, 1, 0}, [MESH_ORDER_TP_PP_DP] = {2, 0, 1}, [MESH_ORDER_DP_TP_PP] = {1, 2, 0},
  [MESH_ORDER_DP_PP_TP] = {1, 0, 2}, [MESH_ORDER_PP_TP_DP] = {0, 2, 1}, [MESH_ORDER_PP_DP_TP] = {0, 1, 2},
};

struct layout layout_of(const struct run_config *c, int rank)
{
  const int64_t sizes[3] = {c->pp, c->dp, c->tp};
  int at[3] = {0};
  for (int i = 0; i < 3; i++) {
    const int axis = orders[c->mesh_order][i];
    at[axis] = (int)(rank % sizes[axis]);
    rank = (int)(rank / sizes[axis]);
  }
  return (struct layout){.pp = at[0], .dp = at[1], .tp = at[2]};
}

int layout_rank(const struct run_config *c, struct layout at)
{
  const int64_t sizes[3] = {c->pp, c->dp, c->tp};
  const int place[3] = {at.pp, at.dp, at.tp};
  int64_t rank = 0;
  for (int i = 2; i >= 0; i--) rank = rank * sizes[orders[c->mesh_order][i]] + place[orders[c->mesh_order][i]];
  return (int)rank;
}

bool layout_has_layer(const struct run_config *c, const struct partition *stages, const struct layout *at,
                      int64_t layer)
{
  for (int64_t k = at->pp; k < stages->stages; k += c->pp)
    if (layer >= stages->first[k] && layer < stages->first[k + 1]) return true;
  return false;
}

int64_t layout_each(const struct run_config *c)
{
  const int64_t unit = c->dp * c->micro_batch;
  return unit > 0 ? c->global_batch / unit : 0;
}
