/* proof.h - the conformance case without which a measurement is not shown. */
#ifndef HARNESS_PROOF_H
#define HARNESS_PROOF_H

#include "harness/plan.h"

/* The suite's `evidence` laid over c (settings that are to be measured, not finished): the same layout, precision,
 * reduction and switches, mostly on a smaller model.  Blocks stay enough for the layout's stages; the global batch is
 * raised to what divides.  Measurements that differ only in what evidence overrides share one trial.  *out: index of
 * the trial, of part PART_EVIDENCE.  Fails: ERR_CONFIG naming the case's place. */
enum err proof_add(struct plan *p, const struct suite *s, const struct suite_case *of, const struct run_config *c,
                   const char *name, int *out);
/* True if it was judged and passed.  Otherwise why: "its conformance case NAME is FAIL". */
bool proof_holds(const struct trial *proof, char *why, size_t bytes);
/* Why the times of such a run in this build are nobody's, those of passes that sleep, too; NULL: they are a device's. */
const char *proof_no_time(const struct run_config *c);
/* Why a run of this configuration shows no speed wherever it runs; NULL: it does. */
const char *proof_no_speed(const struct run_config *c);

#endif
