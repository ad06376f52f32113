/* blame.h - suites of kind blame: who was waited for and where each rank's time went, as records. */
#ifndef HARNESS_BLAME_H
#define HARNESS_BLAME_H

#include "harness/plan.h"
#include "harness/results.h"

/* For a judged trial of such a suite.  Nothing where its steps cannot be followed: its check says why. */
enum err blame_record(const struct plan *p, const struct trial *t, const struct results *r);

#endif
