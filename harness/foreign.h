/* foreign.h - a run of another trainer, judged by the checks that judge ours, against a case that `shardmark export` wrote.
 *
 * What the run shows sets its level: 1 records of steps, 2 weights and moments, 3 gradients.  Each check gives a verdict, or is SKIPPED
 * with what could not be seen for what is missing; a run that passes does so at its level.
 */
#ifndef HARNESS_FOREIGN_H
#define HARNESS_FOREIGN_H

#include "suites/checks/judge.h"

enum { FOREIGN_VERDICTS = 32 };

struct foreign {
  char framework[128], versions[512], model[CONFIG_NAME]; /* as the run's record `run` and the case tell */
  struct run_config config;                               /* the case's, with the run's precision and layout */
  int level;                                              /* 0: nothing that can be judged */
  struct verdict verdicts[FOREIGN_VERDICTS];              /* in the order of observables; a check that was judged in part has a SKIPPED one more */
  int n_verdicts;
  enum outcome outcome;
  char sentence[640];         /* "PASS at level 2: ..." */
  struct diagnosis diagnosis; /* fault: a name of fault_rows or of judge_causes (judge.h) */
  char worst[176];            /* check and place of the largest value / bound, "" if no check has one */
  double value_over_bound;    /* there; NaN */
  char first[256];            /* earliest step, observable and place beyond its bound; "" none */
  char unseen[1024];          /* what could not be seen, joined; "" all was judged */
};

/* Reads the case `against` and the records and tensors in `dir`, and judges.  Owner of *out: the caller, until foreign_release; on
 * failure it holds nothing.  Fails: ERR_CONFIG (no case, another version's; no records, no record `run`; settings that the case has no
 * bounds for or that contradict it: the text names what is valid), ERR_FORMAT (a line that is no record), ERR_IO, ERR_MEMORY. */
enum err foreign_check(const char *dir, const char *against, struct foreign *out);
void foreign_release(struct foreign *f);

#endif
