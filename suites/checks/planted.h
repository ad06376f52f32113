/* planted.h - what the options that plant slowness make of a step: of the configuration alone. */
#ifndef CHECKS_PLANTED_H
#define CHECKS_PLANTED_H

#include "graph.h"

struct planted {
  bool any;
  int rank;               /* of several whose reads are late the first */
  enum graph_phase phase; /* slow_phase compute: backward, of which it is most; forward is right as well */
  double cost_ms;         /* of a step; NaN: not known beforehand                                        */
  int period;
};
/* Fails: ERR_CONFIG, ERR_MEMORY. */
enum err planted_of(const struct run_config *c, struct planted *out);
/* compute: sleep.  What the passes of this rank were asked to sleep in a step, planted slowness with them.  Fails: ERR_CONFIG. */
enum err planted_sleep(const struct run_config *c, int rank, double *ms);
bool planted_is(const struct run_config *c, const struct planted *p, int rank, enum graph_phase phase);

#endif
