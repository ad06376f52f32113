/* update.h - what a diagnosis asks of a run's updates. */
#ifndef CHECKS_UPDATE_H
#define CHECKS_UPDATE_H

#include "judge.h"

/* Each update of the run is, within the bound of the check, the rule's with moments of zero before it.  False where that
 * cannot be told: no dumps, or a single step, whose moments were zero. */
bool update_forgets(const struct run_data *run);

#endif
