/* faults.h - the suite's own test: every planted fault is caught, and nothing else is.
 *
 * For each fault of the registry its smallest case is run with the fault and without.  A
 * fault counts as caught when an observable of its row went red and its twin passed; the
 * twins, and the suite's own cases, are the clean set.
 */
#ifndef HARNESS_FAULTS_H
#define HARNESS_FAULTS_H

#include "harness/plan.h"
#include "harness/results.h"

/* Suites that the registry's rows name, read once. */
struct faults_suites {
  struct suite *list[8];
  int n;
};
void faults_suites_free(struct faults_suites *f);

/* Adds planted trials and their twins, then the clean set.  own: the suite of kind faults. */
enum err faults_plan(struct plan *p, const struct asked *a, const struct suite *own, struct faults_suites *f);
/* A planted trial, judged: red becomes caught. */
void faults_settle(struct trial *t);
/* After all trials: a twin that did not pass takes the catch back; writes the records of each fault and the score.
 * line: "caught n of n, 0 false alarms in m clean runs". */
enum err faults_score(struct plan *p, const struct results *r, char *line, size_t bytes);
/* `--fault` on another suite: what the run says about the planted fault, one sentence. */
void faults_sentence(const struct plan *p, const char *fault, char *out, size_t bytes);

#endif
