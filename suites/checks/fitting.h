/* fitting.h - what would fit on a card that is too small for a run. */
#ifndef CHECKS_FITTING_H
#define CHECKS_FITTING_H

#include "judge.h"

/* The layout nearest to c whose worst rank needs at most `bytes` by predict(): first a smaller micro-batch,
 * then twice, four times, ... the ranks, shared out as tensor and pipeline ranks.  False: none up to 64 times. */
bool fitting_layout(const struct run_config *c, double bytes, struct run_config *out);
/* Of a run that the card had no room for: "on such a card would fit: micro_batch: 2, tp: 2, pp: 1 on 2 ranks"; where c itself
 * would, that something else takes the room; "" if nothing fits. */
void fitting_text(const struct run_config *c, double bytes, char *out, size_t room);

#endif
