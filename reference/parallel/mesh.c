/* mesh.c - where a rank stands. */
#include "parallel/mesh.h"

#include <inttypes.h>

enum err mesh_create(const struct run_config *c, int rank, int size, struct mesh *out)
{
  if (c->pp < 1 || c->dp < 1 || c->tp < 1 || c->pp * c->dp * c->tp != size)
    FAIL(ERR_CONFIG, "pp: %" PRId64 " x dp: %" PRId64 " x tp: %" PRId64 " is %" PRId64 " ranks; the job has %d", c->pp, c->dp, c->tp,
         c->pp * c->dp * c->tp, size);
  if (rank < 0 || rank >= size) FAIL(ERR_ARG, "rank %d of %d", rank, size);
  const int tp = (int)c->tp, dp = (int)c->dp;
  *out = (struct mesh){
    .pp = (int)c->pp, .dp = dp, .tp = tp, .pp_rank = rank / (dp * tp), .dp_rank = rank / tp % dp, .tp_rank = rank % tp};
  return ERR_OK;
}

int mesh_rank(const struct mesh *m, int pp_rank, int dp_rank, int tp_rank)
{
  BUG_IF(pp_rank < 0 || pp_rank >= m->pp || dp_rank < 0 || dp_rank >= m->dp || tp_rank < 0 || tp_rank >= m->tp);
  return (pp_rank * m->dp + dp_rank) * m->tp + tp_rank;
}

int mesh_dp_group(const struct mesh *m, int *ranks)
{
  for (int i = 0; i < m->dp; i++) ranks[i] = mesh_rank(m, m->pp_rank, i, m->tp_rank);
  return m->dp;
}
