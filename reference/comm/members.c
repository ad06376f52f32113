/* members.c - refusals that every rank of the group comes to alike. */
#include "comm/members.h"

#include <string.h>

static int number(const int *ranks, int i) { return ranks ? ranks[i] : i; }

enum err members_judge(const struct member *members, int n, const int *ranks)
{
  for (int i = 0; i < n; i++)
    if (members[i].version == 0) FAIL(ERR_UNAVAILABLE, "rank %d: %s", number(ranks, i), members[i].why);
  for (int i = 1; i < n; i++)
    if (members[i].version != members[0].version)
      FAIL(ERR_INVALID, "NCCL is %s on rank %d and %s on rank %d: all ranks need one version", members[0].library, number(ranks, 0),
           members[i].library, number(ranks, i));
  for (int i = 1; i < n; i++)
    for (int before = 0; before < i; before++)
      if (strcmp(members[i].uuid, members[before].uuid) == 0)
        FAIL(ERR_INVALID, "ranks %d and %d share the device %s, and NCCL needs one a rank: start fewer ranks on this host, or set "
             "transport: staged (correctness only)", number(ranks, before), number(ranks, i), members[i].uuid);
  return ERR_OK;
}
