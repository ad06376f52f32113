/* fit.h - the micro-batch at which a case's transfers and compute are of comparable length on this machine.
 *
 * A link has its rate and a processor has its own, so no size written in a suite file is right everywhere.  Compute grows
 * with the micro-batch, transfers over replicas do not.
 */
#ifndef HARNESS_FIT_H
#define HARNESS_FIT_H

#include "harness/session.h"

/* For a trial with the check `bare`: short runs, silent and alone in turn, on a quiet machine if it becomes so, until transfers take about HIDDEN_WANTED % of
 * compute.  The micro-batch found goes to this trial and to all of its suite that wait, have its hosts and began with its
 * micro-batch, so that their figures can be compared.  Other trials: nothing.  Where the probes do not end, or no
 * micro-batch is found, the sizes stay: the check says what came of it. */
enum err fit_trial(struct session *s, int trial);

/* The next micro-batch to try: the one at which the ratio would be HIDDEN_WANTED % if compute grew as it does; `now` when
 * that is good enough.  At least 1, at most `most`. */
int64_t fit_next(int64_t now, double percent, int64_t most);
/* Whether pairs of one probe agree, so that what they tell holds for the runs that follow. */
bool fit_steady(const double *percent, int n);

#endif
