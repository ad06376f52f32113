/* verdict.h - how a check speaks: outcome and sentence, and the numbers of the worst place. */
#ifndef CHECKS_VERDICT_H
#define CHECKS_VERDICT_H

#include "judge.h"

/* Starts a verdict: INVALID with no evidence, so that a check that forgets to speak never passes. */
void verdict_start(struct verdict *v, const char *check, const char *observable);
void verdict_say(struct verdict *v, enum outcome o, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The check ends with the first thing that is wrong: worst and first at once. */
void verdict_first(struct verdict *v, int64_t step, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* SKIPPED, since the run left out what the check needs: "not judged: <lacks>, so <hidden> could not be seen". */
void verdict_unseen(struct verdict *v, const char *lacks, const char *hidden);

/* Adds one comparison to v->details. */
void verdict_detail(struct verdict *v, const char *what, int64_t step, double value, double bound);

/* The largest value / bound seen so far; a value that is not finite is beyond every bound. */
struct worst {
  char place[128], first[128]; /* first: beyond its bound at the earliest step, "" if none is */
  int64_t step, first_step;    /* step: of what is seen next, the caller's to set             */
  double value, bound, excess; /* excess = value / bound; INFINITY for any value above a bound of 0 */
  int64_t seen, over;          /* comparisons, and those beyond their bound */
};
void worst_start(struct worst *w);
/* Returns true if the value is within the bound. */
bool worst_see(struct worst *w, double value, double bound, const char *format, ...) __attribute__((format(printf, 4, 5)));
void worst_to(const struct worst *w, struct verdict *v); /* copies place, value, bound, first */

#endif
