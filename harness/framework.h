/* framework.h - one row of a suite of kind `frameworks`: from an ended foreign run to its outcome and its record. */
#ifndef HARNESS_FRAMEWORK_H
#define HARNESS_FRAMEWORK_H

#include "harness/foreign.h"
#include "harness/plan.h"
#include "harness/results.h"

/* Judges trial `index` against the exported case in folder `against`: how its processes ended first, then what they wrote.
 * With a `cause` red becomes PASS (caught), whatever it was taken for; anything else FAIL.  Writes its record.
 * Fails: ERR_IO, ERR_MEMORY; what the foreign run wrote is never a reason. */
enum err framework_judge(struct plan *p, int index, const char *against, const struct results *r);
/* The record of a trial that is settled.  found: what the check said, NULL where nothing was checked; against: for the
 * curves of the loss. */
enum err framework_record(const struct plan *p, const struct trial *t, const struct foreign *found, const char *against, const struct results *r);

#endif
