/* pipeline.h - suites of kind pipeline: what a pipeline's stages do in time.
 *
 * Each case is one run with the machine to itself, after its conformance case passed: with compute: sleep on any number
 * of cores; with real compute on cores of its own, or not at all.  The check `bubble` judges it; the report draws it.
 */
#ifndef HARNESS_PIPELINE_H
#define HARNESS_PIPELINE_H

#include "harness/session.h"

/* Adds every case as a trial of part PART_TIMED, and its evidence. */
enum err pipeline_plan(struct plan *p, const struct asked *a, const struct suite *s);
/* Runs those whose evidence passed, one after the other; the others are settled without. */
enum err pipeline_run(struct session *s, const struct suite *suite);
/* A timed trial, judged: what failed for its timing while others used the machine decides nothing. */
void pipeline_settle(struct trial *t);
/* For a judged trial of such a suite: what the report draws.  Nothing without `action` records. */
enum err pipeline_record(const struct plan *p, const struct trial *t, const struct results *r);

#endif
