/* scaling.h - strong and weak curves: interleaved repeats, copies beside them, and no speed
 * without its conformance case.
 *
 * Every repeat runs each point once, in turn, so that a drift of the machine meets all of
 * them.  Points with more ranks than cores are correctness only.  N0 is the smallest count
 * or --base.
 */
#ifndef HARNESS_SCALING_H
#define HARNESS_SCALING_H

#include "harness/session.h"

/* Adds, for every curve of the suite and every N, the point (a trial) and its evidence (a trial of its own checks). */
enum err scaling_plan(struct plan *p, const struct asked *a, const struct suite *s, const struct launch_world *w);
/* Times the points whose evidence passed; settles all points of the suite. */
enum err scaling_run(struct session *s, const struct suite *suite);
#endif
