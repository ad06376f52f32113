/* point.h - one point of a scaling curve: speed, efficiency, or why there is none. */
#ifndef HARNESS_POINT_H
#define HARNESS_POINT_H

#include "harness/timing.h"

struct point {
  int trial, ranks, base_ranks;
  struct timing_setting *own, *base, *copies, *alone; /* NULL: not timed */
  const char *only;  /* why it is correctness only; NULL: for want of cores, or not that  */
  double want_loss; /* first loss of one rank on the same global batch; NaN: not had */
};
/* Writes the point's record and settles its trial. */
enum err point_settle(struct timing *b, const struct point *q);

#endif
