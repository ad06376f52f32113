/* timed.h - suites whose cases are judged by their checks from runs that have the machine to themselves: kinds pipeline,
 * overlap, imbalance and blame.
 *
 * Each case is one job of its own run and its companions, in the order in which its checks ask for them, after its
 * conformance case (if the suite has evidence) passed: with compute: sleep on any number of cores; with real compute on cores of its own, or not
 * at all.
 */
#ifndef HARNESS_TIMED_H
#define HARNESS_TIMED_H

#include "harness/session.h"

/* Adds every case as a trial of part PART_TIMED, and its evidence where the suite has some. */
enum err timed_plan(struct plan *p, const struct asked *a, const struct suite *s);
/* Runs those whose evidence passed, one after the other; the others are settled without. */
enum err timed_run(struct session *s, const struct suite *suite);
/* A timed trial, judged: what failed for its timing while others used the machine decides nothing. */
void timed_settle(const struct plan *p, struct trial *t);

#endif
