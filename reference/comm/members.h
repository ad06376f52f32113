/* members.h - what must be equal, and what apart, on the ranks of a NCCL communicator. */
#ifndef COMM_MEMBERS_H
#define COMM_MEMBERS_H

#include "base/err.h"

struct member {
  int version;      /* NCCL's number; 0: none */
  char library[16]; /* the same as text       */
  char why[256];    /* there is none          */
  char uuid[96];    /* of the rank's device   */
};

/* Of a group whose ranks in the world are `ranks` (NULL: 0, 1, ...).  Fails: ERR_UNAVAILABLE when one has
 * no NCCL; ERR_INVALID for two on one device or of unequal versions.  Pure. */
enum err members_judge(const struct member *members, int n, const int *ranks);

#endif
