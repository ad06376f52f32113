/* fitting.h - what would fit on a card that is too small for a run. */
#ifndef CHECKS_FITTING_H
#define CHECKS_FITTING_H

#include "judge.h"

/* Bytes that up to `ranks` ranks share: 1 those of a card, the ranks of a host those of the host. */
struct fitting_room {
  double bytes;
  int64_t ranks;
};
/* What ranks of c in one such place need by predict(), each as much as the worst. */
double fitting_needed(const struct run_config *c, int64_t ranks);

/* The layout nearest to c that fits: with zero 3 first the largest prefetch, then a smaller micro-batch, then more that replicas
 * share, then twice, four times, ... the ranks, shared out as tensor and pipeline ranks.  False: none up to 64 times. */
bool fitting_layout(const struct run_config *c, struct fitting_room there, struct run_config *out);
/* Of a run that there was no room for, what of that layout differs: "on such a card would fit: prefetch: 3, not 9", of a host "here
 * would fit: micro_batch: 2, not 4; tp: 2, not 1; on 2 ranks"; where c itself would, that something else takes the room; "" if
 * nothing fits. */
void fitting_text(const struct run_config *c, struct fitting_room there, char *out, size_t room);

#endif
