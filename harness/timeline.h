/* timeline.h - cases/<run>/trace.json: what every rank did when, for chrome://tracing and ui.perfetto.dev.
 *
 * The JSON object form of the Trace Event Format (Google, "Trace Event Format", 2016): a process a rank, a thread a stream,
 * complete events "X" (the end of a step, and what else takes no time: instants "i") in microseconds of rank 0's clock since the first of
 * them, drift taken out.  Flows "s" and "f" lead from a
 * send to its receive, and of a collective from the last rank that came to it to the others: each from its slice's beginning to
 * that of the other's "transfer", the part of a slice that is no waiting.
 */
#ifndef HARNESS_TIMELINE_H
#define HARNESS_TIMELINE_H

#include "suites/checks/judge.h"

/* From the `span`, `trace`, `clock` and `rank` records; appears whole or not at all.  A run without spans leaves no file; a step of which
 * a rank told nothing has no flows, and otherData says why.  Fails: ERR_IO, ERR_MEMORY. */
enum err timeline_write(const struct run_data *run);

#endif
