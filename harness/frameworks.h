/* frameworks.h - suites of kind `frameworks`: other people's trainers, held to the bounds of ours.
 *
 * One case is exported for all rows that train the same (export.h); each row is then one job, alone on the machine:
 * `mpirun -np dp*tp*pp PYTHON ADAPTER.py RUNFILE`, watched like a trainer of ours.  RUNFILE has one `key: value` a line, lines with # say nothing:
 * case, out, precision, dp, tp, pp, zero, schedule, chunks, micro_batch, steps, plant ("" or what it has to do wrong).
 * It writes records and tensors into `out` (results/schema.md) and ends with status 0 after a `done` record of every rank,
 * or with 77 and a line "not run: WHY" where it cannot run here: SKIPPED, never passed.  What it wrote is judged by
 * foreign_check().  A row with a `cause` has to go red.
 */
#ifndef HARNESS_FRAMEWORKS_H
#define HARNESS_FRAMEWORKS_H

#include "harness/session.h"

/* Adds every row as a trial of part PART_FOREIGN; one whose environment is not there, or that this launcher cannot start, is SKIPPED.
 * Fails: ERR_CONFIG. */
enum err frameworks_plan(struct plan *p, const struct asked *a, const struct suite *s, const struct launch_world *w);
/* Exports what is missing, then runs the rows one after the other.  Where no environment of the suite is there, s->trouble says so. */
enum err frameworks_run(struct session *s, const struct suite *suite);
/* Trial `index`, whose run ended: outcome and record. */
enum err frameworks_ended(struct session *s, int index);
/* After all rows: a row that has to go red proves nothing if the same row without its fault did not pass.
 * line: "caught n of n, named n of n; n of n clean rows held".  Empty if the suite has none of either. */
void frameworks_score(struct plan *p, const struct suite *s, char *line, size_t bytes);
/* True if the row would be told something else now than when it last ran. */
bool frameworks_changed(const struct session *s, const struct trial *t);

#endif
